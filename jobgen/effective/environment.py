"""Installed versions from what package managers print: ``pip freeze``, ``uv.lock``, ``conda list``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_FREEZE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#]+)")
_DIRECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*@\s*\S*?-([0-9][^-/\s]*)-[^/\s]*\.whl")
_CONDA = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*)\s+([0-9][^\s]*)(?:\s+\S+)?(?:\s+\S+)?")


LARGEST = 16 << 20
"""Characters; the largest uv.lock files have a few million."""


class UnreadableEnvironment(ValueError):
    """A file that none of the known forms explains."""


def read_environment(path: str) -> dict[str, str]:
    """Versions by package name as the file spells it. UnreadableEnvironment says what was expected."""
    try:
        text = _read(path)
    except OSError as error:
        raise UnreadableEnvironment(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableEnvironment(f"{path} is not UTF-8 text: write pip freeze > FILE") from None
    found = parse_environment(text)
    if not found:
        raise UnreadableEnvironment(f"{path} names no package version: give the output of pip freeze or conda list, or a uv.lock")
    return found


def _read(path: str) -> str:
    if path == "-":
        text = sys.stdin.read(LARGEST + 1)
    else:
        with Path(path).open(encoding="utf-8-sig") as source:
            text = source.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise UnreadableEnvironment(f"{path} is larger than {LARGEST >> 20} MiB: give the output of pip freeze or conda list, or a uv.lock")
    return text


def parse_environment(text: str) -> dict[str, str]:
    """Versions by package name; empty when the text is none of the known forms."""
    if "[[package]]" in text:
        return _lock(text)
    stripped = text.lstrip()
    if stripped.startswith("["):
        return _json(stripped)
    found: dict[str, str] = {}
    conda = bool(re.search(r"^# (packages in environment|Name)\b", text, re.MULTILINE | re.IGNORECASE))
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _FREEZE.match(line) or _DIRECT.match(line) or (_CONDA.fullmatch(line) if conda else None)
        if match:
            found[match[1]] = match[2]
    return found


def _lock(text: str) -> dict[str, str]:
    import tomllib

    try:
        packages = tomllib.loads(text).get("package", [])
    except tomllib.TOMLDecodeError:
        return {}
    return {p["name"]: p["version"] for p in packages if isinstance(p, dict) and isinstance(p.get("name"), str) and isinstance(p.get("version"), str)}


def _json(text: str) -> dict[str, str]:
    """``pip list --format json`` and ``conda list --json``."""
    try:
        packages = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {p["name"]: p["version"] for p in packages if isinstance(p, dict) and isinstance(p.get("name"), str) and isinstance(p.get("version"), str)}
