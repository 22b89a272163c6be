"""How long a Kubernetes job lives: what restarts after a failure, how often, when it is stopped and how gently."""

from __future__ import annotations

import math
from typing import Literal

from jobgen.launch.job import Job
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec

Target = Literal["k8s", "trainjob", "jobset"]
Mode = Literal["gang", "pod", "never", "elastic"]
MARGIN_SECONDS = 60
"""Between the end of a save and the kill."""
MINIMUM_GRACE_SECONDS = 120


class Lifetime(NamedTuple):
    """Decided once for a job and target."""

    mode: Mode
    """gang: all pods anew (JobSet); pod: the container in its place; elastic: the agents meet again (PyTorchJob)."""
    restart_policy: Literal["Never", "OnFailure"]
    backoff_limit: int
    """Of the PyTorchJob or of the Job inside a JobSet."""
    gang_restarts: int
    """maxRestarts of the JobSet, or of the elastic agents."""
    deadline_seconds: int | None
    grace_seconds: int
    shutdown_seconds: int
    """What torchrun waits before it kills its ranks; below the pod's grace."""


def lifetime(job: Job, spec: Spec, target: Target) -> Lifetime:
    """What each API can do: PyTorchJob restarts containers in place or lets elastic agents meet again, JobSet the gang."""
    wanted = spec.kubernetes.restart
    chosen: Mode
    if job.restarts == 0 or wanted == "never":
        chosen = "never"
    elif target == "k8s":
        chosen = "elastic" if spec.kubernetes.elastic or wanted == "gang" else "pod"
    else:
        chosen = "pod" if wanted == "pod" else "gang"
    if spec.kubernetes.elastic and target == "k8s":
        chosen = "elastic"
    backoff = job.restarts * job.nodes if chosen in ("pod", "elastic") else 0
    grace = max(MINIMUM_GRACE_SECONDS, math.ceil(1.5 * job.checkpoint_seconds) + MARGIN_SECONDS)
    deadline = job.time_limit_seconds
    if deadline is not None and target == "k8s":
        deadline *= 1 + job.restarts  # counted over all attempts; a JobSet's Job is one attempt
    return Lifetime(
        chosen,
        "OnFailure" if chosen in ("pod", "elastic") else "Never",
        backoff,
        job.restarts if chosen in ("gang", "elastic") else 0,
        deadline,
        grace,
        grace - MARGIN_SECONDS // 2,
    )
