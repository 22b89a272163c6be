"""From the effective set-up to the job that every target sees."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobgen.catalog import counts, fabrics
from jobgen.effective.setup import Effective
from jobgen.frameworks import write
from jobgen.frameworks.config import NONE, Config, read_config
from jobgen.frameworks.table import Slot, Text
from jobgen.launch import environment
from jobgen.launch.job import File, Job, Mount, Python, Resume, RunTime, Unrenderable, Variable, Word, word
from jobgen.launch.launchers import Program, Ranks, begin
from jobgen.spec.sections import Spec
from jobgen.spec.source import read_regular

LARGEST_FILES = 512 * 1024
"""Bytes of ``launch.code`` that a script still carries; a ConfigMap holds 1 MiB, sbatch takes 4 MB."""
SAVE_BANDWIDTH = 2e9
"""Bytes a second of shared storage, all ranks together: what a save is assumed to reach."""
GIB = 2**30
WHOLE_NODE = 8
"""GPUs that are taken for a whole node where no node type says otherwise."""


def build(effective: Effective, target: str | None = None, base: Path | None = None) -> Job:
    """The job. ``base``: the folder that relative paths of the spec start from; raises Unrenderable."""
    spec, layout, table = effective.spec, effective.layout, effective.framework
    slurm = target in (None, "slurm")
    base = base or Path()
    launch, resources = spec.launch, spec.resources
    directory = spec.checkpoint.directory
    if directory is None:
        raise Unrenderable(
            "checkpoint.directory", "is not set, so nothing would be kept", "name a folder that all nodes share"
        )
    configured = write.configure(
        spec, table, _resolved(effective), effective.versions.intervals, _config(spec, base),
    )  # fmt: skip
    files = _files(spec, base)
    launcher, program = _program(spec, configured, table.starts_torchrun, launch.launcher or table.launcher, files)
    ranks = Ranks(
        resources.nodes, layout.processes_per_node, resources.gpus_per_node, tuple(resources.hosts),
        _words(configured.launcher_args, "launch.launcher"), effective.versions.interval("torch").high <= (2,),
    )  # fmt: skip
    if table.name == "verl" and resources.nodes > 1:
        raise Unrenderable("resources.nodes", "verl spans nodes by a Ray cluster, which jobgen does not start",
                           "train on one node, or start Ray yourself and launch verl against it")  # fmt: skip
    started = begin(launcher, program, ranks)
    fabric = _fabric(spec, base)
    cpus, memory, exclusive = _cpus(effective), _memory(effective), _exclusive(effective)
    notes = configured.notes
    if slurm and memory is None and not exclusive:
        memory = _needed_memory(effective)
        notes = (*notes, "resources.memory_per_node is not set: --mem is what the estimate needs and a quarter more")
    env = environment.merged((
        environment.derived(effective, layout.processes_per_node, cpus, slurm),
        _fabric_env(fabric, slurm),
        _configured_env(configured),
        started.env,
        (Variable("JOBGEN_CHECKPOINT_DIR", word(directory, origin="checkpoint.directory")),),
        (Variable(name, word(value, origin=f"launch.env.{name}"), "user") for name, value in launch.env.items()),
    ))  # fmt: skip
    shipped = (*(File(name, content, "training") for name, content in configured.files), *started.files, *files)
    _unique(shipped)
    side = fabric.slurm if fabric is not None and slurm else None
    return Job(
        name=spec.name,
        nodes=resources.nodes,
        processes_per_node=layout.processes_per_node,
        gpus_per_node=resources.gpus_per_node,
        gpu_name=effective.gpu.name,
        cpus_per_node=cpus,
        memory_per_node_bytes=memory,
        exclusive=exclusive,
        command=started.command,
        env=env,
        secrets=tuple(launch.secrets),
        files=shipped,
        mounts=_mounts(spec),
        image=launch.image,
        working_directory=launch.working_directory or (launch.code if launch.code != "image" and isinstance(launch.code, str) else None),
        python=_python(spec),
        setup=tuple(launch.setup),
        prepare=tuple(launch.prepare),
        stage=tuple((stage.from_, stage.to) for stage in launch.stage),
        finish=tuple(launch.finish),
        time_limit_seconds=launch.time_limit,
        restarts=launch.restarts,
        resume=_resume(effective, directory, configured),
        directories=(directory,),
        fabric=resources.fabric,
        checkpoint_seconds=_save_seconds(effective),
        single_node=resources.nodes == 1,
        launcher=launcher,
        framework=table.name,
        rendezvous="c10d" if target == "k8s" and spec.kubernetes.elastic and launcher == "torchrun" else started.rendezvous,
        hosts=tuple(resources.hosts),
        rdma=fabric is not None and fabric.rdma and slurm and resources.nodes > 1,
        environment_script=side.source_script if side else "",
        library_path=tuple(row.name for row in side.library_path) if side else (),
        environment_wait=side.wait_for if side else "",
        fabric_mounts=tuple(
            Mount(path.mount, path.path, read_only=path.read_only, origin="resources.fabric") for path in side.mounts
        ) if side else (),
        notes=notes,
        base=str(base.absolute()),
    )  # fmt: skip


def _resolved(effective: Effective) -> dict[str, Any]:
    """Values by spec path that were decided above the spec."""
    arch, layout = effective.arch, effective.layout
    return {
        "parallel.world": layout.world,
        "parallel.data": layout.data,
        "parallel.shard": layout.shard,
        "parallel.nodes": layout.nodes,
        "model.arch": arch,
        "model.hidden_size": arch.hidden,
        "model.layers": arch.depth,
        "model.layer_class": arch.module_class or None,
        "model.expert_parameters": list(dict.fromkeys(f"experts.{m.name}" for m, _ in counts.matrices(arch) if m.part == "expert")),
        "training.gradient_accumulation_steps": layout.accumulation,
        "training.steps": effective.batch.steps,
        "training.tokens_per_step": effective.batch.tokens_per_step,
    }


def _config(spec: Spec, base: Path) -> Config:
    """The user's own file of the framework."""
    name = spec.training.config
    if name is None:
        return NONE
    return read_config(_read(base, name, "training.config"), name)


def _read(base: Path, name: str, origin: str) -> str:
    try:
        return read_regular(base / Path(name).expanduser())
    except UnicodeDecodeError:
        raise Unrenderable(
            origin, f"{name} is not text (UTF-8), and only text is shipped", "mount it instead"
        ) from None
    except (OSError, ValueError) as reason:
        raise Unrenderable(origin, f"{name} cannot be read: {getattr(reason, 'strerror', None) or reason}",
                           "write a path relative to the spec") from None  # fmt: skip


def _files(spec: Spec, base: Path) -> tuple[File, ...]:
    """``launch.code: {files: [...]}``: shipped under their own names."""
    code = spec.launch.code
    if isinstance(code, str):
        return ()
    files = list[File]()
    for index, name in enumerate(code.files):
        origin = f"launch.code.files.{index}"
        files.append(File(Path(name).name, _read(base, name, origin), origin, executable=name.endswith(".sh")))
    if sum(len(file.content.encode()) for file in files) > LARGEST_FILES:
        raise Unrenderable("launch.code.files", f"the files are larger than {LARGEST_FILES // 1024} KiB together",
                           "put the code into the image or on a mounted volume")  # fmt: skip
    return tuple(files)


def _unique(files: Sequence[File]) -> None:
    seen = dict[str, File]()
    for file in files:
        if file.name in seen:
            raise Unrenderable(file.origin, f"two files named {file.name} would be shipped (the other by {seen[file.name].origin})",
                               "rename one of them")  # fmt: skip
        seen[file.name] = file


def _program(
    spec: Spec, configured: write.Configured, starts_itself: bool, launcher: str, files: Sequence[File]
) -> tuple[str, Program]:
    """What is started, and by which launcher module."""
    launch = spec.launch
    fill = configured.config_file
    arguments = (
        *_words(configured.args, f"training.framework ({spec.training.framework})"),
        *(
            _word(text, f"launch.args.{index}")
            for index, text in enumerate(write.fill(write.words(*launch.args), fill))
        ),
    )
    resume = _words(configured.resume_args, "checkpoint.resume")
    shipped = {file.name for file in files}
    for field, text in (("entrypoint", launch.entrypoint), ("module", launch.module)):
        if text is not None and (not text or text.startswith("-")):
            raise Unrenderable(f"launch.{field}", "begins with a dash, so it would be read as an option" if text else "is empty",
                               f"write ./{text}" if field == "entrypoint" and text else f"write the {field}'s name")  # fmt: skip
    if launch.entrypoint is not None:
        name = launch.entrypoint
        here = name.removeprefix("./") in shipped
        script = (
            word(RunTime.CONFIG_DIR, f"/{name.removeprefix('./')}", origin="launch.entrypoint")
            if here
            else word(name, origin="launch.entrypoint")
        )
        return launcher, Program("script", script, arguments, resume)
    if launch.module is not None:
        return launcher, Program("module", word(launch.module, origin="launch.module"), arguments, resume)
    if configured.command is None:
        raise Unrenderable("launch.entrypoint", f"framework {spec.training.framework} has no program of its own",
                           "write launch.entrypoint (a script), launch.module or launch.command")  # fmt: skip
    origin = "launch.command" if launch.command is not None else "training.framework"
    command = [
        _word(text, f"{origin}.{index}" if launch.command is not None else origin)
        for index, text in enumerate(configured.command)
    ]
    if not command:
        raise Unrenderable("launch.command", "is empty", "write the program and its arguments")
    first = command[0].literal or ""
    if starts_itself or (launch.command is not None and (launch.launcher is None or not _is_python(first))):
        if not first or first.startswith("-"):
            raise Unrenderable("launch.command.0", f"{first!r} is not a program", "begin with the program's name")
        alone = launcher if launch.launcher in ("srun", "python") and not starts_itself else "itself"
        return alone, Program("command", command[0], (*command[1:], *arguments), resume)
    if first in ("python", "python3"):
        command = command[1:]
    if len(command) > 1 and command[0].literal == "-m":
        return launcher, Program("module", command[1], (*command[2:], *arguments), resume)
    return launcher, Program("script", command[0], (*command[1:], *arguments), resume)


def _is_python(first: str) -> bool:
    """A command that a launcher can start: an interpreter, ``-m`` or a script."""
    return first in ("python", "python3", "-m") or first.endswith(".py")


def _word(text: Text, origin: str) -> Word:
    """A framework's word: its slots are run-time values of the same name."""
    return Word(tuple(RunTime(part.value) if isinstance(part, Slot) else part for part in text), origin)


def _words(texts: Sequence[Text], origin: str) -> tuple[Word, ...]:
    return tuple(_word(text, origin) for text in texts)


def _fabric(spec: Spec, base: Path) -> fabrics.Fabric | None:
    name = spec.resources.fabric
    if name is None or name == "none":
        return None
    try:
        return fabrics.find(name, base)
    except (fabrics.UnknownFabric, fabrics.BadFabric) as reason:
        raise Unrenderable(
            "resources.fabric", str(reason), f"write one of {', '.join(fabrics.names())}, or a file's path"
        ) from None


def _fabric_env(fabric: fabrics.Fabric | None, slurm: bool) -> tuple[Variable, ...]:
    if fabric is None:
        return ()
    side = fabric.slurm if slurm else fabric.kubernetes
    return tuple(Variable(one.name, _fabric_word(one.value), "fabric") for one in side.env)


def _fabric_word(value: str) -> Word:
    """A profile's value; ``{JOB_ID}`` in it is the scheduler's id of the job."""
    before, placed, after = value.partition("{JOB_ID}")
    parts = (before, RunTime.JOB_ID, after) if placed else (value,)
    return Word(tuple(part for part in parts if part), "resources.fabric")


def _configured_env(configured: write.Configured) -> tuple[Variable, ...]:
    """The framework's variables; ``CUDA_DEVICE_MAX_CONNECTIONS`` also needs the GPU, so ``environment`` decides it."""
    return tuple(
        Variable(name, _word(value, "training.framework"), "framework")
        for name, value in configured.env
        if name != "CUDA_DEVICE_MAX_CONNECTIONS"
    )


def _cpus(effective: Effective) -> int | None:
    """What the job may use of a node's CPUs: as written, else its GPUs' share of the node type's cores."""
    given, node = effective.spec.resources.cpus_per_node, effective.node
    if given is not None or node is None or not node.gpus or not node.cpus:
        return given
    share = min(1.0, effective.spec.resources.gpus_per_node / node.gpus)
    return max(1, int(node.cpus * share))


def _memory(effective: Effective) -> int | None:
    """Memory of a node: as written, else the GPUs' share of what a scheduler may give of the node type."""
    given, node = effective.spec.resources.memory_per_node, effective.node
    if given is not None or node is None or not node.gpus:
        return given
    share = min(1.0, effective.spec.resources.gpus_per_node / node.gpus)
    return int((node.slurm_bytes or int(node.memory_bytes * 0.95)) * share)


def _needed_memory(effective: Effective) -> int:
    """What the estimate needs and a quarter more, in whole GiB: for a part of a node of which nothing else is known."""
    from jobgen.physics.estimate import estimate

    peak: float = estimate(effective).host.peak
    return math.ceil(peak * 1.25 / GIB) * GIB


def _exclusive(effective: Effective) -> bool:
    """The whole node: as written, else when all of its GPUs are asked for."""
    resources, node = effective.spec.resources, effective.node
    if resources.exclusive != "auto":
        return bool(resources.exclusive)
    return resources.gpus_per_node >= (node.gpus if node is not None and node.gpus else WHOLE_NODE)


def _mounts(spec: Spec) -> tuple[Mount, ...]:
    return tuple(
        Mount(
            volume.mount.rstrip("/") or "/", volume.path, volume.claim, volume.create.size if volume.create else None,
            volume.create.storage_class if volume.create else None,
            volume.create.access_mode if volume.create else "ReadWriteMany", volume.scratch, volume.read_only,
            f"volumes.{index}",
        )
        for index, volume in enumerate(spec.volumes)
    )  # fmt: skip


def _python(spec: Spec) -> Python:
    given = spec.launch.python
    if given is None:
        return Python("none")
    if given.venv is not None:
        return Python("venv", _in_path(given.venv, "launch.python.venv"))
    if given.uv is not None:
        return Python("uv", _in_path(given.uv, "launch.python.uv"))
    if given.conda is not None and (not given.conda or given.conda.startswith("-")):
        raise Unrenderable("launch.python.conda", f"{given.conda!r} would be read as an option", "write the environment's name or path")
    return Python("none") if given.conda is None else Python("conda", given.conda)


def _in_path(folder: str, origin: str) -> str:
    if ":" in folder or not folder:
        raise Unrenderable(origin, "holds a colon, which separates the folders of PATH" if folder else "is empty",
                           "write a folder without a colon")  # fmt: skip
    return folder


def _resume(effective: Effective, directory: str, configured: write.Configured) -> Resume:
    """How an attempt finds its checkpoint, from the framework's layout."""
    written, layout = effective.spec.checkpoint.resume, effective.framework.checkpoint
    mode, path = ("path", written) if written not in ("auto", "never") else (written, None)
    return Resume(
        "path" if mode == "path" else "never" if mode == "never" else "auto",
        path, directory, layout.pattern, layout.marker, fingerprint(effective), layout.resumes_itself, layout.tracker,
        _words(configured.resume_args, "checkpoint.resume"),
    )  # fmt: skip


def fingerprint(effective: Effective) -> str:
    """Digest of what a checkpoint is bound to: the model, what is trained of it, and the batch."""
    spec, layout, arch = effective.spec, effective.layout, effective.arch
    training = spec.training
    bound = {
        "model": spec.model.name,
        "shape": [arch.model_type, arch.hidden, arch.depth, arch.vocab, counts.total(arch)],
        "objective": training.objective,
        "method": training.method,
        "lora": [training.lora.rank, training.lora.target_modules] if training.method != "full" else None,
        "sequence": training.sequence_length,
        "batch": layout.global_batch,
    }
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()[:16]


def _save_seconds(effective: Effective) -> float:
    """One save at the assumed bandwidth: weights and fp32 optimizer states, or the adapters alone."""
    spec = effective.spec
    if spec.training.method != "full":
        return effective.adapters.parameters * 14 / SAVE_BANDWIDTH
    per_parameter = 14 if spec.checkpoint.optimizer_state and spec.checkpoint.content != "adapter_only" else 2
    return counts.total(effective.arch) * per_parameter / SAVE_BANDWIDTH
