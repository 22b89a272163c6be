"""What is known of library versions, and the driver that runs a function once per answer it cannot know.

Code compares plainly: ``v["transformers"] >= (5, 0)``. Knowledge is an interval per library. A comparison that the
interval cannot decide is recorded, answered once each way, and narrows the interval in that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

Version = tuple[int, ...]
"""Release numbers; missing ones are zero, so (5, 0) equals (5, 0, 0)."""

T = TypeVar("T")
_MOST = 1 << 30


class Interval(NamedTuple):
    """Versions v with ``low <= v < high``."""

    low: Version = ()
    high: Version = (_MOST,)

    @property
    def known(self) -> bool:
        """True when exactly one release is left."""
        return bool(self.low) and self.high == (*self.low, 0, 0, 0, 0, 1)

    def __str__(self) -> str:
        if self.known:
            return text(self.low)
        low = f">= {text(self.low)}" if self.low else ""
        high = f"< {text(self.high)}" if self.high[0] != _MOST else ""
        return ", ".join(part for part in (low, high) if part) or "any"


def exactly(version: Version) -> Interval:
    """The interval that holds one release."""
    version = trimmed(version)
    return Interval(version, (*version, 0, 0, 0, 0, 1))


def trimmed(version: Version) -> Version:
    """Without trailing zeros, so that tuples compare as releases do; the empty tuple is 'below everything'."""
    end = len(version)
    while end > 1 and version[end - 1] == 0:
        end -= 1
    return version[:end]


def text(version: Version) -> str:
    """``(5, 0)`` as ``5.0``."""
    return ".".join(map(str, version if len(version) > 1 else (*version, 0)))


class Decision(NamedTuple):
    """One answer in one branch: whether ``library >= version``."""

    library: str
    version: Version
    at_least: bool

    def __str__(self) -> str:
        return f"{self.library} {'>=' if self.at_least else '<'} {text(self.version)}"


class Library:
    """One library's version inside a run; compare with ``>=`` and ``<`` only (patch releases make others unclear)."""

    __slots__ = ("_name", "_versions")

    def __init__(self, name: str, versions: Versions) -> None:
        self._name, self._versions = name, versions

    def __ge__(self, other: Version) -> bool:
        return self._versions.ask(self._name, trimmed(other))

    def __lt__(self, other: Version) -> bool:
        return not self._versions.ask(self._name, trimmed(other))


class Versions:
    """Knowledge of one run: intervals, the answers forced on it, and those it had to choose itself.

    ``prefer`` answers an open question outside the fork driver (the estimate's assumed release).
    """

    __slots__ = ("_forced", "_intervals", "_prefer", "asked")

    def __init__(
        self,
        known: Mapping[str, Interval],
        forced: tuple[Decision, ...] = (),
        prefer: Mapping[str, Version] | None = None,
    ) -> None:
        self._intervals, self._forced, self._prefer = dict(known), forced, prefer or {}
        self.asked: list[Decision] = []

    def __getitem__(self, library: str) -> Library:
        return Library(library, self)

    def interval(self, library: str) -> Interval:
        """What is known of a library now."""
        return self._intervals.get(library, Interval())

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """What is known of every library now."""
        return dict(self._intervals)

    def between(self, library: str, since: Version, until: Version) -> bool:
        """``since <= version < until``."""
        return self[library] >= since and self[library] < until

    def ask(self, library: str, version: Version) -> bool:
        """Whether the library is at least ``version``; an open question is recorded and narrows the interval."""
        interval = self._intervals.get(library, _ANY)
        if interval.low >= version:
            return True
        if interval.high <= version:
            return False
        index = len(self.asked)
        if index < len(self._forced):
            answer = self._forced[index].at_least
        else:
            preferred = self._prefer.get(library)
            answer = preferred is None or trimmed(preferred) >= version
        self.asked.append(Decision(library, version, answer))
        low, high = (version, interval.high) if answer else (interval.low, version)
        self._intervals[library] = Interval(low, high)
        return answer


_ANY = Interval()


class Branch(NamedTuple, Generic[T]):
    """One way the unknown versions could be, and what the function gave there."""

    decisions: tuple[Decision, ...]
    value: T


def branches(function: Callable[[Versions], T], known: Mapping[str, Interval], limit: int = 64) -> Iterator[Branch[T]]:
    """Every outcome of ``function`` over the versions that it asks about and that are not known.

    Depth first over open comparisons; ``limit`` bounds the number of runs (a function that asks more is a mistake:
    RuntimeError).
    """
    todo: list[tuple[Decision, ...]] = [()]
    runs = 0
    while todo:
        forced = todo.pop()
        runs += 1
        if runs > limit:
            raise RuntimeError(f"{function!r} asks about too many versions: {forced}")
        versions = Versions(known, forced)
        value = function(versions)
        asked = tuple(versions.asked)
        for index in range(len(forced), len(asked)):
            todo.append((*asked[:index], asked[index]._replace(at_least=not asked[index].at_least)))
        yield Branch(asked, value)
