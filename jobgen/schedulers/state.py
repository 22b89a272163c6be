"""What a job is doing, in one vocabulary for all schedulers."""

from __future__ import annotations

from typing import Literal

from jobgen.spec.record import NamedTuple

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
    pods: str = ""
    """Kubernetes: how many of its pods are in which state."""
    queue: str = ""
    """Kueue: the queue, and what admitted the job."""
    output: str = ""
    """Kubernetes: the last lines of the container that failed."""
    final: bool = False
    """Nothing can change it any more, so it may be remembered instead of asked for."""

    @property
    def live(self) -> bool:
        """It may still run."""
        return self.phase in LIVE

    @property
    def ending(self) -> bool:
        """Its end is decided and its processes are not gone yet."""
        return self.native in ("COMPLETING", "Terminating")


NEVER_SENT = Status("cancelled", "UNSENT", "never reached the scheduler", final=True)
