"""status, logs, cancel, list and watch of what was submitted."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from jobgen.schedulers import receipts, tail
from jobgen.schedulers.errors import Busy, SchedulerError
from jobgen.schedulers.receipts import Receipt
from jobgen.schedulers.state import NEVER_SENT, Status
from jobgen.schedulers.submit import Say, recover, scheduler

CANCEL_SECONDS = 90.0
"""How long cancel waits for the end: the program may save, and Slurm kills what is left after KillWait."""
SENDING = Status("queued", "SUBMITTING", "it is being submitted right now")
UNSENT = Status("unknown", "UNSENT", "the submission was interrupted before it reached the scheduler; submit again")


def current(receipt: Receipt) -> tuple[Receipt, Status]:
    """The receipt, with the answer looked up if it was lost, and what the run is doing."""
    if receipt.end is not None:
        return receipt, receipt.end
    service = scheduler(receipt.target)
    if receipt.state == "sending":
        receipt, status = _answered(receipt)
        if status is not None:
            return receipt, status
    status = service.status(receipt)
    return (receipts.close(receipt, status) if status.final else receipt), status


def _answered(receipt: Receipt) -> tuple[Receipt, Status | None]:
    """A receipt in the middle of its submission: with the answer, or what it is instead."""
    service = scheduler(receipt.target)
    try:
        with receipts.locked(f"{receipt.target}/{service.scope(receipt.details)}/{receipt.name}"):
            receipt = receipts.load(receipt.folder)
            if receipt.state != "sending":
                return receipt, receipt.end
            found = recover(receipt, service)
    except Busy:
        return receipt, SENDING
    except (OSError, ValueError):
        return receipt, NEVER_SENT
    return (receipt, UNSENT) if found is None else (found, None)


def status(handle: str | None) -> tuple[Receipt, Status]:
    """What a job is doing; None is the newest."""
    return current(receipts.find(handle))


def logs(handle: str | None, *, follow: bool, rank: int | None, out: Any, say: Say) -> None:
    """Copy a job's output."""
    receipt, found = current(receipts.find(handle))
    if receipt.job_id is None:
        say(f"{receipt.handle} has no output: {found.reason}")
        return
    scheduler(receipt.target).logs(receipt, rank, follow, out, say)


def cancel(handle: str, say: Say = lambda _: None) -> str:
    """Stop a job and wait for its end; returns what happened, in words."""
    receipt, found = current(receipts.find(handle))
    if found is UNSENT:
        scheduler(receipt.target).forget(receipt)
        receipts.close(receipt, NEVER_SENT)
        return f"{receipt.handle} had not reached the scheduler; it is forgotten"
    if not found.live:
        return f"{receipt.handle} is not live: {tail.described(found)}"
    if receipt.job_id is None:
        raise Busy(f"{receipt.handle} is being submitted right now; cancel it when it is")
    service = scheduler(receipt.target)
    left = service.cancel(receipt)
    notice, deadline = time.monotonic() + 2, time.monotonic() + CANCEL_SECONDS
    while (found := service.status(receipt)).live:
        now = time.monotonic()
        if now > deadline:
            return f"{receipt.handle} was told to end and has not ended yet ({found.native}); {left}"
        if notice and now > notice:
            say(f"{receipt.handle} is ending")
            notice = 0
        time.sleep(0.5)
    if found.phase == "cancelled":
        return f"{receipt.handle} is cancelled; {left}"
    return f"{receipt.handle} {tail.described(found)}; {left}"


def listing() -> list[tuple[Receipt, Status]]:
    """All jobs that were submitted from here, newest first."""
    found: dict[str, tuple[Receipt, Status]] = {}
    asked: dict[str, list[Receipt]] = defaultdict(list)
    known = receipts.every()
    for receipt in known:
        if receipt.end is not None:
            found[receipt.handle] = (receipt, receipt.end)
            continue
        if receipt.state == "sending":
            try:
                receipt, status = _answered(receipt)
            except SchedulerError as error:
                status = Status("unknown", "UNREACHABLE", str(error))
            if status is not None:
                found[receipt.handle] = (receipt, status)
                continue
        asked[receipt.target].append(receipt)
    for target, runs in asked.items():
        found |= {receipt.handle: (receipt, status) for receipt, status in zip(runs, _statuses(target, runs), strict=True)}
    return [found[receipt.handle] for receipt in known]


def _statuses(target: str, runs: list[Receipt]) -> list[Status]:
    try:
        statuses = scheduler(target).statuses(runs)
    except SchedulerError as error:
        return [Status("unknown", "UNREACHABLE", str(error))] * len(runs)
    for receipt, status in zip(runs, statuses, strict=True):
        if status.final:
            receipts.close(receipt, status)
    return statuses


def watch(receipt: Receipt, *, out: Any, say: Say) -> Status:
    """Follow a job to its end."""
    service = scheduler(receipt.target)
    try:
        service.logs(receipt, None, True, out, say)
        patient = tail.Patient(lambda: service.status(receipt), lambda _: None)
        while (found := patient()) is None or found.live:
            time.sleep(1)
    except KeyboardInterrupt:
        say(f"{receipt.handle} goes on: jobgen logs -f {receipt.handle} follows it, jobgen cancel {receipt.handle} stops it")
        raise
    say(f"{receipt.handle} {tail.described(found)}")
    return found


def wait_for_room(runs: list[Receipt], limit: int, say: Say) -> None:
    """Return when fewer than ``limit`` of the runs are live; for schedulers that have no queue."""
    said = False
    while sum(1 for receipt in runs if current(receipt)[1].live) >= limit:
        if not said:
            say(f"{limit} run (sweep.max_parallel); the next one starts when one of them has ended")
            said = True
        time.sleep(1)
