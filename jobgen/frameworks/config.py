"""The user's own configuration file of a framework (``training.config``), with the position of every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobgen.spec.problem import Problem, SpecError
from jobgen.spec.read import read_text
from jobgen.spec.record import NamedTuple
from jobgen.spec.source import MAX_BYTES


class Config(NamedTuple):
    """What the file says. ``places``: dotted key to (line, column), where they are known."""

    file: str = ""
    values: Mapping[str, Any] = {}
    places: Mapping[str, tuple[int, int]] = {}

    def place(self, key: str) -> tuple[int, int]:
        """Where a key stands; the file's start when that is not known."""
        return self.places.get(key, (1, 1))


NONE = Config()


def read_config(text: str, file: str) -> Config:
    """A YAML, JSON or TOML file by its suffix (YAML for any other); raises SpecError."""
    if len(text) > MAX_BYTES:
        raise SpecError([Problem(file, 1, 1, "", f"the file is larger than {MAX_BYTES >> 20} MiB", "is this the framework's own configuration?", "JG001")])
    if file.endswith(".toml"):
        return _toml(text, file)
    try:
        reading = read_text(text, file)
    except SpecError:
        if not file.endswith(".json"):
            raise
        return _json(text, file)
    if not isinstance(reading.tree, dict):
        raise _not_a_map(file)
    places = {".".join(map(str, path)): (at.key_line, at.key_column) for path, at in reading.places.items()}
    return Config(file, reading.tree, places)


def _json(text: str, file: str) -> Config:
    """JSON that YAML reads otherwise (tabs as indentation)."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise SpecError(
            [Problem(file, line, column, "", f"this is not JSON: {error}", "correct the file", "JG001")]
        ) from None
    if not isinstance(values, dict):
        raise _not_a_map(file)
    return Config(file, values)


def _toml(text: str, file: str) -> Config:
    import tomllib

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError([Problem(file, 1, 1, "", f"this is not TOML: {error}", "correct the file", "JG001")]) from None
    return Config(file, values, _toml_places(text))


def _toml_places(text: str) -> dict[str, tuple[int, int]]:
    """Positions of ``key = value`` lines below their section, for the messages; unusual spellings are left out."""
    places: dict[str, tuple[int, int]] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and not bare.startswith("[[") and "]" in bare and "=" not in bare:
            section = bare[1 : bare.index("]")].strip() + "."
        elif "=" in bare and not bare.startswith("#"):
            key = bare.split("=", 1)[0].strip()
            places.setdefault(section + key, (number, len(line) - len(line.lstrip()) + 1))
    return places


def _not_a_map(file: str) -> SpecError:
    return SpecError(
        [Problem(file, 1, 1, "", "the configuration is not a map of keys", "write key: value lines", "JG002")]
    )
