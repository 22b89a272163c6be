"""Answer.AI's fsdp_qlora: one ``train.py`` that spawns a process per GPU and saves once, at the end."""

from __future__ import annotations

from jobgen.frameworks import formats
from jobgen.frameworks.codecs import choice, targets, whole
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Slot, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, laid_over, user_values, words

_cpu = choice({"cpu": True, "none": False})

OPTIONS = rows(
    "cli", "fsdp_qlora 05ed9f2a train.py",
    row("model.path", "model_name"),
    row("training.method", "train_type", choice({"full": "full", "lora": "lora", "qlora": "qlora"},
        reads={"custom_lora": "lora", "custom_qlora": "qlora"}), default="qlora"),
    row("training.micro_batch_size", "batch_size", default=1),
    row("training.gradient_accumulation_steps", "gradient_accumulation_steps", default=1),
    row("training.sequence_length", "context_length", default=512),
    row("training.precision.of_method", "precision",
        choice({"bf16": "bf16_autocast", "bf16_pure": "bf16", "fp16": "fp16_autocast", "fp32": "fp32"}), default="bf16"),
    row("training.optimizer.name", "optimizer", choice({"adamw": "adamw", "sgd": "sgd"}), default="adamw"),
    row("training.activation_checkpointing.mode", "use_gradient_checkpointing",
        choice({"full": True, "none": False}, also={"selective": True}), default=True),
    row("offload.parameters", "use_cpu_offload", _cpu, default=True),
    row("offload.activations", "use_activation_cpu_offload", _cpu, default=False),
    row("training.loading", "low_memory", choice({"rank0_broadcast": True, "every_rank": False}), default=True),
    row("parallelism.sharding", "sharding_strategy", choice({"fsdp1": "full_shard", "none": "ddp"},
        reads={"hybrid_full_shard": "fsdp1"}), default="full_shard"),
    row("training.lora.rank", "lora_rank", default=64),
    row("training.lora.alpha", "lora_alpha", whole, default=16),
    row("training.lora.dropout", "lora_dropout", default=0.1),
    row("training.lora.target_modules", "lora_target_modules", targets("all"), default="all"),
    row("training.max_steps", "max_steps", default=-1, note="counts batches, not optimizer steps"),
    row("training.data.epochs", "num_epochs", whole, default=1),
    row("checkpoint.directory", "output_dir", default="output"),
    row("parallel.world", "world_size", default=-1),
)  # fmt: skip

TABLE = Framework(
    name="fsdp-qlora",
    library="",
    launcher="python",
    starts_torchrun=True,
    command=(),
    sharding=frozenset({"none", "fsdp1"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout(None, None),
    config_format="cli",
    source="github.com/AnswerDotAI/fsdp_qlora 05ed9f2a train.py: ranks by mp.spawn, rank = SLURM_PROCID x GPUs + local",
)


def configure(view: View, config: Config) -> Configured:
    """Flags of train.py; it sets MASTER_ADDR from its own flag."""
    values = laid_over(view, user_values(view, config))
    steps = view["training.gradient_accumulation_steps"]
    if "max_steps" in values:
        values["max_steps"] = view["training.max_steps"] * steps
    if view["checkpoint.every_steps"] is not None:
        view.note("fsdp_qlora saves once, at the end, and cannot resume: checkpoint.every_steps has no effect")
    if view["parallel.nodes"] > 1:
        view.note("fsdp_qlora takes its node's rank from SLURM_PROCID, one task per node")
    ends: tuple[Text, ...] = (("--master_addr",), (Slot.MASTER_ADDR,), ("--master_port",), (Slot.MASTER_PORT,))
    return Configured(args=(*words(*formats.flags(values)), *ends))
