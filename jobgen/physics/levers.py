"""What a change of the spec would save: the estimate again with one field changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective
    from jobgen.physics.estimate import Estimate


class Lever(NamedTuple):
    """A change and the bytes of device memory that it saves."""

    path: str
    value: Any
    words: str
    saves: float


def candidates(effective: Effective) -> list[tuple[str, Any, str]]:
    """Changes that make sense for this spec: (path, value, words)."""
    spec = effective.spec
    training, split, offload = spec.training, spec.parallelism, spec.offload
    found: list[tuple[str, Any, str]] = []
    if training.activation_checkpointing.mode != "full":
        found.append(("training.activation_checkpointing", "full", "recompute every layer"))
    if training.micro_batch_size > 1:
        found.append(("training.micro_batch_size", max(1, training.micro_batch_size // 2), "half the micro batch"))
    if not {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} & set(spec.launch.env):
        found.append(("launch.env.PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "blocks grow instead of lying beside each other unused"))
    if training.loss == "standard":
        found.append(("training.loss", "liger", "fuse the head with the cross entropy"))
    order = ["none", "zero1", "zero2", "zero3"]
    if effective.layout.data > 1 and split.sharding in ("none", "zero1", "zero2"):
        found.append(("parallelism.sharding", order[3], "shard parameters, gradients and optimizer states"))
    if offload.optimizer == "none" and training.method == "full" and split.sharding != "none":
        found.append(("offload.optimizer", "cpu", "keep the optimizer in host memory"))
    if training.optimizer.name == "adamw" and training.method == "full":
        found.append(("training.optimizer", "adamw_8bit", "8-bit optimizer states"))
    if training.sequence_length > 1024:
        found.append(("training.sequence_length", training.sequence_length // 2, "half the sequence length"))
    if training.method == "full" and training.objective != "pretrain":
        found.append(("training.method", "lora", "train adapters only"))
    elif training.method == "lora" and training.quantization is None:
        found.append(("training.method", "qlora", "keep the frozen weights in 4 bit"))
    return found


def levers(
    effective: Effective, now: Estimate, again: Callable[[str, Any], Estimate | None], count: int = 3
) -> tuple[Lever, ...]:
    """The changes that save most. ``again`` estimates the spec with one field changed (None when it does not fit together)."""
    found = []
    for path, value, words in candidates(effective):
        other = again(path, value)
        if other is not None and other.gpu.device < now.gpu.device:
            found.append(Lever(path, value, words, now.gpu.device - other.gpu.device))
    return tuple(sorted(found, key=lambda lever: -lever.saves)[:count])
