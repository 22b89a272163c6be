"""ms-swift with either engine: flags of ``swift sft|pt|rlhf`` or ``megatron sft|pt|rlhf``, which start torchrun."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import deepspeed_file, formats, hf, megatron_lm
from jobgen.frameworks.codecs import choice, flag, listed, member, present, says_nothing, targets, whole, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Slot, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, in_config_dir, laid_over, user_values, words

_SOURCE = "ms-swift 3.0.3-4.6 swift/arguments, swift/megatron/arguments"
_GENERATES = frozenset({"grpo"})
_RLHF = {"reward": "rm", "dpo": "dpo", "orpo": "orpo", "kto": "kto", "ppo": "ppo", "grpo": "grpo"}
_METHODS = choice({"full": "full", "lora": "lora"}, also={"qlora": "lora"})

_SHARED = rows(
    "cli", _SOURCE,
    row("model.path", "model"),
    row("model.revision", "model_revision"),
    row("training.objective", "rlhf_type", choice(_RLHF)),
    row("training.method", "train_type", _METHODS, until="4.1", group="tuner"),
    row("training.method", "tuner_type", _METHODS, since="4.0", group="tuner"),
    row("training.sequence_length", "max_length"),
    row("training.packing", "packing", choice({"packed": True}, rest=False), default=False),
    row("training.freeze", "freeze_vit", member("vision_tower"), default=True),
    row("training.freeze", "freeze_aligner", member("projector"), default=True),
    row("training.freeze", "freeze_llm", member("language_model"), default=False),
    row("training.lora.rank", "lora_rank", default=8),
    row("training.lora.alpha", "lora_alpha", whole, default=32),
    row("training.lora.dropout", "lora_dropout", default=0.05),
    row("training.lora.target_modules", "target_modules", targets("all-linear")),
    row("training.lora.modules_to_save", "modules_to_save", listed),
)  # fmt: skip

_TRAINER = hf.options(
    *_SHARED,
    *rows(
        "cli", _SOURCE,
        row("training.packing", "padding_free", flag("padding_free"), "3.5", default=False),
        row("training.lora.target_parameters", "target_parameters", listed, "3.7.3"),
        row("training.dtypes.weights", "torch_dtype", choice({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"})),
        row("training.activation_checkpointing.mode", "gradient_checkpointing",
            choice({"full": True, "none": False}, also={"selective": True}), default=True),
        row("training.attention", "attn_impl",
            choice({"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attention_2",
                    "flash_attention_3": "flash_attention_3", "flex": "flex_attention"}, reads={"flash_attn": "flash_attention_2"})),
        row("training.loss", "use_liger", flag("liger"), until="3.3", group="liger"),
        row("training.loss", "use_liger_kernel", flag("liger"), since="3.3", group="liger", default=False),
        row("training.quantization.type", "quant_bits", choice({"nf4": 4, "int8": 8}, also={"fp4": 4})),
        row("training.quantization.type", "quant_method", choice({}, also={"nf4": "bnb", "fp4": "bnb", "int8": "bnb"}), written=True),
        row("training.quantization.type", "bnb_4bit_quant_type", choice({"nf4": "nf4", "fp4": "fp4"}), default="nf4"),
        row("training.quantization.double_quant", "bnb_4bit_use_double_quant", yes_no, default=True),
        row("training.quantization.storage_dtype", "bnb_4bit_quant_storage",
            choice({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "uint8": "uint8"})),
        row("training.optimizer.name", "optimizer", choice({"muon": "muon"})),
        row("training.rollout.num_generations", "num_generations", objectives=_GENERATES, default=8),
        row("training.rollout.engine", "use_vllm", choice({"vllm": True}, rest=False), objectives=_GENERATES, default=False),
        row("training.rollout.mode", "vllm_mode", since="3.5", objectives=_GENERATES),
        row("training.rollout.gpu_memory_utilization", "vllm_gpu_memory_utilization", objectives=_GENERATES, default=0.9),
        row("training.rollout.tensor", "vllm_tensor_parallel_size", since="3.5", objectives=_GENERATES, default=1),
        row("checkpoint.resume.mode", "add_version", choice({"auto": False}, also={"path": False}), default=True),
        row("checkpoint.async", "use_flash_ckpt", present(True), "3.8", default=False),
        row("parallelism.context", "sequence_parallel_size", default=1),
    ),
    without=frozenset({"activation_checkpointing", "activation_checkpointing_kwargs.offload"}),
)  # fmt: skip

_MEGATRON = (*_SHARED, *rows(
    "cli", _SOURCE,
    row("training.packing", "padding_free", choice({"padding_free": True, "none": False}), "3.7", default=True),
    row("training.micro_batch_size", "micro_batch_size", default=1),
    row("training.global_batch_size", "global_batch_size", default=16),
    row("training.precision", "bf16", choice({"bf16": True}, also={"fp8": True}, rest=False)),
    row("training.precision", "fp16", flag("fp16")),
    row("training.precision", "fp8_format", choice({"fp8": "hybrid"}, reads={"e4m3": "fp8"}), "3.6"),
    row("training.optimizer.name", "optimizer", choice({"adamw": "adam", "sgd": "sgd", "muon": "muon"}), default="adam"),
    row("training.activation_checkpointing.mode", "recompute_granularity",
        choice({"none": "none", "selective": "selective", "full": "full"}), default="selective"),
    row("training.activation_checkpointing.mode", "recompute_method", choice({"full": "uniform"})),
    row("training.activation_checkpointing.every", "recompute_num_layers", written=False),
    row("training.loss", "cross_entropy_loss_fusion", choice({"vocab_parallel": True}), default=True),
    row("training.max_steps", "train_iters"),
    row("training.data.epochs", "max_epochs", whole, since="3.4", until="4.0", group="epochs"),
    row("training.data.epochs", "num_train_epochs", whole, since="4.0", group="epochs"),
    row("training.data.workers", "num_workers", until="4.0", group="workers", default=4),
    row("training.data.workers", "dataloader_num_workers", since="4.0", group="workers", default=4),
    row("training.evaluation.every_steps", "eval_interval", until="4.0", group="eval"),
    row("training.evaluation.every_steps", "eval_steps", since="4.0", group="eval"),
    row("checkpoint.directory", "save", until="4.0", group="save"),
    row("checkpoint.directory", "output_dir", since="4.0", group="save"),
    row("checkpoint.every_steps", "save_interval", until="4.0", group="every", default=500),
    row("checkpoint.every_steps", "save_steps", since="4.0", group="every", default=500),
    row("checkpoint.keep", "save_total_limit", since="4.0"),
    row("checkpoint.async", "async_save", choice({True: True, False: False}), "3.9", default=False),
    row("checkpoint.optimizer_state", "no_save_optim", choice({False: True, True: False}), default=False),
    row("checkpoint.resume", "load", says_nothing, until="4.0", written=False),
    row("checkpoint.resume", "mcore_model", says_nothing, since="4.0", written=False),
    row("parallelism.sharding", "use_distributed_optimizer", choice({"zero1": True, "none": False}), default=True),
    row("parallelism.tensor", "tensor_model_parallel_size", default=1),
    row("parallelism.pipeline", "pipeline_model_parallel_size", default=1),
    row("parallelism.context", "context_parallel_size", default=1),
    row("parallelism.expert", "expert_model_parallel_size", since="3.4", default=1),
    row("parallelism.expert_tensor", "expert_tensor_parallel_size", since="3.7", default=1),
    row("parallelism.virtual_pipeline", "num_virtual_stages_per_pipeline_rank", since="3.9", until="4.0", group="virtual", written=False),
    row("parallelism.virtual_pipeline", "virtual_pipeline_model_parallel_size", since="4.0", group="virtual", written=False),
    row("parallelism.sequence_parallel", "sequence_parallel", choice({True: True, False: False}), default=False, written=False),
    row("offload.optimizer", "optimizer_cpu_offload", choice({"cpu": True, "none": False}), "3.5", default=False),
))  # fmt: skip

TABLE = Framework(
    name="ms-swift",
    library="ms-swift",
    launcher="torchrun",
    starts_torchrun=True,
    command=("swift", "sft"),
    sharding=hf.SHARDING - {"fsdp1"},
    attention="sdpa",
    options=_TRAINER,
    checkpoint=hf.CHECKPOINTS,
    config_format="cli",
    trainer="hf",
    source="ms-swift 3.0.3-4.6 swift/cli/main.py (torchrun when NPROC_PER_NODE or NNODES is set)",
)
BACKENDS = {
    "megatron": TABLE._replace(
        options=_MEGATRON, command=("megatron", "sft"), sharding=frozenset({"none", "zero1"}), trainer="own",
        attention="flash_attention_2", checkpoint=CheckpointLayout("checkpoint-*", None),
    ),
}  # fmt: skip


def configure(view: View, config: Config) -> Configured:
    """Flags behind the command of the objective, and the variables of the start."""
    megatron = view.spec.training.backend == "megatron"
    done = _megatron(view, config) if megatron else _trainer(view, config)
    env: list[tuple[str, Text]] = [
        ("NNODES", (str(view["parallel.nodes"]),)),
        ("NPROC_PER_NODE", (str(view["launch.processes_per_node"]),)),
        ("NODE_RANK", (Slot.NODE_RANK,)),
        ("MASTER_ADDR", (Slot.MASTER_ADDR,)),
        ("MASTER_PORT", (Slot.MASTER_PORT,)),
    ]
    done = done._replace(env=(*env, *done.env))
    launch = view.spec.launch
    if launch.command is not None or launch.entrypoint is not None or launch.module is not None:
        return done
    objective = view.spec.training.objective
    action = {"pretrain": "pt", "sft": "sft"}.get(objective, "rlhf")
    return done._replace(command=words("megatron" if megatron else "swift", action))


def _trainer(view: View, config: Config) -> Configured:
    values = {"torch_dtype": hf.loaded(view), **user_values(view, config)}
    base = values.pop("deepspeed", None)
    resumed = hf.resume(view)
    extra, variables = hf.engine_arguments(view)
    values = formats.merged(values, {**hf.arguments(view, values), **extra})
    args = words(*formats.flags(values))
    files: tuple[tuple[str, str], ...] = ()
    if view.engine == "deepspeed":
        content = deepspeed_file.content(view, hf=True, base=base if isinstance(base, dict) else None)
        files = (("deepspeed.json", formats.as_json(content)),)
        args = (*args, ("--deepspeed",), in_config_dir("deepspeed.json"))
    env = tuple((name, (value,)) for name, value in variables.items())
    return Configured(files=files, args=args, resume_args=resumed, env=env)


def _megatron(view: View, config: Config) -> Configured:
    values = laid_over(view, user_values(view, config))
    owned: dict[str, Any] = {"sequence_parallel": megatron_lm.sequence_parallel(view)}
    if view["training.activation_checkpointing.mode"] == "full":
        owned["recompute_num_layers"] = view["training.activation_checkpointing.every"] or 1
    if view["parallelism.virtual_pipeline"] > 1:
        newer = view.at_least((4,))
        owned["virtual_pipeline_model_parallel_size" if newer else "num_virtual_stages_per_pipeline_rank"] = view[
            "parallelism.virtual_pipeline"
        ]
    name = "mcore_model" if view.at_least((4,)) else "load"
    resumed: tuple[Text, ...] = ()
    if view["checkpoint.resume.mode"] != "never":
        resumed = (("--" + name,), (Slot.RESUME_FROM,), ("--finetune",), ("False",))
    return Configured(args=words(*formats.flags(formats.merged(values, owned))), resume_args=resumed)
