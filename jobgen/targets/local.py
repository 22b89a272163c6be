"""This machine: the same program, signals, resume and restarts as on a cluster, on one node and without a scheduler."""

from __future__ import annotations

from jobgen.launch.job import Job, Unrenderable
from jobgen.spec.sections import Spec
from jobgen.targets import hosts
from jobgen.targets.artifact import Artifact
from jobgen.targets.words import constant


def render(job: Job, spec: Spec) -> Artifact:
    """The script; raises Unrenderable."""
    if job.nodes != 1:
        raise Unrenderable(
            "resources.nodes", f"is {job.nodes}, and this machine is one node", "pass --set resources.nodes=1"
        )
    here = constant("127.0.0.1")
    port = constant(f"$(( {job.port_base} + $$ % {hosts.PORTS} ))")
    return hosts.write(job, spec, [here], here, port, remote=False)
