"""What would be refused in kubernetes.* and resources: labels, tolerations, security, devices, queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets import grammar, pod
from jobgen.targets.admission import Trouble
from jobgen.targets.lifetime import Target

ANNOTATION_BYTES = 256 * 1024
PODSET = "kueue.x-k8s.io/podset-"
TOPOLOGIES = tuple(f"{PODSET}{kind}-topology" for kind in ("required", "preferred", "unconstrained"))
BOOLEAN = ("allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem", "runAsNonRoot")
SECURITY: Mapping[str, type] = {
    **dict.fromkeys(BOOLEAN, bool),
    "runAsUser": int,
    "runAsGroup": int,
    "procMount": str,
    "capabilities": dict,
    "seccompProfile": dict,
    "appArmorProfile": dict,
    "seLinuxOptions": dict,
    "windowsOptions": dict,
}
"""Fields of a container's securityContext in 1.34."""
TOLERATION: Mapping[str, type] = {
    "key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int,
}  # fmt: skip
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def troubles(job: Job, spec: Spec, target: Target) -> Iterator[Trouble]:
    """All of this file's."""
    yield from _metadata(spec)
    yield from _names(spec)
    yield from _queue(spec, target)
    for number, toleration in enumerate(spec.kubernetes.tolerations):
        yield from _toleration(toleration, f"kubernetes.tolerations.{number}")
    yield from _security(spec.kubernetes.security_context)
    yield from _resources(job, spec)
    yield from _size(job, spec, target)


def _metadata(spec: Spec) -> Iterator[Trouble]:
    kube = spec.kubernetes
    for kind, values in (
        ("labels", kube.labels),
        ("node_selector", kube.node_selector),
        ("annotations", kube.annotations),
    ):
        for key, value in values.items():
            path = f"kubernetes.{kind}.{key}"
            if wrong := grammar.qualified(key.lower() if kind == "annotations" else key):
                yield Trouble(path, f"key {key!r} {wrong}", "a key such as example.com/name")
            if kind != "annotations" and (wrong := grammar.label_value(value)):
                yield Trouble(path, f"{value!r} {wrong}", "a shorter or plainer value; free text fits into annotations")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in kube.annotations.items())
    if size > ANNOTATION_BYTES:
        message = f"the annotations have {size} bytes, {ANNOTATION_BYTES} fit"
        yield Trouble("kubernetes.annotations", message, "ship long texts as files")


def _names(spec: Spec) -> Iterator[Trouble]:
    kube = spec.kubernetes
    if kube.namespace is not None and (wrong := grammar.namespace(kube.namespace)):
        yield Trouble("kubernetes.namespace", f"{kube.namespace!r} {wrong}", "a namespace's name")
    named = [
        ("priority_class", kube.priority_class),
        ("service_account", kube.service_account),
        ("secret", kube.secret),
    ]
    named += [(f"image_pull_secrets.{number}", name) for number, name in enumerate(kube.image_pull_secrets)]
    for field, name in named:
        if name is not None and (wrong := grammar.subdomain(name)):
            yield Trouble(f"kubernetes.{field}", f"{name!r} {wrong}", "the object's name")


def _queue(spec: Spec, target: Target) -> Iterator[Trouble]:
    kube = spec.kubernetes
    if target == "trainjob" and kube.scheduler == "volcano" and kube.priority_class:
        message = "with Volcano, Trainer 2.1 to 2.3 look the class up and their role may not: the TrainJob is refused"
        yield Trouble("kubernetes.priority_class", message, "remove priority_class, or use target jobset")
    if kube.queue is not None and (wrong := grammar.subdomain(kube.queue) or grammar.label_value(kube.queue)):
        yield Trouble("kubernetes.queue", f"{kube.queue!r} {wrong}", "a queue's name")
    asked = [key for key in TOPOLOGIES if key in kube.annotations]
    if len(asked) > 1:
        message = f"a pod set asks for one kind of topology, here are {len(asked)}: {', '.join(asked)}"
        yield Trouble(f"kubernetes.annotations.{asked[1]}", message, "keep one of them")
    for key in asked:
        value = kube.annotations[key]
        if key == TOPOLOGIES[2]:
            if value not in ("true", "false"):
                yield Trouble(f"kubernetes.annotations.{key}", f"{value!r} is neither true nor false", '"true"')
        elif wrong := grammar.qualified(value):
            message = f"{value!r} names no level of a topology: it {wrong}"
            yield Trouble(f"kubernetes.annotations.{key}", message, "a node label such as kubernetes.io/hostname")


def _toleration(row: Mapping[str, Any], path: str) -> Iterator[Trouble]:
    yield from _typed(row, TOLERATION, path, "toleration")
    operator, key, effect = row.get("operator", "Equal"), row.get("key"), row.get("effect")
    if operator not in ("Equal", "Exists"):
        yield Trouble(f"{path}.operator", f"{operator!r} is neither Equal nor Exists", "operator: Exists")
    elif operator == "Exists" and row.get("value"):
        yield Trouble(f"{path}.value", "must be empty with operator Exists", "remove value, or operator: Equal")
    elif operator == "Equal" and not key:
        yield Trouble(f"{path}.operator", "must be Exists when no key is given", "operator: Exists")
    if isinstance(key, str) and key and (wrong := grammar.qualified(key)):
        yield Trouble(f"{path}.key", f"{key!r} {wrong}", "the taint's key")
    value = row.get("value")
    if isinstance(value, str) and operator == "Equal" and (wrong := grammar.label_value(value)):
        yield Trouble(f"{path}.value", f"{value!r} {wrong}", "the taint's value")
    if effect and effect not in EFFECTS:
        yield Trouble(f"{path}.effect", f"{effect!r} is none of {', '.join(EFFECTS)}", "effect: NoSchedule")
    if "tolerationSeconds" in row and effect != "NoExecute":
        yield Trouble(f"{path}.tolerationSeconds", "only effect NoExecute has a time", "effect: NoExecute")


def _typed(row: Mapping[str, Any], fields: Mapping[str, type], path: str, what: str) -> Iterator[Trouble]:
    for key, value in row.items():
        wanted = fields.get(key)
        if wanted is None:
            from jobgen.catalog.errors import nearest

            near = nearest(str(key), fields, 1)
            fix = f"{near[0]}: ..." if near else f"one of {', '.join(fields)}"
            yield Trouble(f"{path}.{key}", f"a {what} has no field {key!r}", fix)
        elif type(value) is not wanted:
            words = {bool: "true or false", int: "a whole number", str: "a text", dict: "a map"}
            yield Trouble(f"{path}.{key}", f"{value!r} is not {words[wanted]}", f"{key}: {words[wanted]}")


def _security(context: Mapping[str, Any]) -> Iterator[Trouble]:
    path = "kubernetes.security_context"
    yield from _typed(context, SECURITY, path, "securityContext")
    for key in ("runAsUser", "runAsGroup"):
        value = context.get(key)
        if type(value) is int and not 0 <= value < 2**31:
            yield Trouble(f"{path}.{key}", f"{value} is not between 0 and {2**31 - 1}", f"{key}: 1000")
    capabilities = context.get("capabilities")
    if isinstance(capabilities, dict):
        yield from _typed(capabilities, {"add": list, "drop": list}, f"{path}.capabilities", "set of capabilities")
    adds = capabilities.get("add") if isinstance(capabilities, dict) else None
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged") is True:
            message = "a privileged container can always gain privileges"
            yield Trouble(f"{path}.allowPrivilegeEscalation", message, "remove allowPrivilegeEscalation or privileged")
        elif isinstance(adds, list) and "CAP_SYS_ADMIN" in adds:
            message = "CAP_SYS_ADMIN can always gain privileges"
            yield Trouble(
                f"{path}.allowPrivilegeEscalation", message, "remove allowPrivilegeEscalation or CAP_SYS_ADMIN"
            )
    profile = context.get("seccompProfile")
    if isinstance(profile, dict):
        kind, file = profile.get("type"), profile.get("localhostProfile")
        if kind not in ("RuntimeDefault", "Unconfined", "Localhost"):
            fix = "type: RuntimeDefault"
            yield Trouble(
                f"{path}.seccompProfile.type", f"{kind!r} is none of RuntimeDefault, Unconfined, Localhost", fix
            )
        elif (kind == "Localhost") != bool(file):
            message = "localhostProfile goes with type Localhost and only with it"
            yield Trouble(f"{path}.seccompProfile.localhostProfile", message, "type: RuntimeDefault")
    if context.get("procMount") not in (None, "Default"):
        value = context["procMount"]
        message = f"{value!r} needs a user namespace (hostUsers: false), which a job's pod does not have"
        yield Trouble(f"{path}.procMount", message, "remove procMount")


STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def _resources(job: Job, spec: Spec) -> Iterator[Trouble]:
    for name, given in spec.kubernetes.extra_resources.items():
        path, value = f"kubernetes.extra_resources.{name}", str(given)
        huge = name.startswith("hugepages-")
        if wrong := grammar.qualified(name):
            yield Trouble(path, f"resource {name!r} {wrong}", "a name such as rdma/hca")
        elif name not in STANDARD and not huge and ("/" not in name or name.partition("/")[0].startswith("requests.")):
            yield Trouble(path, f"{name!r} is no resource that a container can ask for", "a name such as rdma/hca")
        amount = grammar.quantity(value)
        if amount is None:
            yield Trouble(path, f"{value!r} is no quantity", f"{name}: 1")
        elif amount < 0:
            yield Trouble(path, f"{value} is negative", f"{name}: 1")
        elif name not in STANDARD and amount != int(amount):
            yield Trouble(
                path, f"{value} is not whole, and devices cannot be divided", f"{name}: {max(1, round(amount))}"
            )
        elif huge:
            yield from _huge(name, amount, job, path)
        if name == pod.gpu_resource(job.gpu_name) and amount != job.gpus_per_node:
            message = f"{value} here, but resources.gpus_per_node is {job.gpus_per_node}"
            yield Trouble(path, message, f"remove {name} here")


def _huge(name: str, amount: float, job: Job, path: str) -> Iterator[Trouble]:
    page = grammar.quantity(name.removeprefix("hugepages-"))
    if not page:
        yield Trouble(path, f"{name!r} names no page size", "hugepages-2Mi: 5120Mi")
    elif amount % page:
        yield Trouble(path, f"{int(amount)} bytes are no multiple of the page size", "hugepages-2Mi: 5120Mi")
    if not job.cpus_per_node and not job.memory_per_node_bytes:
        message = "huge pages need a request for CPU or memory beside them"
        yield Trouble(path, message, "resources: {cpus_per_node: 8, memory_per_node: 64GiB}")


def _size(job: Job, spec: Spec, target: Target) -> Iterator[Trouble]:
    """Whole-node requests that no node can meet, and /dev/shm that eats the memory limit."""
    plan = pod.plan(job, spec, target)
    memory, cpus = pod.memory_bytes(plan), pod.cpus(plan)
    if memory and pod.shm_bytes(plan) >= memory:
        message = (
            f"/dev/shm of {pod.quantity(pod.shm_bytes(plan))} counts against the memory limit of {pod.quantity(memory)}"
        )
        yield Trouble("kubernetes.shm_size", message, f"shm_size: {max(1, memory // 4 // 2**30)}GiB")
    node = pod.node_type(spec)
    if node is not None:
        free = node.kubernetes_bytes or node.memory_bytes
        if memory and memory > free:
            message = f"{pod.quantity(memory)} for a pod; a {node.name} leaves {free // 2**30} GiB to pods"
            yield Trouble("resources.memory_per_node", message, f"memory_per_node: {free // 2**30 * 95 // 100}GiB")
        if cpus and cpus >= node.cpus:
            message = f"{cpus} CPUs for a pod; a {node.name} has {node.cpus} and the kubelet keeps some of them"
            yield Trouble("resources.cpus_per_node", message, f"cpus_per_node: {pod.free_cpus(node.cpus)}")
        if job.gpus_per_node > node.gpus:
            message = f"{job.gpus_per_node} GPUs for a pod; a {node.name} has {node.gpus}"
            yield Trouble("resources.gpus_per_node", message, f"gpus_per_node: {node.gpus}")
    wanted = plan.fabric.kubernetes.gpus_per_pod if plan.fabric else None
    if wanted and job.gpus_per_node != wanted:
        message = f"fabric {job.fabric} works with whole nodes of {wanted} GPUs, not with {job.gpus_per_node}"
        yield Trouble("resources.gpus_per_node", message, f"gpus_per_node: {wanted}")
