"""Plain JobSet: no Kubeflow needed; when a pod fails the whole gang is made anew."""

from __future__ import annotations

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets import skeleton, stream
from jobgen.targets.artifact import Artifact
from jobgen.targets.manifest import MISSING, From, Object, some
from jobgen.targets.pod import Plan, pod


def own(plan: Plan) -> list[Object]:
    """The JobSet, with its gang before it where a scheduler needs one."""
    jobset = skeleton.fill(
        "jobset",
        **stream.common(plan),
        labels=stream.job_labels(plan),
        annotations=MISSING,
        ttl=stream.ttl(plan),
        max_restarts=From(plan.life.gang_restarts, "launch.restarts"),
        backoff_limit=From(plan.life.backoff_limit, "kubernetes.restart"),
        deadline=some(From(plan.life.deadline_seconds, "launch.time_limit")),
        nodes=From(plan.job.nodes, "resources.nodes"),
        pod=pod(plan, stream.pod_labels(plan), stream.pod_annotations(plan)),
    )
    return [*stream.pod_group(plan), *jobset]


def render(job: Job, spec: Spec, fabric: Fabric | None = None) -> Artifact:
    """The stream with a JobSet."""
    return stream.write(job, spec, "jobset", fabric)
