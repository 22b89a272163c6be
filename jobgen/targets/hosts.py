"""Bare machines without a scheduler: one script that starts the job on every host by ssh, or on one by hand."""

from __future__ import annotations

import zlib

from jobgen.launch.job import Job, RunTime, Unrenderable
from jobgen.spec.sections import Spec
from jobgen.targets import body, template
from jobgen.targets.artifact import Artifact
from jobgen.targets.slurm import secret
from jobgen.targets.words import Shell, constant, joined, quote

PORTS = 10_000
IDENTITY = {RunTime.HOST_ADDR: "$HOSTNAME"}


def render(job: Job, spec: Spec) -> Artifact:
    """The script; raises Unrenderable."""
    if not job.hosts:
        raise Unrenderable(
            "resources.hosts",
            "is empty, so there is no machine to start on",
            "list the addresses; the first is the master",
        )
    if len(job.hosts) != job.nodes:
        raise Unrenderable("resources.hosts", f"{len(job.hosts)} hosts are listed and resources.nodes is {job.nodes}",
                           f"write nodes: {len(job.hosts)}, or list {job.nodes} hosts")  # fmt: skip
    hosts = [_address(host, index) for index, host in enumerate(job.hosts)]
    # One number for all hosts, also when each is started by hand.
    port = constant(str(job.port_base + zlib.crc32(job.name.encode()) % PORTS), "name")
    return write(job, spec, hosts, hosts[0], port, remote=True)


def _address(host: str, index: int) -> Shell:
    """A host that ssh and the rendezvous read as a host: ``user@`` belongs into ~/.ssh/config."""
    if (
        not host
        or host.startswith("-")
        or any(char.isspace() or char in "@/\\" or not char.isprintable() for char in host)
    ):
        raise Unrenderable(f"resources.hosts.{index}", f"{host!r} is not the name or address of a host",
                           "write a name or an IP address; the user and the key belong into ~/.ssh/config")  # fmt: skip
    return quote(host, f"resources.hosts.{index}")


def write(job: Job, spec: Spec, hosts: list[Shell], master: Shell, port: Shell, *, remote: bool) -> Artifact:
    """The starting script with the host's script inside."""
    if job.command.per == "rank":
        raise Unrenderable("launch.launcher", "srun needs Slurm", "use torchrun")
    directory = job.resume.directory or job.directories[0]
    if remote and not directory.startswith("/"):
        raise Unrenderable(
            "checkpoint.directory",
            f"{directory} is relative, and ssh starts in the home folder",
            "write an absolute path",
        )
    text = template.fill(
        "hosts/start.sh.j2",
        remote=remote,
        notes=_notes(job),
        hosts=hosts,
        secrets=[secret(name, index, "the environment of this shell") for index, name in enumerate(job.secrets)],
        secret_names=[constant(name) for name in job.secrets],
        rank=constant(str(job.only_node)) if job.only_node is not None else quote(""),
        restarts=job.restarts,
        script=body.document(_host(job, spec, directory, master, port, remote).text, "END_OF_HOST"),
    )
    return template.finish(text)


def _host(job: Job, spec: Spec, directory: str, master: Shell, port: Shell, remote: bool) -> Shell:
    """What one host runs for one attempt."""
    node = body.Node(IDENTITY, checks=body.mount_checks(job), setup=body.setup(job))
    inside = body.absolute(directory, "checkpoint.directory")
    lead, limit = int(spec.slurm.signal_before), job.time_limit_seconds
    if limit is not None:
        lead = min(lead, limit // 2)
    return template.fill(
        "hosts/host.sh.j2",
        master=master,
        port=port,
        base=[] if remote or not job.base else [quote(job.base)],
        checkpoints=inside,
        **body.checkpoints(job, inside),
        requeue=True,
        files=body.files(job),
        program=body.document(body.program_text(job, node).text, "END_OF_PROGRAM"),
        start=constant(""),
        interrupt=True,
        **body.signals(lead),
        limit_seconds=limit - lead if limit is not None else 0,
        prepare=_step("prepare", "launch.prepare") if body.prepares(job) else None,
        rendezvous=job.rendezvous != "none" and not job.single_node,
        steps=[_step("stage", "launch.stage")] if job.stage else [],
        train=_step("train", "launch.launcher"),
        last=[_step("finish", "launch.finish")] if job.finish else [],
    )


def _step(name: str, origin: str) -> Shell:
    return joined([constant('run bash "$job_dir/program.sh"'), constant(name)], origin)


def _notes(job: Job) -> list[Shell]:
    image = [f"launch.image ({job.image}) is not used: the program runs on the machine itself"] if job.image else []
    return [body.note(text) for text in (*job.notes, *image)]
