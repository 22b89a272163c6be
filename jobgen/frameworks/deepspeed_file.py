"""The DeepSpeed JSON of a spec.

Written out in numbers, so that what was estimated is what runs; ``auto`` only for what the spec does not own and a
Trainer fills in (gradient clipping). Keys and defaults: DeepSpeed 0.14.0-0.19.8, ``runtime/config.py``,
``runtime/zero/config.py`` and ``offload_config.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobgen.frameworks import formats, zero
from jobgen.frameworks.view import View

STAGE = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
OWN_OPTIMIZERS = {"adamw": "AdamW", "lion": "Lion", "adagrad": "Adagrad", "muon": "Muon"}
"""Optimizers that DeepSpeed builds from the JSON, by the spec's name; all but Muon have a CPU version."""
TORCH_OPTIMIZERS = {"sgd": "SGD", "rmsprop": "RMSprop", "adafactor": "Adafactor"}
"""Looked up in torch.optim by exact name."""
_TRAINING_KEYS = {"learning_rate": "lr", "lr": "lr", "weight_decay": "weight_decay", "betas": "betas", "eps": "eps"}


def content(view: View, *, hf: bool, base: Mapping[str, Any] | None = None, optimizer: bool = False) -> dict[str, Any]:
    """The whole JSON. ``hf``: a Trainer reads it; ``optimizer``: DeepSpeed builds the optimizer (no HF above it)."""
    owned: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": view["training.micro_batch_size"],
        "gradient_accumulation_steps": view["training.gradient_accumulation_steps"],
        "train_batch_size": view["training.global_batch_size"],
        **_precision(view),
        "zero_optimization": _zero(view),
        **_parallel(view),
    }
    ours: dict[str, Any] = {"gradient_clipping": "auto"} if hf else {}
    built = _optimizer(view) if optimizer else None
    if built is not None:
        ours["optimizer"] = built
    if view["training.optimizer.name"] not in ("adamw", "adagrad", "lion"):
        ours |= _foreign_optimizer(view)
    return formats.merged(formats.merged(ours, base or {}), owned)


def _precision(view: View) -> dict[str, Any]:
    precision = view["training.precision"]
    blocks: dict[str, Any] = {
        "bf16": {"enabled": precision in ("bf16", "bf16_pure", "fp8")},
        "fp16": {"enabled": precision == "fp16"},
    }
    dtypes = view.spec.training.dtypes
    if precision == "bf16_pure" and STAGE.get(view["parallelism.sharding"], 0):
        if view.at_least((0, 18, 3), "deepspeed"):
            blocks["bf16"]["bf16_master_weights_and_grads"] = True
            blocks["bf16"]["bf16_optimizer_states"] = True
        else:
            view.note("this DeepSpeed keeps fp32 master weights whatever the precision (bf16 ones: 0.18.3)")
    elif dtypes.master == "fp16" and precision == "fp16":
        blocks["fp16"]["fp16_master_weights_and_grads"] = True
    if dtypes.gradients in ("fp32", "bf16", "fp16"):
        blocks["data_types"] = {"grad_accum_dtype": dtypes.gradients}
    if dtypes.reduce in ("fp32", "bf16", "fp16"):
        blocks["communication_data_type"] = dtypes.reduce
    return blocks


def _zero(view: View) -> dict[str, Any]:
    stage = STAGE.get(view["parallelism.sharding"], 0)
    block: dict[str, Any] = {"stage": stage}
    if stage == 0:
        return block
    block |= {"reduce_scatter": True, **_buckets(view, stage)}
    if stage == 3:
        block["stage3_gather_16bit_weights_on_model_save"] = view["checkpoint.content"] == "full"
        if view["parallelism.replicate"] > 1:  # hpZ: MiCS needs its own model init and is gone from 0.19.7
            block["zero_hpz_partition_size"] = view["parallel.shard"]
    for field, name in (("offload.optimizer", "offload_optimizer"), ("offload.parameters", "offload_param")):
        if name == "offload_optimizer" or stage == 3:
            block[name] = _offload(view, view[field])
    return block


def _buckets(view: View, stage: int) -> dict[str, Any]:
    """The sizes that the estimate counts, as far as they concern the stage."""
    hidden = view["model.hidden_size"]
    if stage == 3 and hidden is None:
        view.note("the model's hidden size is not known here: bucket sizes of stage 3 stay DeepSpeed's own")
        return {"contiguous_gradients": True, "overlap_comm": True}
    sizes = zero.buckets(stage, hidden or 0)._asdict()
    if stage == 3:
        del sizes["allgather_bucket_size"]
        return sizes
    return {key: value for key, value in sizes.items() if not key.startswith("stage3_") and key != "sub_group_size"}


def _offload(view: View, device: str) -> dict[str, Any]:
    block: dict[str, Any] = {"device": device}
    if device != "none":
        block["pin_memory"] = view["offload.pin_memory"]
    if device == "nvme":
        block["nvme_path"] = view["offload.nvme_path"]
    return block


def _parallel(view: View) -> dict[str, Any]:
    block: dict[str, Any] = {}
    if view["parallelism.tensor"] > 1:
        block["tensor_parallel"] = {"autotp_size": view["parallelism.tensor"]}
    if view["parallelism.context"] > 1 and view["parallelism.context_method"] == "ulysses":
        block["sequence_parallel_size"] = view["parallelism.context"]
    if view["parallelism.expert"] > 1:
        block["expert_parallel"] = {
            "enabled": True,
            "autoep_size": view["parallelism.expert"],
            "expert_tensor_parallel_size": view["parallelism.expert_tensor"],
        }
    return block


def _optimizer(view: View) -> dict[str, Any] | None:
    name = view["training.optimizer.name"]
    kind = OWN_OPTIMIZERS.get(name) or TORCH_OPTIMIZERS.get(name)
    if kind is None:
        view.note(f"DeepSpeed does not build {name} from its JSON: the program must pass it to deepspeed.initialize")
        return None
    options = view.spec.training.options
    return {"type": kind, "params": {ours: options[key] for key, ours in _TRAINING_KEYS.items() if key in options}}


def _foreign_optimizer(view: View) -> dict[str, Any]:
    """An optimizer that DeepSpeed did not build or does not know under ZeRO: refused unless told."""
    if view.engine != "deepspeed":
        return {}
    allowed: dict[str, Any] = {"zero_allow_untested_optimizer": True}
    if view["offload.optimizer"] != "none":
        allowed["zero_force_ds_cpu_optimizer"] = False
    return allowed
