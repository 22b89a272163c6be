"""Slurm as a scheduler of runs."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobgen.schedulers import slurm, slurm_partition, tail
from jobgen.schedulers.errors import Unsubmittable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Request, Say


class SlurmScheduler:
    """The rendered script through sbatch."""

    artifact_name = "job.sh"

    def scope(self, details: dict[str, Any]) -> str:
        """The cluster."""
        return str(details.get("cluster") or slurm.cluster())

    def prepare(self, request: Request, say: Say) -> dict[str, Any]:
        """A partition that will start it, and the log folder: Slurm opens the log before the script's first line."""
        slurm_partition.look(request.artifact.text, say)
        folder = slurm.output_folder(request.artifact.text, Path.cwd())
        if folder is None:
            raise Unsubmittable("slurm.output: the log folder holds a % that only Slurm can resolve, so it cannot be made before")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unsubmittable(f"slurm.output: the log folder {folder} cannot be made: {error.strerror}") from None
        return {"cluster": slurm.cluster(), "log_folder": str(folder), "submit_folder": str(Path.cwd())}

    def send(self, receipt: Receipt, request: Request, lock: Lock, say: Say) -> str:
        """sbatch."""
        job_id, remarks = slurm.send(receipt, receipt.folder / self.artifact_name, lock, request.dependency)
        if remarks:
            say(remarks)
        return job_id

    def lookup(self, receipt: Receipt) -> str | None:
        """By sbatch's answer, or the token in the job's comment."""
        return slurm.lookup(receipt)

    def forget(self, receipt: Receipt) -> None:
        """Nothing was made."""

    def status(self, receipt: Receipt) -> Status:
        """squeue, then sacct."""
        return self.statuses([receipt])[0]

    def statuses(self, runs: Sequence[Receipt]) -> list[Status]:
        """One question to each for all of them. Another cluster's jobs are not asked for: ids repeat."""
        if not runs:
            return []
        here = slurm.cluster()
        mine = [receipt for receipt in runs if self.scope(receipt.details) == here]
        found = dict(zip((receipt.handle for receipt in mine), slurm.statuses(mine), strict=True))
        return [
            found.get(receipt.handle) or Status("unknown", "ELSEWHERE", f"it is on the cluster {receipt.details.get('cluster')}; ask there")
            for receipt in runs
        ]  # fmt: skip

    def try_out(self, request: Request, say: Say) -> str:
        """The partition's limits, then sbatch --test-only."""
        slurm_partition.look(request.artifact.text, say)
        with tempfile.TemporaryDirectory(prefix="jobgen-") as folder:
            script = Path(folder) / self.artifact_name
            script.write_text(request.artifact.text, encoding="utf-8", errors="surrogateescape", newline="\n")
            return slurm.test_only(script, request.dependency)

    def command(self, request: Request) -> str:
        """The sbatch call."""
        return shlex.join(slurm.command("TOKEN", self.artifact_name, request.artifact.text, request.dependency))

    def cancel(self, receipt: Receipt) -> str:
        """scancel."""
        if receipt.job_id:
            slurm.cancel(receipt.job_id)
        return "checkpoints and logs stay"

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """The files that Slurm writes."""
        if rank is not None:
            raise Unsubmittable("logs --rank: on Slurm one file holds the output of all ranks; leave --rank out")
        tail.copy(lambda: slurm.log_files(receipt), lambda: self.status(receipt), follow, out, say)
