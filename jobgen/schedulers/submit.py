"""Submission of what was rendered, once. A repeated or killed submit neither loses nor doubles a job."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jobgen.schedulers import receipts
from jobgen.schedulers.errors import Conflict, SchedulerError, Unreachable, Unsubmittable, Unwritable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import NEVER_SENT, Status
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.targets.artifact import Artifact

Say = Callable[[str], None]
ENDING_SECONDS = 180.0
"""How long a submit waits for an earlier run whose end is decided."""


class Request(NamedTuple):
    """What would be sent."""

    name: str
    target: str
    artifact: Artifact
    spec_text: str
    secrets: tuple[str, ...]
    details: dict[str, Any]
    dependency: str = ""
    new: bool = False
    rename: Callable[[str], Artifact] | None = None
    """The artifact under another name."""

    def renamed(self, name: str) -> Artifact:
        """The artifact of a further run."""
        if self.rename is None:
            raise Unsubmittable(f"{self.name} cannot be given another name")
        return self.rename(name)

    @property
    def digest(self) -> str:
        """The same name and content have the same digest. A Slurm script with relative folders means those of here."""
        here = [os.getcwd()] if self.target == "slurm" and '"$PWD"' in self.artifact.text else []
        return receipts.digest(self.target, self.artifact.text, *here)


class Scheduler(Protocol):
    """What a scheduler can do with a run."""

    artifact_name: str

    def scope(self, details: dict[str, Any]) -> str:
        """Where names must differ (cluster and namespace)."""

    def prepare(self, request: Request, say: Say) -> dict[str, Any]:
        """Everything that must stand before the call; returns further details. NeverStarts: it would wait for ever."""

    def send(self, receipt: Receipt, request: Request, lock: Lock, say: Say) -> str:
        """The call; returns the scheduler's own id. Unreachable: it is not known whether it arrived; any other
        SchedulerError: it did not."""

    def lookup(self, receipt: Receipt) -> str | None:
        """The id of a run whose answer was lost; None when it never arrived."""

    def forget(self, receipt: Receipt) -> None:
        """Remove what was made for a run that never arrived."""

    def status(self, receipt: Receipt) -> Status:
        """What the run is doing."""

    def statuses(self, runs: Sequence[Receipt]) -> list[Status]:
        """What many runs are doing, in as few questions as the scheduler allows."""

    def try_out(self, request: Request, say: Say) -> str:
        """Let the scheduler judge the request without taking it. NeverStarts: it would take it and never start it."""

    def command(self, request: Request) -> str:
        """The call in words."""

    def cancel(self, receipt: Receipt) -> str:
        """Stop the run; returns what is left behind, in words."""

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """Copy the output."""


def scheduler(target: str) -> Scheduler:
    """Who runs a target."""
    if target == "slurm":
        from jobgen.schedulers.slurm_scheduler import SlurmScheduler

        return SlurmScheduler()
    if target == "local":
        from jobgen.schedulers.local_scheduler import LocalScheduler

        return LocalScheduler()
    if target in ("k8s", "trainjob", "jobset"):
        from jobgen.schedulers.kubernetes_scheduler import KubernetesScheduler

        return KubernetesScheduler(target)
    raise Unsubmittable(f"target {target} is not submitted: render the script and run it on the first host (jobgen render SPEC --target {target} | bash)")


def send(wanted: Request, service: Scheduler, *, new: bool, say: Say) -> Receipt:
    """Send a request unless it is live already; returns its receipt."""
    missing = [name for name in wanted.secrets if name not in os.environ] if wanted.target in ("slurm", "local") else []
    if missing:
        raise Unsubmittable(f"launch.secrets: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set in this shell; export {'it' if len(missing) == 1 else 'them'} first")
    scope = service.scope(wanted.details)
    with receipts.locked(f"{wanted.target}/{scope}/{wanted.name}", say) as lock:
        earlier = [
            receipt for receipt in receipts.of(wanted.name)
            if receipt.target == wanted.target and receipt.state != "ended" and service.scope(receipt.details) == scope
        ]  # fmt: skip
        live, interrupted = _standing(earlier, service, say)
        if not new:
            for receipt in live:
                if receipt.digest == wanted.digest:
                    say(f"{receipt.handle} is live already with the same content (--new starts another)")
                    return receipt
            if live:
                raise Conflict(_difference(live[0], wanted, service))
        same = [receipt for receipt in interrupted if receipt.digest == wanted.digest and not new]
        for receipt in interrupted:
            if receipt not in same[:1]:
                service.forget(receipt)
                receipts.close(receipt, NEVER_SENT)
        if same:
            say(f"{same[0].handle} was being submitted when it was interrupted; going on")
            again = same[0]._replace(details=same[0].details | {"attempted": time.time()})
            return _finish(receipts.save(again), wanted, service, lock, say)
        details = wanted.details | service.prepare(wanted, say)
        receipt = receipts.create(
            wanted.name, wanted.target, wanted.digest,
            {service.artifact_name: wanted.artifact.text, "spec.yaml": wanted.spec_text}, details,
        )  # fmt: skip
        return _finish(receipt, wanted, service, lock, say)


def _standing(earlier: Sequence[Receipt], service: Scheduler, say: Say) -> tuple[list[Receipt], list[Receipt]]:
    """Of earlier runs of a name: those that live, and those that were interrupted before they reached the scheduler.
    The ends of all others are remembered."""
    live, interrupted, sent = [], [], []
    for receipt in earlier:
        if receipt.state == "sending":
            recovered = recover(receipt, service)
            if recovered is None:
                interrupted.append(receipt)
                continue
            receipt = recovered
        sent.append(receipt)
    for receipt, status in zip(sent, service.statuses(sent), strict=True):
        if status.ending:
            status = _ended(receipt, service, say)
        if status.live:
            live.append(receipt)
        elif status.final:
            receipts.close(receipt, status)
    return live, interrupted


def _ended(receipt: Receipt, service: Scheduler, say: Say) -> Status:
    """The status once a run whose end is decided has gone."""
    say(f"waiting for {receipt.handle}, which is ending")
    deadline = time.monotonic() + ENDING_SECONDS
    while (status := service.status(receipt)).ending and time.monotonic() < deadline:
        time.sleep(0.5)
    return status


def recover(receipt: Receipt, service: Scheduler) -> Receipt | None:
    """A receipt whose answer was lost, with the answer; None when the run never arrived. Hold the lock of its name."""
    job_id = service.lookup(receipt)
    return None if job_id is None else receipts.save(receipt._replace(state="sent", job_id=job_id))


def _finish(receipt: Receipt, wanted: Request, service: Scheduler, lock: Lock, say: Say) -> Receipt:
    """The call itself, and its answer written down."""
    try:
        job_id = service.send(receipt, wanted, lock, say)
    except Unreachable:
        raise
    except SchedulerError:
        receipts.remove(receipt)
        raise
    sent = receipt._replace(job_id=job_id, state="sent")
    try:
        return receipts.save(sent)
    except Unwritable as error:
        say(f"{receipt.handle} is submitted as {job_id}, but that could not be written down: {error}")
        return sent


def _difference(receipt: Receipt, wanted: Request, service: Scheduler) -> str:
    """Why a live job of the same name stands in the way."""
    try:
        old = (receipt.folder / service.artifact_name).read_text(encoding="utf-8")
    except OSError:
        old = ""
    lines = list(difflib.unified_diff(old.splitlines(), wanted.artifact.text.splitlines(), f"live as {receipt.handle}", "now", lineterm="", n=1))
    shown = "\n".join(lines[:60]) or "(the same script, submitted from another folder; its relative paths are others)"
    return (
        f"a job named {wanted.name} is live as {receipt.handle} with other content; "
        f"cancel it (jobgen cancel {receipt.handle}), give this one another name, or pass --new to run both:\n{shown}"
    )
