"""What a fabric profile adds to a pod: devices, capabilities, mounts of the node, sidecars, /etc/nccl.conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets.manifest import From, Object

CONF_KEY = "nccl.conf"


def resources(fabric: Fabric | None, job: Job, spec: Spec) -> dict[str, int]:
    """Extended resources of one pod; those whose number nobody knows are left out (``problems`` says so)."""
    found: dict[str, int] = {}
    given = {name.partition("/")[0] for name in spec.kubernetes.extra_resources}  # the site's own devices win
    for resource in fabric.kubernetes.resources if fabric else ():
        count = resource_count(resource.amount, job, spec)
        if count and resource.name.partition("/")[0] not in given:
            found[resource.name] = count
    return found


def resource_count(rule: str, job: Job, spec: Spec) -> int | None:
    """The number behind a rule of the profile, None when the node type that would tell it is not given."""
    if rule.isdigit():
        return int(rule)
    if rule == "gpus":
        return job.gpus_per_node
    if spec.resources.node_type is None:
        return None
    from jobgen.catalog import nodes

    try:
        node = nodes.find(spec.resources.node_type)
    except nodes.UnknownNode:
        return None
    whole = node.efa_interfaces if rule == "efa_interfaces" else node.nics
    if whole is None or not node.gpus:
        return whole
    return max(1, whole * min(job.gpus_per_node, node.gpus) // node.gpus)


def security(fabric: Fabric | None, wanted: Mapping[str, Any]) -> Object:
    """The container's securityContext: the fabric's needs under the user's own."""
    side = fabric.kubernetes if fabric else None
    merged: Object = {}
    if side and side.privileged:
        merged["privileged"] = From(True, "resources.fabric")
    add = [row.name for row in side.capabilities] if side else []
    for key, value in wanted.items():
        merged[key] = From(value, f"kubernetes.security_context.{key}")
    if add:
        own = wanted.get("capabilities")
        own = own if isinstance(own, dict) else {}
        listed = own.get("add")
        listed = listed if isinstance(listed, list) else []
        merged["capabilities"] = From(
            {**own, "add": [*listed, *[name for name in add if name not in listed]]}, "resources.fabric"
        )
    return merged


def conf_lines(fabric: Fabric | None, gpu: str) -> tuple[str, ...]:
    """Lines of /etc/nccl.conf for that GPU; the longest prefix wins."""
    fitting = [conf for conf in (fabric.kubernetes.nccl_conf if fabric else ()) if gpu.startswith(conf.gpu)]
    return max(fitting, key=lambda conf: len(conf.gpu)).lines if fitting else ()


def volume_mounts(fabric: Fabric | None, gpu: str) -> list[Any]:
    """Mounts of the program's container."""
    found: list[Any] = []
    if conf_lines(fabric, gpu):
        found.append({"name": "files", "mountPath": "/etc/nccl.conf", "subPath": CONF_KEY, "readOnly": True})
    for path in fabric.kubernetes.mounts if fabric else ():
        if path.sidecar_only:
            continue
        entry: Object = {"name": path.name, "mountPath": path.mount}
        if path.read_only:
            entry["readOnly"] = True
        found.append(entry)
    return [From(entry, "resources.fabric") for entry in found]


def volumes(fabric: Fabric | None) -> list[Any]:
    """Folders and devices of the node."""
    paths = fabric.kubernetes.mounts if fabric else ()
    return [From({"name": path.name, "hostPath": {"path": path.path}}, "resources.fabric") for path in paths]


def sidecars(fabric: Fabric | None) -> list[Any]:
    """Native sidecars: init containers that stay, start before the program and end with it."""
    found: list[Any] = []
    paths = {path.name: path for path in (fabric.kubernetes.mounts if fabric else ())}
    for sidecar in fabric.kubernetes.sidecars if fabric else ():
        mounts: list[Object] = []
        for name in sidecar.mounts:
            mounts.append({"name": name, "mountPath": "/dev/shm" if name == "shm" else paths[name].mount})
        entry: Object = {"name": sidecar.name, "image": sidecar.image, "restartPolicy": "Always"}
        if sidecar.command:
            entry["command"] = list(sidecar.command)
        if sidecar.args:
            entry["args"] = list(sidecar.args)
        if sidecar.env:
            entry["env"] = [{"name": name, "value": value} for name, value in sidecar.env.items()]
        if sidecar.capabilities:
            entry["securityContext"] = {"capabilities": {"add": list(sidecar.capabilities)}}
        if mounts:
            entry["volumeMounts"] = mounts
        found.append(From(entry, "resources.fabric"))
    return found
