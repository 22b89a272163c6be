"""Restarts, periodic saves and the time limit: what an attempt leaves to the next one."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import number, on, setting
from jobgen.checks.words import gb, hours
from jobgen.effective.options import trainer
from jobgen.physics.storage import KEEPS_ALL

LITTLE = 20e9
"""Bytes of checkpoints that fill no disk."""
MARGIN = 60
"""Seconds that Slurm may signal early."""
TIMEOUTS = {"torchtitan": 100.0, "megatron-lm": 600.0}
"""Seconds until a collective gives up: torch's own 600, transformers' ddp_timeout 1800."""


def periodic(case: Case) -> bool:
    """Something saves before the end."""
    checkpoint = case.spec.checkpoint
    return any((checkpoint.every_steps, checkpoint.every_minutes, checkpoint.every_epochs)) or on(case, "save_strategy")


@rule(
    "JG840", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"checkpoint.keep": None}),
    good=Example("full-32b-zero3", {}),
    fix="checkpoint.keep: 2 or 3",
    sources=("transformers training_args.py: save_total_limit None keeps all", "foundation-model-stack/fms-hf-tuning#217"),
)  # fmt: skip
def keeps_everything(case: Case) -> Outcome | None:
    """Every checkpoint is kept until the disk is full

    The save that fills it fails, often hours later and for other jobs too.
    """
    spec = case.spec
    kept = spec.checkpoint.keep is not None and spec.training.framework not in KEEPS_ALL
    if kept or spec.checkpoint.directory is None or not periodic(case) or setting(case, "save-retain-interval") is not None:
        return None
    if spec.training.framework in ("axolotl", "torchtitan") or number(case, "save_total_limit"):
        return None  # they keep 4 and 10 by default
    found = case.estimate
    every, steps = spec.checkpoint.every_steps, found.steps
    saves = steps // every if every and steps else None
    if saves is not None and (saves < 3 or saves * found.storage.size < LITTLE):
        return None
    count = f"all {saves} are kept, {gb(saves * found.storage.size)}" if saves else f"all are kept, {gb(found.storage.size)} each"
    if spec.training.framework in KEEPS_ALL:
        path = "checkpoint" if spec.checkpoint.keep is None else "checkpoint.keep"
        return Outcome(path, f"Megatron-LM has no flag for the number of checkpoints: {count}",
                       "write a larger checkpoint.every_steps, or training.options: {save-retain-interval: N} where the release has it "
                       "(a multiple of every_steps: the others are deleted, but the last)")  # fmt: skip
    return Outcome("checkpoint", f"checkpoint.keep is not written: {count}", "write checkpoint.keep: 3", {"checkpoint.keep": 3})


@rule(
    "JG841", "error", "resume", "spec",
    bad=Example("full-32b-zero3", {"checkpoint.every_steps": None}),
    good=Example("full-32b-zero3", {}),
    fix="checkpoint.every_steps, or launch.restarts: 0",
    sources=("public PyTorchJobs with maxRestarts 100 and no saved state (survey of 35 manifests)",),
)  # fmt: skip
def restarts_without_saves(case: Case) -> Outcome | None:
    """Restarts with nothing to restart from

    Without periodic checkpoints every attempt begins at step 0.
    """
    spec = case.spec
    if spec.launch.restarts == 0 or periodic(case):
        return None
    steps = case.estimate.steps
    every = max(1, steps // 20) if steps else 100
    return Outcome("launch.restarts", f"restarts: {spec.launch.restarts}, and nothing is saved before the end", f"write checkpoint.every_steps: {every}",
                   {"checkpoint.every_steps": every})  # fmt: skip


@rule(
    "JG842", "warning", "resume", "spec",
    bad=Example("full-32b-zero3", {"checkpoint.resume": "never"}),
    good=Example("full-32b-zero3", {}),
    fix="checkpoint.resume: auto, or launch.restarts: 0",
    sources=("torch distributed/run.py: workers start anew",),
)  # fmt: skip
def restarts_anew(case: Case) -> Outcome | None:
    """Restarts that never resume

    Each attempt begins at step 0 and overwrites what the last one saved.
    """
    spec = case.spec
    if spec.launch.restarts == 0 or spec.checkpoint.resume != "never":
        return None
    return Outcome("checkpoint.resume", f"resume: never with restarts: {spec.launch.restarts}", "write resume: auto, or restarts: 0",
                   {"checkpoint.resume": "auto"})  # fmt: skip


@rule(
    "JG843", "error", "resume", "estimate",
    bad=Example("full-32b-zero3", {"checkpoint.every_steps": 4000, "launch.time_limit": "6h", "launch.restarts": 40}),
    good=Example("full-32b-zero3", {}),
    fix="saves that several fit into one attempt",
    sources=("transformers 5.0.0 training_args.py:944 (enable_jit_checkpoint)", "Slurm and Kubernetes end an attempt at its limit"),
    facts=("TL02",),
)  # fmt: skip
def no_save_in_an_attempt(case: Case) -> Outcome | None:
    """An attempt ends before it saves

    With every restart the job begins at the same step again, until the restarts are used up.
    """
    spec, found = case.spec, case.estimate
    limit, every, step = spec.launch.time_limit, spec.checkpoint.every_steps, found.time.step
    if spec.launch.restarts == 0 or limit is None or every is None or step is None or spec.checkpoint.every_minutes is not None:
        return None
    if found.time.total is None or found.time.total <= limit or every * step <= limit:
        return None
    right = max(1, int(limit / step / 4))
    return Outcome("checkpoint.every_steps", f"{every} steps of {step:.1f} s take {hours(every * step)}, an attempt {hours(limit)}",
                   f"write every_steps: {right}", {"checkpoint.every_steps": right})  # fmt: skip


@rule(
    "JG844", "warning", "checkpoint", "estimate",
    bad=Example("full-32b-zero3", {"slurm.signal_before": "30s"}),
    good=Example("full-32b-zero3", {"slurm.signal_before": "10m"}),
    fix="slurm.signal_before: a step, a save and a minute",
    sources=("man sbatch: the signal may come up to 60 s early", "pytorch#119856", "measured: a 90 s lead in a 120 s job churns through its restarts"),
)  # fmt: skip
def signal_too_late(case: Case) -> Outcome | None:
    """The signal leaves no time to save

    The lead must hold the rest of a step and one save, and Slurm sends it up to a minute early or late. Shared storage is
    taken to give 2 GB/s. Periodic checkpoints still hold.
    """
    spec = case.spec
    if case.target != "slurm" or spec.launch.time_limit is None or spec.launch.restarts == 0:
        return None
    found = case.estimate
    save = found.storage.size / 2e9
    need = int(save + min(found.time.step or 0.0, 600) + MARGIN)
    lead = int(spec.slurm.signal_before)
    if lead >= need or 2 * need > spec.launch.time_limit:
        return None
    right = -(-need // 60) * 60
    return Outcome("slurm.signal_before", f"{lead} s before the limit; a step and a save of {found.storage.size / 1e9:.0f} GB take about {need - MARGIN} s",
                   f"write signal_before: {right}s", {"slurm.signal_before": f"{right}s"},
                   None if case.wrote("slurm.signal_before") else "info")  # fmt: skip


@rule(
    "JG845", "warning", "checkpoint", "spec",
    bad=Example("full-8b-zero2", {"checkpoint.every_steps": None, "checkpoint.every_minutes": 30}),
    good=Example("full-8b-zero2", {}),
    fix="checkpoint.every_steps",
    sources=("transformers training_args.py: save_strategy is no, steps, epoch or best",),
)  # fmt: skip
def saves_by_the_clock(case: Case) -> Outcome | None:
    """A Trainer does not save by the clock

    It saves every n steps or at the end of an epoch; every_minutes and fractions of an epoch are ignored, and its own
    default of 500 steps holds.
    """
    spec = case.spec
    checkpoint = spec.checkpoint
    if not trainer(spec) or checkpoint.every_steps is not None or checkpoint.every_epochs == 1:
        return None
    if checkpoint.every_minutes is None and checkpoint.every_epochs is None:
        return None
    found = case.estimate
    seconds, steps = found.time.step, found.steps
    path = "checkpoint.every_minutes" if checkpoint.every_minutes is not None else "checkpoint.every_epochs"
    right = 200
    if checkpoint.every_minutes is not None and seconds:
        right = max(1, round(checkpoint.every_minutes * 60 / seconds))
    elif checkpoint.every_epochs is not None and steps:
        epochs = spec.training.data.epochs if spec.training.data else 1
        right = max(1, round(checkpoint.every_epochs * steps / epochs))
    return Outcome(path, f"{path.rpartition('.')[2]} is ignored: a Trainer saves by steps or whole epochs", f"write checkpoint.every_steps: {right}",
                   {"checkpoint.every_steps": right, path: None})  # fmt: skip


@rule(
    "JG846", "warning", "checkpoint", "estimate",
    bad=Example("full-32b-zero3", {"model.name": "Qwen/Qwen3-235B-A22B", "training.framework": "custom", "training.loading": "rank0_broadcast",
                                   "launch.entrypoint": "train.py", "parallelism.sharding": "fsdp2", "resources.nodes": 32}),
    good=Example("full-8b-fsdp2", {"training.loading": "rank0_broadcast"}),
    fix="a longer timeout of the process group, sharded loading and saving",
    sources=("pytorch PR#110947 (600 s)", "transformers 4.57.6 training_args.py:1496 (ddp_timeout 1800 s)",
             "Megatron-LM@d98e8a64 training/config/common_config.py:77", "torchtitan@b5bcd76c config/configs.py CommConfig",
             "pytorch PR#116267, torchtune#2093"),
    facts=("TL01",),
)  # fmt: skip
def others_give_up(case: Case) -> Outcome | None:
    """The other ranks wait longer for rank 0 than their timeout

    While one rank reads or writes the whole model the others wait in a collective, and the watchdog ends them. Storage is
    taken to give 1 GB/s to one process.
    """
    spec, found = case.spec, case.estimate
    if case.layout.world == 1:
        return None
    read = 2.0 * found.parameters if case.effective.loading.mode == "rank0_broadcast" else 0.0
    written = found.storage.size if spec.checkpoint.content == "full" else 0.0
    seconds = max(read, written) / 1e9
    minutes = number(case, "distributed-timeout-minutes")
    limit = number(case, "ddp_timeout", "comm.train_timeout_seconds", "timeout") or (60 * minutes if minutes else None)
    if limit is None:
        limit = 1800.0 if trainer(spec) else TIMEOUTS.get(spec.training.framework, 600.0)
        if spec.training.framework == "llama-factory":
            limit = 180000000.0
    if seconds <= limit * 0.75:
        return None
    what = "load" if read >= written else "save"
    key = {"megatron-lm": "distributed-timeout-minutes"}.get(spec.training.framework, "ddp_timeout")
    amount = int(seconds * 3 // 60) if "minutes" in key else int(seconds * 3)
    path = "training.loading" if what == "load" else "checkpoint.content"
    if not trainer(spec) and spec.training.framework != "megatron-lm":
        return Outcome(path, f"one rank takes about {hours(seconds)} to {what} the model, the others give up after {hours(limit)}",
                       f"pass timeout={amount} s to init_process_group, or {what} in shards")  # fmt: skip
    return Outcome(path, f"one rank takes about {hours(seconds)} to {what} the model, the others give up after {hours(limit)}",
                   f"write training.options.{key}: {amount}", {f"training.options.{key}": amount})  # fmt: skip


@rule(
    "JG847", "error", "read", "spec",
    bad=Example("full-8b-zero2", {"checkpoint.content": "adapter_only"}),
    good=Example("full-8b-zero2", {"checkpoint.content": "full"}),
    fix="checkpoint.content: sharded or full",
    sources=("method: full trains no adapter",),
)  # fmt: skip
def no_adapter_to_save(case: Case) -> Outcome | None:
    """There is no adapter to save

    A full fine-tuning changes all weights.
    """
    if case.spec.checkpoint.content != "adapter_only" or case.spec.training.method != "full":
        return None
    return Outcome("checkpoint.content", "content: adapter_only with method: full", "write content: sharded", {"checkpoint.content": "sharded"})


@rule(
    "JG848", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"launch.time_limit": None}),
    good=Example("full-32b-zero3", {}),
    fix="launch.time_limit",
    sources=("man sbatch: without --time the partition's DefaultTime, else its MaxTime",),
)  # fmt: skip
def no_time_limit(case: Case) -> Outcome | None:
    """No time limit is asked for

    Slurm then takes the partition's default, often an hour or less, and the signal that saves the state is never sent.
    """
    if case.target != "slurm" or case.spec.launch.time_limit is not None:
        return None
    total = case.estimate.time.total
    need = max(1, int((total or 86400) * 1.2 // 3600 + 1))
    return Outcome("launch", "launch.time_limit is not written: the partition's default applies", f"write time_limit: {need}h", {"launch.time_limit": f"{need}h"})


@rule(
    "JG849", "warning", "resume", "spec",
    bad=Example("full-32b-zero3", {"slurm.requeue": False}),
    good=Example("full-32b-zero3", {}),
    fix="slurm.requeue: auto",
    sources=("measured: --no-requeue keeps a preempted job from coming back",),
)  # fmt: skip
def restarts_forbidden(case: Case) -> Outcome | None:
    """Restarts are asked for and forbidden

    With requeue: false Slurm never starts the job again, whatever restarts says; with restart: never nor does Kubernetes.
    """
    spec = case.spec
    if spec.launch.restarts == 0:
        return None
    if case.target == "slurm" and spec.slurm.requeue is False:
        path, value = "slurm.requeue", "auto"
    elif case.target in ("k8s", "trainjob", "jobset") and spec.kubernetes.restart == "never":
        path, value = "kubernetes.restart", "auto"
    else:
        return None
    return Outcome(path, f"{path} forbids the restarts ({spec.launch.restarts}) that launch.restarts asks for", f"write {path}: {value}", {path: value})
