"""status, logs, cancel, list and watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from jobgen.schedulers import receipts
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.receipts import Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Say, scheduler

FAILED = 4


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


def status(handle: str | None, *, as_json: bool, out: Callable[[str], None]) -> int:
    """What a job is doing; 4 when it failed or was cancelled."""
    receipt, found = current(receipts.find(handle))
    if as_json:
        out(json.dumps(_record(receipt, found), ensure_ascii=False))
    else:
        lines = [f"{receipt.handle}  {found.phase} ({found.native})"]
        facts = (
            ("target", receipt.target), ("job", receipt.job_id), ("why", found.reason), ("nodes", found.nodes),
            ("running for", found.elapsed), ("restarts", found.restarts), ("exit status", found.exit_code),
        )  # fmt: skip
        lines += [f"  {name}: {value}" for name, value in facts if value not in (None, "")]
        out("\n".join(lines))
    return FAILED if found.phase in ("failed", "cancelled") else 0


def _record(receipt: Receipt, found: Status) -> dict[str, Any]:
    return {
        "schema": "jobgen.status/1", "handle": receipt.handle, "name": receipt.name, "target": receipt.target,
        "job_id": receipt.job_id, "created": receipt.created, **found._asdict(),
    }  # fmt: skip


def logs(handle: str | None, *, follow: bool, rank: int | None, out: Any, say: Say) -> int:
    """A job's output."""
    receipt, _ = current(receipts.find(handle))
    scheduler(receipt.target).logs(receipt, rank, follow, out, say)
    return 0


def cancel(handle: str, *, say: Say) -> int:
    """Stop a job."""
    receipt, found = current(receipts.find(handle))
    if not found.live:
        say(f"{receipt.handle} is not live: {found.phase}")
        return 0
    left = scheduler(receipt.target).cancel(receipt)
    say(f"{receipt.handle} is cancelled; {left}")
    return 0


def listing(*, as_json: bool, out: Callable[[str], None]) -> int:
    """All jobs that were submitted from here, newest first."""
    found = []
    for receipt in receipts.every():
        try:
            found.append(current(receipt))
        except SchedulerError as error:
            found.append((receipt, Status("unknown", "UNREACHABLE", str(error))))
    if as_json:
        for receipt, one in found:
            out(json.dumps(_record(receipt, one), ensure_ascii=False))
        return 0
    if not found:
        out("nothing was submitted from here yet")
        return 0
    from jobgen.show.table import table

    rows = [(r.handle, r.target, r.job_id or "-", s.phase, time.strftime("%Y-%m-%d %H:%M", time.localtime(r.created)), s.reason) for r, s in found]
    out(table(("handle", "target", "job", "phase", "submitted", ""), rows))
    return 0


def watch(receipt: Receipt, *, out: Any, say: Say) -> int:
    """Follow a job to its end; 4 when it did not succeed."""
    service = scheduler(receipt.target)
    service.logs(receipt, None, True, out, say)
    while (found := service.status(receipt)).live:
        time.sleep(1)
    say(f"{receipt.handle} {found.phase}{': ' + found.reason if found.reason else ''}")
    return 0 if found.phase == "succeeded" else FAILED
