"""Jobs that wait for others."""

from __future__ import annotations

from collections.abc import Sequence

from jobgen.schedulers import follow, receipts
from jobgen.schedulers.errors import NeverStarts, Unsubmittable
from jobgen.schedulers.state import Status
from jobgen.targets.directives import HANDLE

KINDS = {"success": "afterok", "end": "afterany", "failure": "afternotok", "start": "after"}


def dependency(after: Sequence[tuple[str, str]], target: str, more: str = "") -> str:
    """``after`` as Slurm writes it, from (handle or job id, condition); "" when nothing is left to wait for. Job ids
    alone stand in the script already. Other schedulers have no such thing."""
    if not after:
        return more
    if target != "slurm":
        raise Unsubmittable(f"after: {target} cannot make a job wait for another; submit it when the first has ended (jobgen submit --watch)")
    terms, handles = [], 0
    for name, condition in after:
        if match := HANDLE.fullmatch(name):
            terms.append(f"{KINDS[condition]}:{match.group(1)}")
            continue
        handles += 1
        receipt, found = follow.current(receipts.find(name))
        if receipt.target != "slurm":
            raise Unsubmittable(f"after: {name} runs by target {receipt.target}, and Slurm does not know it")
        if receipt.job_id is None:
            raise Unsubmittable(f"after: {name} has not reached Slurm: {found.reason}")
        if not _settled(name, condition, found):
            terms.append(f"{KINDS[condition]}:{receipt.job_id}")
    return ",".join([*terms, *filter(None, [more])]) if handles or more else ""


def _settled(name: str, condition: str, found: Status) -> bool:
    """Nothing is left to wait for; NeverStarts when what it waits for can no longer happen."""
    if found.live:
        return condition == "start" and found.phase == "running" and not found.ending
    if condition in ("end", "start"):
        return True
    succeeded = found.phase == "succeeded"
    if found.phase == "unknown":
        raise NeverStarts(f"after: how {name} ended is not known any more ({found.reason}); write `on: end`, or remove it")
    if succeeded != (condition == "success"):
        raise NeverStarts(f"after: {name} {found.phase}, so a job that waits for its {condition} would never start")
    return True
