"""What a partition forbids and sbatch takes all the same: such a job would wait for ever (pitfalls 13 and 62).

Slurm's default is EnforcePartLimits=NO: ``sbatch`` and ``sbatch --test-only`` then accept a job that no partition will
start. Where Slurm enforces the limits itself, its own words are better and nothing is judged here. Whatever cannot be
asked is not judged: a question that fails never keeps a job from being sent.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from jobgen.schedulers import slurm
from jobgen.schedulers.errors import NeverStarts, SchedulerError
from jobgen.spec.record import NamedTuple

ASK_SECONDS = 20.0
Partition = Mapping[str, str]
"""A partition as ``scontrol show partition`` prints it."""


class Trouble(NamedTuple):
    """One limit that the job is beyond."""

    words: str
    fix: str
    flag: str = ""
    """A QOS with this flag may go beyond it."""


class Wish(NamedTuple):
    """What the script asks for; None: it does not say."""

    partitions: tuple[str, ...]
    nodes: int
    seconds: int | None
    memory_mib: int | None
    """Of a node; 0 is all that a node has."""
    account: str | None
    qos: str | None
    requeue: bool


def look(script: str, say: Callable[[str], None]) -> None:
    """Say what will make the job wait, or keep it from starting again; NeverStarts when it would wait for ever."""
    known = _partitions()
    wish = wished(script)
    names = wish.partitions or tuple(name for name, one in known.items() if one.get("Default") == "YES")
    asked = [known[name] for name in names if name in known]
    if not asked or len(asked) < len(names):
        return
    for line in (*_waiting(asked), *_cancelling(asked, known, wish)):
        say(f"warning: {line}")
    if _setting("EnforcePartLimits").upper() != "NO":
        return
    found = [(one, list(troubles(one, wish, _memory_of_nodes))) for one in asked]
    if not all(several for _, several in found):
        return
    certain = [_certain(one, several, wish.qos) for one, several in found]
    fitting = [name for name, one in known.items() if one not in asked and _takes(one, wish)]
    message = _message(found, fitting)
    if not all(certain):
        say(f"warning: {message}\n(a QOS of this cluster may go beyond a partition's limits; if this job's cannot, it will never start)")
        return
    raise NeverStarts(f"{message}\nsbatch would take the job, and it would wait for ever (EnforcePartLimits=NO)")


def wished(script: str) -> Wish:
    """The script's directives."""
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH --"):
            with contextlib.suppress(ValueError):
                name, _, value = "".join(shlex.split(line.removeprefix("#SBATCH --"))).partition("=")
                found[name] = value
    return Wish(
        tuple(filter(None, found.get("partition", "").split(","))), int(found.get("nodes", "1")), seconds(found.get("time", "")),
        _mib(found.get("mem", "")), found.get("account"), found.get("qos"), "requeue" in found,
    )  # fmt: skip


def seconds(written: str) -> int | None:
    """``7-00:00:00`` or ``30:00``; None for UNLIMITED, NONE and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", written)
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def duration(amount: int) -> str:
    """Seconds as a spec writes them: ``30m``, ``1d 12h``."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, amount = divmod(amount, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def troubles(partition: Partition, wish: Wish, memory_of_nodes: Callable[[str], int | None]) -> Iterator[Trouble]:
    """Every limit of a partition that the job is beyond."""
    most = seconds(partition.get("MaxTime", ""))
    if wish.seconds is not None and most is not None and wish.seconds > most:
        yield Trouble(f"launch.time_limit is {duration(wish.seconds)}, its MaxTime is {duration(most)}",
                      f"launch.time_limit: {duration(most)}", "PartitionTimeLimit")  # fmt: skip
    few, many, there = (_number(partition, name) for name in ("MinNodes", "MaxNodes", "TotalNodes"))
    if many is not None and wish.nodes > many:
        yield Trouble(f"resources.nodes is {wish.nodes}, its MaxNodes is {many}", f"resources.nodes: {many}", "PartitionMaxNodes")
    elif there and wish.nodes > there:
        yield Trouble(f"resources.nodes is {wish.nodes}, and it has {there}", f"resources.nodes: {there}")
    if few is not None and wish.nodes < few:
        yield Trouble(f"resources.nodes is {wish.nodes}, its MinNodes is {few}", f"resources.nodes: {few}", "PartitionMinNodes")
    yield from _too_much_memory(partition, wish, memory_of_nodes)
    for what, field, allowed, denied in (
        (wish.account, "slurm.account", "AllowAccounts", "DenyAccounts"), (wish.qos, "slurm.qos", "AllowQos", "DenyQos"),
    ):  # fmt: skip
        if what is None:
            continue
        admitted, refused = partition.get(allowed, "ALL").split(","), partition.get(denied, "").split(",")
        if what in refused:
            yield Trouble(f"{field} is {what}, its {denied} is {','.join(refused)}", f"another {field}")
        elif "ALL" not in admitted and what not in admitted:
            yield Trouble(f"{field} is {what}, its {allowed} is {','.join(admitted)}", f"{field}: {admitted[0]}")


def _too_much_memory(partition: Partition, wish: Wish, memory_of_nodes: Callable[[str], int | None]) -> Iterator[Trouble]:
    most, asked = _number(partition, "MaxMemPerNode"), wish.memory_mib
    if most is None or asked is None:
        return
    whole = asked == 0
    if whole:
        asked = memory_of_nodes(partition["PartitionName"])
    if asked is not None and asked > most:
        words = f"a whole node is asked for (--mem=0: {asked} MiB)" if whole else f"resources.memory_per_node asks for {asked} MiB"
        yield Trouble(f"{words}, its MaxMemPerNode is {most} MiB",
                      f"resources.memory_per_node: {most}MiB{' and resources.exclusive: false' if whole else ''}")  # fmt: skip


def _takes(partition: Partition, wish: Wish) -> bool:
    return partition.get("State") == "UP" and partition.get("RootOnly") != "YES" and not list(troubles(partition, wish, _memory_of_nodes))


def _message(found: Sequence[tuple[Partition, Sequence[Trouble]]], fitting: Sequence[str]) -> str:
    """Every limit with its numbers, then the smallest change."""
    lines = [f"partition {one['PartitionName']}: {trouble.words}" for one, several in found for trouble in several]
    nearest = min((several for _, several in found), key=len)
    fix = ", ".join(dict.fromkeys(trouble.fix for trouble in nearest))
    other = f", or slurm.partition: {fitting[0]}" if fitting else ""
    return "\n".join([*lines, f"fix: write {fix}{other}"])


def _certain(partition: Partition, several: Sequence[Trouble], qos: str | None) -> bool:
    """No QOS that this job may have lifts all of its troubles."""
    if not all(trouble.flag for trouble in several):
        return True
    if (flags := _flags()) is None:
        return False
    names = [qos] if qos else list(flags)
    lifted = [flags.get(name, set()) for name in (*names, partition.get("QoS", ""))]
    return not any(all(trouble.flag in one for trouble in several) for one in lifted)


def _waiting(asked: Sequence[Partition]) -> Iterator[str]:
    down = [one["PartitionName"] for one in asked if one.get("State") == "DOWN"]
    if len(down) == len(asked):
        yield f"partition {', '.join(down)} is DOWN: sbatch takes the job, and it waits until an administrator sets it UP"


def _cancelling(asked: Sequence[Partition], known: Mapping[str, Partition], wish: Wish) -> Iterator[str]:
    """``--requeue`` does nothing for a preempted job of such a partition; the script's own requeue does, while it may run."""
    if not wish.requeue or _setting("PreemptType") != "preempt/partition_prio":
        return
    highest = max(_number(one, "PriorityTier") or 0 for one in known.values())
    for one in asked:
        if "CANCEL" in one.get("PreemptMode", "") and (_number(one, "PriorityTier") or 0) < highest:
            yield (f"partition {one['PartitionName']} has PreemptMode=CANCEL: Slurm does not restart a preempted job there, whatever launch.restarts says; "
                   f"the script requeues itself if the program has saved and left within the grace time ({one.get('GraceTime', '0')} s). For all other cases queue "
                   "a follow-up, which goes on from the last checkpoint: submit the same spec with --new --set 'after=[{job: HANDLE, on: failure}]'")  # fmt: skip


def _partitions() -> dict[str, Partition]:
    lines = _lines(["scontrol", "show", "partition", "--oneliner"])
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines or ()]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _setting(name: str) -> str:
    """A setting of the cluster; empty when it cannot be asked."""
    with contextlib.suppress(SchedulerError):
        return slurm.configuration().get(name, "")
    return ""


def _flags() -> dict[str, set[str]] | None:
    """Flags of every QOS; None when they are not known."""
    if _setting("AccountingStorageType").endswith("none"):
        return {}
    lines = _lines(["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Flags"])
    return None if lines is None else {name: set(flags.split(",")) for name, _, flags in (line.partition("|") for line in lines)}


def _memory_of_nodes(partition: str) -> int | None:
    """MiB of the partition's smallest node."""
    lines = _lines(["sinfo", "--noheader", f"--partition={partition}", "--format=%m"])
    amounts = [int(line.rstrip("+ ")) for line in lines or () if line.rstrip("+ ").isdigit()]
    return min(amounts, default=None)


def _lines(command: Sequence[str]) -> list[str] | None:
    """What a client prints; None when it is missing, fails or does not answer."""
    with contextlib.suppress(SchedulerError, OSError):
        done = slurm.run(command, timeout_seconds=ASK_SECONDS)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return None


def _number(partition: Partition, name: str) -> int | None:
    value = partition.get(name, "")
    return int(value) if value.isdigit() else None


def _mib(written: str) -> int | None:
    match = re.fullmatch(r"(\d+)M?", written)
    return int(match.group(1)) if match else None
