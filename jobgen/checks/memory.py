"""Verdicts on GPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobgen.checks.bases import edited
from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.words import gib
from jobgen.spec.problem import SpecError

LOADS = ("JG201", "JG202", "JG203", "JG211", "JG227")
"""Rules that name the cause when the weights do not fit while loading."""
NAMES = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer states", "activations": "activations",
         "logits_and_loss": "logits and loss", "communication": "gathered layers and buckets", "workspace": "workspace",
         "context": "CUDA context and communicators"}  # fmt: skip


def movable(case: Case) -> float:
    """Paged optimizer states, which the driver moves to host memory when the card is full."""
    return case.estimate.gpu.components.get("optimizer", 0.0) if case.effective.stepped.where == "managed" else 0.0


def breakdown(case: Case) -> str:
    """The largest components of the peak phase."""
    gpu = case.estimate.gpu
    parts = sorted(((size, name) for name, size in gpu.components.items() if size > 0.03 * gpu.device), reverse=True)
    return ", ".join(f"{NAMES[name]} {gib(size)}" for size, name in parts[:4])


def smallest_fix(case: Case) -> tuple[str, dict[str, Any] | None]:
    """The first change, from the mildest to the hardest, after which the estimate fits."""
    from jobgen.checks.run import Undecided, assumed_estimate

    best: tuple[float, dict[str, Any]] | None = None
    for edits in changes(case):
        try:
            estimate = assumed_estimate(edited(case.document, edits), case.v, case.effective.memo)
        except (Undecided, SpecError):
            continue
        if estimate.gpu.high < estimate.gpu.capacity or estimate.gpu.device < 0.93 * estimate.gpu.capacity:
            return f"write {_words(edits)}: {gib(estimate.gpu.device)}", edits
        if best is None or estimate.gpu.device < best[0]:
            best = estimate.gpu.device, edits
    if best is None:
        return "use a GPU with more memory or a smaller model", None
    return f"no single change is enough (the best, {_words(best[1])}, needs {gib(best[0])}): more GPUs, more sharding, or several of what jobgen estimate names", None


def _words(edits: dict[str, Any]) -> str:
    return ", ".join(f"{path}: {value}" for path, value in edits.items())


def changes(case: Case) -> Iterator[dict[str, Any]]:
    """Edits to try, cumulative where one leads to the next."""
    spec = case.spec
    training, split, layout = spec.training, spec.parallelism, case.layout
    so_far: dict[str, Any] = {}
    if training.activation_checkpointing.mode != "full":
        so_far = {"training.activation_checkpointing": "full"}
        yield dict(so_far)
    if training.micro_batch_size > 1:
        so_far = {**so_far, "training.micro_batch_size": 1}
        if training.global_batch_size is None or training.gradient_accumulation_steps is not None:
            so_far["training.gradient_accumulation_steps"] = (training.gradient_accumulation_steps or 1) * training.micro_batch_size
        yield dict(so_far)
    if training.loss == "standard" and training.framework in ("transformers", "trl", "llama-factory", "axolotl", "ms-swift", "custom"):
        so_far = {**so_far, "training.loss": "liger"}
        yield dict(so_far)
    whole = case.effective.sharded.gradients < case.effective.sharded.weights
    if whole and layout.accumulation > 1 and training.global_batch_size is None:
        so_far = {**so_far, "training.gradient_accumulation_steps": 1}
        yield dict(so_far)
    stage = "fsdp2" if training.framework in ("torchtune", "torchtitan") else "zero3"
    if layout.data > 1 and split.sharding in ("none", "zero1", "zero2") and layout.tensor * layout.pipeline == 1:
        so_far = {**so_far, "parallelism.sharding": stage}
        yield dict(so_far)
    if training.method == "full" and split.sharding in ("zero1", "zero2", "zero3") and spec.offload.optimizer == "none":
        so_far = {**so_far, "offload.optimizer": "cpu"}
        yield dict(so_far)
        if "zero3" in (split.sharding, so_far.get("parallelism.sharding")):
            yield {**so_far, "offload.parameters": "cpu"}
    elif split.sharding in ("fsdp1", "fsdp2") and spec.offload.optimizer == "none":
        yield {**so_far, "offload.optimizer": "cpu", "offload.parameters": "cpu"}
    if training.method == "lora" and training.framework != "megatron-lm":
        yield {**so_far, "training.method": "qlora"}
    if training.method == "full":
        yield {**so_far, "training.method": "lora"}
    for factor in (2, 4):
        if not spec.resources.hosts and split.sharding in ("zero3", "fsdp1", "fsdp2") and training.global_batch_size is None:
            yield {**so_far, "resources.nodes": spec.resources.nodes * factor}




@rule(
    "JG101", "error", "first_step", "estimate",
    bad=Example("full-8b-fsdp2", {"parallelism.sharding": "none"}),
    good=Example("full-8b-fsdp2", {}),
    fix="the smallest change that fits is named; jobgen estimate ranks others",
    sources=("jobgen estimate lists every term with its source",),
    because=LOADS,
    mend=smallest_fix,
)  # fmt: skip
def does_not_fit(case: Case) -> Outcome | None:
    """The job does not fit the GPU

    Even the lower end of the estimate is above the memory of the card. jobgen estimate shows the terms and the phase.
    """
    estimate = case.estimate
    gpu = estimate.gpu
    if estimate.verdict != "does_not_fit" or gpu.low - movable(case) <= gpu.capacity:
        return None
    low = f"at least {gib(gpu.low)} (expected {gib(gpu.device)})"
    return Outcome("resources.gpu", f"{low} on the worst GPU in the {gpu.phase.replace('_', ' ')} phase, of {gib(gpu.capacity)}: {breakdown(case)}", "")


@rule(
    "JG102", "warning", "first_step", "estimate",
    bad=Example("full-8b-zero2", {"training.sequence_length": 24576}),
    good=Example("full-8b-zero2", {}),
    fix="a smaller sequence or micro batch, more sharding, or a measurement of one step",
    sources=("jobgen estimate lists every term with its source",),
    mend=smallest_fix,
)  # fmt: skip
def tight(case: Case) -> Outcome | None:
    """GPU memory is tight

    The expected peak is above the card, the lower end of the estimate below it: fragmentation and longer samples decide.
    """
    estimate = case.estimate
    gpu = estimate.gpu
    if estimate.verdict == "fits" or gpu.device - movable(case) <= gpu.capacity or gpu.low - movable(case) > gpu.capacity:
        return None
    return Outcome(
        "resources.gpu",
        f"{gib(gpu.device)} expected on the worst GPU ({gib(gpu.low)} to {gib(gpu.high)}) of {gib(gpu.capacity)} "
        f"in the {gpu.phase.replace('_', ' ')} phase: {breakdown(case)}",
        "",
    )  # fmt: skip
