"""The configuration file of ``accelerate launch``, complete, so that no default of a user's cache folder takes part.

One file serves all nodes: machine_rank, main_process_ip and main_process_port are on the command line. Unknown keys
at the top level stop the launcher, unknown ones inside the engines' maps are set and never read (accelerate
1.0.1-1.15.0, ``commands/config/config_args.py`` and ``commands/launch.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobgen.frameworks.view import View

_MIXED = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "bf16_pure": "no"}


def content(view: View) -> dict[str, Any]:
    """The whole file."""
    world, nodes = view["parallel.world"], view["parallel.nodes"]
    kind = {"deepspeed": "DEEPSPEED", "fsdp": "FSDP", "none": "MULTI_GPU" if world > 1 else "NO"}[view.engine]
    file: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": kind,
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "main_training_function": "main",
        "num_machines": nodes,
        "num_processes": world,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if kind == "DEEPSPEED":
        file["deepspeed_config"] = {
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": view["parallelism.sharding"] == "zero3",
        }
    else:
        file["mixed_precision"] = _MIXED[view["training.precision"]]
    if kind == "FSDP":
        file["fsdp_config"] = {f"fsdp_{key}": value for key, value in (written_fsdp(view) | fsdp(view)).items()}
    if view["training.compile"] and view.table.trainer == "own":
        file["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    parallel = _parallel(view, kind)
    if parallel:
        file["parallelism_config"] = {f"parallelism_config_{key}": value for key, value in parallel.items()}
    return file


def fsdp(view: View) -> dict[str, Any]:
    """FSDP's settings by accelerate's names without the prefix."""
    sharding = view["parallelism.sharding"]
    second = sharding == "fsdp2"
    settings: dict[str, Any] = {}
    if view.at_least((1, 6), "accelerate"):
        settings["version"] = 2 if second else 1
    elif second:
        view.note("FSDP2 needs accelerate >= 1.6: this one knows no fsdp_version")
    if second:
        settings["reshard_after_forward"] = True
    else:
        hybrid = view["parallelism.replicate"] > 1
        settings["sharding_strategy"] = "HYBRID_SHARD" if hybrid else "FULL_SHARD"
        settings["backward_prefetch"] = "BACKWARD_PRE"
        settings["use_orig_params"] = True
    settings["auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP"
    if view["model.layer_class"] is not None:
        settings["transformer_layer_cls_to_wrap"] = view["model.layer_class"]
    efficient = efficient_loading(view)
    if efficient is not None:
        settings["cpu_ram_efficient_loading"] = efficient
        if not second or efficient:
            settings["sync_module_states"] = efficient
    settings["offload_params"] = "cpu" in (view["offload.parameters"], view["offload.optimizer"])
    settings["state_dict_type"] = state_dict(view)
    settings["activation_checkpointing"] = view["training.activation_checkpointing.mode"] == "full"
    if view["offload.activations"] == "cpu" and view.at_least((1, 15), "accelerate"):
        settings["activation_checkpointing_offload"] = True
    return settings


def written_fsdp(view: View) -> dict[str, Any]:
    """The user's own ``fsdp_config`` keys of training.options, without the prefix that older releases ask for."""
    found: dict[str, Any] = {}
    for key, value in view.spec.training.options.items():
        if key == "fsdp_config" and isinstance(value, Mapping):
            found |= {name.removeprefix("fsdp_"): item for name, item in value.items()}
        elif key.startswith("fsdp_config."):
            found[key.removeprefix("fsdp_config.").removeprefix("fsdp_")] = value
    return found


def efficient_loading(view: View) -> bool | None:
    """Whether rank 0 reads the weights and sends them to the others: the spec's word, else the user's option, else
    what ``accelerate launch`` does by default; None: left to the library (no, without that launcher)."""
    loading = view["training.loading"]
    if loading in ("rank0_broadcast", "every_rank"):
        return bool(loading == "rank0_broadcast")
    written = written_fsdp(view).get("cpu_ram_efficient_loading")
    if isinstance(written, bool):
        return written
    return True if view.launcher == "accelerate" else None


def state_dict(view: View) -> str:
    """FSDP's name of the checkpoint's content: sharded unless the spec asks for a full one."""
    return "FULL_STATE_DICT" if view["checkpoint.content"] == "full" else "SHARDED_STATE_DICT"


def _parallel(view: View, kind: str) -> dict[str, Any]:
    """Dimensions beyond plain data parallelism (accelerate >= 1.10)."""
    sizes: dict[str, Any] = {}
    replicate, tensor, context = (view[f"parallelism.{name}"] for name in ("replicate", "tensor", "context"))
    ulysses = view["parallelism.context_method"] == "ulysses"
    if context > 1 and ulysses and kind == "DEEPSPEED":
        sizes |= {"sp_size": context, "sp_backend": "deepspeed", "sp_seq_length": view["training.sequence_length"]}
    elif kind == "FSDP" and view["parallelism.sharding"] == "fsdp2" and (replicate > 1 or tensor > 1 or context > 1):
        sizes = {
            "dp_replicate_size": replicate,
            "dp_shard_size": view["parallel.shard"],
            "tp_size": tensor,
            "cp_size": context,
        }
    if sizes and not view.at_least((1, 10), "accelerate"):
        view.note("replicate, tensor and context sizes need accelerate >= 1.10 (parallelism_config)")
        return {}
    return sizes


def variables(view: View) -> dict[str, str]:
    """What the launcher would have put into the environment, for an Accelerator under another launcher."""
    found: dict[str, str] = {}
    if view.engine == "deepspeed":
        found["ACCELERATE_USE_DEEPSPEED"] = "true"
        found["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = _word(view["parallelism.sharding"] == "zero3")
    else:
        found["ACCELERATE_MIXED_PRECISION"] = _MIXED[view["training.precision"]]
    if view.engine == "fsdp":
        found["ACCELERATE_USE_FSDP"] = "true"
        for key, value in (written_fsdp(view) | fsdp(view)).items():
            name = "transformer_cls_to_wrap" if key == "transformer_layer_cls_to_wrap" else key
            found[f"FSDP_{name.upper()}"] = _word(value)
    return found


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
