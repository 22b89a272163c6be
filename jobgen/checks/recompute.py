"""Activation checkpointing: which implementation runs, and what it does not go with."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import on, setting
from jobgen.effective.options import trainer

REENTRANT = ("gradient_checkpointing_kwargs.use_reentrant", "activation_checkpointing_kwargs.use_reentrant")
LLAMA_FACTORY = "use_reentrant_gc"
FSDP_OWN = ("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
TRAINER_OWN = ("gradient_checkpointing", "activation_checkpointing")
NOT_REENTRANT: dict[str, object] = {"training.options.gradient_checkpointing_kwargs": {"use_reentrant": False}}


def checkpoints(case: Case) -> bool:
    """The Trainer recomputes activations (not FSDP by itself)."""
    return case.spec.training.activation_checkpointing.mode != "none" and case.spec.parallelism.sharding not in ("fsdp1", "fsdp2")


def adapters(case: Case) -> bool:
    """Adapters over a frozen base."""
    return case.spec.training.method != "full"


def reentrant(case: Case) -> bool:
    """Which implementation of torch's checkpointing runs: as written, else the default of the release."""
    framework = case.spec.training.framework
    if framework == "llama-factory":
        written = setting(case, LLAMA_FACTORY)
        return written is None or written.on is not False
    written = setting(case, *REENTRANT)
    if written is not None:
        return written.on is not False
    if framework == "axolotl":
        return True
    return case.v["transformers"] < (5, 0)


@rule(
    "JG801", "warning", "first_step", "spec",
    bad=Example("lora-8b", {}),
    good=Example("lora-8b", {"training.options": {"gradient_checkpointing_kwargs": {"use_reentrant": False}}}),
    fix="gradient_checkpointing_kwargs: {use_reentrant: false}, or model.enable_input_require_grads() in the program",
    sources=("measured: transformers 4.57.6 stops at the first backward, 5.0.0 and 5.24.0 do not",),
    facts=("CK01",),
    versions="transformers < 5 (use_reentrant defaults to true)",
)  # fmt: skip
def no_input_gradient(case: Case) -> Outcome | None:
    """Checkpointing of a frozen base loses the gradient

    The re-entrant form needs an input that requires a gradient, and embeddings of a frozen base do not give one. The
    frameworks see to it; a program of one's own that wraps the model before the Trainer must.
    """
    spec = case.spec
    if spec.training.framework != "transformers" or spec.training.method != "lora" or not checkpoints(case):
        return None
    if not reentrant(case):
        return None
    return Outcome(
        "training.activation_checkpointing", "re-entrant checkpointing over a frozen base stops with \"element 0 of tensors does not "
        "require grad\" unless the program calls enable_input_require_grads()",
        "write training.options.gradient_checkpointing_kwargs: {use_reentrant: false}", NOT_REENTRANT,
    )  # fmt: skip


@rule(
    "JG802", "warning", "first_step", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"use_reentrant_gc": False}}),
    good=Example("qlora-235b-zero3", {}),
    fix="use_reentrant: true with ZeRO-3",
    sources=("trl@f2cd5771 trl/trainer/sft_trainer.py:1095-1116 (TRL #2514, DeepSpeed PR #8130)", "axolotl@067b021c validation.py:641",
             "transformers 5.0.0 modeling_utils.py:3099"),
    facts=("CK02",),
    versions="transformers >= 5 defaults to false; TRL >= 0.28 sets true itself",
)  # fmt: skip
def zero3_not_reentrant(case: Case) -> Outcome | None:
    """ZeRO-3 with adapters needs re-entrant checkpointing

    The other form recomputes with parameters that are partitioned again: it raises CheckpointError, or trains wrongly.
    """
    spec = case.spec
    framework = spec.training.framework
    if not trainer(spec) or not adapters(case) or spec.parallelism.sharding != "zero3" or not checkpoints(case) or framework == "unsloth":
        return None
    if framework == "trl" and case.v["trl"] >= (0, 28):
        return None
    if reentrant(case):
        return None
    key = LLAMA_FACTORY if framework == "llama-factory" else REENTRANT[0]
    found = setting(case, LLAMA_FACTORY if framework == "llama-factory" else REENTRANT[0], REENTRANT[1])
    edits: dict[str, object] | None
    if found is None:
        edits = {"training.options.gradient_checkpointing_kwargs": {"use_reentrant": True}}
    else:
        edits = {found.edit: True} if found.edit else None
    return Outcome(found.path if found else "training.activation_checkpointing",
                   f"{found.words if found else 'use_reentrant: false (the default of transformers 5)'} with ZeRO-3 and adapters",
                   f"write training.options.{key}: true", edits)  # fmt: skip


@rule(
    "JG803", "warning", "first_step", "spec",
    bad=Example("lora-8b-ddp", {}),
    good=Example("lora-8b-ddp", {"training.options": {"gradient_checkpointing_kwargs": {"use_reentrant": False}}}),
    fix="gradient_checkpointing_kwargs: {use_reentrant: false}, or ddp_find_unused_parameters: false",
    sources=("transformers 4.57.6 trainer.py:2194-2201", "TRL issue #4782", "peft issue #313"),
    facts=("CK03",),
    versions="transformers < 5; TRL before 0.27",
)  # fmt: skip
def marked_ready_twice(case: Case) -> Outcome | None:
    """DDP finds a parameter ready twice

    A Trainer looks for unused parameters when the model is a PeftModel, which re-entrant checkpointing does not survive:
    "Expected to mark a variable ready only once". LLaMA-Factory, Axolotl and ms-swift switch that search off.
    """
    spec = case.spec
    if spec.training.framework not in ("transformers", "trl") or not adapters(case) or not checkpoints(case):
        return None
    if spec.parallelism.sharding != "none" or case.layout.world == 1 or setting(case, "ddp_find_unused_parameters") is not None:
        return None
    if not reentrant(case) or (spec.training.framework == "trl" and case.v["trl"] >= (0, 27)):
        return None
    return Outcome(
        "training.activation_checkpointing", "re-entrant checkpointing under DDP with adapters: \"Expected to mark a variable ready only once\"",
        "write training.options.gradient_checkpointing_kwargs: {use_reentrant: false}", NOT_REENTRANT,
    )  # fmt: skip


@rule(
    "JG902", "info", "first_step", "spec",
    bad=Example("lora-8b", {"training.options": {"use_cache": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}}),
    good=Example("lora-8b", {"training.options": {"gradient_checkpointing_kwargs": {"use_reentrant": False}}}),
    fix="use_cache: false",
    sources=("transformers 4.57.6 trainer.py:2134-2138",),
    facts=("CK04",),
)  # fmt: skip
def cache_switched_off(case: Case) -> Outcome | None:
    """use_cache is ignored under activation checkpointing

    transformers switches it off with a warning: the cache would keep what checkpointing drops.
    """
    found = setting(case, "use_cache", "model_kwargs.use_cache")
    if found is None or found.on is not True or not trainer(case.spec) or case.spec.training.activation_checkpointing.mode == "none":
        return None
    return Outcome(found.path, "use_cache: true is ignored: transformers sets false while it checkpoints activations", "write use_cache: false",
                   {found.edit: False} if found.edit else None)  # fmt: skip


@rule(
    "JG804", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"launch.args": ["--gradient_checkpointing", "true"]}),
    good=Example("full-8b-fsdp1", {}),
    fix="fsdp_config.activation_checkpointing alone",
    sources=("transformers 5.24.0 trainer.py create_accelerator_and_postprocess", "ms-swift@3602360a swift/arguments/sft_args.py:349"),
    facts=("CK05",),
)  # fmt: skip
def two_checkpointings(case: Case) -> Outcome | None:
    """Two implementations of activation checkpointing at once

    A Trainer refuses its own checkpointing beside FSDP's ("can't both be set to True"). jobgen writes FSDP's; a flag in
    launch.args comes after it.
    """
    spec = case.spec
    if not trainer(spec) or spec.training.framework == "ms-swift" or spec.parallelism.sharding not in ("fsdp1", "fsdp2"):
        return None
    found = setting(case, *TRAINER_OWN)
    if found is None or found.on is not True or not found.path.startswith("launch.args"):
        return None
    if spec.training.activation_checkpointing.mode != "full" and not on(case, *FSDP_OWN):
        return None
    index = int(found.path.rpartition(".")[2])
    rest = [word for i, word in enumerate(spec.launch.args) if i not in (index, index + 1)]
    two = "=" not in spec.launch.args[index] and found.value is not True
    return Outcome(found.path, f"{found.words} beside FSDP's own activation checkpointing", "remove it from launch.args",
                   {"launch.args": rest} if two else None)  # fmt: skip


@rule(
    "JG805", "warning", "end", "spec",
    bad=Example("full-8b-fsdp1", {"training.options": {"fsdp_config": {"activation_checkpointing": False}}}),
    good=Example("full-8b-fsdp1", {}),
    fix="fsdp_config.activation_checkpointing: true",
    sources=("transformers 4.57.6 training_args.py:1930",),
    facts=("CK06",),
)  # fmt: skip
def gathered_twice(case: Case) -> Outcome | None:
    """FSDP1 gathers the weights once more for the recomputation

    The Trainer's checkpointing recomputes inside the backward pass, where FSDP1 has freed the layer again. FSDP's own
    checkpointing wraps the layer inside its unit.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp1" or not trainer(spec) or spec.training.activation_checkpointing.mode == "none":
        return None
    found = setting(case, *FSDP_OWN)
    if found is None or found.on is not False:
        return None
    return Outcome(found.path, f"{found.words} leaves the Trainer's checkpointing, which gathers every layer once more", f"write {FSDP_OWN[0]}: true",
                   {found.edit: True} if found.edit else None)  # fmt: skip


@rule(
    "JG806", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"offload.activations": "cpu", "training.activation_checkpointing": "none"}),
    good=Example("full-8b-axolotl", {"offload.activations": "cpu"}),
    fix="training.activation_checkpointing: full",
    sources=("axolotl@067b021c utils/schemas/validation.py:1447", "torchtune@bd2a0fc7 recipes/full_finetune_distributed.py:261"),
    facts=("CK20",),
)  # fmt: skip
def offload_without_checkpointing(case: Case) -> Outcome | None:
    """Activation offload needs activation checkpointing

    Axolotl and torchtune offload what checkpointing keeps, and refuse to start without it.
    """
    spec = case.spec
    if spec.training.framework not in ("axolotl", "torchtune") or spec.offload.activations == "none":
        return None
    if spec.training.activation_checkpointing.mode != "none":
        return None
    return Outcome("training.activation_checkpointing", f"{spec.training.framework} refuses offload.activations without activation checkpointing",
                   "write activation_checkpointing: full", {"training.activation_checkpointing": "full"})  # fmt: skip
