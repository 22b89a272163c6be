"""Batch arithmetic in the framework's own words, and what generation adds to it."""

from __future__ import annotations

from typing import Any

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import number, on, setting, value
from jobgen.effective.options import trainer

ZERO = ("zero1", "zero2", "zero3")
TRL_GRPO = "trl@f2cd5771 trl/trainer/grpo_config.py"
_DS = (
    ("optimizer.params.lr", ("learning_rate",), 5e-5), ("optimizer.params.weight_decay", ("weight_decay",), 0.0),
    ("gradient_clipping", ("max_grad_norm",), 1.0), ("scheduler.params.warmup_num_steps", ("warmup_steps",), 0.0),
    ("scheduler.params.warmup_max_lr", ("learning_rate",), 5e-5),
)  # fmt: skip
"""DeepSpeed keys, TrainingArguments that must say the same, and their defaults."""


def generation_batch(case: Case) -> int:
    """Completions that TRL generates at once."""
    layout = case.layout
    steps = number(case, "steps_per_generation") or layout.accumulation
    return int(number(case, "generation_batch_size") or layout.micro_batch * layout.data * steps)


@rule(
    "JG541", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"learning_rate": 1e-5, "deepspeed": {"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}}}}),
    good=Example("full-8b-zero2", {"training.options": {"learning_rate": 1e-5, "deepspeed": {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}}}),
    fix="auto in the DeepSpeed configuration",
    sources=("transformers 4.57.6 integrations/deepspeed.py trainer_config_finalize",),
    facts=("BA02",),
)  # fmt: skip
def deepspeed_disagrees(case: Case) -> Outcome | None:
    """The DeepSpeed configuration and the Trainer's arguments disagree

    The Trainer compares what both say and stops: "Please correct the following DeepSpeed config values that mismatch".
    """
    spec = case.spec
    if not trainer(spec) or spec.parallelism.sharding not in ZERO or not isinstance(value(case, "deepspeed"), dict):
        return None
    for key, names, default in _DS:
        theirs = setting(case, f"deepspeed.{key}")
        if theirs is None or theirs.value == "auto":
            continue
        ours = number(case, *names)
        ours = default if ours is None else ours
        said = number(case, f"deepspeed.{key}")
        if said is None or said == ours:
            continue
        return Outcome(theirs.path, f"deepspeed.{key}: {theirs.value}, but {names[0]}: {ours:g}", f"write deepspeed.{key}: auto",
                       {theirs.edit: "auto"} if theirs.edit else None)  # fmt: skip
    return None


@rule(
    "JG542", "error", "init", "spec",
    bad=Example("grpo-8b", {"training.rollout.num_generations": 6}),
    good=Example("grpo-8b", {}),
    fix="micro_batch_size x data x gradient_accumulation_steps as a multiple of num_generations",
    sources=(f"{TRL_GRPO}:1083,1111,1117", "axolotl@067b021c utils/schemas/validation.py:815-860"),
    facts=("BA05",),
)  # fmt: skip
def generations_by_batch(case: Case) -> Outcome | None:
    """GRPO's batch does not hold whole groups of completions

    A group is the completions of one prompt, at least two; the generation batch must hold whole groups and divide over
    the ranks.
    """
    spec, layout = case.spec, case.layout
    if spec.training.objective != "grpo" or spec.training.framework not in ("trl", "axolotl", "ms-swift"):
        return None
    rollout = spec.training.rollout
    group = rollout.num_generations if rollout is not None else int(number(case, "num_generations") or 8)
    path = "training.rollout.num_generations"
    if group < 2:
        return Outcome(path, "num_generations: 1: a group needs two completions to compare", "write num_generations: 2 or more", {path: 2})
    batch, each = generation_batch(case), layout.micro_batch * layout.data
    if batch % group == 0 and batch % each == 0:
        return None
    if batch % each:
        found = setting(case, "generation_batch_size")
        return Outcome(found.path if found else path, f"generation_batch_size ({batch}) / (micro_batch_size x ranks = {each}) is not a whole number",
                       "remove generation_batch_size", {found.edit: None} if found and found.edit else None)  # fmt: skip
    fits = [size for size in range(2, batch + 1) if batch % size == 0]
    right = min(fits, key=lambda size: abs(size - group))
    made = f"micro_batch_size ({layout.micro_batch}) x ranks ({layout.data}) x steps ({batch // each})"
    return Outcome(path, f"{made} = {batch} completions / num_generations ({group}) is not a whole number", f"write num_generations: {right}",
                   {path: right} if rollout is not None else None)  # fmt: skip


@rule(
    "JG543", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"auto_find_batch_size": True}}),
    good=Example("qlora-235b-zero3", {}),
    fix="remove auto_find_batch_size",
    sources=("transformers 4.57.6 trainer.py:5549", f"{TRL_GRPO}:1069"),
    facts=("BA06",),
)  # fmt: skip
def searched_batch(case: Case) -> Outcome | None:
    """The batch size cannot be searched here

    auto_find_batch_size retries with smaller batches, which ZeRO-3 and GRPO refuse. Elsewhere it would change the batch
    that the spec gives.
    """
    spec = case.spec
    found = setting(case, "auto_find_batch_size")
    if found is None or found.on is not True or not trainer(spec):
        return None
    if spec.parallelism.sharding != "zero3" and spec.training.objective != "grpo":
        return None
    what = "ZeRO-3" if spec.parallelism.sharding == "zero3" else "GRPO"
    return Outcome(found.path, f"auto_find_batch_size with {what}", "remove it", {found.edit: None} if found.edit else None)


@rule(
    "JG544", "error", "init", "spec",
    bad=Example("lora-8b-ddp", {"training.options": {"dataset_streaming": True}}),
    good=Example("lora-8b-ddp", {"training.options": {"dataset_streaming": True}, "training.data": None, "training.max_steps": 1000}),
    fix="training.max_steps instead of training.data",
    sources=("transformers 4.57.6 trainer.py:701", "LLaMA-Factory@ff6d4d12 parser.py:475", "axolotl@067b021c validation.py:1372"),
    facts=("BA07",),
)  # fmt: skip
def stream_without_steps(case: Case) -> Outcome | None:
    """A stream has no length

    A Trainer then needs max_steps; epochs cannot be counted.
    """
    spec = case.spec
    found = setting(case, "streaming", "dataset_streaming", "data.streaming")
    if found is None or found.on is not True or not trainer(spec) or spec.training.max_steps is not None:
        return None
    steps = case.estimate.steps
    return Outcome(found.path, f"{found.words} with an amount of data, and max_steps is not written",
                   f"write training.max_steps{f': {steps}' if steps else ''} and remove training.data",
                   {"training.max_steps": steps, "training.data": None} if steps else None)  # fmt: skip


@rule(
    "JG545", "error", "init", "spec",
    bad=Example("lora-8b", {"training.options": {"dataloader_prefetch_factor": 4}}),
    good=Example("lora-8b", {"training.options": {"dataloader_prefetch_factor": 4}, "training.data.workers": 4}),
    fix="training.data.workers: 1 or more",
    sources=("transformers 5.24.0 training_args.py:1803",),
    facts=("LA09",),
)  # fmt: skip
def prefetch_without_workers(case: Case) -> Outcome | None:
    """Nobody prefetches: the data loader has no workers

    dataloader_prefetch_factor counts batches per worker, and a Trainer has none by default.
    """
    found = setting(case, "dataloader_prefetch_factor")
    if found is None or found.value is None or not trainer(case.spec) or case.spec.training.framework == "axolotl":
        return None
    data = case.spec.training.data
    workers = number(case, "dataloader_num_workers") or (data.workers if data is not None else None) or 0
    if workers > 0:
        return None
    edits: dict[str, Any] = {"training.data.workers": 4} if data is not None else {"training.data": {"workers": 4}}
    return Outcome(found.path, f"{found.words} with no data-loader workers", "write training.data.workers: 4", edits)


@rule(
    "JG546", "error", "init", "spec",
    bad=Example("grpo-8b", {"training.rollout.tensor": 3}),
    good=Example("grpo-8b", {"training.rollout.tensor": 2}),
    fix="a tensor size that divides the ranks of a node",
    sources=("trl@f2cd5771 trl/trainer/grpo_trainer.py (vllm_tensor_parallel_size must divide the world size)",),
)  # fmt: skip
def engine_by_ranks(case: Case) -> Outcome | None:
    """The generation engine does not divide the GPUs

    A colocated engine is made of neighbouring ranks, one of its own has the GPUs of its nodes.
    """
    rollout, layout = case.spec.training.rollout, case.layout
    if rollout is None or rollout.tensor == 1:
        return None
    gpus = layout.world if rollout.mode == "colocate" else case.spec.resources.gpus_per_node * rollout.nodes
    if gpus % rollout.tensor == 0:
        return None
    right = next(size for size in range(min(rollout.tensor, gpus), 0, -1) if gpus % size == 0)
    return Outcome("training.rollout.tensor", f"{gpus} GPUs / rollout.tensor ({rollout.tensor}) is not a whole number", f"write tensor: {right}",
                   {"training.rollout.tensor": right})  # fmt: skip


@rule(
    "JG547", "warning", "read", "spec",
    bad=Example("dpo-8b", {"training.objective": "orpo", "training.reference": {"model": "policy"}}),
    good=Example("dpo-8b", {}),
    fix="remove training.reference or training.rollout",
    sources=("trl@f2cd5771 trl/trainer: ORPO, reward and SFT load no reference model; only GRPO and PPO generate",),
)  # fmt: skip
def idle_section(case: Case) -> Outcome | None:
    """A section has no effect with this objective

    Reference models belong to dpo, kto, grpo and ppo, generation to grpo and ppo.
    """
    training = case.spec.training
    if case.wrote("training.rollout") and training.objective not in ("grpo", "ppo"):
        return Outcome("training.rollout", f"training.rollout is ignored: {training.objective} generates nothing", "remove it", {"training.rollout": None})
    if case.wrote("training.reference") and training.objective not in ("dpo", "kto", "grpo", "ppo"):
        return Outcome("training.reference", f"training.reference is ignored: {training.objective} has no reference model", "remove it",
                       {"training.reference": None})  # fmt: skip
    return None


@rule(
    "JG548", "error", "init", "spec",
    bad=Example("dpo-8b", {"training.method": "lora", "training.reference": {"model": "Qwen/Qwen3-8B"}}),
    good=Example("dpo-8b", {"training.method": "lora"}),
    fix="reference: {model: policy}: the base without its adapter is the reference",
    sources=("trl trainer/dpo_trainer.py (a reference model with peft_config)",),
    versions="TRL below 1.0",
)  # fmt: skip
def reference_beside_adapters(case: Case) -> Outcome | None:
    """A reference model beside adapters

    With adapters the policy without them is the reference and costs nothing; TRL's DPO and KTO refuse another model unless
    force_use_ref_model is set.
    """
    training = case.spec.training
    reference = training.reference
    if training.framework != "trl" or training.objective not in ("dpo", "kto") or training.method == "full" or reference is None:
        return None
    if reference.model in ("policy", None) or on(case, "force_use_ref_model") or case.v["trl"] >= (1, 0):
        return None
    return Outcome("training.reference.model", f"reference: {reference.model} beside adapters", "write reference: {model: policy}",
                   {"training.reference": {"model": "policy"}})  # fmt: skip
