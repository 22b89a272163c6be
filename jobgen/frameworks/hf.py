"""What every program with a transformers Trainer inside shares: TrainingArguments, and its two sharding engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobgen.frameworks import accelerate_file
from jobgen.frameworks.codecs import choice, flag, inverted, present, says_nothing, whole, yes_no
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Option, Slot, Text
from jobgen.frameworks.view import View

SOURCE = "transformers 4.45.2-5.24.0 training_args.py"
LIBRARY = "transformers"

OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw_8bit": "adamw_bnb_8bit", "adamw_4bit": "adamw_torch_4bit",
    "paged_adamw": "paged_adamw_32bit", "paged_adamw_8bit": "paged_adamw_8bit", "adafactor": "adafactor", "sgd": "sgd",
    "lion": "lion_32bit", "lion_8bit": "lion_8bit", "paged_lion_8bit": "paged_lion_8bit", "adagrad": "adagrad",
    "rmsprop": "rmsprop", "lomo": "lomo", "adalomo": "adalomo", "galore_adamw": "galore_adamw",
    "galore_adamw_8bit": "galore_adamw_8bit", "apollo_adamw": "apollo_adamw",
    "schedule_free_adamw": "schedule_free_adamw",
}  # fmt: skip
"""OptimizerNames by the spec's, all in every release read. Estimates count the foreach temporaries of adamw_torch; a
user who writes ``optim: adamw_torch_fused`` keeps it."""
SPELLINGS = {
    "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw", "adamw_8bit": "adamw_8bit",
    "adamw_torch_8bit": "adamw_8bit", "paged_adamw": "paged_adamw", "lion": "lion", "paged_lion_32bit": "lion",
}  # fmt: skip

TRAINING_ARGUMENTS = tuple(
    option._replace(library=LIBRARY)
    for option in rows(
        "cli", SOURCE,
        row("training.micro_batch_size", "per_device_train_batch_size", default=8),
        row("training.gradient_accumulation_steps", "gradient_accumulation_steps", default=1),
        row("training.precision", "bf16", flag("bf16"), default=False),
        row("training.precision", "fp16", flag("fp16"), default=False),
        row("training.optimizer.name", "optim", choice(OPTIMIZERS, reads=SPELLINGS), default="adamw_torch_fused"),
        row("training.activation_checkpointing.mode", "gradient_checkpointing",
            choice({"full": True, "none": False}, also={"selective": True}), group="checkpointing", default=False),
        row("training.activation_checkpointing.mode", "activation_checkpointing",
            choice({"full": True, "none": False}, also={"selective": True}), "5.23", group="checkpointing"),
        row("training.activation_checkpointing.every", "gradient_checkpointing_kwargs.every_n_layers", since="5.16", group="every"),
        row("training.activation_checkpointing.every", "activation_checkpointing_kwargs.every_n_layers", since="5.23", group="every"),
        row("offload.activations", "gradient_checkpointing_kwargs.offload", present("cpu"), "5.17", group="offload"),
        row("offload.activations", "activation_checkpointing_kwargs.offload", present("cpu"), "5.23", group="offload"),
        row("training.loss", "use_liger_kernel", flag("liger"), default=False),
        row("training.compile", "torch_compile", yes_no, default=False),
        row("training.max_steps", "max_steps", default=-1),
        row("training.data.epochs", "num_train_epochs", whole, default=3.0),
        row("training.data.workers", "dataloader_num_workers", default=0),
        row("training.evaluation.every_steps", "eval_steps"),
        row("training.evaluates", "evaluation_strategy", choice({True: "steps"}), until="4.51", group="eval_strategy"),
        row("training.evaluates", "eval_strategy", choice({True: "steps"}), "4.41", group="eval_strategy", default="no"),
        row("training.evaluation.micro_batch_size", "per_device_eval_batch_size", default=8),
        row("checkpoint.directory", "output_dir"),
        row("checkpoint.strategy", "save_strategy", choice({"steps": "steps", "epochs": "epoch"}), default="steps"),
        row("checkpoint.every_steps", "save_steps", default=500),
        row("checkpoint.keep", "save_total_limit"),
        row("checkpoint.optimizer_state", "save_only_model", inverted, default=False),
        row("checkpoint.resume", "resume_from_checkpoint", written=False),
        row("parallelism.sharding", "deepspeed", says_nothing, written=False),
        row("parallelism.sharding", "fsdp", says_nothing, written=False),
    )
)  # fmt: skip
"""Rows of TrainingArguments; the key is a flag, and a key of a YAML or JSON file, under the same name."""

CHECKPOINTS = CheckpointLayout("checkpoint-*", "trainer_state.json")
SHARDING = frozenset({"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"})


def arguments(view: View, written: Mapping[str, Any], *files: str) -> dict[str, Any]:
    """TrainingArguments by name (dotted where nested), with what several fields decide together."""
    values = view.values(*files, written=written)
    if view.engine == "deepspeed" and view["training.precision"] in ("bf16_pure", "fp8"):
        values["bf16"] = True  # the JSON's block must agree with the flag (integrations/deepspeed.py, fill_match)
    if view["training.precision"] == "fp8" and view.launcher != "accelerate":
        view.note("fp8 reaches a Trainer only through accelerate launch: set launch.launcher: accelerate")
    name = "activation_checkpointing" if "activation_checkpointing" in values else "gradient_checkpointing"
    mode = view["training.activation_checkpointing.mode"]
    if view.engine == "fsdp" and mode == "full":
        values[name] = False  # FSDP's own checkpointing instead; both together are refused
    if mode == "selective" and view["training.activation_checkpointing.policy"] in ("ops", "core_attention"):
        view.note("a Trainer cannot checkpoint selectively by operations: whole layers are recomputed")
    if view["checkpoint.every_minutes"] is not None:
        view.note("a Trainer saves by steps or epochs only: checkpoint.every_minutes needs a callback in the program")
    if view["checkpoint.every_epochs"] not in (None, 1):
        view.note("a Trainer saves every epoch or every n steps: checkpoint.every_epochs is not written")
    if view["training.optimizer.name"] not in OPTIMIZERS:
        view.note(f"TrainingArguments has no {view['training.optimizer.name']}: the program must make the optimizer")
    return values


def loaded(view: View) -> str:
    """The data type that the weights are loaded in, by torch's name, as ``states`` counts them: fp32 where torch.amp casts
    them at each use, else 16 bit (FSDP upcasts what is trained, DeepSpeed makes its own masters)."""
    precision, training = view["training.precision"], view.spec.training
    if training.dtypes.weights is not None:
        return TORCH_DTYPES[training.dtypes.weights]
    sixteen = "float16" if precision == "fp16" else "bfloat16"
    if precision == "fp32":
        return "float32"
    cast = training.method == "full" and view.engine == "none" and precision != "bf16_pure"
    return "float32" if cast and (view.table.name == "trl" or precision == "fp16") else sixteen


TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def fsdp(view: View) -> tuple[dict[str, Any], dict[str, str]]:
    """FSDP without accelerate launch: TrainingArguments and the variables for what they do not read.

    From 5.10 ``fsdp`` is a boolean and fsdp_config holds everything; before it is words, with version and
    resharding in fsdp_config from 5.0 and in variables only in 4.x.
    """
    settings = accelerate_file.fsdp(view)
    version = settings.pop("version", 1)
    second = version == 2
    offload = settings.pop("offload_params")
    state = settings.pop("state_dict_type")
    for unread in ("sharding_strategy", "auto_wrap_policy", "activation_checkpointing_offload"):
        settings.pop(unread, None)
    wrap = settings.pop("transformer_layer_cls_to_wrap", None)
    if wrap is not None:
        settings["transformer_layer_cls_to_wrap"] = [wrap]
    variables: dict[str, str] = {}
    strategy = "hybrid_shard" if view["parallelism.replicate"] > 1 else "full_shard"
    if view.at_least((5, 10), LIBRARY):
        settings |= {"version": version, "cpu_offload": offload, "state_dict_type": state}
        if not second:
            settings["reshard_after_forward"] = strategy
        return {"fsdp": True, "fsdp_config": settings}, variables
    if view.at_least((5,), LIBRARY):
        settings["version"] = version
    else:
        settings.pop("reshard_after_forward", None)
        variables["FSDP_VERSION"] = str(version)
        if second:
            variables["FSDP_RESHARD_AFTER_FORWARD"] = "true"
    variables["FSDP_STATE_DICT_TYPE"] = state
    words = [strategy, "auto_wrap", *(["offload"] if offload else [])]
    return {"fsdp": " ".join(words), "fsdp_config": settings}, variables


def engine_arguments(view: View) -> tuple[dict[str, Any], dict[str, str]]:
    """``fsdp`` and its settings, unless accelerate launch says them. (``deepspeed`` is a path, so a word.)"""
    if view.engine == "fsdp" and view.launcher != "accelerate":
        return fsdp(view)
    return {}, {}


def resume(view: View) -> tuple[Text, ...]:
    """Arguments for the checkpoint that an attempt starts from: a path of the spec's is its first one only, or a requeued
    job would begin there again."""
    return () if view["checkpoint.resume.mode"] == "never" else (("--resume_from_checkpoint",), (Slot.RESUME_FROM,))


def options(*given: Option, without: frozenset[str] = frozenset()) -> tuple[Option, ...]:
    """A framework's own rows before those of TrainingArguments that it does not redefine."""
    redefined = {option.key for option in given} | without
    return (*given, *(option for option in TRAINING_ARGUMENTS if option.key not in redefined))
