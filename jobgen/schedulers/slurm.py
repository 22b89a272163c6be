"""Slurm: sends the rendered script with submitit's executor and follows the job by its id."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from jobgen.schedulers.errors import SchedulerError, Unreachable, Unsubmittable, Unwritable
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.slurm_words import exit_code, phase, why, word
from jobgen.schedulers.state import Phase, Status

if TYPE_CHECKING:
    from submitit import SlurmExecutor

LEAKED = ("SLURM_", "SBATCH_", "SRUN_", "SLURMD_", "PMI_", "PMIX_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")
"""Variables of an enclosing job or of the submitter's shell that would override the script (slurm facts 7 and 31), or
hide jobs from a question."""
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
MARK = "jobgen:"
"""Begins the job's comment; the token follows."""
ANSWER, REMARKS = "sbatch.out", "sbatch.err"
"""sbatch writes its answer into the run's folder itself, so that it is kept when jobgen is killed."""
SEND_SECONDS = 300.0
SETTLE_SECONDS = 6.0
"""A request of a killed sbatch may still be on its way to the controller for that long."""
KEPT_SECONDS = 86400.0
"""A job that neither the queue nor the accounting knows by then is not going to be heard of."""
AT_ONCE = 500
"""Jobs in one question."""

_NO_CONTACT = re.compile(
    r"unable to contact|connection (?:refused|timed out|reset)|timed out|zero bytes|communication|no route to host|"
    r"network is unreachable|backup controller|insane message|transport endpoint|unexpected message|slurm_persist|"
    r"unable to resolve|resource temporarily unavailable|controller not responding|incompletely",
    re.IGNORECASE,
)
_JOB_ID = re.compile(r"^(\d+)(?:;\S*)?[ \t]*\r?\n", re.MULTILINE)


def environment(base: dict[str, str] | None = None) -> dict[str, str]:
    """The submitter's environment without what would change the job behind the script's back."""
    source = os.environ if base is None else base
    return {k: v for k, v in source.items() if k in KEPT or not k.startswith(LEAKED)}


def run(command: Sequence[str], *, timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """A Slurm client; Unsubmittable when it is not installed, Unreachable when it does not answer."""
    _installed(command[0])
    try:
        return subprocess.run(
            list(command), env=environment(), text=True, errors="replace", capture_output=True, timeout=timeout_seconds,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} gave no answer within {timeout_seconds:.0f} s") from None


def _installed(program: str) -> None:
    if shutil.which(program) is None:
        raise Unsubmittable(f"{program} is not on this machine: submit from a login node of the cluster, or render the script and copy it there")


def _no_contact(message: str) -> bool:
    return _NO_CONTACT.search(message) is not None


@functools.cache
def configuration() -> dict[str, str]:
    """The cluster's settings, as ``scontrol show config`` prints them; Unreachable when nobody answers."""
    done = run(["scontrol", "show", "config"])
    found = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", done.stdout, re.MULTILINE))
    if "ClusterName" not in found:
        raise Unreachable(f"Slurm cannot be reached: {done.stderr.strip() or 'scontrol names no cluster'}")
    return found


def cluster() -> str:
    """The cluster that this machine's clients talk to; several may share a home folder."""
    return configuration()["ClusterName"]


def dependency_options(dependency: str) -> list[str]:
    """A job that waits ends when what it waits for can no longer happen."""
    return [f"--dependency={dependency}", "--kill-on-invalid-dep=yes"] if dependency else []


def test_only(script: Path, dependency: str = "") -> str:
    """What ``sbatch --test-only`` says; SchedulerError with its own words when it refuses."""
    done = run(["sbatch", "--test-only", *dependency_options(dependency), str(script)])
    message = done.stderr.strip() or done.stdout.strip()
    if done.returncode:
        raise (Unreachable if _no_contact(message) else SchedulerError)(f"sbatch refuses the job: {message}")
    return message


def command(token: str, script: str, text: str, dependency: str = "") -> list[str]:
    """The call that sends a script. A comment of the script's own is left alone."""
    own = re.search(r"^#SBATCH --comment\b", text, re.MULTILINE)
    return ["sbatch", "--parsable", *([] if own else [f"--comment={MARK}{token}"]), *dependency_options(dependency), script]


def send(receipt: Receipt, script: Path, lock: Lock, dependency: str = "") -> tuple[str, str]:
    """Submit the script as it is; returns the job id and sbatch's remarks. The client inherits the lock and writes its
    answer into the run's folder, so that a killed jobgen is followed by another only when this call has ended."""
    executor = _executor(receipt, script, lock, dependency)
    job: Any = executor._submit_command("")
    return str(job.job_id), _read(receipt.folder / REMARKS).strip()


def _executor(receipt: Receipt, script: Path, lock: Lock, dependency: str) -> SlurmExecutor:
    from submitit.slurm import slurm as submitit_slurm

    class Executor(submitit_slurm.SlurmExecutor):
        """submitit's executor with the rendered script instead of its own (which would wrap it in an srun)."""

        def _submit_command(self, _: str) -> Any:
            job_id = _sbatch(receipt, script, lock, dependency)
            return self.job_class(folder=self.folder, job_id=job_id, tasks=[0])

        @classmethod
        def affinity(cls) -> int:
            return 2

    return Executor(receipt.folder)


def _sbatch(receipt: Receipt, script: Path, lock: Lock, dependency: str) -> str:
    _installed("sbatch")
    call = command(receipt.token, str(script), _read(script), dependency)
    repeat = "; repeat the call: jobgen asks first whether the job arrived"
    with _open(receipt.folder / ANSWER) as answer, _open(receipt.folder / REMARKS) as remarks:
        try:
            code = subprocess.run(
                call, env=environment(), stdin=subprocess.DEVNULL, stdout=answer, stderr=remarks,
                timeout=SEND_SECONDS, pass_fds=[lock.fd], check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unreachable(f"sbatch gave no answer within {SEND_SECONDS:.0f} s{repeat}") from None
    if (job_id := _answer(receipt)) is not None:
        return job_id
    message = _read(receipt.folder / REMARKS).strip() or f"exit status {code}"
    if code <= 0:
        raise Unreachable(f"sbatch ended without an answer ({message}){repeat}")
    if _no_contact(message):
        raise Unreachable(f"Slurm cannot be reached: {message}{repeat}")
    raise SchedulerError(f"sbatch refuses the job: {message}")


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _answer(receipt: Receipt) -> str | None:
    """The job id that sbatch wrote; a site's banner may stand before it."""
    found = _JOB_ID.findall(_read(receipt.folder / ANSWER))
    return found[-1] if found else None


def lookup(receipt: Receipt) -> str | None:
    """The id of a job whose answer was lost; None when Slurm has no such job. Unreachable when it cannot be asked, in
    which case nothing may be sent. If two arrived, the later is cancelled."""
    if (answer := _answer(receipt)) is not None:
        return answer
    called = (receipt.folder / ANSWER).exists()
    while True:
        found = _arrived(receipt)
        for double in found[1:]:
            cancel(double)
        if found:
            return found[0]
        if not called or not 0 <= time.time() - receipt.attempted < SETTLE_SECONDS:
            return None
        time.sleep(0.5)


def _arrived(receipt: Receipt) -> list[str]:
    """Jobs with the receipt's token in the comment, or its folder in the command."""
    marks = (MARK + receipt.token, f"/{receipt.handle}/")
    done = run(["squeue", "--noheader", "--states=all", "--me", "--Format=ArrayJobID:|,Comment:|,Command:|"])
    if done.returncode:
        raise Unreachable(f"Slurm cannot be asked whether {receipt.handle} was submitted: {done.stderr.strip()}")
    lines = done.stdout.splitlines()
    if shutil.which("sacct") is not None:
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(receipt.created - 86400))
        done = run(["sacct", "--noheader", "--parsable2", "--allocations", f"--starttime={since}", "--format=JobID,Comment,SubmitLine"])
        lines += done.stdout.splitlines() if done.returncode == 0 else []
    found = {line.split("|")[0].split("_")[0] for line in lines if any(mark in line for mark in marks)}
    return sorted((job_id for job_id in found if job_id.isdigit()), key=int)


def statuses(runs: Sequence[Receipt]) -> list[Status]:
    """What Slurm says of jobs: the queue first, then the accounting."""
    wanted = {receipt.job_id: receipt for receipt in runs if receipt.job_id}
    ids = list(wanted)
    members: dict[str, dict[str, Status]] = {}
    for start in range(0, len(ids), AT_ONCE):
        for job_id, member, status, comment in _queue(ids[start : start + AT_ONCE]):
            if job_id in wanted and (not comment.startswith(MARK) or comment == MARK + wanted[job_id].token):
                members.setdefault(job_id, {})[member] = status
    asked = [job_id for job_id in ids if job_id not in members or any(members[job_id])]
    gone = "neither the queue nor the accounting knows it any more"
    silent = ""
    for start in range(0, len(asked), AT_ONCE):
        rows, silent = _accounting(asked[start : start + AT_ONCE])
        for job_id, member, status in rows:
            members.setdefault(job_id, {}).setdefault(member, status)
    found = []
    for receipt in runs:
        if receipt.job_id is None:
            found.append(Status("unknown", "UNSENT"))
        elif receipt.job_id in members:
            found.append(_merged(list(members[receipt.job_id].values())))
        else:
            found.append(_by_log(receipt) or Status("unknown", "UNKNOWN", silent or gone, final=not silent and time.time() - receipt.created > KEPT_SECONDS))
    return found


def _queue(job_ids: Sequence[str]) -> Iterator[tuple[str, str, Status, str]]:
    fields = "ArrayJobID:|,ArrayTaskID:|,State:|,NodeList:|,TimeUsed:|,RestartCnt:|,exit_code:|,Reason:|,Comment:|"
    done = run(["squeue", "--noheader", "--array", "--states=all", f"--jobs={','.join(job_ids)}", f"--Format={fields}"])
    if done.returncode:
        if "Invalid job id" in done.stderr:
            return
        raise Unreachable(f"Slurm cannot be reached: {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        parts = line.split("|")
        if len(parts) < 9:
            continue
        job_id, member, native, nodes, elapsed, restarts, code, reason = parts[:8]
        now = phase(native)
        status = Status(now, word(native), why(reason), int(restarts) if restarts.isdigit() else None, nodes, elapsed,
                        "" if now in ("queued", "running") else exit_code(code))  # fmt: skip
        yield job_id.strip(), member if member.isdigit() else "", status, "|".join(parts[8:]).removesuffix("|")


def _accounting(job_ids: Sequence[str]) -> tuple[list[tuple[str, str, Status]], str]:
    """Rows of jobs that left the queue, and why the accounting says nothing."""
    if not job_ids or shutil.which("sacct") is None:
        return [], ""
    done = run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(job_ids)}", "--format=JobID,State,ExitCode,NodeList,Elapsed"])
    if done.returncode:
        said = done.stderr.strip()
        return [], "" if "disabled" in said else f"the queue does not know it any more, and the accounting cannot be asked: {said}"
    rows = []
    for line in done.stdout.splitlines():
        parts = line.split("|")
        if len(parts) >= 5:
            job_id, _, member = parts[0].partition("_")
            nodes = "" if parts[3] == "None assigned" else parts[3]
            now = phase(parts[1])
            if member.isdigit() or not member:
                rows.append((job_id, member, Status(now, word(parts[1]), "", None, nodes, parts[4], exit_code(parts[2]), final=now not in ("queued", "running"))))
    return rows, ""


def _by_log(receipt: Receipt) -> Status | None:
    """Without accounting an old job's log tells whether it got to its end."""
    for path in log_files(receipt):
        with contextlib.suppress(OSError), path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 4096))
            if log.read().rstrip().endswith(b" jobgen: finished"):
                return Status("succeeded", "UNKNOWN", "by its log; neither the queue nor the accounting knows it any more", final=True)
    return None


def _merged(members: list[Status]) -> Status:
    """One status for an array: alive while a member is, failed when one failed."""
    if len(members) == 1:
        return members[0]
    order: tuple[Phase, ...] = ("running", "queued", "failed", "cancelled", "unknown", "succeeded")
    first = min(members, key=lambda one: order.index(one.phase))
    counts = {phase: sum(1 for one in members if one.phase == phase) for phase in order}
    words = ", ".join(f"{count} {phase}" for phase, count in counts.items() if count)
    why_not = f"; {first.reason}" if first.reason else ""
    return first._replace(reason=f"{len(members)} members: {words}{why_not}", final=all(one.final for one in members))


def cancel(job_id: str) -> None:
    """Stop the job; one that has ended already is left as it is."""
    done = run(["scancel", job_id])
    if done.returncode and not any(part in done.stderr for part in ("already completing or completed", "Invalid job id")):
        raise (Unreachable if _no_contact(done.stderr) else SchedulerError)(f"scancel: {done.stderr.strip()}")


def log_files(receipt: Receipt) -> list[Path]:
    """The files that hold a run's output: one, or one for each member of an array."""
    folder = Path(receipt.details.get("log_folder") or ".")
    return sorted([*folder.glob(f"*-{receipt.job_id}.out"), *folder.glob(f"*-{receipt.job_id}_*.out")])


def output_folder(script: str, base: Path) -> Path | None:
    """The folder of the script's ``#SBATCH --output``; None when Slurm alone can tell it."""
    import shlex

    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH --output="):
            with contextlib.suppress(ValueError):
                folder = str(Path("".join(shlex.split(line.removeprefix("#SBATCH --output=")))).parent)
                return None if re.search(r"%(?!%)", folder.replace("%%", "")) else base / folder.replace("%%", "%")
    return base
