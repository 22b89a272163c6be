"""What can be wrong with a name or a configuration."""

from __future__ import annotations

from collections.abc import Iterable


class Unknown(LookupError):
    """A name that the catalogue does not hold; ``nearest`` are names it could have meant."""

    kind = "name"

    def __init__(self, name: str, nearest: tuple[str, ...] = (), candidates: tuple[str, ...] = ()) -> None:
        self.name = name
        self.nearest = nearest
        self.candidates = candidates
        super().__init__(self._message())

    def _message(self) -> str:
        if self.candidates:
            return f"{self.kind} {self.name!r} is ambiguous: {', '.join(self.candidates)}"
        if self.nearest:
            return f"unknown {self.kind} {self.name!r}; nearest: {', '.join(self.nearest)}"
        return f"unknown {self.kind} {self.name!r}"

    def __str__(self) -> str:
        return self._message()


class UnknownModel(Unknown):
    """No model of the catalogue has that id, or several do (``candidates``)."""

    kind = "model"


class UnknownGpu(Unknown):
    """No GPU of the catalogue has that name, or several do (``candidates``)."""

    kind = "GPU"


class UnknownNode(Unknown):
    """No node type of the catalogue has that name."""

    kind = "node type"


class UnknownLink(Unknown):
    """No link of the catalogue has that name."""

    kind = "link"


class BadConfig(ValueError):
    """A model configuration that cannot be read; ``field`` is the field to blame, "" for the whole file."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class MissingFields(BadConfig):
    """A known model type whose configuration lacks ``fields``."""

    def __init__(self, model_type: str, fields: Iterable[str]) -> None:
        self.model_type = model_type
        self.fields = tuple(fields)
        first = self.fields[0] if self.fields else ""
        super().__init__(f"the configuration of model type {model_type!r} lacks {', '.join(self.fields)}", first)


class UnknownArchitecture(ValueError):
    """A model type that no family describes."""

    def __init__(self, model_type: str, message: str) -> None:
        self.model_type = model_type
        super().__init__(message)


def nearest(name: str, names: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The names most like ``name``, best first."""
    from difflib import get_close_matches  # slow to import, needed on an error only

    lower = {item.lower(): item for item in names}
    return tuple(lower[item] for item in get_close_matches(name.lower(), lower, count, 0.5))
