"""Unsloth: patched TRL in a Python program of the user's own. It has no configuration file to write."""

from __future__ import annotations

from jobgen.frameworks import hf
from jobgen.frameworks.codecs import choice, listed, targets, whole
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import Framework

OPTIONS = rows(
    "python", "Unsloth 2026.10.9 models/loader.py, models/llama.py",
    row("model.path", "model_name"),
    row("model.revision", "revision"),
    row("training.sequence_length", "max_seq_length", default=2048),
    row("training.method", "full_finetuning", choice({"full": True}, rest=False), default=False),
    row("training.quantization.type", "load_in_4bit", choice({"nf4": True}), default=True),
    row("training.quantization.type", "load_in_8bit", choice({"int8": True}), default=False),
    row("training.activation_checkpointing.mode", "use_gradient_checkpointing",
        choice({"full": True, "none": False}, reads={"unsloth": "full"}), default="unsloth"),
    row("training.rollout.engine", "fast_inference", choice({"vllm": True}), default=False),
    row("training.rollout.gpu_memory_utilization", "gpu_memory_utilization", default=0.5),
    row("training.lora.rank", "r", default=16),
    row("training.lora.alpha", "lora_alpha", whole, default=16),
    row("training.lora.dropout", "lora_dropout", default=0.0),
    row("training.lora.target_modules", "target_modules", targets("all-linear")),
    row("training.lora.target_parameters", "target_parameters", listed),
    row("training.lora.modules_to_save", "modules_to_save", listed),
)  # fmt: skip
"""Arguments of ``from_pretrained`` and ``get_peft_model``: read from programs, written by their authors."""

TABLE = Framework(
    name="unsloth",
    library="unsloth",
    launcher="torchrun",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "fsdp2"}),
    attention="flash_attention_2",
    options=OPTIONS,
    checkpoint=hf.CHECKPOINTS,
    trainer="hf",
    source="Unsloth 2026.10.9 (only this release was read)",
)
