"""How model states are cut over ranks, and what is whole at which time."""

from __future__ import annotations

from jobgen.effective.numbers import megatron
from jobgen.effective.setup import Effect, Effective, Sharded
from jobgen.frameworks import zero

ROOT_UNIT = frozenset(
    {"transformers", "trl", "accelerate", "llama-factory", "axolotl", "unsloth", "fsdp-qlora", "custom", "litgpt", "ms-swift", "verl"}
)
"""Frameworks that wrap decoder layers only, so that embeddings and head form the root unit, which FSDP keeps gathered
from the forward pass to the end of backward (torch/distributed/fsdp/_runtime_utils.py _post_forward_reshard;
_fully_shard/_fsdp_param_group.py). torchtitan and torchtune wrap embeddings and head as units of their own."""
DDP_BUCKET = 25 * 2**20
"""torch DistributedDataParallel bucket_cap_mb."""


def decide(effective: Effective) -> Sharded:
    """Ranks over which weights, gradients and optimizer states are cut, and what is gathered."""
    kind, layout, framework = effective.spec.parallelism.sharding, effective.layout, effective.spec.training.framework
    group = max(1, layout.shard_group)
    hidden, numbers = effective.arch.hidden, effective.numbers
    effects: tuple[Effect, ...] = ()
    if kind == "none":
        return Sharded(kind, 1, 1, 1, 0, False, float(DDP_BUCKET))
    if megatron(effective):
        return Sharded(kind, 1, 1, group, 0, False, 0.0)
    if kind == "zero1":
        return Sharded(kind, 1, 1, group, 0, False, _bucket(effective, 1, hidden))
    if kind == "zero2":
        if not zero.buckets(2, hidden).contiguous_gradients:
            effects = ()
        return Sharded(kind, 1, group, group, 0, False, _bucket(effective, 2, hidden), effects=effects)
    if kind == "zero3":
        return Sharded(kind, group, group, group, 0, False, _bucket(effective, 3, hidden))
    root = framework in ROOT_UNIT
    return Sharded(kind, group, group, group, 2, root, numbers.compute, reshard_after_forward=True)


def _bucket(effective: Effective, stage: int, hidden: int) -> float:
    """Bytes of DeepSpeed's reduce buckets: two of them when communication overlaps."""
    sizes = zero.buckets(stage, hidden)
    return float(sizes.reduce_bucket_size * effective.numbers.reduce * (2 if sizes.overlap_comm else 1))
