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

from jobgen.schedulers.receipts import Receipt, write
from jobgen.schedulers.state import Status

STARTING_SECONDS = 30.0
"""A run that has not locked its folder by then was never started."""
LIMIT_MINUTES = 60 * 24 * 366
"""submitit wants a limit; the job's own script keeps the spec's."""


def send(receipt: Receipt, script: Path) -> str:
    """Start the run in the background; returns the controller's process id (for people; jobgen does not need it)."""
    from submitit.local.local import LocalExecutor

    executor = LocalExecutor(receipt.folder / "submitit")
    executor.update_parameters(timeout_min=LIMIT_MINUTES, tasks_per_node=1)
    (receipt.folder / "cancelled").unlink(missing_ok=True)
    return str(executor.submit(Run(str(receipt.folder), str(script))).job_id)


class Run:
    """What submitit pickles and runs: the script, its output in ``output.log``, its exit status in ``ended``."""

    def __init__(self, folder: str, script: str) -> None:
        self.folder, self.script = folder, script

    def __call__(self) -> int:
        folder = Path(self.folder)
        with (folder / "alive").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            if (folder / "ended").exists() or (folder / "cancelled").exists():
                return 0
            return self._run(folder)

    def _run(self, folder: Path) -> int:
        with (folder / "output.log").open("ab", buffering=0) as output:
            child = subprocess.Popen(
                ["bash", self.script], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, env=clean(dict(os.environ)),
            )  # fmt: skip
            write(folder / "group", str(child.pid))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda _number, _frame: _signal_group(child.pid, signal.SIGTERM))
            while True:
                with contextlib.suppress(InterruptedError):
                    code = child.wait()
                    break
        write(folder / "ended", str(code if code >= 0 else 128 - code))
        return code


def clean(environment: dict[str, str]) -> dict[str, str]:
    """Without submitit's own variables, so that the program sees what it sees elsewhere."""
    return {k: v for k, v in environment.items() if not k.startswith("SUBMITIT_")}


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def alive(folder: Path) -> bool:
    """The run holds its lock."""
    try:
        with (folder / "alive").open("a") as lock:
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
            return Status("cancelled", "CANCELLED", exit_code=str(code))
        return Status("succeeded" if code == 0 else "failed", "ENDED", "" if code == 0 else f"exit status {code}", exit_code=str(code))
    if running:
        return Status("running", "RUNNING", elapsed=_elapsed(folder))
    if (folder / "cancelled").exists():
        return Status("cancelled", "CANCELLED")
    if not (folder / "group").exists() and time.time() - receipt.created < STARTING_SECONDS:
        return Status("queued", "STARTING")
    return Status("failed", "GONE", "it was killed, or the machine was restarted")


def _elapsed(folder: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        seconds = int(time.time() - (folder / "group").stat().st_mtime)
        return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return ""


def cancel(receipt: Receipt, grace_seconds: float = 40.0) -> None:
    """SIGTERM to the whole job, SIGKILL after the grace."""
    folder = receipt.folder
    write(folder / "cancelled", "")
    if not alive(folder):
        return
    with contextlib.suppress(FileNotFoundError, ValueError):
        group = int((folder / "group").read_text())
        _signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while alive(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        if alive(folder):
            _signal_group(group, signal.SIGKILL)


def log_files(receipt: Receipt) -> Iterator[Path]:
    """The file that holds the run's output."""
    yield receipt.folder / "output.log"
