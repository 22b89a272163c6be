"""This machine: the same job under submitit's local executor.

A run's folder holds a lock file that the run itself locks for as long as it lives, so whether it lives never depends
on a process id, and a run that is started twice runs once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from jobgen.schedulers.errors import SchedulerError, Unwritable
from jobgen.schedulers.receipts import Receipt, write
from jobgen.schedulers.state import Status

STARTING_SECONDS = 30.0
"""A run that has not locked its folder by then was never started."""
LIMIT_MINUTES = 60 * 24 * 366
"""submitit wants a limit; the job's own script keeps the spec's."""


def send(receipt: Receipt, script: Path) -> str:
    """Start the run in the background; returns the controller's process id (for people; jobgen does not need it).

    submitit starts its controller as a child with jobgen's own streams and session. It is started from a process of a
    session of its own, with none of them: so it outlives the terminal, and ``$(jobgen submit ...)`` does not wait for it.
    """
    (receipt.folder / "cancelled").unlink(missing_ok=True)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _detach()
            answer = f"+{_start(receipt.folder, script)}"
        except BaseException as error:
            answer = f"-{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(writer, answer.encode("utf-8", "replace")[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as source:
        answer = source.read().decode("utf-8")
    os.waitpid(child, 0)
    if not answer.startswith("+"):
        raise SchedulerError(f"the run could not be started: {answer[1:] or 'its starter was killed'}")
    return answer[1:]


def _detach() -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


def _start(folder: Path, script: Path) -> str:
    from submitit.local.local import LocalExecutor

    executor = LocalExecutor(folder / "submitit")
    executor.update_parameters(timeout_min=LIMIT_MINUTES, tasks_per_node=1)
    return str(executor.submit(Run(str(folder), str(script), os.environ.get("CUDA_VISIBLE_DEVICES"))).job_id)


class Run:
    """What submitit pickles and runs: the script, its output in ``output.log``, its exit status in ``ended``."""

    def __init__(self, folder: str, script: str, gpus: str | None) -> None:
        self.folder, self.script, self.gpus = folder, script, gpus

    def __call__(self) -> int:
        folder = Path(self.folder)
        with (folder / "alive").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            if (folder / "ended").exists() or (folder / "cancelled").exists():
                return 0
            return self._run(folder, lock.fileno())

    def _run(self, folder: Path, lock: int) -> int:
        """The script holds the lock too: should this process be killed, the run still counts as live."""
        with (folder / "output.log").open("ab", buffering=0) as output:
            child = subprocess.Popen(
                ["bash", self.script], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, env=clean(dict(os.environ), self.gpus), pass_fds=[lock],
            )  # fmt: skip
            try:
                write(folder / "group", str(child.pid))
            except Unwritable:
                _signal_group(child.pid, signal.SIGKILL)
                raise
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda _number, _frame: _signal_group(child.pid, signal.SIGTERM))
            while True:
                with contextlib.suppress(InterruptedError):
                    code = child.wait()
                    break
        write(folder / "ended", str(code if code >= 0 else 128 - code))
        return code


def clean(environment: dict[str, str], gpus: str | None) -> dict[str, str]:
    """Without submitit's own variables, so that the program sees what it sees elsewhere; submitit hides all GPUs."""
    kept = {k: v for k, v in environment.items() if not k.startswith("SUBMITIT_") and k != "CUDA_VISIBLE_DEVICES"}
    return kept if gpus is None else kept | {"CUDA_VISIBLE_DEVICES": gpus}


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def alive(folder: Path) -> bool:
    """The run holds its lock."""
    try:
        with (folder / "alive").open("rb") as lock:  # a lock needs no right to write, and the folder may be read-only
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def status(receipt: Receipt) -> Status:
    """Running while the lock is held; else what it left behind."""
    folder = receipt.folder
    running = alive(folder)
    with contextlib.suppress(FileNotFoundError, ValueError):
        code = int((folder / "ended").read_text())
        if (folder / "cancelled").exists() and code:
            return Status("cancelled", "CANCELLED", exit_code=str(code), final=True)
        return Status("succeeded" if code == 0 else "failed", "ENDED", "" if code == 0 else f"exit status {code}", exit_code=str(code), final=True)
    if running:
        return Status("running", "RUNNING", elapsed=_elapsed(folder))
    if (folder / "cancelled").exists():
        return Status("cancelled", "CANCELLED", final=True)
    if not (folder / "group").exists() and time.time() - receipt.created < STARTING_SECONDS:
        return Status("queued", "STARTING")
    return Status("failed", "GONE", "it or its supervisor was killed, or the machine was restarted", final=True)


def _elapsed(folder: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        seconds = int(time.time() - (folder / "group").stat().st_mtime)
        return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return ""


def cancel(receipt: Receipt, grace_seconds: float = 40.0) -> None:
    """SIGTERM to the whole job, SIGKILL after the grace."""
    folder = receipt.folder
    write(folder / "cancelled", "")
    group, deadline = None, time.monotonic() + grace_seconds
    while alive(folder) and time.monotonic() < deadline:
        if group is None and (group := _group(folder)) is not None:  # a run that has just begun has no group yet
            _signal_group(group, signal.SIGTERM)
        time.sleep(0.1)
    if group is not None and alive(folder):
        _signal_group(group, signal.SIGKILL)


def _group(folder: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int((folder / "group").read_text())
    return None


def log_files(receipt: Receipt) -> Iterator[Path]:
    """The file that holds the run's output."""
    yield receipt.folder / "output.log"
