"""PyTorchJob v1: the operator's Master and Worker, restarted in place, or elastic Workers that meet again."""

from __future__ import annotations

from typing import Any

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets import skeleton, stream
from jobgen.targets.artifact import Artifact
from jobgen.targets.manifest import MISSING, From, Object, some
from jobgen.targets.pod import Plan, pod


def own(plan: Plan) -> list[Object]:
    """The PyTorchJob."""
    nodes, elastic = plan.job.nodes, plan.life.mode == "elastic"
    pods = pod(plan, stream.pod_labels(plan), stream.pod_annotations(plan))
    workers = nodes if elastic else nodes - 1
    return skeleton.fill(
        "pytorchjob",
        **stream.common(plan),
        labels=stream.job_labels(plan),
        annotations=MISSING,
        processes=From(str(plan.job.processes_per_node), "launch.processes_per_node"),
        elastic=_elastic(plan) if elastic else MISSING,
        backoff_limit=From(plan.life.backoff_limit, "launch.restarts"),
        deadline=some(From(plan.life.deadline_seconds, "launch.time_limit")),
        ttl=stream.ttl(plan),
        gang=_gang(plan),
        master=MISSING if elastic else _replica(plan, 1, pods),
        worker=_replica(plan, workers, pods) if workers else MISSING,
    )


def _replica(plan: Plan, count: int, pods: Object) -> Object:
    restart = From(plan.life.restart_policy, "kubernetes.restart")
    return skeleton.fill("replica", replicas=From(count, "resources.nodes"), restart_policy=restart, pod=pods)[0]


def _elastic(plan: Plan) -> Any:
    """Never with metrics: they would make a HorizontalPodAutoscaler that scales training by its CPU use."""
    bounds = plan.spec.kubernetes.elastic
    return From(
        {
            "minReplicas": bounds.min_nodes if bounds else plan.job.nodes,
            "maxReplicas": bounds.max_nodes if bounds else plan.job.nodes,
            "rdzvBackend": "c10d",
            "rdzvPort": plan.port,
            "rdzvId": plan.name,
            "maxRestarts": plan.life.gang_restarts,
        },
        "kubernetes.elastic",
    )


def _gang(plan: Plan) -> Any:
    """Read by the operator only where it was started with --gang-scheduler-name."""
    kube = plan.spec.kubernetes
    if kube.scheduler not in ("volcano", "coscheduling"):
        return MISSING
    elastic = kube.elastic
    policy: Object = {"minAvailable": From(elastic.min_nodes if elastic else plan.job.nodes, "resources.nodes")}
    if kube.scheduler == "volcano":
        policy |= {
            "queue": some(From(kube.queue, "kubernetes.queue")),
            "priorityClass": some(From(kube.priority_class, "kubernetes.priority_class")),
        }
    return From({key: value for key, value in policy.items() if value is not MISSING}, "kubernetes.scheduler")


def render(job: Job, spec: Spec, fabric: Fabric | None = None) -> Artifact:
    """The stream with a PyTorchJob."""
    return stream.write(job, spec, "k8s", fabric)
