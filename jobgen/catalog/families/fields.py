"""Reads a model's configuration field by field: values are checked, absences collected, defaults transformers' own."""

from __future__ import annotations

from collections.abc import Mapping

from jobgen.catalog.errors import BadConfig, MissingFields

LIMITS = {
    "num_hidden_layers": 10_000,
    "n_layer": 10_000,
    "num_layers": 10_000,
    "vocab_size": 100_000_000,
    "max_position_embeddings": 10**9,
    "model_max_length": 10**9,
}
"""Upper bounds of what is believable; everything else ends at ``LIMIT``."""
LIMIT = 10_000_000
REQUIRED = frozenset(
    ("hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head", "intermediate_size",
     "vocab_size", "ffn_dim", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
     "moe_intermediate_size", "num_experts_per_tok", "moe_topk", "moe_k")
)  # fmt: skip
"""Fields whose absence from a file of their own is an error: transformers would take the default of another model."""


class Fields:
    """One configuration object (the file, or its ``text_config``) and the defaults of its class."""

    def __init__(
        self, config: Mapping[str, object], model_type: str, defaults: Mapping[str, object], part: str = ""
    ) -> None:
        self.config = config
        self.model_type = model_type
        self.defaults = defaults
        self.part = part
        """Name of the section (``text_config``). transformers writes there only what differs from the defaults."""
        self.missing: list[str] = []
        self.outer: Fields | None = None
        """The configuration that holds this section."""

    @property
    def outer_fields(self) -> Fields:
        """The configuration that holds this section, or itself."""
        return self.outer or self

    def label(self, name: str) -> str:
        """The field's name as the user sees it."""
        return f"{self.part}.{name}" if self.part else name

    def has(self, name: str) -> bool:
        """The file gives the field a value other than null."""
        return self.config.get(name) is not None

    def raw(self, *names: str) -> tuple[str, object]:
        """The first of the names that has a value, in the file and then in the defaults."""
        for name in names:
            if self.has(name):
                return name, self.config[name]
        for name in names:
            if name in self.defaults and (self.part or name not in REQUIRED):
                return name, self.defaults[name]
        return names[0], None

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; absent without a default, it is noted as missing (see ``finish``) and 1 stands in."""
        name, value = self.raw(*names)
        if value is None:
            if default is None:
                self.missing.append(self.label(" or ".join(names)))
                return 1
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadConfig(f"{self.label(name)} must be a whole number, not {value!r}", self.label(name))
        limit = LIMITS.get(name, LIMIT)
        if not least <= value <= limit:
            raise BadConfig(f"{self.label(name)} must be {least} to {limit}, not {value}", self.label(name))
        return value

    def size_or_none(self, *names: str) -> int | None:
        """A whole number, or None where the field is absent or null."""
        if names[0] in self.config and self.config[names[0]] is None:
            return None
        name, value = self.raw(*names)
        return None if value is None else self.size(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        _, value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadConfig(f"{self.label(name)} must be true or false, not {value!r}", self.label(name))
        return value

    def number(self, name: str, default: float = 0.0) -> float:
        """A number of at least 0."""
        _, value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LIMIT:
            raise BadConfig(f"{self.label(name)} must be a number of at least 0, not {value!r}", self.label(name))
        return float(value)

    def word(self, *names: str, default: str = "") -> str:
        """A string."""
        name, value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise BadConfig(f"{self.label(name)} must be a string, not {value!r}", self.label(name))
        return value

    def words(self, name: str, length: int) -> list[str] | None:
        """A list with one string for each layer, or None where it is absent."""
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadConfig(f"{self.label(name)} must be a list of strings", self.label(name))
        if len(value) < length:
            raise BadConfig(f"{self.label(name)} has {len(value)} entries for {length} layers", self.label(name))
        return value[:length]

    def numbers(self, name: str) -> list[int] | None:
        """A list of whole numbers, or None where it is absent."""
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise BadConfig(f"{self.label(name)} must be a list of whole numbers", self.label(name))
        return value

    def section(self, name: str) -> Mapping[str, object]:
        """A nested object; absent, an empty one."""
        value = self.config.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadConfig(f"{self.label(name)} must be an object, not {value!r}", self.label(name))
        return value

    def bad(self, name: str, message: str) -> BadConfig:
        """The error for a field whose value does not go with the others."""
        return BadConfig(f"{self.label(name)} {message}", self.label(name))

    def finish(self) -> None:
        """Raise MissingFields if a required field was absent."""
        if self.missing:
            raise MissingFields(self.model_type, dict.fromkeys(self.missing))
