"""The shell templates: where they lie, how they are filled, and which field made each line."""

from __future__ import annotations

import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined

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
    return Shell(_environment().get_template(name).render(values))


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


def _print(value: object) -> str:
    """jinja's finalize: quoted text and whole numbers pass, all else is a mistake in a template."""
    if type(value) is Shell:
        mark = f"{_MARK}{value.origin}{_MARK}" if value.origin else ""
        return "\n".join(mark + line for line in value.text.split("\n"))
    if type(value) is int:
        return str(value)
    raise TypeError(f"a template may print quoted words and whole numbers only, not {value!r}")


def _section(origin: str = "") -> Shell:
    """From here on, lines are made by this field; nothing: by jobgen itself."""
    return Shell(f"{_MARK}{_SECTION}{origin}{_MARK}")


_OPTIONS: dict[str, Any] = {
    "autoescape": False,
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
    "auto_reload": False,
    "comment_start_string": "{*",  # ``${#array[@]}`` is shell
    "comment_end_string": "*}",
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder()), finalize=_print, undefined=StrictUndefined, bytecode_cache=_compiled(), **_OPTIONS
    )
    environment.globals["section"] = _section
    return environment


def _compiled() -> FileSystemBytecodeCache | None:
    """Compiled templates are kept in the user's cache folder: compiling takes longer than all else in a render."""
    try:
        place = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "jobgen", "templates").expanduser()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.stat().st_uid != os.getuid() or not os.access(place, os.W_OK):
            return None
    except (OSError, RuntimeError):  # RuntimeError: no home folder is known
        return None
    # jinja's own key holds the source, its version and Python's, but not the options.
    return FileSystemBytecodeCache(str(place), f"{zlib.crc32(repr(_OPTIONS).encode()):08x}-%s.bin")
