"""Kubeflow Trainer 2: a TrainingRuntime of the job's own and the TrainJob that uses it, valid on 2.0 to 2.3."""

from __future__ import annotations

from typing import Any

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets import skeleton, stream
from jobgen.targets.artifact import Artifact
from jobgen.targets.manifest import MISSING, From, Object, some
from jobgen.targets.pod import MANAGED, Plan, pod


def own(plan: Plan) -> list[Object]:
    """The runtime, which must be there first, and the TrainJob."""
    kube = plan.spec.kubernetes
    volcano_queue = {"annotations": {"scheduling.volcano.sh/queue-name": From(kube.queue, "kubernetes.queue")}}
    return skeleton.fill(
        "trainjob",
        **stream.common(plan),
        labels=stream.job_labels(plan),
        annotations=MISSING,
        runtime_labels={**MANAGED, "jobgen/job": plan.name, "trainer.kubeflow.org/framework": "torch"},
        nodes=From(plan.job.nodes, "resources.nodes"),
        processes=From(plan.job.processes_per_node, "launch.processes_per_node"),
        gang=_gang(plan),
        jobset_metadata=volcano_queue if kube.scheduler == "volcano" and kube.queue else MISSING,
        max_restarts=From(plan.life.gang_restarts, "launch.restarts"),
        backoff_limit=From(plan.life.backoff_limit, "kubernetes.restart"),
        deadline=some(From(plan.life.deadline_seconds, "launch.time_limit")),
        pod=pod(plan, stream.pod_labels(plan), stream.pod_annotations(plan)),
    )


def _gang(plan: Plan) -> Any:
    scheduler = plan.spec.kubernetes.scheduler
    if scheduler == "volcano":
        return From({"volcano": {}}, "kubernetes.scheduler")
    if scheduler == "coscheduling":
        return From({"coscheduling": {}}, "kubernetes.scheduler")
    return MISSING


def render(job: Job, spec: Spec, fabric: Fabric | None = None) -> Artifact:
    """The stream with a TrainingRuntime and a TrainJob."""
    return stream.write(job, spec, "trainjob", fabric)
