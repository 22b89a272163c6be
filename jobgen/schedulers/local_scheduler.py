"""This machine as a scheduler of runs."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from jobgen.schedulers import local, tail
from jobgen.schedulers.errors import SchedulerError, Unsubmittable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Request, Say


class LocalScheduler:
    """The rendered script in the background of this machine."""

    artifact_name = "job.sh"

    def scope(self, details: dict[str, Any]) -> str:
        """The machine."""
        return str(details.get("host") or socket.gethostname())

    def prepare(self, request: Request, say: Say) -> dict[str, Any]:
        """Nothing stands before it; state may be shared with other machines."""
        return {"host": socket.gethostname()}

    def send(self, receipt: Receipt, request: Request, lock: Lock, say: Say) -> str:
        """submitit's local executor."""
        return local.send(receipt, receipt.folder / self.artifact_name)

    def lookup(self, receipt: Receipt) -> str | None:
        """A run that lives or ended was sent; one that did neither is started again, and runs once in any case."""
        started = local.alive(receipt.folder) or (receipt.folder / "ended").exists()
        return receipt.handle if started else None

    def forget(self, receipt: Receipt) -> None:
        """Nothing was made."""

    def status(self, receipt: Receipt) -> Status:
        """By the run's own lock."""
        if self.scope(receipt.details) != socket.gethostname():
            return Status("unknown", "ELSEWHERE", f"it runs on {self.scope(receipt.details)}; ask there")
        return local.status(receipt)

    def statuses(self, runs: Sequence[Receipt]) -> list[Status]:
        """One after the other."""
        return [self.status(receipt) for receipt in runs]

    def try_out(self, request: Request, say: Say) -> str:
        """bash -n."""
        import subprocess

        done = subprocess.run(["bash", "-n"], input=request.artifact.text, text=True, capture_output=True, check=False)
        if done.returncode:
            raise SchedulerError(f"bash cannot read the script: {done.stderr.strip()}")
        return "bash reads the script"

    def command(self, request: Request) -> str:
        """What is run."""
        return f"bash {self.artifact_name}"

    def cancel(self, receipt: Receipt) -> str:
        """SIGTERM, then SIGKILL."""
        local.cancel(receipt)
        return "checkpoints and logs stay"

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """The run's output file."""
        if rank is not None:
            raise Unsubmittable("logs --rank: on this machine one file holds the output of all ranks; leave --rank out")
        tail.copy(lambda: list(local.log_files(receipt)), lambda: self.status(receipt), follow, out, say)
