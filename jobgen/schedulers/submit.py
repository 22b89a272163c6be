"""Submission of what was rendered, once. A repeated or killed submit neither loses nor doubles a job."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jobgen.schedulers import receipts
from jobgen.schedulers.errors import Conflict, Unsubmittable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Status

if TYPE_CHECKING:
    from jobgen.targets.artifact import Artifact

Say = Callable[[str], None]


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
    """The artifact under the job's name with a suffix."""

    def renamed(self, suffix: str) -> Artifact:
        """The artifact of a further run."""
        if self.rename is None:
            raise Unsubmittable(f"{self.name} cannot be given another name")
        return self.rename(suffix)

    @property
    def digest(self) -> str:
        """The same name and content have the same digest."""
        return receipts.digest(self.target, self.artifact.text)


class Scheduler(Protocol):
    """What a scheduler can do with a run."""

    artifact_name: str

    def scope(self, details: dict[str, Any]) -> str:
        """Where names must differ (cluster and namespace)."""

    def prepare(self, request: Request) -> dict[str, Any]:
        """Everything that must stand before the call; returns further details."""

    def send(self, receipt: Receipt, request: Request, lock: Lock) -> str:
        """The call; returns the scheduler's own id."""

    def lookup(self, receipt: Receipt) -> str | None:
        """The id of a run whose answer was lost; None when it never arrived."""

    def status(self, receipt: Receipt) -> Status:
        """What the run is doing."""

    def try_out(self, request: Request) -> str:
        """Let the scheduler judge the request without taking it."""

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


def dependency(after: Sequence[tuple[str, str]], target: str) -> str:
    """``after`` as Slurm writes it, from (handle or job id, condition); other schedulers have none."""
    if not after:
        return ""
    if target != "slurm":
        raise Unsubmittable(f"after: {target} cannot make a job wait for another; submit it when the first has ended (jobgen submit --watch)")
    kinds = {"success": "afterok", "end": "afterany", "failure": "afternotok", "start": "after"}
    found = []
    for handle, condition in after:
        job_id = handle if handle.isdigit() else receipts.find(handle).job_id
        if job_id is None:
            raise Unsubmittable(f"after: {handle} has not reached Slurm yet")
        found.append(f"{kinds[condition]}:{job_id}")
    return ",".join(found)


def send(wanted: Request, service: Scheduler, *, new: bool, say: Say) -> Receipt:
    """Send a request unless it is live already; returns its receipt."""
    missing = [name for name in wanted.secrets if name not in os.environ] if wanted.target in ("slurm", "local") else []
    if missing:
        raise Unsubmittable(f"launch.secrets: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set in this shell; export {'it' if len(missing) == 1 else 'them'} first")
    scope = f"{wanted.target}/{service.scope(wanted.details)}/{wanted.name}"
    with receipts.locked(scope) as lock:
        for receipt in receipts.every():
            if receipt.name != wanted.name or receipt.target != wanted.target or receipt.state == "ended":
                continue
            if service.scope(receipt.details) != service.scope(wanted.details):
                continue
            same = receipt.digest == wanted.digest
            if receipt.state == "sending":
                recovered = _recover(receipt, service)
                if recovered is None:
                    if same and not new:
                        say(f"{receipt.handle} was being submitted when it was interrupted; going on")
                        return _finish(receipt, wanted, service, lock)
                    receipts.save(receipt._replace(state="ended"))
                    continue
                receipt = recovered
            if not service.status(receipt).live:
                receipts.save(receipt._replace(state="ended"))
                continue
            if new:
                continue
            if same:
                say(f"{receipt.handle} is live already with the same content (--new starts another)")
                return receipt
            raise Conflict(_difference(receipt, wanted, service))
        details = wanted.details | service.prepare(wanted)
        receipt = receipts.create(
            wanted.name, wanted.target, wanted.digest,
            {service.artifact_name: wanted.artifact.text, "spec.yaml": wanted.spec_text}, details,
        )  # fmt: skip
        return _finish(receipt, wanted, service, lock)


def _recover(receipt: Receipt, service: Scheduler) -> Receipt | None:
    job_id = service.lookup(receipt)
    return None if job_id is None else receipts.save(receipt._replace(state="sent", job_id=job_id))


def _finish(receipt: Receipt, wanted: Request, service: Scheduler, lock: Lock) -> Receipt:
    """The call itself, and its answer written down."""
    return receipts.save(receipt._replace(job_id=service.send(receipt, wanted, lock), state="sent"))


def _difference(receipt: Receipt, wanted: Request, service: Scheduler) -> str:
    """Why a live job of the same name stands in the way."""
    try:
        old = (receipt.folder / service.artifact_name).read_text(encoding="utf-8")
    except OSError:
        old = ""
    lines = list(difflib.unified_diff(old.splitlines(), wanted.artifact.text.splitlines(), f"live as {receipt.handle}", "now", lineterm="", n=1))
    shown = "\n".join(lines[:60])
    return (
        f"a job named {wanted.name} is live as {receipt.handle} with other content; "
        f"cancel it (jobgen cancel {receipt.handle}), give this one another name, or pass --new to run both:\n{shown}"
    )


def output_folder(script: str, base: Path) -> Path | None:
    """The folder of the script's ``#SBATCH --output``."""
    import shlex

    for line in script.splitlines():
        if not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            for argument in _split(line.removeprefix("#SBATCH "), shlex.split):
                if argument.startswith("--output="):
                    return base / Path(argument.removeprefix("--output=")).parent
    return None


def _split(text: str, split: Callable[[str], Sequence[str]]) -> Sequence[str]:
    try:
        return split(text)
    except ValueError:
        return ()
