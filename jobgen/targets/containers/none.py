"""No container: the program runs on the node, where nothing can be mounted."""

from __future__ import annotations

from jobgen.launch.job import Job
from jobgen.spec.sections import Spec
from jobgen.targets.containers import Entrance


def enter(job: Job, spec: Spec) -> Entrance:
    """Nothing changes."""
    return Entrance()
