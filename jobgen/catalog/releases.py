"""Releases of frameworks and what each requires of other libraries.

Read from released packages: wheel and source metadata, and LLaMA-Factory's own check at start-up. Only releases that
were read are here (``versions``); of most libraries that is the last patch of each minor release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from jobgen.catalog.markers import holds
from jobgen.spec.record import NamedTuple

DATA = Path(__file__).parent / "data" / "releases.jsonl"
Version = tuple[int, ...]
"""Release numbers without trailing zeros: (5,) is 5.0.0. Pre- and post-releases count as theirs."""
TOP: Version = (1 << 30,)
"""Above every release."""
NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")
CLAUSE = re.compile(r"\s*(===|==|!=|>=|<=|~=|<|>)\s*([^\s]+)\s*")


class Range(NamedTuple):
    """Releases v with ``low <= v < high``."""

    low: Version = ()
    high: Version = TOP


class Requirement(NamedTuple):
    """One line of a release's requirements."""

    specifier: str
    """As written, ``>=4.51.0,<=4.57.1``."""
    range: Range
    """The least that holds every release the specifier allows."""
    excluded: tuple[Range, ...]
    """Releases inside it that ``!=`` takes out."""
    marker: str
    """When it holds: an extra, a platform, a Python release; "" always."""
    source: str
    """``wheel`` or ``sdist ...``: the package's metadata; else the file that checks it when the program starts."""


def parse(text: str) -> Version:
    """``4.57.1``, ``0.10.0.dev0``, ``2.6.0+cu124`` as a tuple; () for what is not a release."""
    found = NUMBERS.match(text.strip())
    return trim(tuple(int(part) for part in found[1].split("."))) if found else ()


def trim(version: Version) -> Version:
    """Without trailing zeros."""
    end = len(version)
    while end > 1 and version[end - 1] == 0:
        end -= 1
    return version[:end]


def just_above(version: Version) -> Version:
    """The end of the range that holds one release and nothing else."""
    return (*version, 0, 0, 0, 0, 1)


def intervals(specifier: str) -> tuple[Range, tuple[Range, ...]]:
    """The range of a specifier and the ranges that it excludes; what cannot be read excludes nothing."""
    low: Version = ()
    high, excluded = TOP, []
    for clause in specifier.split(","):
        found = CLAUSE.fullmatch(clause)
        if found is None:
            continue
        operator, written = found[1], found[2]
        series = written.endswith(".*")
        numbers = NUMBERS.match(written.removesuffix(".*"))
        if numbers is None:
            continue
        full = tuple(int(part) for part in numbers[1].split("."))
        version = trim(full)
        end = (*full[:-1], full[-1] + 1) if series else just_above(version)
        if operator == "!=":
            excluded.append(Range(version, end))
        elif operator in ("==", "==="):
            low, high = max(low, version), min(high, end)
        elif operator == "~=" and len(full) > 1:
            low, high = max(low, version), min(high, (*full[:-2], full[-2] + 1))
        elif operator == ">=":
            low = max(low, version)
        elif operator == ">":
            low = max(low, just_above(version))
        elif operator == "<=":
            high = min(high, just_above(version))
        elif operator == "<":
            high = min(high, version)
    return Range(low, high), tuple(excluded)


def _lines() -> Iterator[tuple[str, str, str]]:
    """(framework, version, line), without parsing the requirements."""
    with DATA.open(encoding="utf-8") as lines:
        for line in lines:
            _, _, _, framework, _, _, _, version, _ = line.split('"', 8)
            yield framework, version, line


@cache
def libraries() -> tuple[str, ...]:
    """Every framework or library that has releases here."""
    return tuple(dict.fromkeys(framework for framework, _, _ in _lines()))


@cache
def versions(framework: str) -> tuple[Version, ...]:
    """The releases of a framework that were read, oldest first; () for one that is not here."""
    return tuple(sorted(parse(version) for name, version, _ in _lines() if name == framework))


@cache
def requirements(framework: str, version: str | Version) -> dict[str, tuple[Requirement, ...]]:
    """Everything a release requires, by library; {} for a release that was not read."""
    wanted = parse(version) if isinstance(version, str) else trim(version)
    for name, written, line in _lines():
        if name == framework and parse(written) == wanted:
            return {
                library: tuple(Requirement(item[0], *intervals(item[0]), item[1], item[2]) for item in items)
                for library, items in json.loads(line)["requires"].items()
            }
    return {}


def pins(framework: str, version: str | Version, extras: Collection[str] = ()) -> dict[str, Range]:
    """The releases that a framework's release allows of each library, on Linux, with the extras asked for.

    Requirements that depend on the Python release are alternatives: the range then holds all of them. A library that
    only an extra asks for is absent without it. {} for a release that was not read.
    """
    found = {}
    for library, items in requirements(framework, version).items():
        answers = [(item.range, holds(item.marker, extras)) for item in items]
        sure = [span for span, answer in answers if answer is True]
        perhaps = [span for span, answer in answers if answer is None]
        if not sure and not perhaps:
            continue
        low: Version = ()
        high = TOP
        if perhaps:
            low, high = min(span.low for span in perhaps), max(span.high for span in perhaps)
        for span in sure:
            low, high = max(low, span.low), min(high, span.high)
        found[library] = Range(low, high) if low < high else sure[0] if sure else perhaps[0]
    return found


TAKEN_AS_FOUND = {"axolotl": frozenset({"torch", "xformers", "vllm"})}
"""Libraries whose installed release a source distribution takes (axolotl setup.py parse_requirements); what its metadata
names is the one it falls back on."""


def firm(framework: str, version: str | Version, library: str) -> bool:
    """The release insists on its range of a library; else it only brings that release where none is installed."""
    items = requirements(framework, version).get(library, ())
    return library not in TAKEN_AS_FOUND.get(framework, ()) or not all(item.source.startswith("sdist") for item in items)


def excluded(framework: str, version: str | Version, library: str) -> tuple[Range, ...]:
    """Releases of a library that a framework's release rules out one by one (``!=``), on Linux, without extras."""
    items = requirements(framework, version).get(library, ())
    taken = [span for item in items if holds(item.marker) is not False for span in item.excluded]
    return tuple(dict.fromkeys(taken))
