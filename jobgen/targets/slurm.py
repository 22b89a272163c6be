"""Slurm: one self-contained batch script, for ``| sbatch``. Slurm 22.05 to 25.x."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobgen.launch.job import Job, RunTime, Unrenderable
from jobgen.spec.sections import Spec
from jobgen.targets import body, containers, template
from jobgen.targets.artifact import Artifact
from jobgen.targets.containers import Entrance
from jobgen.targets.directives import HANDLE, directives
from jobgen.targets.words import Shell, constant, joined, quote

OWN_SRUN = {
    "export": "a restricting --export takes the variables from the step", "no-kill": "collectives cannot go on without a node",
    "k": "collectives cannot go on without a node", "ntasks": "launch.launcher decides it", "n": "launch.launcher decides it",
    "nodes": "resources.nodes decides it", "N": "resources.nodes decides it", "ntasks-per-node": "launch.launcher decides it",
    "gpus-per-task": "each task would see one GPU called 0", "het-group": "a training has one node list",
    "wait": "it follows from the time of a save", "kill-on-bad-exit": "a rank that dies ends the job", "K": "a rank that dies ends the job",
}  # fmt: skip
"""srun options that break the launch."""


def render(job: Job, spec: Spec) -> Artifact:
    """The script; raises Unrenderable."""
    entrance = containers.enter(job, spec)
    directory = job.resume.directory or job.directories[0]
    host = containers.on_host(job, directory, "checkpoint.directory", entrance.inside)
    if not directory.startswith("/") and job.working_directory:
        raise Unrenderable(
            "checkpoint.directory",
            f"{directory} is relative, and the program starts in {job.working_directory}",
            "write an absolute path",
        )
    inside = body.absolute(directory, "checkpoint.directory")
    _check_stage(job, entrance)
    requeue = _requeue(spec)
    setup = body.setup(job)
    node = body.Node(
        identity=IDENTITY,
        container=entrance.inside,
        checks=_cache(job, directory) if entrance.inside else body.mount_checks(job),
        setup=() if entrance.inside else setup,
        host_setup=setup if entrance.inside else (),
        execute=entrance.execute,
        carried=entrance.carried,
        signal=spec.slurm.signal,
        preflight=_locked_memory(job, spec) if job.rdma else None,
    )
    program = body.document(body.program_text(job, node).text, "END_OF_PROGRAM")
    lead = int(spec.slurm.signal_before)
    array = "array" in spec.slurm.extra
    text = template.fill(
        "slurm/job.sh.j2",
        directives=directives(job, spec, requeue, array),
        notes=_notes(job, spec, entrance),
        secrets=[secret(name, index, "the environment of the submission") for index, name in enumerate(job.secrets)],
        restarts=job.restarts,
        suffix=quote(spec.slurm.master_addr_suffix, "slurm.master_addr_suffix")
        if spec.slurm.master_addr_suffix
        else Shell(""),
        port=job.port_base,
        cpus=_cpus_at_run_time(job),
        checkpoints=body.absolute(host, "checkpoint.directory"),
        inside=inside,
        **body.checkpoints(job, inside),
        files=body.files(job),
        program=program,
        start=constant(f"srun --kill-on-bad-exit=1 --wait={_wait(job)} ", "checkpoint"),
        interrupt=False,
        **body.signals(lead, spec.slurm.signal),
        requeue=requeue and job.restarts > 0,
        capped=job.restarts > 0 or not requeue,
        steps=list(_steps_before(job, entrance)),
        train=_train(job, spec, entrance),
        last=list(_steps_after(job, entrance)),
        in_container=entrance.srun,
        clean=_clean(job, entrance),
    )
    return template.finish(text)


IDENTITY = {
    RunTime.NODE_RANK: "$SLURM_NODEID",
    RunTime.RANK: "$SLURM_PROCID",
    RunTime.LOCAL_RANK: "$SLURM_LOCALID",
    RunTime.HOST_ADDR: "${SLURMD_NODENAME:-$HOSTNAME}",
}


def _cache(job: Job, directory: str) -> tuple[Shell, ...]:
    """Downloads in a container go beside the checkpoints unless the image or the spec says where: its home is not mounted,
    so that each node would fetch the weights again, and what launch.prepare fetched would be gone."""
    mount = containers.covering(job, directory)
    if mount is None:
        return ()
    folder = quote(f"{mount.target.rstrip('/')}/.cache/huggingface").text
    return (constant(f'if [ -z "${{HF_HOME:-}}" ]; then export HF_HOME={folder}; fi', mount.origin),)


def _locked_memory(job: Job, spec: Spec) -> Shell:
    """Why a small ``ulimit -l`` matters, and what changes it: slurmd's own limit, or one that came with the submission."""
    propagate = spec.slurm.extra.get("propagate")
    fix = (
        "slurmd itself has this limit: ask the site for LimitMEMLOCK=infinity in its unit"
        if isinstance(propagate, str) and propagate.upper() == "NONE"
        else "write slurm.extra: {propagate: NONE}, or ask the site for PropagateResourceLimitsExcept=MEMLOCK (and for LimitMEMLOCK=infinity of slurmd)"
    )
    return quote(
        f"{job.fabric} registers its buffers there, and NCCL then fails in ibv_reg_mr (Cannot allocate memory) or falls back to TCP. {fix}", "resources.fabric"
    )


def _wait(job: Job) -> int:
    """Seconds that the other nodes may take after the first has ended: one of them may still write the last checkpoint."""
    return max(60, round(2 * job.checkpoint_seconds))


def _requeue(spec: Spec) -> bool:
    wanted = spec.slurm.requeue
    return spec.launch.restarts > 0 if wanted == "auto" else bool(wanted)


def secret(name: str, index: int, place: str) -> Shell:
    """Fail early where a secret is not set; the value is never written or echoed."""
    origin = f"launch.secrets.{index}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise Unrenderable(origin, f"{name!r} is not the name of a variable", "use letters, digits and _ only")
    return constant(f'export {name}="${{{name}:?is a secret of this job (launch.secrets) and not in {place}}}"', origin)


def _cpus_at_run_time(job: Job) -> Shell:
    """CPUs of a task where none were asked for."""
    if job.command.per == "rank":
        return constant(f"$(( SLURM_CPUS_ON_NODE / {job.processes_per_node} ))", "resources.cpus_per_node")
    return constant("$SLURM_CPUS_ON_NODE", "resources.cpus_per_node")


def _notes(job: Job, spec: Spec, entrance: Entrance) -> list[Shell]:
    """What a reader should know; one line each."""
    notes = list(job.notes)
    if job.image and not entrance.inside:
        notes.append("slurm.container is none: launch.image is not used, the program runs on the nodes themselves")
    notes += [
        f"after {after.job} ({after.on}): jobgen submit adds the dependency"
        for after in spec.after
        if not HANDLE.fullmatch(after.job)
    ]
    return [body.note(text) for text in notes]


def _check_stage(job: Job, entrance: Entrance) -> None:
    """A copy inside a container must outlive the step that makes it."""
    for index, (_, target) in enumerate(job.stage):
        if entrance.inside and containers.covering(job, target) is None:
            raise Unrenderable(f"launch.stage.{index}.to", f"{target} is not on a mounted volume, so the copy would vanish with the container",
                               f"add a volume: {{mount: {target}, scratch: true}}")  # fmt: skip


def _inside(entrance: Entrance) -> list[Shell]:
    return [constant('"${in_container[@]}"', "slurm.container")] if entrance.srun else []


def _program(entrance: Entrance, step: str) -> list[Shell]:
    """``bash program.sh STEP``, on the host when that enters the container."""
    if entrance.execute:
        return [constant('bash "$job_dir/program.sh" contain'), constant(step)]
    return [constant('bash "$JOBGEN_CONFIG_DIR/program.sh"'), constant(step)]


def _on(nodes: int, tasks: int, per_node: int) -> list[Shell]:
    return [constant(f"--nodes={nodes} --ntasks={tasks} --ntasks-per-node={per_node}", "resources.nodes")]


def _train(job: Job, spec: Spec, entrance: Entrance) -> Shell:
    per_node = job.processes_per_node if job.command.per == "rank" else 1
    options = [*_on(job.nodes, job.nodes * per_node, per_node), *_srun_args(spec), *_inside(entrance)]
    return joined([constant("run"), *options, *_program(entrance, "train")], "launch.launcher")


def _srun_args(spec: Spec) -> list[Shell]:
    found = list[Shell]()
    waiting = False
    for index, text in enumerate(spec.slurm.srun_args):
        origin, name = f"slurm.srun_args.{index}", text.lstrip("-").partition("=")[0]
        if not text.startswith("-") and not waiting:
            raise Unrenderable(origin, f"{text!r} is no option, so srun would start it instead of the training", "write options only: --mpi=pmix")
        waiting = text.startswith("-") and "=" not in text
        if text.startswith("-") and name in OWN_SRUN:
            raise Unrenderable(origin, f"{text} breaks the launch: {OWN_SRUN[name]}", "remove it")
        if text.startswith("--container-") and spec.slurm.container != "pyxis":
            raise Unrenderable(
                origin, f"{text} does nothing without an image", "write slurm.container: pyxis and launch.image"
            )
        found.append(quote(text, origin))
    return found


def _steps_before(job: Job, entrance: Entrance) -> Iterator[Shell]:
    """Set-up of the hosts, scratch folders, the first node's preparation, copies."""
    everywhere = _on(job.nodes, job.nodes, 1)
    if entrance.scratch:
        yield joined(
            [constant("run"), *everywhere, constant("mkdir -p --"), *entrance.scratch], entrance.scratch[0].origin
        )
    if job.setup and entrance.inside and not entrance.execute:
        yield joined([constant("run"), *everywhere, constant('bash "$job_dir/program.sh" setup')], "launch.setup")
    if body.prepares(job):
        yield _once(job, entrance, "prepare", "launch.prepare")
    if job.stage:
        yield joined([constant("run"), *everywhere, *_inside(entrance), *_program(entrance, "stage")], "launch.stage")


def _steps_after(job: Job, entrance: Entrance) -> Iterator[Shell]:
    if job.finish:
        yield _once(job, entrance, "finish", "launch.finish")


def _once(job: Job, entrance: Entrance, step: str, origin: str) -> Shell:
    """On the first node only."""
    first = constant("--nodes=1 --ntasks=1 --ntasks-per-node=1 --relative=0", origin)
    return joined([constant("run"), first, *_inside(entrance), *_program(entrance, step)], origin)


def _clean(job: Job, entrance: Entrance) -> Shell | None:
    """Take away what the job left on its nodes: scratch folders, and caches where no container holds them."""
    if entrance.inside and not entrance.scratch:
        return None
    words = [constant("srun"), *_on(job.nodes, job.nodes, 1), constant('rm -rf -- "/tmp/jobgen-$JOBGEN_JOB_ID"')]
    return joined(words, entrance.scratch[0].origin if entrance.scratch else "launch")
