"""From a job to an artifact that a cluster takes: words (quoting), Slurm, Kubernetes, hosts, local.

A target is a module of this folder with ``render(job, spec) -> Artifact``, named in ``NAMES``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobgen.launch.job import Job
    from jobgen.spec.models import Spec
    from jobgen.targets.artifact import Artifact

NAMES = ("slurm", "k8s", "trainjob", "jobset", "hosts", "local")
"""Each is a module; a test holds them against ``spec.models.Target``."""


def render(target: str, job: Job, spec: Spec) -> Artifact:
    """The artifact of one target; raises ``launch.job.Unrenderable``. Imports that target's module only."""
    artifact: Artifact = import_module(f"jobgen.targets.{target}").render(job, spec)
    return artifact
