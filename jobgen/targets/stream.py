"""The objects of a Kubernetes job in the order in which they must be made, and their YAML."""

from __future__ import annotations

from typing import Any

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets import device, skeleton
from jobgen.targets.artifact import Artifact
from jobgen.targets.lifetime import Target
from jobgen.targets.manifest import MISSING, From, Object, dump, plain, some
from jobgen.targets.pod import JOB_LABEL, MANAGED, Plan, file_key, plan, quantity

TAS = ("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology")


def queue(spec: Spec) -> str | None:
    """Who the queue belongs to: Kueue unless the spec names another scheduler."""
    return spec.kubernetes.scheduler or ("kueue" if spec.kubernetes.queue else None)


def job_labels(plan: Plan) -> dict[str, Any]:
    """Labels of the job object; Kueue and KAI read theirs there."""
    kube = plan.spec.kubernetes
    labels: dict[str, Any] = {**MANAGED, JOB_LABEL: plan.name}
    if kube.queue and queue(plan.spec) == "kueue":
        labels["kueue.x-k8s.io/queue-name"] = From(kube.queue, "kubernetes.queue")
    if kube.queue and queue(plan.spec) == "kai":
        labels["kai.scheduler/queue"] = From(kube.queue, "kubernetes.queue")
    return {**labels, **{key: From(value, f"kubernetes.labels.{key}") for key, value in kube.labels.items()}}


def pod_labels(plan: Plan) -> dict[str, Any]:
    """Labels that a scheduler reads from pods."""
    kube, who = plan.spec.kubernetes, queue(plan.spec)
    if who == "kai" and kube.queue:
        return {"kai.scheduler/queue": From(kube.queue, "kubernetes.queue")}
    if who == "coscheduling" and plan.target == "jobset":
        return {"scheduling.x-k8s.io/pod-group": From(plan.name, "kubernetes.scheduler")}
    return {}


def pod_annotations(plan: Plan) -> dict[str, Any]:
    """Annotations that a scheduler reads from pods."""
    kube, who = plan.spec.kubernetes, queue(plan.spec)
    if who == "volcano" and plan.target == "jobset":
        return {"scheduling.k8s.io/group-name": From(plan.name, "kubernetes.scheduler")}
    if plan.target == "k8s" and plan.job.nodes > 1 and any(key in kube.annotations for key in TAS):
        return {"kueue.x-k8s.io/podset-group-name": From(plan.name, "kubernetes.annotations")}  # master beside workers
    return {}


def common(plan: Plan) -> dict[str, Any]:
    """Holes that every job object has."""
    return {"name": plan.name, "namespace": some(From(plan.spec.kubernetes.namespace, "kubernetes.namespace"))}


def claims(plan: Plan) -> list[Object]:
    """The claims that the spec asks jobgen to make. They outlive the job and others may ask for the same one, so nothing
    on them is of one job: the same text applied twice changes nothing."""
    found: dict[str, Object] = {}
    for mount in plan.job.mounts:
        if mount.claim and mount.create_size_bytes and mount.claim not in found:
            origin = mount.origin or "volumes"
            found[mount.claim] = skeleton.fill(
                "claim",
                **{**common(plan), "name": From(mount.claim, origin)},
                labels=MANAGED,
                access_mode=From(mount.access_mode, origin),
                storage_class=some(From(mount.storage_class, origin)),
                size=From(quantity(mount.create_size_bytes), origin),
            )[0]
    return list(found.values())


def files(plan: Plan) -> list[Object]:
    """The ConfigMap of shipped files, when there are any."""
    data: dict[str, Any] = {file_key(file.name): From(file.content, file.origin) for file in plan.job.files}
    if lines := device.conf_lines(plan.fabric, plan.job.gpu_name):
        data[device.CONF_KEY] = From("".join(f"{line}\n" for line in lines), "resources.fabric")
    if not data:
        return []
    values = {**common(plan), "name": f"{plan.name}-files"}
    return skeleton.fill("files", **values, labels={**MANAGED, JOB_LABEL: plan.name}, data=data)


def pod_group(plan: Plan) -> list[Object]:
    """The gang of a JobSet; the operators of the other two make it themselves."""
    kube, who = plan.spec.kubernetes, queue(plan.spec)
    shared = {
        **common(plan),
        "labels": {**MANAGED, JOB_LABEL: plan.name},
        "nodes": From(plan.job.nodes, "resources.nodes"),
    }
    if who == "volcano":
        return skeleton.fill(
            "podgroup-volcano",
            **shared,
            queue=some(From(kube.queue, "kubernetes.queue")),
            priority_class=some(From(kube.priority_class, "kubernetes.priority_class")),
        )
    if who == "coscheduling":
        return skeleton.fill("podgroup-coscheduling", **shared, timeout=MISSING)
    return []


def tree(job: Job, spec: Spec, target: Target, fabric: Fabric | None = None) -> list[Object]:
    """All objects with the origins of their values."""
    import importlib

    decided = plan(job, spec, target, fabric)
    own: list[Object] = importlib.import_module(f"jobgen.targets.{target}").own(decided)
    return [*claims(decided), *files(decided), *own]


def objects(job: Job, spec: Spec, target: Target, fabric: Fabric | None = None) -> list[Object]:
    """All objects as plain maps: what ``submit`` sends is what ``render`` shows."""
    found: list[Object] = plain(tree(job, spec, target, fabric))
    return found


def write(job: Job, spec: Spec, target: Target, fabric: Fabric | None = None) -> Artifact:
    """The stream that ``kubectl apply -f -`` takes."""
    return Artifact(*dump(tree(job, spec, target, fabric)))


def ttl(plan: Plan) -> Any:
    """Deletion after the end, where the API can do it safely."""
    return some(From(plan.spec.kubernetes.ttl, "kubernetes.ttl"))
