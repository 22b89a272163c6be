"""Slurm as a scheduler of runs."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from jobgen.schedulers import slurm, tail
from jobgen.schedulers.errors import Unsubmittable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Request, Say, output_folder


class SlurmScheduler:
    """The rendered script through sbatch."""

    artifact_name = "job.sh"

    def scope(self, details: dict[str, Any]) -> str:
        """One login node, one cluster (SLURM_CONF names another)."""
        import os

        return os.environ.get("SLURM_CONF", "")

    def prepare(self, request: Request) -> dict[str, Any]:
        """The log folder: Slurm opens the log before the script's first line."""
        folder = output_folder(request.artifact.text, Path.cwd())
        if folder is None:
            return {"submit_folder": str(Path.cwd())}
        if "%" in str(folder):
            raise Unsubmittable(f"slurm.output: the log folder {folder} holds a % that only Slurm can resolve, so it cannot be made before")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unsubmittable(f"slurm.output: the log folder {folder} cannot be made: {error.strerror}") from None
        return {"log_folder": str(folder), "submit_folder": str(Path.cwd())}

    def send(self, receipt: Receipt, request: Request, lock: Lock) -> str:
        """sbatch."""
        return slurm.send(receipt, receipt.folder / self.artifact_name, lock, request.dependency)

    def lookup(self, receipt: Receipt) -> str | None:
        """By the token in the job's comment."""
        return slurm.lookup(receipt)

    def status(self, receipt: Receipt) -> Status:
        """squeue, then sacct."""
        return slurm.status(receipt.job_id) if receipt.job_id else Status("unknown", "UNSENT")

    def try_out(self, request: Request) -> str:
        """sbatch --test-only."""
        with tempfile.TemporaryDirectory(prefix="jobgen-") as folder:
            script = Path(folder) / self.artifact_name
            script.write_text(request.artifact.text, encoding="utf-8", newline="\n")
            return slurm.test_only(script)

    def command(self, request: Request) -> str:
        """The sbatch call."""
        return shlex.join(["sbatch", "--parsable", f"--comment={slurm.MARK}TOKEN", *([f"--dependency={request.dependency}", "--kill-on-invalid-dep=yes"] if request.dependency else []), self.artifact_name])

    def cancel(self, receipt: Receipt) -> str:
        """scancel."""
        if receipt.job_id:
            slurm.cancel(receipt.job_id)
        return "checkpoints and logs stay"

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """The files that Slurm writes."""
        tail.copy(lambda: list(slurm.log_files(receipt, rank)), lambda: self.status(receipt).live, follow, out)
