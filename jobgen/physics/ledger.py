"""The ledger: every byte on a device is a term with a source and the phases in which it lives.

A peak is the maximum over phases of the sum of the terms alive then, never a sum of everything. Bytes are numbers or
numpy arrays; the functions here use operators only, so that one spec and a million candidates run the same code.
"""

from __future__ import annotations

from typing import Any, Literal

from jobgen.spec.record import NamedTuple

Bytes = Any
"""A number of bytes, or a numpy array of them."""

Component = Literal[
    "weights", "gradients", "optimizer", "activations", "logits_and_loss", "communication", "workspace", "context"
]
"""The components of the estimate's JSON."""

COMPONENTS: tuple[Component, ...] = (
    "weights", "gradients", "optimizer", "activations", "logits_and_loss", "communication", "workspace", "context",
)  # fmt: skip

Level = Literal["allocated", "reserved", "device"]
"""Where a term is first seen: live tensors, the caching allocator's slack, or outside the allocator (nvidia-smi)."""

LOAD, FORWARD, LOSS, BACKWARD_START, BACKWARD_END, STEP, SAVE, EVALUATE, GENERATE = (1 << i for i in range(9))
"""Phases of a run, as bits: a term lives in several."""

PHASES: tuple[tuple[int, str], ...] = (
    (LOAD, "load"), (FORWARD, "forward"), (LOSS, "loss"), (BACKWARD_START, "backward_start"),
    (BACKWARD_END, "backward_end"), (STEP, "step"), (SAVE, "save"), (EVALUATE, "evaluate"), (GENERATE, "generate"),
)  # fmt: skip
ALWAYS = (1 << len(PHASES)) - 1
TRAINING = FORWARD | LOSS | BACKWARD_START | BACKWARD_END | STEP


class Term(NamedTuple):
    """One line of the breakdown. ``words`` says the formula, ``source`` where it comes from."""

    id: str
    component: Component
    level: Level
    phases: int
    bytes: Bytes
    words: str
    source: str


class Peak(NamedTuple):
    """The largest phase of one device, or one phase of it."""

    phase: str
    bytes: Bytes


def alive(terms: tuple[Term, ...], phase: int, levels: tuple[Level, ...]) -> Bytes:
    """Bytes of the terms that live in ``phase`` and are first seen at one of ``levels``."""
    total: Bytes = 0
    for term in terms:
        if term.phases & phase and term.level in levels:
            total = total + term.bytes
    return total


def peak(terms: tuple[Term, ...], levels: tuple[Level, ...]) -> Peak:
    """The phase with the most bytes, for one device (scalars only: an array has no single phase)."""
    best = Peak(PHASES[0][1], -1)
    for bit, name in PHASES:
        total = alive(terms, bit, levels)
        if total > best.bytes:
            best = Peak(name, total)
    return best
