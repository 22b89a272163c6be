"""status, logs, cancel, list and watch of what was submitted."""

from __future__ import annotations

import time
from typing import Any

from jobgen.schedulers import receipts
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.receipts import Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Say, scheduler


def current(receipt: Receipt) -> tuple[Receipt, Status]:
    """The receipt, with the answer looked up if it was lost, and what the run is doing."""
    service = scheduler(receipt.target)
    if receipt.state == "sending":
        with receipts.locked(f"{receipt.target}/{service.scope(receipt.details)}/{receipt.name}"):
            job_id = service.lookup(receipt)
            if job_id is None:
                return receipt, Status("unknown", "UNSENT", "the submission was interrupted before it reached the scheduler; submit again")
            receipt = receipts.save(receipt._replace(state="sent", job_id=job_id))
    return receipt, service.status(receipt)


def status(handle: str | None) -> tuple[Receipt, Status]:
    """What a job is doing; None is the newest."""
    return current(receipts.find(handle))


def logs(handle: str | None, *, follow: bool, rank: int | None, out: Any, say: Say) -> None:
    """Copy a job's output."""
    receipt, _ = current(receipts.find(handle))
    scheduler(receipt.target).logs(receipt, rank, follow, out, say)


def cancel(handle: str) -> str:
    """Stop a job; returns what happened, in words."""
    receipt, found = current(receipts.find(handle))
    if not found.live:
        return f"{receipt.handle} is not live: {found.phase}"
    left = scheduler(receipt.target).cancel(receipt)
    return f"{receipt.handle} is cancelled; {left}"


def listing() -> list[tuple[Receipt, Status]]:
    """All jobs that were submitted from here, newest first."""
    found = []
    for receipt in receipts.every():
        try:
            found.append(current(receipt))
        except SchedulerError as error:
            found.append((receipt, Status("unknown", "UNREACHABLE", str(error))))
    return found


def watch(receipt: Receipt, *, out: Any, say: Say) -> Status:
    """Follow a job to its end."""
    service = scheduler(receipt.target)
    service.logs(receipt, None, True, out, say)
    while (found := service.status(receipt)).live:
        time.sleep(1)
    say(f"{receipt.handle} {found.phase}{': ' + found.reason if found.reason else ''}")
    return found
