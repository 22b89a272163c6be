"""All rules over one spec: forked over unknown versions, placed, ordered and reduced to causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from jobgen.checks.case import Case
from jobgen.checks.forks import Made, Memo, Shared, box
from jobgen.checks.registry import STAGES, Finding, Outcome, Rule, rules
from jobgen.checks.settings import config_of
from jobgen.checks.unpinned import UNPINNED, Open, bounds, combine
from jobgen.effective.options import with_file
from jobgen.effective.setup import Facts
from jobgen.effective.versions import Interval, Versions, branches
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.frameworks.config import Config
    from jobgen.physics.estimate import Estimate
    from jobgen.spec.document import Document

FLOOR: Mapping[str, tuple[int, ...]] = {
    "transformers": (4, 51), "accelerate": (1, 6), "peft": (0, 15), "trl": (0, 17), "deepspeed": (0, 16, 7),
    "bitsandbytes": (0, 45, 5), "torch": (2, 7), "llamafactory": (0, 9, 3), "axolotl": (0, 9), "unsloth": (2025, 5),
    "cuda": (12, 4), "ms-swift": (3, 4), "megatron-core": (0, 12), "torchtitan": (0, 1), "vllm": (0, 8),
}  # fmt: skip
"""Releases of May 2025. A library whose version nothing tells is taken to be no older, so that a spec without versions
is not asked about history."""

_RANK = {"error": 0, "warning": 1, "info": 2}
_FAILED = "JG999"


class Branching(NamedTuple):
    """What one rule says of one field under every set of answers."""

    boxes: tuple[Mapping[str, Interval], ...]
    outcomes: tuple[Outcome | None, ...]


def findings(
    document: Document,
    facts: Facts,
    known: Mapping[str, Interval],
    target: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    made: Made | None = None,
) -> tuple[Finding, ...]:
    """Every finding of a spec, what stops the job first before the rest. ``select`` and ``ignore``: codes or their
    beginnings; the spec's own ``ignore`` only marks a finding. ``made``: the job, where it was written already."""
    known = floored(known)
    target = target or facts.spec.target
    config = config_of(Case(document, facts, Versions(known), Memo(facts, known, target)))
    facts = with_file(facts, config.values)
    memo = Memo(facts, known, target)
    memo.made = made
    found: list[Finding] = []
    unpinned: list[Open] = []
    for rule in rules().values():
        if rule.code == UNPINNED or not _wanted(rule.code, select, ignore):
            continue
        try:
            branching = _branch(rule, document, facts, known, memo)
        except Exception as error:  # a rule that raises is a bug: the others still speak
            found.append(_failure(document, rule, error))
            continue
        for path, ways in branching.items():
            one = _settled(ways)
            if one is None:
                unpinned.append(Open(rule, path, ways.boxes, ways.outcomes))
                continue
            if rule.mend is not None:
                words, edits = rule.mend(Case(document, facts, Versions({**known, **ways.boxes[0]}), memo))
                one = one._replace(fix=words, edits=edits)
            found.append(_place(document, rule, one, config))
    if _wanted(UNPINNED, select, ignore):
        rule = rules()[UNPINNED]
        found += [_place(document, rule, outcome, config) for outcome in combine(unpinned, known)]
    return _marked(_ordered(_causes(found)), facts)


def verdict(found: Iterable[Finding]) -> str:
    """``error``, ``pass_with_warnings`` or ``pass``; ignored findings do not count."""
    left = {finding.severity for finding in found if finding.ignored is None}
    return "error" if "error" in left else "pass_with_warnings" if "warning" in left else "pass"


def floored(known: Mapping[str, Interval]) -> dict[str, Interval]:
    """Knowledge with the floor where nothing gives a lower bound."""
    result = dict(known)
    for library, low in FLOOR.items():
        interval = result.get(library, Interval())
        if not interval.low and low < interval.high:
            result[library] = Interval(low, interval.high)
    return result


def _wanted(code: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    return (not select or any(map(code.startswith, select))) and not any(map(code.startswith, ignore))


def _branch(
    rule: Rule, document: Document, facts: Facts, known: Mapping[str, Interval], memo: Memo
) -> dict[str, Branching]:
    """What the rule says, by field, under every answer to its version questions."""

    def run(versions: Versions) -> tuple[Outcome, ...]:
        said = rule.run(Case(document, facts, versions, memo))
        return () if said is None else (said,) if isinstance(said, Outcome) else tuple(said)

    ways = list(branches(run, known, 256))
    if len(ways) == 1 and not ways[0].value:
        return {}
    boxes = tuple(box(known, way.decisions) for way in ways)
    paths = dict.fromkeys(outcome.path for way in ways for outcome in way.value)
    return {
        path: Branching(boxes, tuple(next((o for o in way.value if o.path == path), None) for way in ways)) for path in paths
    }


def _settled(ways: Branching) -> Outcome | None:
    """The one outcome, when the open versions do not change whether and how gravely the rule speaks. The first branch
    holds the newest releases."""
    first, *others = ways.outcomes
    if first is None or any(other is None for other in others):
        return None
    if all(other == first for other in others):
        return first
    if any(other is not None and other.severity != first.severity for other in others):
        return None
    where = ", ".join(f"{library} {bounds(interval)}" for library, interval in ways.boxes[0].items())
    return first._replace(message=f"{first.message} (with {where}; other releases change the numbers, not the verdict)")


def _place(document: Document, rule: Rule, outcome: Outcome, config: Config) -> Finding:
    """A finding where the user wrote what it speaks of; a key of the framework's own file is at ``training.config``."""
    path, message, edits = outcome.path, outcome.message, outcome.edits
    key = path.removeprefix("training.options.")
    if key != path and not document.wrote(path) and key in config.places:
        line, _ = config.place(key)
        path, message = "training.config", f"{message} ({config.file}:{line})"
        if edits is not None and any(value is None and not document.wrote(each) for each, value in edits.items()):
            edits = None
    origin = document.locate(path)
    return Finding(
        rule.code, outcome.severity or rule.severity, path, origin.line, origin.column, message, outcome.fix,
        "; ".join(rule.sources), rule.stage, edits, file="" if origin.file == document.file else origin.file,
    )  # fmt: skip


def _failure(document: Document, rule: Rule, error: Exception) -> Finding:
    return Finding(
        _FAILED, "warning", "", 1, 1, f"rule {rule.code} failed on this spec ({type(error).__name__}: {error})",
        "report it with the spec; the other rules are not affected", "", "end",
    )  # fmt: skip


def _causes(found: list[Finding]) -> list[Finding]:
    """Without findings whose cause is itself an error here."""
    errors = {finding.code for finding in found if finding.severity == "error"}
    table = rules()
    return [f for f in found if f.code not in table or errors.isdisjoint(table[f.code].because)]


def _ordered(found: list[Finding]) -> list[Finding]:
    """Errors first, in the order in which the job would reach them; then warnings, then notes."""
    return sorted(found, key=lambda f: (_RANK[f.severity], STAGES.index(f.stage), f.code, f.line, f.path))


class Undecided(Exception):
    """Edits that leave no valid spec, or no estimate."""


def assumed_estimate(document: Document, versions: Versions, memo: Memo) -> Estimate:
    """The estimate of an edited document in the branch of the case at hand; newest releases answer what is left open."""
    from jobgen.effective.resolve import facts
    from jobgen.physics.estimate import estimate
    from jobgen.spec.problem import SpecError

    try:
        other = facts(document)
    except SpecError as error:
        raise Undecided from error
    intervals = {name: versions.interval(name) for name in {*memo.known, *FLOOR}}
    return estimate(Shared(other, Versions(intervals), Memo(other, intervals, memo.target)))


def _marked(found: list[Finding], facts: Facts) -> tuple[Finding, ...]:
    reasons = {entry.code: entry.reason or "" for entry in facts.spec.ignore}
    return tuple(f._replace(ignored=reasons[f.code]) if f.code in reasons else f for f in found)
