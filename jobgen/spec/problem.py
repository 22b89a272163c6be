"""What can be wrong with a spec, and where its values come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jobgen.spec.record import NamedTuple

Path = tuple[str | int, ...]
"""A place in a plain tree: keys and list indexes."""


class Origin(NamedTuple):
    """Who gave a value. Layers: spec, profile, command line, env file, framework default, default."""

    layer: str
    file: str
    line: int
    column: int


class Problem(NamedTuple):
    """Something that keeps a spec from being read. JG001: not YAML as jobgen reads it; JG002: an unknown key or a
    wrong value; JG003: fields that contradict each other."""

    file: str
    line: int
    column: int
    path: str
    message: str
    fix: str
    code: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: error {self.code}: {where}{self.message}; {self.fix}"


class SpecError(Exception):
    """A spec that cannot be read. ``sources`` holds the texts of the files that the problems point into."""

    def __init__(self, problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> None:
        self.problems = tuple(problems)
        self.sources = dict(sources or {})
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """``volumes.0.mount``."""
    return ".".join(map(str, path))


def repr_plain(value: Any) -> str:
    """A value as YAML writes it."""
    if value is None:
        return "null"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
