"""The #SBATCH lines: every value resolved, quoted as sbatch reads it, and refused where sbatch would misread it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from jobgen.launch.job import Job, Unrenderable
from jobgen.spec.sections import Spec
from jobgen.targets.words import Shell, constant

OWN = {
    "job-name": "name", "nodes": "resources.nodes", "ntasks": "launch.launcher", "ntasks-per-node": "launch.launcher",
    "gpus": "resources.gpus_per_node", "gpus-per-node": "resources.gpus_per_node", "gres": "slurm.gpu_option",
    "gpus-per-task": "resources.gpus_per_node", "cpus-per-task": "resources.cpus_per_node", "mem": "resources.memory_per_node",
    "mem-per-cpu": "resources.memory_per_node", "mem-per-gpu": "resources.memory_per_node", "exclusive": "resources.exclusive",
    "time": "launch.time_limit", "output": "slurm.output", "signal": "slurm.signal and slurm.signal_before", "requeue": "slurm.requeue",
    "no-requeue": "slurm.requeue", "partition": "slurm.partition", "account": "slurm.account", "qos": "slurm.qos",
    "constraint": "slurm.constraint", "reservation": "slurm.reservation", "dependency": "after",
    "container-image": "slurm.container", "container-mounts": "volumes", "container-env": "slurm.container",
}  # fmt: skip
"""Options that another field makes."""
NEVER = {
    "export": "variables are exported by the script; a restricting --export would take them from every step",
    "export-file": "variables are exported by the script; it would take them from every step",
    "no-kill": "collectives cannot go on without a node",
    "wrap": "the script is what is submitted",
    "parsable": "it changes what the submitting command prints, not the job",
    "wait": "it changes what the submitting command does, not the job",
    "test-only": "it changes what the submitting command does, not the job",
    "error": "one log holds both streams (slurm.output)",
    "open-mode": "the log is always appended to: a requeue would cut it",
    "het-group": "a heterogeneous job has several node lists, and one training has one",
    "kill-on-invalid-dep": "it is set with the dependency",
}  # fmt: skip
LIGHTNING = ("bash", "interactive")
LONGEST_SIGNAL = 65_535


def directives(job: Job, spec: Spec, requeue: bool, array: bool) -> list[Shell]:
    """All directives in a fixed order; several on a line are avoided, so that each has its field."""
    return [_line(name, value, origin) for name, value, origin in _all(job, spec, requeue, array)]


Row = tuple[str, str | int | None, str]
"""Option, value (None: a flag), field."""


def _all(job: Job, spec: Spec, requeue: bool, array: bool) -> Iterator[Row]:
    slurm = spec.slurm
    yield "job-name", _name(job.name), "name"
    for field in ("partition", "account", "qos", "constraint", "reservation"):
        if (value := getattr(slurm, field)) is not None:
            yield field, value, f"slurm.{field}"
    yield "nodes", job.nodes, "resources.nodes"
    per_rank = job.command.per == "rank"
    yield "ntasks-per-node", job.processes_per_node if per_rank else 1, "launch.launcher"
    if slurm.gpu_option == "gres":
        yield "gres", f"gpu:{job.gpus_per_node}", "slurm.gpu_option"
    else:
        yield "gpus-per-node", job.gpus_per_node, "resources.gpus_per_node"
    if (cpus := _cpus(job, spec)) is not None:
        yield "cpus-per-task", max(1, cpus // job.processes_per_node) if per_rank else cpus, "resources.cpus_per_node"
    if job.exclusive:
        yield "exclusive", None, "resources.exclusive"
        yield "mem", 0, "resources.exclusive"
    elif job.memory_per_node_bytes is not None:
        yield "mem", f"{job.memory_per_node_bytes // 2**20}M", "resources.memory_per_node"
    if job.time_limit_seconds is not None:
        yield "time", clock(job.time_limit_seconds), "launch.time_limit"
    yield "output", output(slurm.output, array), "slurm.output"
    yield "open-mode", "append", "launch.restarts"
    yield "signal", f"B:{slurm.signal}@{_lead(job, spec)}", "slurm.signal_before"
    yield "requeue" if requeue else "no-requeue", None, "slurm.requeue"
    yield from _after(spec)
    yield from _extra(spec)


def _name(name: str) -> str:
    if "/" in name:
        raise Unrenderable(
            "name", "holds a `/`, and the log is named after it (its folder would not exist)", "use `-` or `_`"
        )
    if name in LIGHTNING:
        raise Unrenderable("name", f"{name} makes Lightning believe in an interactive session", "choose another name")
    return name


def _cpus(job: Job, spec: Spec) -> int | None:
    """A whole node brings all its CPUs, and vendors count them otherwise than Slurm may: then none are asked for."""
    if spec.resources.cpus_per_node is not None:
        return spec.resources.cpus_per_node
    return None if job.exclusive else job.cpus_per_node


def clock(seconds: int) -> str:
    """``D-HH:MM:SS``: the only form that every version reads alike."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def output(folder: str | None, array: bool) -> str:
    """The log: one file for all attempts, in a folder that exists (the one the job is submitted from, by default)."""
    name = "%x-%A_%a.out" if array else "%x-%j.out"
    if folder is None:
        return name
    if "\\" in folder:
        raise Unrenderable(
            "slurm.output", "holds a backslash, which switches patterns off in Slurm", "use another folder"
        )
    return f"{folder.replace('%', '%%').rstrip('/')}/{name}"


def _lead(job: Job, spec: Spec) -> int:
    lead = int(spec.slurm.signal_before)
    limit = job.time_limit_seconds
    if limit is not None and lead * 2 > limit:
        raise Unrenderable("slurm.signal_before", f"{lead} s before the end is more than half of the time limit ({limit} s), "
                           "so each attempt would be spent on stopping", f"write at most {limit // 2}s")  # fmt: skip
    if lead > LONGEST_SIGNAL:
        raise Unrenderable("slurm.signal_before", f"{lead} s is more than Slurm takes ({LONGEST_SIGNAL})", "write less")
    return lead


HANDLE = re.compile(r"(?:slurm[:/])?([0-9]+(?:_[0-9]+)?)")
"""A Slurm job id; other handles are resolved by ``jobgen submit``, which adds the dependency itself."""


def _after(spec: Spec) -> Iterator[Row]:
    kinds = {"success": "afterok", "end": "afterany", "failure": "afternotok", "start": "after"}
    found = [(kinds[after.on], HANDLE.fullmatch(after.job)) for after in spec.after]
    terms = [f"{kind}:{match.group(1)}" for kind, match in found if match is not None]
    if terms:
        yield "dependency", ",".join(terms), "after"
        yield "kill-on-invalid-dep", "yes", "after"


def _extra(spec: Spec) -> Iterator[Row]:
    for name, value in spec.slurm.extra.items():
        origin, key = f"slurm.extra.{name}", name.replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key, re.ASCII):
            raise Unrenderable(
                origin,
                f"{name!r} is not the long name of an sbatch option",
                "write it without dashes in front: comment, nodelist, mail-type ...",
            )
        if key in NEVER:
            raise Unrenderable(origin, f"--{key} is not for this script: {NEVER[key]}", "remove it")
        if key in OWN:
            raise Unrenderable(origin, f"--{key} is made from {OWN[key]}, and of two spellings Slurm silently takes one",
                               f"set {OWN[key]}")  # fmt: skip
        if value is None or value is False:
            continue
        text = None if value is True else str(value)
        if key == "array" and text is not None and spec.slurm.array_limit is not None and "%" not in text:
            text = f"{text}%{spec.slurm.array_limit}"
        if key == "nodelist" and text is not None and hosts(text) > spec.resources.nodes:
            raise Unrenderable(origin, f"names {hosts(text)} nodes, the job has {spec.resources.nodes}, and sbatch refuses more than it may give",
                               f"name at most {spec.resources.nodes}, or leave nodes out with exclude")  # fmt: skip
        yield key, text, origin


def hosts(names: str) -> int:
    """How many nodes a Slurm host list names; 0 when it is written in another way."""
    total = 0
    for one in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*", names):
        count = 1
        for group in re.findall(r"\[([^\]]*)\]", one):
            ranges = [re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part) for part in group.split(",")]
            if not all(ranges):
                return 0
            count *= sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in ranges if part)
        total += count
    return total


def _line(name: str, value: str | int | None, origin: str) -> Shell:
    if value is None:
        return constant(f"--{name}", origin)
    return constant(f"--{name}={quoted(str(value), origin)}", origin)


def quoted(value: str, origin: str) -> str:
    """A directive's value as sbatch reads it: quotes work, nothing is expanded, a line ends it."""
    if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", value):
        raise Unrenderable(origin, "holds a line break or control character, and a directive is one line", "remove it")
    if found := next((char for char in "$`\\" if char in value), None):
        raise Unrenderable(origin, f"holds `{found}`; Slurm expands nothing in directives, so it would stay as it is written",
                           "write the value itself")  # fmt: skip
    if not value:
        raise Unrenderable(origin, "is empty, and Slurm refuses empty options", "remove it or give it a value")
    return shlex.quote(value)
