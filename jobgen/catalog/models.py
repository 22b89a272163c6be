"""The shipped models: configurations by Hugging Face id, and the door to an architecture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import cast

from jobgen.catalog.arch import Arch
from jobgen.catalog.errors import (
    BadConfig,
    MissingFields,
    Unknown,
    UnknownArchitecture,
    UnknownModel,
    nearest,
)
from jobgen.spec.source import read_regular

__all__ = [
    "BadConfig",
    "MissingFields",
    "Unknown",
    "UnknownArchitecture",
    "UnknownModel",
    "arch",
    "find",
    "load",
    "names",
    "read_config",
    "record",
]
DATA = Path(__file__).parent / "data" / "models.jsonl"
MARK = '{"name":"'


def _lines() -> Iterator[tuple[str, str]]:
    """(id, line) of every model; no line is parsed."""
    with DATA.open(encoding="utf-8") as lines:
        for line in lines:
            yield line[len(MARK) : line.index('"', len(MARK))], line


def names() -> tuple[str, ...]:
    """Every id, in the order of the file."""
    return tuple(name for name, _ in _lines())


@cache
def record(name: str) -> Mapping[str, object]:
    """The entry of a model: ``name``, ``source`` and ``config``; its id in any case, organisation optional if unique."""
    wanted = name.strip().lower()
    short: dict[str, str] = {}
    for full, line in _lines():
        lower = full.lower()
        if lower == wanted:
            return cast(Mapping[str, object], json.loads(line))
        if "/" not in wanted and lower.partition("/")[2] == wanted:
            short[full] = line
    if len(short) == 1:
        return cast(Mapping[str, object], json.loads(next(iter(short.values()))))
    if short:
        raise UnknownModel(name, candidates=tuple(short))
    raise UnknownModel(name, _nearest(wanted))


def _nearest(wanted: str) -> tuple[str, ...]:
    every = names()
    if "/" in wanted:
        found = nearest(wanted, every)
        if found:
            return found
    tails = {full.partition("/")[2].lower(): full for full in every}
    return tuple(dict.fromkeys(tails[tail] for tail in nearest(wanted.rpartition("/")[2], tails)))


def find(name: str) -> dict[str, object]:
    """The configuration of a model (config.json's fields); UnknownModel has ``nearest`` or ``candidates``."""
    return dict(cast(Mapping[str, object], record(name)["config"]))


def read_config(path: str | Path) -> dict[str, object]:
    """A Hugging Face config.json, or the one in a folder; BadConfig says what is wrong with it."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
        if not file.exists():
            raise BadConfig(f"{file.parent} holds no config.json")
    try:
        text = read_regular(file, "utf-8-sig")
    except FileNotFoundError:
        raise BadConfig(f"{file} does not exist") from None
    except UnicodeDecodeError:
        raise BadConfig(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise BadConfig(f"{file} cannot be read: {error.strerror}") from None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfig(f"{file} is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise BadConfig(f"{file} is not a model configuration: nested too deeply") from None
    except ValueError:
        raise BadConfig(f"{file} is not a model configuration: a number of thousands of digits") from None
    if not isinstance(config, dict):
        raise BadConfig(f"{file} must hold a JSON object, not {type(config).__name__}")
    return config


def arch(config: Mapping[str, object], name: str) -> Arch:
    """The architecture that a configuration describes."""
    from jobgen.catalog import families

    return families.build(config, name)


@cache
def _shipped(name: str) -> Arch:
    entry = record(name)
    return arch(cast(Mapping[str, object], entry["config"]), cast(str, entry["name"]))


def load(name: str | None = None, config: str | Path | Mapping[str, object] | None = None) -> Arch:
    """The architecture of a model: from ``config`` (a path or the fields) if given, else of the catalogue's ``name``."""
    if config is not None:
        fields = config if isinstance(config, Mapping) else read_config(config)
        given = fields.get("_name_or_path")
        return arch(
            fields, name or (given if isinstance(given, str) and given else "") or str(fields.get("model_type"))
        )
    if name is None:
        raise BadConfig("a model needs a name or a configuration")
    return _shipped(name)
