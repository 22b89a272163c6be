"""One node's pod: the same for PyTorchJob, TrainJob and JobSet but for the container's name and how it knows its rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jobgen.catalog import fabrics
from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job, Mount
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec
from jobgen.targets import device, inside, skeleton
from jobgen.targets.artifact import Artifact
from jobgen.targets.lifetime import Lifetime, Target, lifetime
from jobgen.targets.manifest import MISSING, From, Object, Text, some

if TYPE_CHECKING:
    from jobgen.catalog.nodes import Node

MANAGED = {"app.kubernetes.io/managed-by": "jobgen"}
JOB_LABEL = "jobgen/job"
GIB = 2**30
_DOLLARS = re.compile(r"\$\$+|\$\(|\$$")
ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"


class Plan(NamedTuple):
    """What the parts of a manifest share."""

    job: Job
    spec: Spec
    target: Target
    fabric: Fabric | None
    life: Lifetime
    name: str
    """Name of the objects."""
    port: int

    @property
    def container(self) -> str:
        """The name that the operator looks for."""
        return "pytorch" if self.target == "k8s" else "node"


def object_name(name: str) -> str:
    """The name as Kubernetes writes names: lower case, dashes for what else joins words."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def plan(job: Job, spec: Spec, target: Target, fabric: Fabric | None = None) -> Plan:
    """Decides what the parts share."""
    found = fabric or (fabrics.find(job.fabric, Path(job.base)) if job.fabric and job.fabric != "none" else None)
    name = object_name(job.name)
    shares_network = found is not None and bool(found.kubernetes.host_network)
    return Plan(
        job, spec, target, found, lifetime(job, spec, target), name, _port(name) if shares_network else inside.PORT
    )


def _port(name: str) -> int:
    """A port of the node that two jobs hardly share, below those that Linux and node ports use."""
    import zlib

    return 20000 + zlib.crc32(name.encode()) % 10000


def literal(text: str) -> str:
    """The text so that Kubernetes, which replaces $(NAME) in commands and environment, leaves it alone."""
    return _DOLLARS.sub(lambda found: "$" * (2 * found[0].count("$")) + ("(" if found[0].endswith("(") else ""), text)


def pod(plan: Plan, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> Object:
    """The pod template; ``labels`` and ``annotations`` are the scheduler's, for pods."""
    job, kube, side = plan.job, plan.spec.kubernetes, plan.fabric.kubernetes if plan.fabric else None
    host_network = From(True, "resources.fabric") if side and side.host_network else MISSING
    built: Object = skeleton.fill(
        "pod",
        labels={**MANAGED, JOB_LABEL: plan.name, **(labels or {}), **_owned(kube.labels, "kubernetes.labels")},
        annotations={
            "sidecar.istio.io/inject": "false",
            **{row.name: From(row.value, "resources.fabric") for row in (side.annotations if side else ())},
            **(annotations or {}),
            **_owned(kube.annotations, "kubernetes.annotations"),
        },
        restart_policy=MISSING if plan.target == "k8s" else plan.life.restart_policy,
        scheduler_name=_owned_some(SCHEDULERS.get(kube.scheduler or ""), "kubernetes.scheduler"),
        priority_class=_owned_some(kube.priority_class, "kubernetes.priority_class"),
        service_account=_owned_some(kube.service_account, "kubernetes.service_account"),
        image_pull_secrets=_owned_some(
            [{"name": name} for name in kube.image_pull_secrets], "kubernetes.image_pull_secrets"
        ),
        node_selector=_owned_some(kube.node_selector, "kubernetes.node_selector"),
        tolerations=[*_tolerations(plan), *[From(row, "kubernetes.tolerations") for row in kube.tolerations]],
        affinity=_affinity(plan),
        host_network=host_network,
        dns_policy=MISSING if host_network is MISSING else From("ClusterFirstWithHostNet", "resources.fabric"),
        grace_seconds=From(plan.life.grace_seconds, "checkpoint"),
        sidecars=some(device.sidecars(plan.fabric)),
        container=plan.container,
        image=From(job.image or "", "launch.image"),
        script=_script(plan),
        working_directory=_owned_some(job.working_directory, "launch.working_directory"),
        ports=_ports(plan),
        env=environment(plan),
        resources=resources(plan),
        security=some(device.security(plan.fabric, kube.security_context)),
        volume_mounts=_volume_mounts(plan),
        volumes=_volumes(plan),
    )[0]
    return built


SCHEDULERS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler", "kai": "kai-scheduler"}
"""schedulerName by kubernetes.scheduler; Kueue admits jobs and leaves pods to the default scheduler."""


def _owned(values: Mapping[str, Any], origin: str) -> dict[str, From]:
    return {key: From(value, f"{origin}.{key}") for key, value in values.items()}


def _owned_some(value: Any, origin: str) -> Any:
    return some(From(value, origin))


def _place(plan: Plan) -> inside.Place:
    if plan.target == "k8s":
        if plan.life.mode == "elastic":
            return inside.Place('"${HOSTNAME##*-}"', f"{plan.name}-worker-0", inside.COUNTED, elastic=True)
        return inside.Place('"${PET_NODE_RANK:-0}"', f"{plan.name}-master-0", inside.COUNTED)
    counted = inside.COUNTED if plan.life.mode == "pod" else '"${JOBSET_RESTART_ATTEMPT:-0}"'
    exported = (
        f"export PET_NNODES={plan.job.nodes} PET_NPROC_PER_NODE={plan.job.processes_per_node}",
        'export PET_NODE_RANK="$NODE_RANK" PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"',
    )
    master = f"{plan.name}-node-0-0.{plan.name}"
    return inside.Place('"${JOB_COMPLETION_INDEX:-0}"', master, counted, exported if plan.target == "jobset" else ())


def script(plan: Plan) -> Artifact:
    """The container's script."""
    return inside.script(plan.job, _place(plan), plan.fabric, plan.port)


def _script(plan: Plan) -> Text:
    """The script with the origins of its lines, safe from Kubernetes' own expansion."""
    made = script(plan)
    origins = dict(made.explain)
    texts = made.text.split("\n")
    return Text(literal(made.text), tuple(origins.get(number, "") for number in range(1, len(texts) + 1)))


def _ports(plan: Plan) -> Any:
    """Named, because the operator reads the master's port from it."""
    return [{"name": "pytorchjob-port", "containerPort": plan.port}] if plan.target == "k8s" else MISSING


def _tolerations(plan: Plan) -> list[Any]:
    resource = gpu_resource(plan.job.gpu_name)
    own = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    extra = plan.fabric.kubernetes.tolerations if plan.fabric else ()
    return [*own, *[From(dict(row), "resources.fabric") for row in extra if row.get("key") != resource]]


def _affinity(plan: Plan) -> Any:
    """One pod on a node where the spec insists; pods that take all GPUs of a node need no rule."""
    if plan.spec.resources.exclusive is not True or plan.job.nodes == 1:
        return MISSING
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {JOB_LABEL: plan.name}}}
    return From({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}, "resources.exclusive")


@cache
def gpu_resource(gpu: str) -> str:
    """The extended resource of that GPU's vendor."""
    from jobgen.catalog import gpus

    try:
        vendor = gpus.find(gpu).vendor
    except gpus.UnknownGpu:
        vendor = "nvidia"
    return {"amd": "amd.com/gpu", "intel": "habana.ai/gaudi"}.get(vendor, "nvidia.com/gpu")


def resources(plan: Plan) -> dict[str, Any]:
    """Requests, which are also the limits: devices insist on it, and the pod is then never evicted for its neighbours."""
    job, found = plan.job, {}
    found[gpu_resource(job.gpu_name)] = From(str(job.gpus_per_node), "resources.gpus_per_node")
    if count := cpus(plan):
        found["cpu"] = From(str(count), "resources.cpus_per_node")
    if size := memory_bytes(plan):
        found["memory"] = From(quantity(size), "resources.memory_per_node")
    for name, count in device.resources(plan.fabric, job, plan.spec).items():
        found[name] = From(str(count), "resources.fabric")
    for name, value in plan.spec.kubernetes.extra_resources.items():
        found[name] = From(str(value), f"kubernetes.extra_resources.{name}")
    return found


def node_type(spec: Spec) -> Node | None:
    """The catalogue's entry of the node type, when the spec names one."""
    from jobgen.catalog import nodes

    try:
        return nodes.find(spec.resources.node_type) if spec.resources.node_type else None
    except nodes.UnknownNode:
        return None


def cpus(plan: Plan) -> int | None:
    """CPUs of one pod: as written, else the GPUs' share of what a node of that type leaves to pods."""
    node = node_type(plan.spec)
    if plan.spec.resources.cpus_per_node or node is None or not node.gpus:
        return plan.spec.resources.cpus_per_node or plan.job.cpus_per_node
    return max(1, free_cpus(node.cpus) * min(plan.job.gpus_per_node, node.gpus) // node.gpus)


def free_cpus(total: int) -> int:
    """What the kubelet and the node's own pods leave: a pod that asks for all waits for ever."""
    return total - max(1, round(total * 0.04))


def memory_bytes(plan: Plan) -> int | None:
    """Memory of one pod: as written, else the GPUs' share of what pods may have, less 5 % for the node's own pods."""
    node = node_type(plan.spec)
    if plan.spec.resources.memory_per_node or node is None or not node.gpus:
        return plan.spec.resources.memory_per_node or plan.job.memory_per_node_bytes
    free = node.kubernetes_bytes or int(node.memory_bytes * 0.93)
    return free * 95 // 100 * min(plan.job.gpus_per_node, node.gpus) // node.gpus // GIB * GIB


def quantity(size: int) -> str:
    """Bytes as Kubernetes writes them, in the largest unit that is exact."""
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("T", 10**12), ("G", 10**9), ("Mi", 2**20), ("M", 10**6)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def shm_bytes(plan: Plan) -> int:
    """/dev/shm: data-loader workers and NCCL's shared memory; it counts against the memory limit when it is used."""
    wanted = plan.spec.kubernetes.shm_size
    if isinstance(wanted, int):
        return wanted
    size = 16 * GIB * plan.job.gpus_per_node
    memory = memory_bytes(plan)
    return max(GIB, min(size, memory // 4 // GIB * GIB)) if memory else size


def environment(plan: Plan) -> list[Any]:
    """All variables; values are strings that Kubernetes takes literally."""
    job, side = plan.job, plan.fabric.kubernetes if plan.fabric else None
    values: dict[str, Any] = {
        "JOBGEN_JOB_ID": plan.name,
        "JOBGEN_CONFIG_DIR": inside.CONFIG_DIR,
        "HF_HOME": From(cache_folder(job), "checkpoint.directory"),
        "TRITON_CACHE_DIR": f"{inside.WORK}/triton",
        "XDG_CACHE_HOME": f"{inside.WORK}/cache",
        "NCCL_DEBUG": "WARN",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(plan.life.shutdown_seconds),
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    named = {variable.name for variable in job.env}
    if "TORCH_FR_BUFFER_SIZE" in named and "TORCH_NCCL_TRACE_BUFFER_SIZE" not in named:  # torch knows the new name for sure
        del values["TORCH_NCCL_TRACE_BUFFER_SIZE"]
    if job.launcher in inside.MARKING and job.processes_per_node > 1:
        values |= {"PET_TEE": "3", "PET_LOG_DIR": f"{inside.WORK}/ranks"}  # each line says which process wrote it
    for row in side.env if side else ():
        values[row.name] = From(row.value, "resources.fabric")
    for variable in job.env:
        if variable.value.literal is not None:
            values[variable.name] = From(variable.value.literal, variable.value.origin or f"launch.env.{variable.name}")
        else:
            values.pop(variable.name, None)
    found: list[Any] = [{"name": "JOBGEN_HOST_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    if plan.target != "k8s":
        path = f"metadata.labels['{ATTEMPT_LABEL}']"
        found.append({"name": "JOBSET_RESTART_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    for name, value in values.items():
        text, origin = value if isinstance(value, From) else (value, "")
        found.append(From({"name": name, "value": literal(text)}, origin))
    for name in job.secrets:
        reference = {"secretKeyRef": {"name": plan.spec.kubernetes.secret or "", "key": name}}
        found.append(From({"name": name, "valueFrom": reference}, "launch.secrets"))
    return found


def shared_mount(job: Job) -> Mount | None:
    """The mount under which the checkpoints lie."""
    directory = job.resume.directory or (job.directories[0] if job.directories else None)
    if directory is None:
        return None
    fitting = [mount for mount in job.mounts if PurePosixPath(directory).is_relative_to(mount.target)]
    return max(fitting, key=lambda mount: len(mount.target), default=None)


def cache_folder(job: Job) -> str:
    """Where downloads go: the checkpoints' storage, which all nodes see and which outlives the pod."""
    mount = shared_mount(job)
    if mount is None or mount.scratch or mount.read_only:
        return f"{inside.WORK}/huggingface"
    return f"{mount.target.rstrip('/')}/.cache/huggingface"


def _storage(job: Job) -> list[tuple[Mount, str]]:
    """Mounts with their volumes' names; mounts of one claim share a volume."""
    names: dict[tuple[str, str], str] = {}
    found = []
    for mount in job.mounts:
        kind = "claim" if mount.claim else "scratch" if mount.scratch else "host"
        key = (kind, mount.claim or mount.source or mount.target)
        names.setdefault(key, f"{kind}-{sum(1 for other, _ in names if other == kind)}")
        found.append((mount, names[key]))
    return found


def _volume_mounts(plan: Plan) -> list[Any]:
    found: list[Any] = [{"name": "work", "mountPath": inside.WORK}]
    if not any(mount.target == "/dev/shm" for mount in plan.job.mounts):
        found.append(From({"name": "shm", "mountPath": "/dev/shm"}, "kubernetes.shm_size"))
    if plan.job.files:
        found.append({"name": "files", "mountPath": inside.CONFIG_DIR, "readOnly": True})
    for mount, name in _storage(plan.job):
        entry: Object = {"name": name, "mountPath": mount.target}
        if mount.read_only:
            entry["readOnly"] = True
        found.append(From(entry, mount.origin or "volumes"))
    return [*found, *device.volume_mounts(plan.fabric, plan.job.gpu_name)]


def _volumes(plan: Plan) -> list[Any]:
    found: list[Any] = [{"name": "work", "emptyDir": {}}]
    if not any(mount.target == "/dev/shm" for mount in plan.job.mounts):
        memory = {"medium": "Memory", "sizeLimit": quantity(shm_bytes(plan))}
        found.append(From({"name": "shm", "emptyDir": memory}, "kubernetes.shm_size"))
    if plan.job.files or device.conf_lines(plan.fabric, plan.job.gpu_name):
        found.append({"name": "files", "configMap": config_source(plan)})
    seen = set()
    for mount, name in _storage(plan.job):
        if name in seen:
            continue
        seen.add(name)
        source: Object
        if mount.claim:
            source = {"persistentVolumeClaim": {"claimName": mount.claim}}
        elif mount.scratch:
            source = {"emptyDir": {}}
        else:
            source = {"hostPath": _host_path(mount.source or mount.target)}
        found.append(From({"name": name, **source}, mount.origin or "volumes"))
    return [*found, *device.volumes(plan.fabric)]


def _host_path(path: str) -> Object:
    """A folder must be there (an empty one in its place would train on nothing); a file's kind is not asked."""
    return {"path": path} if PurePosixPath(path).suffix else {"path": path, "type": "Directory"}


def file_key(name: str) -> str:
    """A file's key in the ConfigMap."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def config_source(plan: Plan) -> Object:
    """The ConfigMap as a volume; names and modes are listed when a key alone does not say them."""
    source: Object = {"name": f"{plan.name}-files"}
    if all(file_key(file.name) == file.name and not file.executable for file in plan.job.files):
        return source
    items: list[Any] = []
    for file in plan.job.files:
        entry: Object = {"key": file_key(file.name), "path": file.name}
        if file.executable:
            entry["mode"] = 0o755
        items.append(From(entry, file.origin))
    if device.conf_lines(plan.fabric, plan.job.gpu_name):
        items.append({"key": device.CONF_KEY, "path": device.CONF_KEY})
    return {**source, "items": items}
