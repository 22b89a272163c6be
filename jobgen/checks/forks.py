"""Every step of a spec under every open version answer, computed once and shared by all rules.

A step is explored with the fork driver and kept as a decision tree in which questions that change nothing are left
out: a rule that reads the step is asked only what matters for this spec.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jobgen.effective.setup import Effective, Facts
from jobgen.effective.versions import Branch, Decision, Interval, Version, Versions, branches
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.launch.job import Job
    from jobgen.physics.estimate import Estimate
    from jobgen.targets.artifact import Artifact

STEPS = (
    "numbers", "quantized", "adapters", "loading", "sharded", "stepped", "offloaded", "activations", "batch",
)  # fmt: skip
MODULES = {
    "quantized": "quantization", "sharded": "sharding", "stepped": "optimizer", "offloaded": "offload",
}  # fmt: skip
MOST = 512
"""Bound on the runs that explore one step; beyond it the newest releases stand for all."""


class Question(NamedTuple):
    """A node of a decision tree: whether ``library >= version``."""

    library: str
    version: Version
    yes: Any
    no: Any


class Leaf(NamedTuple):
    """What a step is after the answers that lead here."""

    value: Any


Tree = Question | Leaf


def grow(found: list[Branch[Any]], depth: int = 0) -> Tree:
    """The decision tree of all branches of one function; a question with one answer in effect disappears."""
    first = found[0]
    if depth == len(first.decisions):
        return Leaf(first.value)
    yes = [branch for branch in found if branch.decisions[depth].at_least]
    no = [branch for branch in found if not branch.decisions[depth].at_least]
    if not yes or not no:
        return grow(found, depth + 1)
    left, right = grow(yes, depth + 1), grow(no, depth + 1)
    if left == right:
        return left
    return Question(first.decisions[depth].library, first.decisions[depth].version, left, right)


def walk(tree: Tree, versions: Versions) -> Any:
    """The value under these versions; asks what the tree asks."""
    while isinstance(tree, Question):
        tree = tree.yes if versions.ask(tree.library, tree.version) else tree.no
    return tree.value


class Made(NamedTuple):
    """A job as it is written, or what stood against writing it."""

    job: Job | None = None
    artifact: Artifact | None = None
    error: Exception | None = None


class Memo:
    """All steps of one spec, explored when a rule first reads them."""

    def __init__(self, facts: Facts, known: Mapping[str, Interval], target: str | None = None) -> None:
        self.facts, self.known, self.target = facts, known, target
        self.made: Made | None = None
        """The job as it was written already (``render``); the rules that judge it make it themselves otherwise."""
        self._trees: dict[str, Tree] = {}

    def value(self, name: str, versions: Versions) -> Any:
        """The step under these versions."""
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees[name] = self._explore(name)
        return walk(tree, versions)

    def _explore(self, name: str) -> Tree:
        compute = _function(name)
        run: Callable[[Versions], Any] = lambda versions: compute(Shared(self.facts, versions, self))  # noqa: E731
        try:
            return grow(list(branches(run, self.known, MOST)))
        except RuntimeError:
            return Leaf(run(Versions(self.known)))


def _function(name: str) -> Callable[[Effective], Any]:
    if name == "estimate":
        estimate: Callable[[Effective], Estimate] = importlib.import_module("jobgen.physics.estimate").estimate
        return estimate
    decide: Callable[[Effective], Any] = importlib.import_module(f"jobgen.effective.{MODULES.get(name, name)}").decide
    return decide


class Shared(Effective):
    """An effective set-up whose steps come from the memo."""

    def __init__(self, facts: Facts, versions: Versions, memo: Memo) -> None:
        super().__init__(facts, versions)
        self.memo = memo


def _property(name: str) -> property:
    def read(self: Shared) -> Any:
        kept = self.__dict__
        if name not in kept:
            kept[name] = self.memo.value(name, self.versions)
        return kept[name]

    return property(read)


for _name in STEPS:
    setattr(Shared, _name, _property(_name))


def box(known: Mapping[str, Interval], decisions: tuple[Decision, ...]) -> dict[str, Interval]:
    """The versions in which these answers hold, library by library, for those asked about."""
    result: dict[str, Interval] = {}
    for library, version, at_least in decisions:
        low, high = result.get(library) or known.get(library) or Interval()
        result[library] = Interval(version, high) if at_least else Interval(low, version)
    return result
