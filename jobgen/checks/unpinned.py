"""Versions that nobody gave and that decide: one finding a library says what happens in which release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from jobgen.checks.registry import STAGES, Example, Outcome, Rule, rule
from jobgen.effective.versions import Interval, Version, text
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.checks.case import Case

UNPINNED = "JG600"
MOST = 3
"""Findings of this kind on one spec; what is left over joins the last."""
_ORDER = (
    "llamafactory", "axolotl", "unsloth", "ms-swift", "transformers", "peft", "accelerate", "deepspeed", "trl", "torch",
)  # fmt: skip
_RANK = {"error": 0, "warning": 1, "info": 2}


class Open(NamedTuple):
    """A rule that speaks in some releases only: its outcome (or silence) in each box of versions."""

    rule: Rule
    path: str
    boxes: tuple[Mapping[str, Interval], ...]
    outcomes: tuple[Outcome | None, ...]


class Span(NamedTuple):
    """Releases of one library with the same consequences."""

    interval: Interval
    said: tuple[str, ...]
    worst: int


def bounds(interval: Interval) -> str:
    """``>= 5.0, <= 5.6.0``: the upper end as people write it."""
    high = interval.high
    if not interval.known and len(high) > 4 and high[-5:] == (0, 0, 0, 0, 1):
        low = f">= {text(interval.low)}, " if interval.low else ""
        return f"{low}<= {text(high[:-5])}"
    return str(interval)


@rule(
    UNPINNED, "warning", "import", "effective",
    bad=Example("qlora-235b-zero3", {"training.versions": {"llamafactory": "0.9.4", "deepspeed": "0.16.9", "transformers": ">=4.55"}}),
    good=Example("qlora-235b-zero3", {}),
    fix="write the installed release under training.versions, or pass --env with a pip freeze",
    sources=("the rules that it names",),
    facts=("FV08",),
)  # fmt: skip
def unpinned(case: Case) -> None:
    """A version that is not given decides what happens

    The same settings load 120 GB or 460 GB, or stop at an import, depending on a release. Where nothing tells it
    (training.versions, --env, or the framework's own pins) one warning a library lists the releases and what each does.
    Releases before May 2025 are left out unless something says that they are used.
    """


def combine(open_: Sequence[Open], known: Mapping[str, Interval]) -> list[Outcome]:
    """At most ``MOST`` outcomes, one a library, for everything that versions decide."""
    by_library: dict[str, list[Open]] = {}
    for one in open_:
        by_library.setdefault(_deciding(one), []).append(one)
    names = sorted(by_library, key=lambda name: (_worst(by_library[name]), _ORDER.index(name) if name in _ORDER else 99, name))
    parts = [_explain(name, by_library[name], known) for name in names]
    if len(parts) > MOST:
        last = parts[MOST - 1]
        rest = parts[MOST:]
        message = "; also ".join([last.message, *(part.message for part in rest)])
        edits = {path: value for part in (last, *rest) for path, value in (part.edits or {}).items()}
        parts = [*parts[: MOST - 1], last._replace(message=message, edits=edits, fix=_fix(edits))]
    return parts


def _worst(group: Iterable[Open]) -> int:
    return min(_RANK[outcome.severity or one.rule.severity] for one in group for outcome in one.outcomes if outcome)


def _deciding(one: Open) -> str:
    """The library whose release changes the outcome; of several the first in the order above."""
    libraries = [name for name in dict.fromkeys(name for box in one.boxes for name in box) if _matters(one, name)]
    libraries = libraries or list(dict.fromkeys(name for box in one.boxes for name in box))
    return min(libraries, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def _matters(one: Open, library: str) -> bool:
    """Two boxes that agree on all other libraries differ in outcome."""
    for i, left in enumerate(one.boxes):
        for j in range(i):
            right = one.boxes[j]
            if (one.outcomes[i] is None) == (one.outcomes[j] is None) or not _apart(left, right, library):
                continue
            if all(_meet(left.get(name), right.get(name)) for name in {*left, *right} - {library}):
                return True
    return False


def _apart(left: Mapping[str, Interval], right: Mapping[str, Interval], library: str) -> bool:
    a, b = left.get(library), right.get(library)
    return a is not None and b is not None and not _meet(a, b)


def _meet(a: Interval | None, b: Interval | None) -> bool:
    return a is None or b is None or (a.low < b.high and b.low < a.high)


def _explain(library: str, group: Sequence[Open], known: Mapping[str, Interval]) -> Outcome:
    """What each range of releases does."""
    whole = known.get(library, Interval())
    cuts = {box[library].low for one in group for box in one.boxes if library in box}
    edges = sorted({whole.low, *(cut for cut in cuts if whole.low < cut < whole.high)})
    spans: list[Span] = []
    for low, high in zip(edges, [*edges[1:], whole.high], strict=True):
        span = _span(library, Interval(low, high), group)
        if spans and spans[-1].said == span.said:
            spans[-1] = spans[-1]._replace(interval=Interval(spans[-1].interval.low, high))
        else:
            spans.append(span)
    told = " | ".join(f"{_range(span.interval, whole)}: {' + '.join(span.said) or 'none of this'}" for span in spans)
    release = _advice(library, spans)
    edits = {f"training.versions.{library}": release} if release else {}
    severity: str = ("error", "warning", "info")[max(1, _worst(group))]
    return Outcome(
        "training.versions", f"the release of {library} is not given and decides. {told}", _fix(edits) if edits
        else f"write the installed release: training.versions: {{{library}: ...}}",
        edits or None, "info" if severity == "info" else "warning",
    )  # fmt: skip


def _span(library: str, interval: Interval, group: Sequence[Open]) -> Span:
    """What happens in this range: notes only where nothing worse is said, and no consequence of a named cause."""
    said: list[tuple[Rule, str, str]] = []
    for one in group:
        inside = [
            (box, outcome)
            for box, outcome in zip(one.boxes, one.outcomes, strict=True)
            if _meet(box.get(library), interval)
        ]
        spoken = [(box, outcome) for box, outcome in inside if outcome is not None]
        if not spoken:
            continue
        box, outcome = spoken[0]
        severity = outcome.severity or one.rule.severity
        others = [
            f"{name} {bounds(kept)}" for name, kept in box.items()
            if name != library and len(spoken) < len(inside) and _matters(one, name)
        ]  # fmt: skip
        where = f", with {' and '.join(others)}" if others else ""
        said.append((one.rule, severity, f"{one.rule.code} ({severity}{where}) {outcome.message}"))
    errors = {rule.code for rule, severity, _ in said if severity == "error"}
    kept = [entry for entry in said if errors.isdisjoint(entry[0].because)]
    worst = min((_RANK[severity] for _, severity, _ in kept), default=3)
    words = [words for _, severity, words in sorted(kept, key=_gravity) if severity != "info" or worst == _RANK["info"]]
    return Span(interval, tuple(words), worst)


def _gravity(entry: tuple[Rule, str, str]) -> tuple[int, int, str]:
    rule, severity, _ = entry
    return _RANK[severity], STAGES.index(rule.stage), rule.code


def _range(interval: Interval, whole: Interval) -> str:
    """``below 5.0``, ``4.55 up to 5.0``, ``from 5.0``."""
    if interval == whole:
        return "any release"
    if interval.low == whole.low:
        return f"below {text(interval.high)}"
    if interval.high == whole.high:
        return f"from {text(interval.low)}"
    return f"{text(interval.low)} up to {text(interval.high)}"


def _advice(library: str, spans: Sequence[Span]) -> str | None:
    """A release in which the least goes wrong: the newest that is catalogued in the best range."""
    best = max(spans, key=lambda span: (span.worst, span.interval.low)).interval
    inside = [version for version in _releases(library) if best.low <= version < best.high]
    if inside:
        return text(inside[-1])
    return text(best.low) if best.low else None


def _releases(library: str) -> Sequence[Version]:
    from jobgen.catalog import releases

    try:
        return tuple(releases.versions(library))
    except (KeyError, LookupError):
        return ()


def _fix(edits: Mapping[str, object]) -> str:
    written = ", ".join(f'{path.rpartition(".")[2]}: "{value}"' for path, value in edits.items())
    return f"write what is installed, or choose: training.versions: {{{written}}}"
