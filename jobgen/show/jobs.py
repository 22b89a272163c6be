"""Submitted jobs, for people and programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from jobgen.schedulers.receipts import Receipt
from jobgen.schedulers.state import Status
from jobgen.show.table import table


def as_json(receipt: Receipt, found: Status) -> str:
    """The ``jobgen.status/1`` object on one line."""
    record: dict[str, Any] = {
        "schema": "jobgen.status/1", "handle": receipt.handle, "name": receipt.name, "target": receipt.target,
        "job_id": receipt.job_id, "created": receipt.created, **found._asdict(),
    }  # fmt: skip
    del record["final"]
    return json.dumps(record, ensure_ascii=False)


def text(receipt: Receipt, found: Status) -> str:
    """One job."""
    facts = (
        ("target", receipt.target), ("job", receipt.job_id), ("why", found.reason), ("queue", found.queue), ("pods", found.pods), ("nodes", found.nodes),
        ("running for", found.elapsed), ("restarts", found.restarts), ("exit status", found.exit_code),
    )  # fmt: skip
    lines = [f"{receipt.handle}  {found.phase} ({found.native})"]
    lines += [f"  {name}: {value}" for name, value in facts if value not in (None, "")]
    if found.output:
        lines += ["  last output of what failed:", *(f"    {line}" for line in found.output.splitlines())]
    return "\n".join(lines)


def listing(found: Iterable[tuple[Receipt, Status]]) -> str:
    """All jobs, one a line."""
    rows = [
        (r.handle, r.target, r.job_id or "-", s.phase, time.strftime("%Y-%m-%d %H:%M", time.localtime(r.created)), s.reason)
        for r, s in found
    ]
    return table(("handle", "target", "job", "phase", "submitted", ""), rows) if rows else "nothing was submitted from here yet"
