"""What leaves the GPU, after what the framework ignores."""

from __future__ import annotations

from jobgen.effective.numbers import megatron
from jobgen.effective.setup import Effect, Effective, Offloaded, Where
from jobgen.effective.unheard import unheard

CAN_OFFLOAD_UNSHARDED = frozenset({"custom", "torchtune", "megatron-deepspeed"})
"""Frameworks with an optimizer offload of their own where nothing is sharded (torchtune: torchao CPUOffloadOptimizer)."""
_ZERO3_ONLY = (
    "deepspeed runtime/zero/offload_config.py: offload_param is valid with stage 3 only; engine.py never passes it to stage 1 and 2"
)


def decide(effective: Effective) -> Offloaded:
    """Places of parameters, optimizer and activations; silent rewrites become effects."""
    asked, sharding = effective.spec.offload, effective.spec.parallelism.sharding
    places: dict[str, Where] = {"none": "gpu", "cpu": "cpu", "nvme": "nvme"}
    parameters, optimizer = places[asked.parameters], places[asked.optimizer]
    activations: Where = "gpu" if unheard(effective, "offload.activations") else places[asked.activations]
    parameters = "gpu" if _never(effective, "offload.parameters") else parameters
    optimizer = "gpu" if _never(effective, "offload.optimizer") else optimizer
    effects: list[Effect] = []
    power_of_two = asked.pin_memory
    if megatron(effective):
        if parameters != "gpu":
            effects.append(Effect(
                "megatron_parameters_stay", "offload.parameters", f"offload.parameters: {asked.parameters}",
                "the parameters stay on the GPU: Megatron moves optimizer states only", (),
                "Megatron-LM training/arguments.py: optimizer-cpu-offload has no counterpart for parameters",
            ))  # fmt: skip
        if optimizer == "nvme":
            effects.append(Effect(
                "megatron_has_no_nvme", "offload.optimizer", "offload.optimizer: nvme",
                "the states stay on the GPU: Megatron moves them to host memory only", (), "Megatron-LM training/arguments.py",
            ))  # fmt: skip
        return Offloaded("gpu", "cpu" if optimizer == "cpu" else "gpu", activations, asked.pin_memory, power_of_two, tuple(effects))
    if sharding in ("fsdp1", "fsdp2"):
        if "cpu" in (parameters, optimizer) and parameters != optimizer:
            effects.append(Effect(
                "fsdp_offloads_both", "offload.parameters" if parameters == "cpu" else "offload.optimizer",
                f"offload of {'parameters' if parameters == 'cpu' else 'the optimizer'} alone",
                "FSDP's one switch keeps parameters, gradients and optimizer states on the CPU", (),
                "torch/distributed/fsdp CPUOffload, CPUOffloadPolicy: the optimizer steps on the CPU, where the shards are",
            ))  # fmt: skip
        if "cpu" in (parameters, optimizer) or "nvme" in (parameters, optimizer):
            parameters = optimizer = "cpu"
    elif sharding in ("zero1", "zero2") and parameters != "gpu":
        effects.append(Effect(
            "zero_parameters_stay", "offload.parameters", f"offload.parameters: {asked.parameters}",
            f"the parameters stay whole on every GPU: {sharding} cannot offload them", ("OF01",), _ZERO3_ONLY,
        ))  # fmt: skip
        parameters = "gpu"
    elif sharding == "none" and effective.spec.training.framework not in CAN_OFFLOAD_UNSHARDED:
        for path, place in (("offload.optimizer", optimizer), ("offload.parameters", parameters)):
            if place != "gpu":
                effects.append(Effect(
                    "no_offload_without_sharding", path, f"{path}: {place}",
                    f"it stays on the GPU: {effective.spec.training.framework} offloads through DeepSpeed or FSDP only", (),
                    "transformers Trainer and accelerate have no offload of their own during training",
                ))  # fmt: skip
        parameters = optimizer = "gpu"
    return Offloaded(parameters, optimizer, activations, asked.pin_memory, power_of_two, tuple(effects))


def _never(effective: Effective, path: str) -> bool:
    """The framework has no word for it, and no rewrite below speaks of it."""
    sharding = effective.spec.parallelism.sharding
    return not (sharding == "none" or (path == "offload.parameters" and sharding in ("zero1", "zero2"))) and unheard(effective, path)
