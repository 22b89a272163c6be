"""What a rule is, and the list of all of them. A rule is a pure function ``(Case) -> Finding | list | None``.

The function's docstring is the rule's page: the first line is its title, the rest says why. Codes never change
meaning. The list of modules is written out (``SUBJECTS``); a test finds a module that is missing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.checks.case import Case

Severity = Literal["error", "warning", "info"]
STAGES = ("read", "import", "load", "init", "first_step", "loss", "checkpoint", "resume", "end")
"""Where a job stops, in the order in which it would get there."""
Stage = Literal["read", "import", "load", "init", "first_step", "loss", "checkpoint", "resume", "end"]
Looks = Literal["spec", "effective", "estimate", "job", "artifact"]


class Outcome(NamedTuple):
    """What a rule says of a case: the field, what is wrong with its numbers, and the edits that mend it."""

    path: str
    message: str
    fix: str
    """In words: the exact setting to write."""
    edits: Mapping[str, Any] | None = None
    """The same fix as spec edits (path -> value; None deletes); a test applies them to the failing example."""
    severity: Severity | None = None
    """Where it differs from the rule's own."""


class Example(NamedTuple):
    """A spec for a test: a shipped base (``jobgen.checks.bases``) and the edits made to it."""

    base: str
    edits: Mapping[str, Any]


Check = Callable[["Case"], "Outcome | Sequence[Outcome] | None"]
Mend = Callable[["Case"], tuple[str, "Mapping[str, Any] | None"]]


class Rule(NamedTuple):
    """A rule with its page."""

    code: str
    severity: Severity
    stage: Stage
    looks: Looks
    title: str
    why: str
    fix: str
    facts: tuple[str, ...]
    """Ids of the researched facts it carries (rules.csv)."""
    sources: tuple[str, ...]
    versions: str
    """Which versions it concerns, in words; empty for all."""
    bad: Example
    good: Example
    run: Check
    because: tuple[str, ...] = ()
    """Codes that are the cause of this one: it is left out when one of them is found as an error."""
    mend: Mend | None = None
    """Finds words and edits of the fix where that takes a search; asked once, for findings that are shown."""


class Finding(NamedTuple):
    """A rule's outcome at a position, or a problem of the spec itself."""

    code: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str
    fix: str
    source: str
    stage: Stage = "read"
    edits: Mapping[str, Any] | None = None
    ignored: str | None = None
    """The reason when ``ignore`` names it."""
    file: str = ""
    """The file the position is in, where it is not the spec itself (a profile, ``--set``)."""


RULES: dict[str, Rule] = {}

SUBJECTS: tuple[str, ...] = (
    "unpinned", "memory", "host", "effects", "quantization", "quantized_frameworks", "loading", "reading", "offload",
    "optimizer", "precision", "attention", "moe", "peft", "versions", "checkpoints", "parallelism", "dimensions",
    "recompute", "saving", "batches", "rendering", "conflicts", "launchers", "fsdp_words", "environment", "fabric",
    "capacity", "attempts", "volumes", "clusters", "amounts", "lengths", "told", "unheard",
)  # fmt: skip
"""Modules of ``jobgen.checks`` that hold rules, imported by ``rules()``."""


def rule(
    code: str,
    severity: Severity,
    stage: Stage,
    looks: Looks,
    *,
    bad: Example,
    good: Example,
    fix: str,
    sources: Sequence[str],
    facts: Sequence[str] = (),
    versions: str = "",
    because: Sequence[str] = (),
    mend: Mend | None = None,
) -> Callable[[Check], Check]:
    """Register a function as the rule ``code``."""

    def register(function: Check) -> Check:
        title, _, why = (function.__doc__ or "").strip().partition("\n")
        if code in RULES:
            raise ValueError(f"{code} is registered twice")
        RULES[code] = Rule(
            code, severity, stage, looks, title.strip(), " ".join(why.split()), fix,
            tuple(facts), tuple(sources), versions, bad, good, function, tuple(because), mend,
        )  # fmt: skip
        return function

    return register


@cache
def rules() -> dict[str, Rule]:
    """All rules by code, in the order of their codes."""
    import importlib

    for subject in SUBJECTS:
        importlib.import_module(f"jobgen.checks.{subject}")
    return dict(sorted(RULES.items()))
