"""Short constructors for the rows of a framework's table."""

from __future__ import annotations

from typing import Any, Literal

from jobgen.frameworks.codecs import same
from jobgen.frameworks.table import Codec, Option, Version


def version(text: str) -> Version:
    """``5.0`` as ``(5,)``: trailing zeros do not change a release, and tuples then compare as releases do."""
    parts = [int(part) for part in text.split(".")] if text else []
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def row(field: str, key: str, codec: Codec = same, since: str = "", until: str = "", **more: Any) -> Option:
    """One row; ``since`` and ``until`` as people write versions."""
    return Option(field, key, codec, version(since), version(until) if until else None, **more)


File = Literal["yaml", "json", "toml", "cli", "env", "deepspeed", "accelerate", "python"]


def rows(file: File, source: str, *given: Option) -> tuple[Option, ...]:
    """Rows of one kind of file, read from one source (unless a row names its own)."""
    return tuple(
        option._replace(file=file if option.file == "yaml" else option.file, source=option.source or source)
        for option in given
    )
