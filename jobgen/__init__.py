"""jobgen: check, estimate, render and submit distributed training jobs from one typed YAML file."""

__version__ = "0.1.0"
