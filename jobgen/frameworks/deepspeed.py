"""DeepSpeed by itself: a program that calls ``deepspeed.initialize`` with the JSON that jobgen makes."""

from __future__ import annotations

from jobgen.frameworks import deepspeed_file, formats
from jobgen.frameworks.codecs import choice, present, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, asks_for_config, in_config_dir

FILE = "deepspeed.json"

OPTIONS = rows(
    "deepspeed", "DeepSpeed 0.14.0-0.19.8 runtime/config.py, runtime/zero/config.py, runtime/precision_config.py",
    row("training.micro_batch_size", "train_micro_batch_size_per_gpu", default=1),
    row("training.gradient_accumulation_steps", "gradient_accumulation_steps", default=1),
    row("training.global_batch_size", "train_batch_size"),
    row("training.precision", "bf16.enabled", choice({"bf16": True}, also={"bf16_pure": True, "fp8": True}, rest=False), default=False),
    row("training.precision", "fp16.enabled", choice({"fp16": True}, rest=False), default=False),
    row("training.precision", "bf16.bf16_master_weights_and_grads", present("bf16_pure"), "0.18.3", default=False),
    row("training.dtypes.gradients", "data_types.grad_accum_dtype"),
    row("training.dtypes.reduce", "communication_data_type"),
    row("training.optimizer.name", "optimizer.type",
        choice(deepspeed_file.OWN_OPTIMIZERS | deepspeed_file.TORCH_OPTIMIZERS,
               reads={"Adam": "adamw", "adamw": "adamw", "adam": "adamw", "lion": "lion", "muon": "muon"})),
    row("parallelism.sharding", "zero_optimization.stage", choice(deepspeed_file.STAGE), default=0),
    row("parallelism.tensor", "tensor_parallel.autotp_size", since="0.16.4", default=0),
    row("parallelism.context", "sequence_parallel_size", since="0.17.0", default=1),
    row("parallelism.expert", "expert_parallel.autoep_size", since="0.19.2"),
    row("parallelism.expert_tensor", "expert_parallel.expert_tensor_parallel_size", since="0.19.2"),
    row("offload.optimizer", "zero_optimization.offload_optimizer.device", default="none"),
    row("offload.parameters", "zero_optimization.offload_param.device", default="none"),
    row("offload.pin_memory", "zero_optimization.offload_optimizer.pin_memory", yes_no, note="default false before 0.19.5"),
    row("offload.pin_memory", "zero_optimization.offload_param.pin_memory", yes_no, note="default false before 0.19.5"),
    row("offload.nvme_path", "zero_optimization.offload_optimizer.nvme_path"),
    row("offload.nvme_path", "zero_optimization.offload_param.nvme_path"),
    row("offload.activations", "activation_checkpointing.cpu_checkpointing", choice({"cpu": True, "none": False}), default=False,
        note="acts on programs that call deepspeed.checkpointing only"),
    row("checkpoint.content", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        choice({"full": True}, rest=False), default=False),
)  # fmt: skip

TABLE = Framework(
    name="deepspeed",
    library="deepspeed",
    launcher="deepspeed",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "zero2", "zero3"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout("*", None, "latest"),
    config_format="json",
    config_file=FILE,
    source="DeepSpeed 0.14.0-0.19.8 runtime/engine.py: latest is written after the barrier that ends a save",
)


def configure(view: View, config: Config) -> Configured:
    """The JSON over the user's, and ``--deepspeed_config`` unless the user places ``{config}``."""
    options = {
        key: value for key, value in view.spec.training.options.items()
        if key not in ("learning_rate", "lr", "weight_decay", "betas", "eps")
    }  # fmt: skip
    base = formats.merged(config.values, options)
    text = formats.as_json(deepspeed_file.content(view, hf=False, base=base, optimizer=True))
    args = () if asks_for_config(view.spec) else (("--deepspeed_config",), in_config_dir(FILE))
    return Configured(files=((FILE, text),), args=args, config_file=FILE)
