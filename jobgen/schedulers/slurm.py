"""Slurm: sends the rendered script with submitit's executor and follows the job by its id."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobgen.schedulers.errors import SchedulerError, Unreachable, Unsubmittable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Phase, Status

if TYPE_CHECKING:
    from submitit import SlurmExecutor

LEAKED = ("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "SLURMD_")
"""Variables of an enclosing job or of the submitter's shell that would override the script (slurm facts 7 and 31)."""
KEPT = ("SLURM_CONF",)
MARK = "jobgen:"
"""Begins the job's comment; the token follows."""

PHASES: dict[str, Phase] = {
    "PENDING": "queued", "CONFIGURING": "queued", "REQUEUED": "queued", "REQUEUE_FED": "queued", "REQUEUE_HOLD": "queued",
    "RESV_DEL_HOLD": "queued", "SPECIAL_EXIT": "queued", "SUSPENDED": "running", "RUNNING": "running", "COMPLETING": "running",
    "SIGNALING": "running", "STAGE_OUT": "running", "STOPPED": "running", "RESIZING": "running", "COMPLETED": "succeeded",
    "FAILED": "failed", "TIMEOUT": "failed", "NODE_FAIL": "failed", "OUT_OF_MEMORY": "failed", "BOOT_FAIL": "failed",
    "DEADLINE": "failed", "PREEMPTED": "failed", "REVOKED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip

REASONS = {
    "Priority": "jobs of higher priority are ahead",
    "Resources": "waits for nodes to become free",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job it depends on failed, so it will never start",
    "BeginTime": "was requeued and starts again shortly",
    "PartitionTimeLimit": "asks for more time than the partition allows and will never start",
    "PartitionNodeLimit": "asks for more nodes than the partition has and will never start",
    "PartitionDown": "the partition is down",
    "ReqNodeNotAvail": "a node it needs is down, drained or reserved",
    "QOSMaxWallDurationPerJobLimit": "asks for more time than the QOS allows and will never start",
    "QOSMaxGRESPerUser": "the QOS's limit on your GPUs is reached",
    "AssocGrpGRES": "the account's GPU limit is reached",
    "AssocMaxJobsLimit": "the account's limit of running jobs is reached",
    "JobHeldUser": "is held by you (scontrol release frees it)",
    "JobHeldAdmin": "is held by an administrator",
    "launch failed requeued held": "a node could not start it; it is held (scontrol release frees it)",
}


def environment(base: dict[str, str] | None = None) -> dict[str, str]:
    """The submitter's environment without what would change the job behind the script's back."""
    source = os.environ if base is None else base
    return {k: v for k, v in source.items() if k in KEPT or not k.startswith(LEAKED)}


def run(command: Sequence[str], *, timeout_seconds: float = 60, pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    """A Slurm client; Unsubmittable when it is not installed, Unreachable when it does not answer."""
    if shutil.which(command[0]) is None:
        raise Unsubmittable(f"{command[0]} is not on this machine: submit from a login node of the cluster, or render the script and copy it there")
    try:
        return subprocess.run(
            list(command), env=environment(), text=True, errors="replace", capture_output=True, timeout=timeout_seconds,
            pass_fds=tuple(pass_fds), stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} gave no answer within {timeout_seconds:.0f} s") from None


def _no_contact(message: str) -> bool:
    text = message.lower()
    return any(part in text for part in ("unable to contact", "connection refused", "connection timed out", "socket timed out", "zero bytes", "communication connection failure", "no route to host", "slurm backup controller"))


def test_only(script: Path) -> str:
    """What ``sbatch --test-only`` says; SchedulerError with its own words when it refuses."""
    done = run(["sbatch", "--test-only", str(script)])
    message = done.stderr.strip() or done.stdout.strip()
    if done.returncode:
        raise (Unreachable if _no_contact(message) else SchedulerError)(f"sbatch refuses the job: {message}")
    return message


def command(receipt: Receipt, script: Path, dependency: str = "") -> list[str]:
    """The call that sends a run."""
    extra = [f"--dependency={dependency}", "--kill-on-invalid-dep=yes"] if dependency else []
    return ["sbatch", "--parsable", f"--comment={MARK}{receipt.token}", *extra, str(script)]


def send(receipt: Receipt, script: Path, lock: Lock, dependency: str = "") -> str:
    """Submit the script as it is; returns the job id. The client inherits the lock, so that a killed jobgen cannot
    be followed by another before this call has ended."""
    executor = _executor(receipt, script, lock, dependency)
    job: Any = executor._submit_command("")
    return str(job.job_id)


def _executor(receipt: Receipt, script: Path, lock: Lock, dependency: str) -> SlurmExecutor:
    from submitit.slurm import slurm as submitit_slurm

    class Executor(submitit_slurm.SlurmExecutor):
        """submitit's executor with the rendered script instead of its own (which would wrap it in an srun)."""

        def _submit_command(self, _: str) -> Any:
            done = run(command(receipt, script, dependency), timeout_seconds=300, pass_fds=[lock.fd])
            if done.returncode:
                message = done.stderr.strip() or done.stdout.strip()
                raise (Unreachable if _no_contact(message) else SchedulerError)(f"sbatch refuses the job: {message}")
            job_id = self._get_job_id_from_submission_command(f"Submitted batch job {done.stdout.strip().split(';')[0]}")
            return self.job_class(folder=self.folder, job_id=job_id, tasks=[0])

        @classmethod
        def affinity(cls) -> int:
            return 2

    return Executor(receipt.folder)


def lookup(receipt: Receipt) -> str | None:
    """The id of the job that carries the receipt's token; None when Slurm has no such job. Unreachable when it cannot
    be asked, in which case nothing may be sent."""
    done = run(["squeue", "--noheader", "--states=all", "--user", _user(), "--format=%i|%k"])
    if done.returncode:
        raise Unreachable(f"Slurm cannot be asked whether {receipt.handle} was submitted: {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        job_id, _, comment = line.strip().partition("|")
        if comment == MARK + receipt.token:
            return job_id.split("_")[0]
    if shutil.which("sacct") is None:
        return None
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(receipt.created - 60))
    done = run(["sacct", "--noheader", "--parsable2", "--allocations", f"--starttime={since}", "--format=JobID,Comment,SubmitLine"])
    if done.returncode == 0:
        for line in done.stdout.splitlines():
            if MARK + receipt.token in line:
                return line.split("|")[0].split("_")[0]
    return None


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def status(job_id: str) -> Status:
    """What Slurm says of a job: the queue first, then the accounting."""
    done = run(["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T|%r|%N|%M"])
    if done.returncode and _no_contact(done.stderr):
        raise Unreachable(f"Slurm cannot be reached: {done.stderr.strip()}")
    lines = [line.split("|") for line in done.stdout.splitlines() if line.count("|") >= 3] if done.returncode == 0 else []
    restarts = _restarts(job_id) if lines else None
    if lines:
        return _merged([_status(*fields[:4], restarts=restarts) for fields in lines])
    if shutil.which("sacct"):
        done = run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}", "--format=State,ExitCode,NodeList,Elapsed"])
        rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") >= 3] if done.returncode == 0 else []
        if rows:
            return _merged([_status(row[0], "", row[2], row[3], exit_code=row[1]) for row in rows])
    return Status("unknown", "UNKNOWN", "neither the queue nor the accounting knows it any more")


def _status(native: str, reason: str, nodes: str, elapsed: str, *, exit_code: str = "", restarts: int | None = None) -> Status:
    word = native.split()[0].rstrip("+") if native else "UNKNOWN"
    plain = "" if reason in ("None", "") else reason
    return Status(PHASES.get(word, "unknown"), word, REASONS.get(plain, plain), restarts, nodes, elapsed, exit_code)


def _merged(members: list[Status]) -> Status:
    """One status for an array: alive while a member is, failed when one failed."""
    if len(members) == 1:
        return members[0]
    order: tuple[Phase, ...] = ("running", "queued", "failed", "cancelled", "unknown", "succeeded")
    first = min(members, key=lambda one: order.index(one.phase))
    counts = {phase: sum(1 for one in members if one.phase == phase) for phase in order}
    words = ", ".join(f"{count} {phase}" for phase, count in counts.items() if count)
    return first._replace(reason=f"{len(members)} members: {words}")


def _restarts(job_id: str) -> int | None:
    done = run(["scontrol", "show", "job", "--oneliner", job_id])
    for field in done.stdout.split():
        if field.startswith("Restarts="):
            return int(field.removeprefix("Restarts="))
    return None


def cancel(job_id: str) -> None:
    """Stop the job; one that has ended already is left as it is."""
    done = run(["scancel", job_id])
    if done.returncode and not any(part in done.stderr for part in ("already completing or completed", "Invalid job id")):
        raise (Unreachable if _no_contact(done.stderr) else SchedulerError)(f"scancel: {done.stderr.strip()}")


def log_files(receipt: Receipt, rank: int | None) -> Iterator[Path]:
    """The files that hold a run's output."""
    folder = Path(receipt.details.get("log_folder") or ".")
    pattern = f"*-{receipt.job_id}.out" if rank is None else f"*-{receipt.job_id}-{rank}.out"
    yield from sorted(folder.glob(pattern))
