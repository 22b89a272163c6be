"""What Kubernetes, its operators and Kueue would refuse, said before anything is sent.

Each message was seen on a real server first (tests/cluster/refusals.jsonl): an object that the server takes and whose
pods it then refuses would wait for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from jobgen.launch.job import Job, RunTime, Unrenderable
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec
from jobgen.targets import grammar, inside, pod
from jobgen.targets.lifetime import Target
from jobgen.targets.words import LONGEST

CONFIG_MAP_BYTES = 1024 * 1024
RESERVED = re.compile(
    r"PET_.*|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|NODE_RANK|JOB_COMPLETION_INDEX"
)
"""Set by the operators and by torchrun."""
OWN = re.compile("JOBGEN_.*")
"""Set by jobgen's own script."""
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


class Trouble(NamedTuple):
    """A field of the spec, what is wrong with it, and what to write."""

    path: str
    message: str
    fix: str


def problems(job: Job, spec: Spec, target: Target) -> tuple[Trouble, ...]:
    """Everything that would be refused, or accepted and never run."""
    from jobgen.targets import admission_pod

    found = [*_name(job, target), *_program(job, spec), *_lifetime(job, spec, target)]
    found += [*_storage(job), *_files(job), *_environment(job), *admission_pod.troubles(job, spec, target)]
    return tuple(dict.fromkeys(found))


def budget(nodes: int, target: Target) -> int:
    """Characters of a name that still leave room for what the operators put behind it."""
    if target == "k8s":
        return 63 - len(f"-worker-{max(0, nodes - 2)}")
    return 63 - len(f"-node-0-{nodes - 1}-xxxxx")


def _name(job: Job, target: Target) -> Iterator[Trouble]:
    name, longest = pod.object_name(job.name), budget(job.nodes, target)
    if not name:
        yield Trouble("name", f"{job.name!r} has no letter or digit that Kubernetes takes in a name", "name: my-job")
    elif wrong := grammar.dns_label(name, longest):
        suffix = (
            "its services and pods get a longer name" if len(name) > longest else "services and pods are named after it"
        )
        fix = f"name: {_shortened(name, longest)}"
        yield Trouble("name", f"{name!r} {wrong}: {suffix}", fix)


def _shortened(name: str, longest: int) -> str:
    begun = name if name[0].isalpha() else f"job-{name}"
    return begun[:longest].rstrip("-")


def _program(job: Job, spec: Spec) -> Iterator[Trouble]:
    if not job.image:
        yield Trouble("launch.image", "a pod needs an image", "launch: {image: nvcr.io/nvidia/pytorch:25.09-py3}")
    elif job.image != job.image.strip():
        yield Trouble("launch.image", "the image has blanks around its name", f"image: {job.image.strip()}")
    if job.command.per == "rank":
        fix = "launch: {launcher: torchrun}"
        yield Trouble("launch.launcher", "srun starts one process per rank, which only Slurm can do", fix)
    if job.secrets and not spec.kubernetes.secret:
        names = ", ".join(job.secrets)
        fix = "kubernetes: {secret: NAME}"
        yield Trouble("kubernetes.secret", f"nothing says which Secret holds launch.secrets ({names})", fix)
    try:
        size = len(pod.script(pod.plan(job, spec, "k8s")).text.encode())
    except Unrenderable as reason:
        yield Trouble(reason.path, reason.why, reason.fix)
        return
    if size > LONGEST:
        fix = "put long values into a file (launch.code: {files: [...]})"
        yield Trouble("launch", f"the script has {size} bytes, {LONGEST} fit into one argument", fix)


def _lifetime(job: Job, spec: Spec, target: Target) -> Iterator[Trouble]:
    kube = spec.kubernetes
    if kube.ttl is not None and target == "trainjob":
        message = "on Trainer up to 2.3 a failed TrainJob whose JobSet is deleted by ttl starts anew, for ever"
        yield Trouble("kubernetes.ttl", message, "remove ttl, or use target jobset")
    if kube.restart == "pod" and job.restarts and target == "k8s" and kube.elastic:
        yield Trouble("kubernetes.restart", "elastic agents restart together, not pod by pod", "restart: auto")
    elastic = kube.elastic
    meets_again = target == "k8s" and (elastic is not None or (kube.restart == "gang" and job.restarts > 0))
    if meets_again and job.resume.mode == "auto" and job.resume.arguments:
        message = f"elastic agents start ranks anew with the same words, and {job.framework} is told its checkpoint by them"
        yield Trouble("kubernetes.elastic" if elastic else "kubernetes.restart", message, "target: jobset (or trainjob)")
    if elastic is None:
        if kube.restart == "gang" and target == "k8s" and job.restarts and job.launcher != "torchrun":
            message = f"a PyTorchJob restarts its gang by torchrun's elastic agents, which {job.launcher} does not have"
            yield Trouble("kubernetes.restart", message, "target: jobset (or trainjob), or restart: auto")
        return
    if target != "k8s":
        yield Trouble("kubernetes.elastic", f"{target} has a fixed number of nodes", "target: k8s, or remove elastic")
        return
    if not elastic.min_nodes <= job.nodes <= elastic.max_nodes:
        message = f"{job.nodes} nodes are not between {elastic.min_nodes} and {elastic.max_nodes}"
        yield Trouble("kubernetes.elastic", message, f"{{min_nodes: {elastic.min_nodes}, max_nodes: {job.nodes}}}")
    if job.launcher != "torchrun":
        message = f"agents that come and go need torchrun's c10d rendezvous, which {job.launcher} does not have"
        yield Trouble("kubernetes.elastic", message, "launch: {launcher: torchrun}, or remove elastic")


def _storage(job: Job) -> Iterator[Trouble]:
    taken: dict[str, str] = {inside.WORK: "jobgen's own folder"}
    if job.files:
        taken[inside.CONFIG_DIR] = "the job's files"
    for mount in job.mounts:
        path, target = mount.origin or "volumes", mount.target
        if target in taken:
            yield Trouble(f"{path}.mount", f"{target} is mounted twice (by {taken[target]})", "choose another folder")
        taken[target] = path
        if ":" in target:
            yield Trouble(
                f"{path}.mount", f"{target!r} holds a colon, which no mount path may", "choose another folder"
            )
        if not target.startswith("/") or not PurePosixPath(target).name:
            yield Trouble(f"{path}.mount", f"{target!r} is no folder inside a container", "an absolute path below /")
        yield from _source(job, mount, path)
    directory = job.resume.directory
    if directory:
        under = pod.shared_mount(job)
        if under is None or under.scratch:
            what = "is on no volume" if under is None else "is on scratch space"
            message = f"{directory} {what}: checkpoints would go with the pod"
            yield Trouble("checkpoint.directory", message, "volumes: [{mount: /checkpoints, claim: NAME}]")
        elif under.read_only:
            yield Trouble("checkpoint.directory", f"{under.target} is mounted read-only", "read_only: false")


def _source(job: Job, mount: Any, path: str) -> Iterator[Trouble]:
    if mount.claim is not None:
        if wrong := grammar.subdomain(mount.claim):
            yield Trouble(
                f"{path}.claim", f"{mount.claim!r} {wrong}", f"claim: {pod.object_name(mount.claim) or 'data'}"
            )
        if mount.create_size_bytes and job.nodes > 1 and mount.access_mode in ("ReadWriteOnce", "ReadWriteOncePod"):
            message = f"pods on {job.nodes} nodes cannot share a {mount.access_mode} volume"
            yield Trouble(f"{path}.create.access_mode", message, "access_mode: ReadWriteMany")
        if mount.storage_class and (wrong := grammar.subdomain(mount.storage_class)):
            yield Trouble(f"{path}.create.storage_class", f"{mount.storage_class!r} {wrong}", "a StorageClass's name")
    elif mount.source is not None:
        if ".." in mount.source.split("/"):
            yield Trouble(f"{path}.path", f"{mount.source!r} holds .., which no volume may", "an absolute path")
        elif not mount.source.startswith("/"):
            yield Trouble(f"{path}.path", f"{mount.source!r} is not absolute", "an absolute path on the nodes")


def _files(job: Job) -> Iterator[Trouble]:
    keys: dict[str, str] = {}
    total = 0
    for file in job.files:
        path, key = file.origin or "launch.code", pod.file_key(file.name)
        total += len(file.content.encode("utf-8", "surrogatepass")) + len(key)
        if wrong := grammar.config_key(key):
            yield Trouble(path, f"file name {file.name!r} {wrong}", "rename the file")
        elif key in keys and keys[key] != file.name:
            yield Trouble(path, f"files {keys[key]!r} and {file.name!r} become the same key {key!r}", "rename one")
        elif file.name.startswith("/") or ".." in file.name.split("/"):
            yield Trouble(path, f"file name {file.name!r} must be relative and hold no ..", "rename the file")
        if _IMPOSSIBLE.search(file.content):
            yield Trouble(path, f"file {file.name!r} holds a NUL or half of a surrogate pair", "ship text only")
        keys[key] = file.name
    if total > CONFIG_MAP_BYTES:
        message = f"the job's files have {total} bytes, a ConfigMap holds {CONFIG_MAP_BYTES}"
        yield Trouble("launch.code", message, "put the code into the image or on a volume (launch.code: /path)")


def _environment(job: Job) -> Iterator[Trouble]:
    for variable in job.env:
        path = variable.value.origin or f"launch.env.{variable.name}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable.name, re.ASCII):
            yield Trouble(path, f"{variable.name!r} is no name of a variable", "letters, digits and underscores")
        elif variable.layer == "user" and (RESERVED.fullmatch(variable.name) or OWN.fullmatch(variable.name)):
            message = (
                f"{variable.name} is set by the operator and the launcher; another value would break the rendezvous"
            )
            yield Trouble(path, message, f"remove {variable.name}")
        text = "".join(part for part in variable.value.parts if not isinstance(part, RunTime))
        if _IMPOSSIBLE.search(text):
            yield Trouble(path, "the value holds a NUL or half of a surrogate pair", "remove that character")
        elif len(variable.name) + 1 + len(text.encode("utf-8", "surrogatepass")) > LONGEST:
            yield Trouble(path, f"the value is longer than the {LONGEST} bytes of a variable", "ship it as a file")
    for name in job.secrets:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
            yield Trouble("launch.secrets", f"{name!r} is no name of a variable", "letters, digits and underscores")
