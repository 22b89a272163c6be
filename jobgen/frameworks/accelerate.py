"""A program around a plain ``Accelerator``, started by ``accelerate launch``."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import accelerate_file, engines, formats
from jobgen.frameworks.codecs import choice, flag, says_nothing
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, in_config_dir

_ENGINES = {"none": "MULTI_GPU", "zero3": "DEEPSPEED", "fsdp2": "FSDP"}

OPTIONS = rows(
    "accelerate", "accelerate 1.0.1-1.15.0 commands/config/config_args.py, commands/launch.py, utils/dataclasses.py",
    row("parallelism.sharding", "distributed_type", says_nothing),
    row("resources.nodes", "num_machines", default=1),
    row("parallel.world", "num_processes"),
    row("training.precision", "mixed_precision",
        choice({"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no"}, also={"bf16_pure": "no"}), default="no"),
    row("training.compile", "dynamo_config.dynamo_backend", choice({True: "INDUCTOR"}, reads={"inductor": True, "no": False}), default="no"),
    row("parallelism.sharding", "fsdp_config.fsdp_version", choice({"fsdp1": 1, "fsdp2": 2}), "1.6", default=1),
    row("parallelism.sharding", "deepspeed_config.zero_stage", choice({"zero1": 1, "zero2": 2, "zero3": 3}), default=2),
    row("offload.parameters", "fsdp_config.fsdp_offload_params", choice({"cpu": True, "none": False}), default=False),
    row("training.loading", "fsdp_config.fsdp_cpu_ram_efficient_loading",
        choice({"rank0_broadcast": True, "every_rank": False}), default=True),
    row("checkpoint.content", "fsdp_config.fsdp_state_dict_type",
        choice({"full": "FULL_STATE_DICT", "sharded": "SHARDED_STATE_DICT"}), default="FULL_STATE_DICT with version 1"),
    row("training.activation_checkpointing.mode", "fsdp_config.fsdp_activation_checkpointing", flag("full"), default=False),
    row("offload.activations", "fsdp_config.fsdp_activation_checkpointing_offload", flag("cpu"), "1.15", default=False),
    row("offload.optimizer", "deepspeed_config.offload_optimizer_device", default="none"),
    row("offload.parameters", "deepspeed_config.offload_param_device", default="none"),
    row("offload.nvme_path", "deepspeed_config.offload_optimizer_nvme_path"),
    row("training.gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps", default="auto"),
    row("checkpoint.content", "deepspeed_config.zero3_save_16bit_model", choice({"full": True}, rest=False), default=False),
    row("parallelism.replicate", "parallelism_config.parallelism_config_dp_replicate_size", since="1.10", default=1),
    row("parallelism.tensor", "parallelism_config.parallelism_config_tp_size", since="1.10", default=1),
    row("parallelism.context", "parallelism_config.parallelism_config_cp_size", since="1.10", default=1),
)  # fmt: skip
"""Owned keys of the file. ``accelerate_file.content`` writes it, because most keys depend on the engine."""

TABLE = Framework(
    name="accelerate",
    library="accelerate",
    launcher="accelerate",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout("checkpoints/checkpoint_*", None),
    config_format="yaml",
    config_file=engines.ACCELERATE_FILE,
    source="accelerate 1.0.1-1.15.0; Accelerator.save_state with automatic naming (layout not verified)",
)


def configure(view: View, config: Config) -> Configured:
    """The launcher's file over the user's; under another launcher the variables that it would have set."""
    base: dict[str, Any] = formats.merged(config.values, view.spec.training.options)
    theirs = base.pop("deepspeed", None)
    engine = engines.configure(view, hf=False, base=theirs if isinstance(theirs, dict) else None)
    steps = view["training.gradient_accumulation_steps"]
    env: list[tuple[str, Text]] = []
    if steps > 1:
        env.append(("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", (str(steps),)))
    if view.launcher == "accelerate":
        text = formats.yaml(formats.merged(base, accelerate_file.content(view)))
        files = tuple((name, text if name == engines.ACCELERATE_FILE else old) for name, old in engine.files)
        return engine._replace(files=files, env=tuple(env), config_file=engines.ACCELERATE_FILE)
    env += [(name, (value,)) for name, value in accelerate_file.variables(view).items()]
    if view.engine == "deepspeed":
        env.append(("ACCELERATE_DEEPSPEED_CONFIG_FILE", in_config_dir(engines.DEEPSPEED_FILE)))
    return engine._replace(env=tuple(env), config_file=engines.DEEPSPEED_FILE if engine.files else "")
