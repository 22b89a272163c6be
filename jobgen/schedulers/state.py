"""What a job is doing, in one vocabulary for all schedulers."""

from __future__ import annotations

from typing import Literal, NamedTuple

Phase = Literal["queued", "running", "succeeded", "failed", "cancelled", "unknown"]
LIVE: frozenset[Phase] = frozenset({"queued", "running"})


class Status(NamedTuple):
    """``phase`` in jobgen's words, ``native`` in the scheduler's, ``reason`` why it waits or ended."""

    phase: Phase
    native: str
    reason: str = ""
    restarts: int | None = None
    nodes: str = ""
    elapsed: str = ""
    exit_code: str = ""

    @property
    def live(self) -> bool:
        """It may still run."""
        return self.phase in LIVE
