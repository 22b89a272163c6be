"""What Slurm's words for a job's state mean."""

from __future__ import annotations

import re

from jobgen.schedulers.state import Phase

PHASES: dict[str, Phase] = {
    "PENDING": "queued", "CONFIGURING": "queued", "REQUEUED": "queued", "REQUEUE_FED": "queued", "REQUEUE_HOLD": "queued",
    "RESV_DEL_HOLD": "queued", "SPECIAL_EXIT": "queued", "SUSPENDED": "running", "RUNNING": "running", "COMPLETING": "running",
    "SIGNALING": "running", "STAGE_OUT": "running", "STOPPED": "running", "RESIZING": "running", "COMPLETED": "succeeded",
    "FAILED": "failed", "TIMEOUT": "failed", "NODE_FAIL": "failed", "OUT_OF_MEMORY": "failed", "BOOT_FAIL": "failed",
    "DEADLINE": "failed", "PREEMPTED": "failed", "LAUNCH_FAILED": "failed", "RECONFIG_FAIL": "failed", "REVOKED": "failed",
    "CANCELLED": "cancelled",
}  # fmt: skip

REASONS = {
    "Priority": "jobs of higher priority are ahead",
    "Resources": "waits for nodes to become free",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job it depends on failed, so it can never start",
    "BeginTime": "starts again shortly after a requeue, or at the time it asked for",
    "Prolog": "its nodes are being made ready",
    "JobArrayTaskLimit": "as many members of the array run as may at once",
    "PartitionTimeLimit": "asks for more time than the partition allows, so it will not start",
    "PartitionNodeLimit": "asks for more nodes than the partition has or allows, so it will not start",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs now",
    "ReqNodeNotAvail": "a node it needs is down, drained or reserved",
    "NodeDown": "a node it needs is down",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted",
    "BadConstraints": "no nodes have what slurm.constraint asks for",
    "AccountNotAllowed": "the partition does not take this account",
    "QOSNotAllowed": "the partition or the account does not take this QOS",
    "InvalidAccount": "the account does not exist (any more)",
    "InvalidQOS": "the QOS does not exist (any more)",
    "Licenses": "waits for a licence",
    "JobHeldUser": "is held by you (scontrol release frees it)",
    "JobHeldAdmin": "is held by an administrator",
    "JobHoldMaxRequeue": "was requeued too often and is held",
    "launch failed requeued held": "a node could not start it, so it is held (scontrol release frees it)",
    "NonZeroExitCode": "the script failed",
    "TimeLimit": "reached its time limit",
    "JobLaunchFailure": "a node could not start it, or it was killed",
    "RaisedSignal": "it was killed by a signal",
    "OutOfMemory": "a process needed more memory than the job has",
    "NodeFail": "a node failed",
}
_LIMIT = re.compile(r"(QOS|Assoc|Association)(Grp|Max)([A-Za-z]+?)(PerUser|PerAccount|PerAcct|PerJob|PerNode|PU|PA)?(Limit)?")
_PER = {"PerUser": " per user", "PU": " per user", "PerAccount": " per account", "PerAcct": " per account", "PA": " per account", "PerJob": " per job", "PerNode": " per node"}
_WHAT = {"GRES": "GPUs", "TRES": "resources", "Cpu": "CPUs", "CPU": "CPUs", "Memory": "memory", "Mem": "memory", "Node": "nodes",
         "Nodes": "nodes", "Jobs": "running jobs", "Job": "running jobs", "SubmitJob": "submitted jobs", "Submit": "submitted jobs",
         "WallDuration": "time", "Wall": "time", "WallTime": "time", "Billing": "billing"}  # fmt: skip


def phase(native: str) -> Phase:
    """jobgen's word for a state such as ``CANCELLED by 0``."""
    return PHASES.get(word(native), "unknown")


def word(native: str) -> str:
    """The state alone."""
    return native.split()[0].rstrip("+") if native.strip() else "UNKNOWN"


def why(reason: str) -> str:
    """A reason in words, with Slurm's own behind it."""
    if reason in ("None", ""):
        return ""
    plain = reason.split(",")[0].strip()
    if words := REASONS.get(plain):
        return f"{words} ({reason})"
    if match := _LIMIT.fullmatch(plain):
        owner = "the QOS's" if match.group(1) == "QOS" else "the account's"
        what = _WHAT.get(match.group(3), match.group(3))
        verb = "it asks for more than" if match.group(4) == "PerJob" else "it would exceed"
        return f"{verb} {owner} limit on {what}{_PER.get(match.group(4) or '', '')} ({reason})"
    return reason


def exit_code(written: str) -> str:
    """An exit status as a shell gives it, from ``3:0`` (accounting) or the raw wait status (older squeue)."""
    if ":" in written:
        code, _, number = written.partition(":")
        if not (code.isdigit() and number.isdigit()):
            return ""
        return str(128 + int(number)) if int(number) and not int(code) else code
    if not written.isdigit():
        return ""
    raw = int(written)
    return str(128 + (raw & 0x7F)) if raw & 0x7F else str(raw >> 8)
