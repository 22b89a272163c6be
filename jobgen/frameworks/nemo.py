"""NeMo's language models, which live in Megatron-Bridge: a Python recipe, overridden by ``section.key=value``."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import formats, megatron_lm
from jobgen.frameworks.codecs import choice, present, says_nothing, whole
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, laid_over, user_values, words

OPTIONS = rows(
    "cli", "Megatron-Bridge 0.6.2 training/config.py, recipes",
    row("training.micro_batch_size", "train.micro_batch_size"),
    row("training.global_batch_size", "train.global_batch_size"),
    row("training.max_steps", "train.train_iters"),
    row("training.data.epochs", "train.num_epochs", whole),
    row("training.sequence_length", "dataset.seq_length"),
    row("training.sequence_length", "model.seq_length"),
    row("training.precision", "mixed_precision", choice({"bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed"},
        reads={"bf16_with_fp8_current_scaling_mixed": "fp8", "bf16_with_fp8_subchannel_scaling_mixed": "fp8", "bf16_with_mxfp8_mixed": "fp8"})),
    row("training.optimizer.name", "optimizer.optimizer", choice({"adamw": "adam", "sgd": "sgd", "muon": "muon"})),
    row("training.activation_checkpointing.mode", "model.recompute_granularity", choice({"selective": "selective", "full": "full"})),
    row("training.activation_checkpointing.mode", "model.recompute_method", choice({"full": "uniform"})),
    row("training.activation_checkpointing.every", "model.recompute_num_layers", written=False),
    row("training.data.workers", "dataset.num_workers"),
    row("training.evaluation.every_steps", "validation.eval_interval"),
    row("checkpoint.directory", "checkpoint.save"),
    row("checkpoint.directory", "checkpoint.load", written=False),
    row("checkpoint.every_steps", "checkpoint.save_interval"),
    row("checkpoint.keep", "checkpoint.most_recent_k"),
    row("checkpoint.async", "checkpoint.async_save", choice({True: True, False: False})),
    row("checkpoint.content", "checkpoint.ckpt_format", says_nothing, written=False),
    row("parallelism.sharding", "ddp.use_megatron_fsdp", present("fsdp2")),
    row("parallelism.sharding", "optimizer.use_distributed_optimizer", present("zero1")),
    row("parallelism.sharding", "ddp.use_distributed_optimizer", present("zero1")),
    row("parallelism.sharding", "ddp.data_parallel_sharding_strategy", choice({"fsdp2": "optim_grads_params"})),
    row("parallelism.tensor", "model.tensor_model_parallel_size"),
    row("parallelism.pipeline", "model.pipeline_model_parallel_size"),
    row("parallelism.virtual_pipeline", "model.virtual_pipeline_model_parallel_size", written=False),
    row("parallelism.context", "model.context_parallel_size"),
    row("parallelism.expert", "model.expert_model_parallel_size"),
    row("parallelism.expert_tensor", "model.expert_tensor_parallel_size"),
    row("parallelism.sequence_parallel", "model.sequence_parallel", choice({True: True, False: False}), written=False),
    row("offload.optimizer", "optimizer.optimizer_cpu_offload", choice({"cpu": True, "none": False})),
    row("training.lora.rank", "peft.dim"),
    row("training.lora.alpha", "peft.alpha", whole),
    row("training.lora.dropout", "peft.dropout"),
)  # fmt: skip
"""Values the recipe's ConfigContainer takes; target modules have Megatron's own names and are the recipe's."""

TABLE = Framework(
    name="nemo",
    library="megatron-bridge",
    launcher="torchrun",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "fsdp2"}),
    attention="flash_attention_2",
    options=OPTIONS,
    checkpoint=CheckpointLayout("iter_*", None, "latest_checkpointed_iteration.txt", resumes_itself=True),
    config_format="cli",
    source="Megatron-Bridge 0.6.2; checkpoints are Megatron-LM's",
)


def configure(view: View, config: Config) -> Configured:
    """Overrides for the user's recipe script."""
    owned: dict[str, Any] = {}
    if view["checkpoint.resume.mode"] == "auto" and view["checkpoint.directory"] is not None:
        owned["checkpoint.load"] = view["checkpoint.directory"]
    elif view["checkpoint.resume.mode"] == "path":
        owned["checkpoint.load"] = view["checkpoint.resume"]
    if view["training.activation_checkpointing.mode"] == "full":
        owned["model.recompute_num_layers"] = view["training.activation_checkpointing.every"] or 1
    if view["parallelism.virtual_pipeline"] > 1:
        owned["model.virtual_pipeline_model_parallel_size"] = view["parallelism.virtual_pipeline"]
    owned["model.sequence_parallel"] = megatron_lm.sequence_parallel(view)
    values = formats.merged(laid_over(view, user_values(view, config)), owned)
    return Configured(args=words(*formats.assignments(values)))
