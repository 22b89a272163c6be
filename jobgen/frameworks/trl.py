"""TRL: the scripts behind ``trl sft|dpo|grpo|kto|reward``, configured by one YAML file.

They are started as modules under a launcher of the job, because ``trl`` itself would start ``accelerate launch`` with
settings of its own.
"""

from __future__ import annotations

from jobgen.frameworks import hf
from jobgen.frameworks.codecs import choice, listed, present, says_nothing, targets, whole, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import Framework, Text
from jobgen.frameworks.transformers import trainer
from jobgen.frameworks.view import View
from jobgen.frameworks.write import CONFIG, Configured, asks_for_config, in_config_dir, user_values, words

FILE = "trl.yaml"
_TUNED = frozenset({"sft", "dpo"})
_PREFERENCE = frozenset({"dpo"})
_GENERATES = frozenset({"grpo"})
_ALL_LINEAR = "all-linear"

OWN = rows(
    "yaml", "TRL 0.12.2-1.16.0 trainer/*_config.py, trainer/model_config.py, scripts/utils.py",
    row("model.path", "model_name_or_path"),
    row("model.revision", "model_revision", default="main"),
    row("training.sequence_length", "max_seq_length", until="0.20", group="length", objectives=frozenset({"sft"})),
    row("training.sequence_length", "max_length", since="0.16", group="length", objectives=frozenset({"sft"})),
    row("training.sequence_length", "max_length", objectives=frozenset({"dpo", "kto", "orpo", "reward"})),
    row("training.packing", "packing", choice({"packed": True}, rest=False), objectives=frozenset({"sft"}), default=False),
    row("training.packing", "padding_free", present("padding_free"), "0.16", objectives=frozenset({"sft"}), default=False),
    row("training.packing", "padding_free", present("padding_free"), "0.14", objectives=_PREFERENCE, default=False),
    row("offload.activations", "activation_offloading", choice({"cpu": True, "none": False}), "0.18",
        objectives=frozenset({"sft"}), default=False),
    row("offload.activations", "activation_offloading", choice({"cpu": True, "none": False}), "0.29", objectives=_PREFERENCE,
        default=False),
    row("training.loss", "loss_type", choice({"chunked": "chunked_nll"}), "0.23", "1.15", group="loss", objectives=frozenset({"sft"})),
    row("training.loss", "loss_type", choice({"chunked": "nll"}, also={"standard": "nll"}), "1.15", group="loss",
        objectives=frozenset({"sft"}), note="the only loss from 1.15 is chunked"),
    row("training.dtypes.weights", "torch_dtype", choice({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}), until="0.27",
        group="dtype"),
    row("training.dtypes.weights", "dtype", choice({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}), "0.23", group="dtype",
        default="float32 from 0.27"),
    row("training.attention", "attn_implementation",
        choice({"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash_attention_2",
                "flash_attention_3": "flash_attention_3", "flex": "flex_attention"})),
    row("training.method", "use_peft", choice({"full": False, "lora": True}, also={"qlora": True}), default=False),
    row("training.lora.rank", "lora_r", default=16),
    row("training.lora.alpha", "lora_alpha", whole, default=32),
    row("training.lora.dropout", "lora_dropout", default=0.05),
    row("training.lora.target_modules", "lora_target_modules", targets(_ALL_LINEAR)),
    row("training.lora.target_parameters", "lora_target_parameters", listed, "0.21"),
    row("training.lora.modules_to_save", "lora_modules_to_save", listed),
    row("training.lora.use_dora", "use_dora", choice({True: True}, reads={False: False}), "0.16", default=False),
    row("training.quantization.type", "load_in_4bit", choice({"nf4": True}, also={"fp4": True}), default=False),
    row("training.quantization.type", "load_in_8bit", choice({"int8": True}), default=False),
    row("training.quantization.type", "bnb_4bit_quant_type", choice({"nf4": "nf4", "fp4": "fp4"}), default="nf4"),
    row("training.quantization.double_quant", "use_bnb_nested_quant", yes_no, default=False),
    row("training.quantization.storage_dtype", "bnb_4bit_quant_storage",
        choice({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "uint8": "uint8"}), "0.26"),
    row("training.rollout.num_generations", "num_generations", objectives=_GENERATES, default=8),
    row("training.rollout.engine", "use_vllm", choice({"vllm": True}, rest=False), objectives=_GENERATES, default=False),
    row("training.rollout.mode", "vllm_mode", since="0.18", objectives=_GENERATES, default="colocate from 1.0"),
    row("training.rollout.gpu_memory_utilization", "vllm_gpu_memory_utilization", objectives=_GENERATES, default=0.3),
    row("training.rollout.tensor", "vllm_tensor_parallel_size", since="0.18", objectives=_GENERATES, default=1),
    row("training.reference.model", "reference_free", says_nothing, until="0.29", objectives=_PREFERENCE, written=False),
)  # fmt: skip

TABLE = Framework(
    name="trl",
    library="trl",
    launcher="accelerate",
    starts_torchrun=False,
    command=("-m", "trl.scripts.sft", "--config", CONFIG),
    sharding=hf.SHARDING,
    attention="sdpa",
    options=hf.options(*OWN),
    checkpoint=hf.CHECKPOINTS,
    config_format="yaml",
    trainer="hf",
    config_file=FILE,
    source="TRL 0.12.2-1.16.0 scripts/, commands/cli.py; rows of TrainingArguments from transformers",
)
SCRIPTS = frozenset({"sft", "dpo", "grpo", "kto", "reward"})


def configure(view: View, config: Config) -> Configured:
    """One YAML file with everything; ``--config`` unless the user's own words place it."""
    done = trainer(view, _with_dtype(view, config), file=FILE)
    objective = view.spec.training.objective
    launch = view.spec.launch
    if view["checkpoint.resume.mode"] != "never" and not view.at_least((1, 14, 2)):
        view.note("the scripts of TRL before 1.14.2 ignore resume_from_checkpoint: a restart begins anew")
    if launch.command is not None:
        return done
    place: tuple[Text, ...] = () if asks_for_config(view.spec) else (("--config",), in_config_dir(FILE))
    if launch.entrypoint is not None or launch.module is not None:
        return done._replace(args=(*place, *done.args))
    if objective not in SCRIPTS:
        view.note(f"TRL has no script for {objective}: write launch.entrypoint")
        return done
    command = words("-m", f"trl.scripts.{objective}", "--config", CONFIG)
    return done._replace(command=command)


def _with_dtype(view: View, config: Config) -> Config:
    """The data type to load in, under the user's own: the scripts' default changed (fp32 from 0.27, else the library's)."""
    name = "dtype" if view.at_least((0, 23)) else "torch_dtype"
    written = user_values(view, config)
    if "dtype" in written or "torch_dtype" in written:
        return config
    return config._replace(values={**config.values, name: hf.loaded(view)})
