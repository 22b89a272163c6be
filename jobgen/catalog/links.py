"""Links between GPUs, nodes, hosts and disks: what the sheet says and what was measured."""

from __future__ import annotations

from functools import cache

from jobgen.catalog.errors import UnknownLink, nearest
from jobgen.catalog.table import Row, key, number, rows, text
from jobgen.spec.record import NamedTuple

__all__ = ["Link", "Measurement", "UnknownLink", "bandwidth", "every", "find", "names"]


class Measurement(NamedTuple):
    """One number of one source. Bytes a second, one direction unless ``what`` says otherwise."""

    kind: str
    """``gpu-gpu``, ``all-reduce 1 node``, ``all-gather multi node``, ``cpu-gpu``, ``nic port``, ``disk`` ..."""
    theoretical: float | None
    theoretical_what: str
    measured: float | None
    measured_what: str
    latency: float | None
    """Seconds; the upper end where a source gives a range."""
    source: str
    confidence: str
    notes: str


class Link(NamedTuple):
    """A link and everything known of it."""

    name: str
    measurements: tuple[Measurement, ...]


def _measurement(row: Row) -> Measurement:
    seen, paper = number(row, "measured_gbs"), number(row, "theoretical_gbs")
    ends = text(row, "latency_us").replace(" ", "").split("-")
    try:
        latency = float(ends[-1]) * 1e-6
    except ValueError:
        latency = None
    return Measurement(
        kind=text(row, "kind"),
        theoretical=None if paper is None else paper * 1e9,
        theoretical_what=text(row, "theoretical_what"),
        measured=None if seen is None else seen * 1e9,
        measured_what=text(row, "measured_what"),
        latency=latency,
        source=text(row, "source"),
        confidence=text(row, "confidence"),
        notes=text(row, "notes"),
    )


@cache
def every() -> tuple[Link, ...]:
    """All links, in the order of the table."""
    found: dict[str, list[Measurement]] = {}
    for row in rows("links.jsonl"):
        found.setdefault(text(row, "link"), []).append(_measurement(row))
    return tuple(Link(name, tuple(measurements)) for name, measurements in found.items())


def names() -> tuple[str, ...]:
    """All names."""
    return tuple(link.name for link in every())


def find(name: str) -> Link:
    """The link of that name, any case; UnknownLink has ``nearest``."""
    for link in every():
        if key(link.name) == key(name):
            return link
    raise UnknownLink(name, nearest(name, names()))


def bandwidth(link: str | Link, kind: str = "") -> float | None:
    """Bytes a second to expect: the lowest measurement that no source doubts, else the sheet's number.

    ``kind`` restricts it to measurements whose kind starts so. None where nothing is known.
    """
    entry = find(link) if isinstance(link, str) else link
    chosen = [item for item in entry.measurements if item.kind.startswith(kind)]
    sure = [item.measured for item in chosen if item.measured is not None and "doubtful" not in item.confidence]
    seen = sure or [item.measured for item in chosen if item.measured is not None]
    paper = [item.theoretical for item in chosen if item.theoretical is not None]
    return min(seen) if seen else min(paper) if paper else None
