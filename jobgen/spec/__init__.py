"""What a user may write: the models, their units, reading with positions, merging, validation and editing."""
