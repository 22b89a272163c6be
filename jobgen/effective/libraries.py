"""Library names and versions as people write them, and what framework releases pin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from jobgen.catalog import releases
from jobgen.effective.versions import Interval, Version, exactly, trimmed

_ALIASES = {"llama-factory": "llamafactory", "ms-swift": "ms-swift", "flash-attention": "flash-attn", "megatron-lm": "megatron-core", "verl": "verl", "pytorch": "torch"}
_RELEASE = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:[-_.]?(?:a|b|rc|alpha|beta|dev|post|pre)[0-9]*)*(?:\+[A-Za-z0-9.]+)?")
_BOUND = re.compile(r"\s*(===?|>=|<=|<|>|~=|!=)\s*(.+?)\s*")


def canonical(name: str) -> str:
    """A PyPI name in one form: lower case, dashes (PEP 503), common aliases resolved."""
    plain = re.sub(r"[-_.]+", "-", name.strip().lower())
    return _ALIASES.get(plain, plain)


def release(written: str) -> Version | None:
    """The numbers of a release (``4.57.1``, ``2.6.0+cu124``); None when it is not one. Pre-releases count as theirs."""
    found = _RELEASE.fullmatch(written.strip())
    if found is None or len(found[1]) > 60:
        return None
    return tuple(int(part) for part in found[1].split("."))


def interval_of(written: str) -> Interval | None:
    """``4.57.1`` is one release, ``4.57`` a series, ``>=4.51,<5`` bounds; None when it is none of these."""
    plain = release(written)
    if plain is not None:
        if len(plain) >= 3:
            return exactly(plain)
        return Interval(trimmed(plain), (*plain[:-1], plain[-1] + 1))
    low: Version = ()
    high = Interval().high
    for clause in written.split(","):
        bound = _BOUND.fullmatch(clause)
        version = release(bound[2].removesuffix(".*")) if bound else None
        if bound is None or version is None:
            return None
        above = (*version[:-1], version[-1] + 1) if len(version) < 3 else exactly(version).high
        match bound[1]:
            case ">=":
                low = max(low, trimmed(version))
            case ">":
                low = max(low, above)
            case "<":
                high = min(high, trimmed(version))
            case "<=":
                high = min(high, above)
            case "~=":
                low, high = max(low, trimmed(version)), min(high, (*version[:-2], version[-2] + 1) if len(version) > 1 else above)
            case "==" | "===":
                series = bound[2].endswith(".*") or len(version) < 3
                low = max(low, trimmed(version))
                high = min(high, (*version[:-1], version[-1] + 1) if series else above)
    return Interval(low, high) if low < high else None


def pinned(library: str, known: Mapping[str, Interval]) -> Iterator[tuple[str, Interval]]:
    """(library, interval) of everything that the known releases of a framework and its libraries require."""
    seen: dict[str, Interval] = dict(known)
    todo = [library] if library else []
    done: set[str] = set()
    while todo:
        name = todo.pop(0)
        if name in done or name not in seen or not seen[name].known:
            continue
        done.add(name)
        read = closest(name, seen[name].low)
        for required, interval in releases.pins(name, read).items() if read else ():
            required = canonical(required)
            if required not in seen:
                seen[required] = Interval(interval.low, interval.high)
                yield required, seen[required]
                todo.append(required)


def closest(library: str, version: Version) -> Version | None:
    """The release whose requirements were read and stand for ``version``: itself, else the nearest of its minor."""
    every = releases.versions(library) if library in releases.libraries() else ()
    if version in every:
        return version
    series = [one for one in every if one[:2] == version[:2]]
    return min(series, key=lambda one: (one > version, [abs(a - b) for a, b in zip(one, version, strict=False)])) if series else None


@cache
def newest() -> tuple[tuple[str, Version], ...]:
    """(library, newest release) of everything the catalogue has releases of."""
    return tuple((name, releases.versions(name)[-1]) for name in releases.libraries())
