"""Axolotl: one YAML that also holds the engine's settings; its training module runs under the job's launcher."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import accelerate_file, deepspeed_file, formats, hf
from jobgen.frameworks.codecs import ABSENT, UNDECIDED, choice, flag, listed, present, says_nothing, whole, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import Codec, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import CONFIG, Configured, laid_over, user_values

FILE = "axolotl.yaml"
_LIGER = "axolotl.integrations.liger.LigerPlugin"
_OPTIMIZERS = {**hf.OPTIMIZERS, "adamw_4bit": "ao_adamw_4bit", "muon": "muon"}
_named_modules = Codec(
    lambda value: ABSENT if value in (None, [], "all-linear") else value,
    lambda value: value or UNDECIDED,
    (["q_proj"], ["q_proj", "v_proj"]),
)
_GENERATES = frozenset({"grpo"})

OPTIONS = rows(
    "yaml", "Axolotl 0.5.0-0.21.0 utils/schemas/*.py, utils/config, loaders/model.py",
    row("model.path", "base_model"),
    row("model.revision", "revision_of_model"),
    row("model.init", "reinit_weights", choice({"random": True}), "0.13"),
    row("training.objective", "rl", choice({"dpo": "dpo", "kto": "kto", "orpo": "orpo", "grpo": "grpo"})),
    row("training.objective", "reward_model", present("reward")),
    row("training.method", "adapter", choice({"lora": "lora", "qlora": "qlora"})),
    row("training.micro_batch_size", "micro_batch_size", default=1),
    row("training.gradient_accumulation_steps", "gradient_accumulation_steps", default=1),
    row("training.sequence_length", "sequence_len", default=512),
    row("training.packing", "sample_packing", choice({"packed": True}, rest=False)),
    row("training.packing", "batch_flattening", present("padding_free"), "0.7"),
    row("training.precision", "bf16", choice({"bf16": True, "bf16_pure": "full"}, also={"fp8": True}, rest=False), default="auto",
        note="any truth loads the weights in bf16 (utils/config); full leaves out torch.amp (core/builders/base.py)"),
    row("training.precision", "fp16", flag("fp16")),
    row("training.precision", "bfloat16", present("bf16_pure"), written=False),
    row("training.precision", "float32", present("fp32")),
    row("training.precision", "fp8", present("fp8"), "0.8.1"),
    row("training.optimizer.name", "optimizer", choice(_OPTIMIZERS, reads=hf.SPELLINGS | {"ao_adamw_8bit": "adamw_8bit"}),
        default="adamw_torch_fused"),
    row("training.activation_checkpointing.mode", "gradient_checkpointing",
        choice({"full": True, "none": False}, also={"selective": True}), default=False),
    row("offload.activations", "activation_offloading", choice({"cpu": True, "none": False}), "0.12", default=False),
    row("training.attention", "attn_implementation",
        choice({"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attention_2",
                "flash_attention_3": "flash_attention_3", "flex": "flex_attention"}), "0.12", group="attention"),
    row("training.attention", "flash_attention", present("flash_attention_2"), until="0.12"),
    row("training.attention", "sdp_attention", present("sdpa"), until="0.12"),
    row("training.attention", "flex_attention", present("flex"), "0.8.1", "0.12"),
    row("training.attention", "eager_attention", present("eager"), until="0.12"),
    row("training.loss", "liger_fused_linear_cross_entropy", present("liger")),
    row("training.loss", "chunked_cross_entropy", present("chunked"), "0.11"),
    row("training.compile", "torch_compile", yes_no),
    row("training.lora.rank", "lora_r"),
    row("training.lora.alpha", "lora_alpha", whole),
    row("training.lora.dropout", "lora_dropout", default=0.0),
    row("training.lora.target_modules", "lora_target_linear", choice({"all-linear": True}), written=False),
    row("training.lora.target_modules", "lora_target_modules", _named_modules, written=False),
    row("training.lora.target_parameters", "lora_target_parameters", listed, "0.12"),
    row("training.lora.modules_to_save", "lora_modules_to_save", listed),
    row("training.lora.use_dora", "peft_use_dora", choice({True: True}, reads={False: False})),
    row("training.quantization.type", "load_in_4bit", choice({"nf4": True}, also={"fp4": True}), default=False),
    row("training.quantization.type", "load_in_8bit", choice({"int8": True}), default=False),
    row("training.quantization.type", "bnb_config_kwargs.bnb_4bit_quant_type", choice({"fp4": "fp4"})),
    row("training.quantization.double_quant", "bnb_config_kwargs.bnb_4bit_use_double_quant", choice({False: False}, reads={True: True})),
    row("training.quantization.storage_dtype", "bnb_config_kwargs.bnb_4bit_quant_storage",
        choice({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "uint8": "uint8"})),
    row("training.quantization.moe_experts", "quantize_moe_experts", choice({True: True, False: False}), "0.15", default=False),
    row("training.rollout.engine", "trl.use_vllm", choice({"vllm": True}, rest=False), "0.7", objectives=_GENERATES),
    row("training.rollout.mode", "trl.vllm_mode", since="0.12", objectives=_GENERATES),
    row("training.rollout.num_generations", "trl.num_generations", since="0.7", objectives=_GENERATES),
    row("training.rollout.gpu_memory_utilization", "vllm.gpu_memory_utilization", since="0.8.1", objectives=_GENERATES),
    row("training.rollout.tensor", "vllm.tensor_parallel_size", since="0.8.1", objectives=_GENERATES),
    row("training.max_steps", "max_steps"),
    row("training.data.epochs", "num_epochs", whole, default=1),
    row("training.data.workers", "dataloader_num_workers"),
    row("training.evaluation.every_steps", "eval_steps"),
    row("training.evaluation.micro_batch_size", "eval_batch_size"),
    row("checkpoint.directory", "output_dir", default="./model-out"),
    row("checkpoint.every_steps", "save_steps"),
    row("checkpoint.strategy", "save_strategy", choice({"steps": "steps", "epochs": "epoch"})),
    row("checkpoint.keep", "save_total_limit", default=4),
    row("checkpoint.optimizer_state", "save_only_model", choice({True: False, False: True}), default=False),
    row("checkpoint.resume.mode", "auto_resume_from_checkpoints", choice({"auto": True, "never": False}), default=False),
    row("checkpoint.resume", "resume_from_checkpoint", says_nothing, written=False),
    row("parallelism.sharding", "fsdp_version", choice({"fsdp1": 1, "fsdp2": 2}), "0.12"),
    row("parallelism.sharding", "fsdp", says_nothing, until="0.20", written=False),
    row("parallelism.sharding", "deepspeed", says_nothing, written=False),
    row("parallelism.replicate", "dp_replicate_size", since="0.12"),
    row("parallelism.tensor", "tensor_parallel_size", since="0.12"),
    row("parallelism.context", "sequence_parallel_degree", since="0.8.1", until="0.12", group="context"),
    row("parallelism.context", "context_parallel_size", since="0.12", group="context"),
    row("parallelism.context_method", "context_parallel.backend", since="0.20", written=False),
    row("parallelism.expert", "expert_parallel_size", since="0.17", default=1, written=False),
)  # fmt: skip

TABLE = Framework(
    name="axolotl",
    library="axolotl",
    launcher="torchrun",
    starts_torchrun=False,
    command=("-m", "axolotl.cli.train", CONFIG),
    sharding=hf.SHARDING,
    attention="sdpa",
    options=OPTIONS,
    checkpoint=hf.CHECKPOINTS,
    config_format="yaml",
    trainer="hf",
    config_file=FILE,
    source="Axolotl 0.5.0-0.21.0 cli/train.py, cli/utils (the module that `axolotl train` starts under its launcher)",
)


def configure(view: View, config: Config) -> Configured:
    """The YAML: the engine's settings are part of it, under any launcher."""
    values = user_values(view, config)
    base = values.pop("deepspeed", None)
    merged = laid_over(view, values)
    owned: dict[str, Any] = {}
    if view.spec.training.method != "full":
        linear = view["training.lora.target_modules"] == "all-linear"
        owned |= (
            {"lora_target_linear": True} if linear else {"lora_target_modules": view["training.lora.target_modules"] or None}
        )
    if view["checkpoint.resume.mode"] == "path":
        owned["resume_from_checkpoint"] = view["checkpoint.resume"]
    owned |= _engine(view, base if isinstance(base, dict) else None)
    plugins = _plugins(view, merged.get("plugins"))
    if plugins:
        owned["plugins"] = plugins
    for name in ("dp_replicate_size", "tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree"):
        if merged.get(name) == 1:
            del merged[name]
    text = formats.yaml(formats.merged(merged, owned))
    return Configured(files=((FILE, text),), config_file=FILE)


def _engine(view: View, base: dict[str, Any] | None) -> dict[str, Any]:
    if view.engine == "deepspeed":
        return {"deepspeed": deepspeed_file.content(view, hf=True, base=base)}
    if view.engine == "none":
        return {}
    settings = accelerate_file.fsdp(view)
    second = settings.pop("version", 1) == 2
    if not view.at_least((0, 12)):
        settings = {f"fsdp_{key}": value for key, value in settings.items()}
        hybrid = "hybrid_shard" if view["parallelism.replicate"] > 1 else "full_shard"
        return {"fsdp": [hybrid, "auto_wrap"], "fsdp_config": settings}
    owned: dict[str, Any] = {"fsdp_config": settings}
    if settings["activation_checkpointing"]:
        owned["gradient_checkpointing"] = False
    if view.interval()[1] <= (0, 20):
        owned["fsdp"] = ["full_shard", "auto_wrap"]
    elif not second:
        view.note("Axolotl 0.20 removed FSDP1: parallelism.sharding: fsdp2 runs there")
    if view["parallelism.replicate"] > 1 and second:
        owned["dp_shard_size"] = view["parallel.shard"]
    return owned


def _plugins(view: View, written: Any) -> list[str]:
    """The plugins without which keys are dropped in silence."""
    plugins = list(written) if isinstance(written, list) else []
    wanted = _LIGER if view["training.loss"] == "liger" else None
    if wanted is not None and wanted not in plugins:
        plugins.append(wanted)
    return plugins
