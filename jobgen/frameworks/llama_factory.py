"""LLaMA-Factory: one flat YAML; ``llamafactory-cli train`` starts torchrun by itself from variables."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import deepspeed_file, formats, hf
from jobgen.frameworks.codecs import ABSENT, choice, flag, joined, member, present, targets, whole, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import Codec, Framework, Slot, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import CONFIG, Configured, user_values

FILE = "llamafactory.yaml"
_reference = Codec(
    lambda value: ABSENT if value in (None, "policy") else value, lambda value: value or "policy", ("my/model",)
)
"""A policy reference is made by the program itself."""

OWN = rows(
    "yaml", "LLaMA-Factory 0.7.1-0.9.5 hparams/*.py, model/model_utils/*.py",
    row("model.path", "model_name_or_path"),
    row("model.revision", "model_revision", default="main"),
    row("model.init", "train_from_scratch", choice({"random": True}), "0.8", default=False),
    row("training.objective", "stage",
        choice({"pretrain": "pt", "sft": "sft", "reward": "rm", "dpo": "dpo", "kto": "kto", "ppo": "ppo"}, also={"orpo": "dpo"}), default="sft"),
    row("training.objective", "pref_loss", choice({"orpo": "orpo"}), "0.8", objectives=frozenset({"orpo"}), default="sigmoid"),
    row("training.method", "finetuning_type", choice({"full": "full", "lora": "lora"}, also={"qlora": "lora"}), default="lora"),
    row("training.sequence_length", "cutoff_len", default=2048),
    row("training.packing", "packing", choice({"packed": True}, rest=False)),
    row("training.packing", "neat_packing", present("padding_free"), "0.8.3", default=False),
    row("training.precision", "pure_bf16", present("bf16_pure"), default=False),
    row("training.precision", "fp8", present("fp8"), "0.9.4", default=False),
    row("training.optimizer.name", "use_galore", present("galore_adamw"), default=False),
    row("training.optimizer.name", "use_apollo", present("apollo_adamw"), "0.9.2", default=False),
    row("training.optimizer.name", "use_muon", present("muon"), "0.9.3", default=False),
    row("training.activation_checkpointing.mode", "disable_gradient_checkpointing",
        choice({"full": False, "none": True}, also={"selective": False}), default=False, group="checkpointing"),
    row("offload.activations", "use_unsloth_gc", present("cpu"), "0.9", group="offload", default=False),
    row("training.attention", "flash_attn",
        choice({"eager": "disabled", "sdpa": "sdpa", "flash_attention_2": "fa2", "flash_attention_3": "fa3"}), default="auto"),
    row("training.loss", "enable_liger_kernel", flag("liger"), "0.9", default=False),
    row("training.freeze", "freeze_vision_tower", member("vision_tower"), "0.8", default=True),
    row("training.freeze", "freeze_multi_modal_projector", member("projector"), "0.9.2", default=True),
    row("training.freeze", "freeze_language_model", member("language_model"), "0.9.2", default=False),
    row("training.lora.rank", "lora_rank", default=8),
    row("training.lora.alpha", "lora_alpha", whole, default="2 x lora_rank"),
    row("training.lora.dropout", "lora_dropout", default=0.0),
    row("training.lora.target_modules", "lora_target", targets("all", comma=True), default="all"),
    row("training.lora.modules_to_save", "additional_target", joined),
    row("training.lora.use_dora", "use_dora", choice({True: True}, reads={False: False}), default=False),
    row("training.quantization.type", "quantization_bit", choice({"nf4": 4, "int8": 8}, also={"fp4": 4})),
    row("training.quantization.type", "quantization_type", choice({"nf4": "nf4", "fp4": "fp4"}), default="nf4"),
    row("training.quantization.double_quant", "double_quantization", yes_no, default=True),
    row("training.reference.model", "ref_model", _reference),
    row("checkpoint.resume.mode", "overwrite_output_dir", choice({"never": True}), default=False),
)  # fmt: skip

TABLE = Framework(
    name="llama-factory",
    library="llamafactory",
    launcher="torchrun",
    starts_torchrun=True,
    command=("llamafactory-cli", "train", CONFIG),
    sharding=hf.SHARDING,
    attention="sdpa",
    options=hf.options(
        *OWN, without=frozenset({"use_liger_kernel", "gradient_checkpointing", "activation_checkpointing",
        "gradient_checkpointing_kwargs.offload", "activation_checkpointing_kwargs.offload"}),
    ),
    checkpoint=hf.CHECKPOINTS._replace(resumes_itself=True),
    config_format="yaml",
    trainer="hf",
    environment=(("FORCE_TORCHRUN", "1"),),
    config_file=FILE,
    source="LLaMA-Factory 0.7.1-0.9.5 launcher.py, hparams/parser.py (get_last_checkpoint without being asked),"
    " train/*/workflow.py (if training_args.do_train)",
)  # fmt: skip


def configure(view: View, config: Config) -> Configured:
    """The YAML, with DeepSpeed's settings inside it, and the variables of the start."""
    values = {"do_train": True} | user_values(view, config)  # without it a stage trains nothing and ends with 0
    base = values.pop("deepspeed", None)
    extra, variables = hf.engine_arguments(view)
    owned: dict[str, Any] = hf.arguments(view, values) | extra
    if view.engine == "deepspeed":
        owned["deepspeed"] = deepspeed_file.content(view, hf=True, base=base if isinstance(base, dict) else None)
    if view["checkpoint.resume.mode"] == "path":
        owned["resume_from_checkpoint"] = view["checkpoint.resume"]
    if view["training.precision"] == "bf16_pure":
        owned["bf16"] = False
        if view.engine == "deepspeed":
            view.note("LLaMA-Factory refuses pure_bf16 with ZeRO-3")
    rank = "NODE_RANK" if view.at_least((0, 9, 1)) else "RANK"
    env: list[tuple[str, Text]] = [
        ("NNODES", (str(view["parallel.nodes"]),)),
        ("NPROC_PER_NODE", (str(view["launch.processes_per_node"]),)),
        (rank, (Slot.NODE_RANK,)),
        ("MASTER_ADDR", (Slot.MASTER_ADDR,)),
        ("MASTER_PORT", (Slot.MASTER_PORT,)),
        *((name, (value,)) for name, value in variables.items()),
    ]
    text = formats.yaml(formats.merged(values, owned))
    return Configured(files=((FILE, text),), env=tuple(env), config_file=FILE)
