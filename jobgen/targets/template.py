"""The shell templates: where they lie, how they are filled, and which field made each line."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache, reduce
from pathlib import Path
from typing import Any

from jobgen.targets.artifact import Artifact
from jobgen.targets.words import Shell

_MARK = "\0"
"""Around a field's path, in front of what it made. No value can hold it: ``words.quote`` refuses NUL."""
_SECTION = "\1"
"""After the first mark where the path stands for all following lines that have no field of their own."""


def folder() -> Path:
    """The templates: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def fill(name: str, **values: Any) -> Shell:
    """One template, filled; still marked, so that it can be printed by another template."""
    return Shell("".join(_templates()[name](values, _print, _section)))


def finish(text: Shell) -> Artifact:
    """The artifact: marks taken out and turned into (line, field)."""
    result, explain, section = list[str](), list[tuple[int, str]](), ""
    for line in text.text.split("\n"):
        pieces = line.split(_MARK)
        found = list[str]()
        for path in pieces[1::2]:
            if path.startswith(_SECTION):
                section = path[1:]
            elif path and path not in found:
                found.append(path)
        plain = "".join(pieces[::2])
        if not plain and len(pieces) > 1 and all(path.startswith(_SECTION) for path in pieces[1::2]):
            continue
        result.append(plain)
        if plain.strip():
            explain += ((len(result), path) for path in (found or ([section] if section else [])))
    return Artifact("\n".join(result), tuple(explain))


def unmarked(line: str) -> str:
    """A line as it is going to be in the artifact."""
    return "".join(line.split(_MARK)[::2])


def _print(value: object) -> str:
    """What every printed value passes: quoted text and whole numbers pass, all else is a mistake in a template."""
    if type(value) is Shell:
        mark = f"{_MARK}{value.origin}{_MARK}" if value.origin else ""
        return "\n".join(mark + line for line in value.text.split("\n"))
    if type(value) is int:
        return str(value)
    raise TypeError(f"a template may print quoted words and whole numbers only, not {value!r}")


def _section(origin: str = "") -> Shell:
    """From here on, lines are made by this field; nothing: by jobgen itself."""
    return Shell(f"{_MARK}{_SECTION}{origin}{_MARK}")


def checksum(names: Iterable[str]) -> int:
    """Of the templates' texts."""
    root = folder()
    return reduce(lambda value, name: zlib.crc32((root / name).read_bytes(), value), names, 0)


@cache
def _templates() -> dict[str, Any]:
    """The compiled templates; compiled afresh, slowly, where one was changed since (a test says so too)."""
    from jobgen.targets import compiled

    if checksum(compiled.TEMPLATES) == compiled.CHECKSUM:
        return compiled.TEMPLATES
    from jobgen.targets.compile import text

    made: dict[str, Any] = {}
    exec(text(), made)
    templates: dict[str, Any] = made["TEMPLATES"]
    return templates
