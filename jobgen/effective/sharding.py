"""How model states are cut over ranks, and what is whole at which time."""

from __future__ import annotations

from jobgen.effective.numbers import megatron
from jobgen.effective.setup import Effect, Effective, Sharded, ShardingKind
from jobgen.frameworks import zero
from jobgen.frameworks.states import MEGATRON

ROOT_UNIT = frozenset(
    {"transformers", "trl", "accelerate", "llama-factory", "axolotl", "unsloth", "fsdp-qlora", "custom", "litgpt", "ms-swift", "verl"}
)
"""Frameworks that wrap decoder layers only, so that embeddings and head form the root unit, which FSDP keeps gathered
from the forward pass to the end of backward (torch/distributed/fsdp/_runtime_utils.py _post_forward_reshard;
_fully_shard/_fsdp_param_group.py). torchtitan and torchtune wrap embeddings and head as units of their own."""
DDP_BUCKET = 25 * 2**20
"""torch DistributedDataParallel bucket_cap_mb."""


MIXED_FLAT = frozenset({"litgpt"})
"""Frameworks that wrap whole blocks, adapters and frozen weights in one flat parameter: its gradient has the size of all
(torch/distributed/fsdp/_flat_param.py: one gradient per flat parameter)."""
NO_SYNC = frozenset(
    {"transformers", "trl", "accelerate", "llama-factory", "axolotl", "unsloth", "ms-swift", "litgpt", "custom", "fsdp-qlora"}
)
"""Frameworks that accumulate gradients under ``no_sync``, where FSDP keeps them whole on every rank
(torch fully_sharded_data_parallel.py no_sync; accelerate accelerator.py no_sync; lightning no_backward_sync).
torchtitan and torchtune reduce after every micro-step."""


def decide(effective: Effective) -> Sharded:
    """Ranks over which weights, gradients and optimizer states are cut, and what is gathered."""
    kind, layout, framework = effective.spec.parallelism.sharding, effective.layout, effective.spec.training.framework
    hidden, numbers = effective.arch.hidden, effective.numbers
    if kind == "none":
        return Sharded(kind, 1, 1, 1, 0, False, float(DDP_BUCKET))
    group = max(1, layout.shard * layout.context)  # context ranks hold the same weights: they share them
    if megatron(effective):
        return _megatron(kind if framework in MEGATRON else "zero1", group, numbers.compute)
    if kind == "zero1":
        return Sharded(kind, 1, 1, group, 0, False, _bucket(effective, 1, hidden))
    if kind == "zero2":
        return Sharded(kind, 1, group, group, 0, False, _bucket(effective, 2, hidden))
    if kind == "zero3":  # hpZ: gradients and states over all ranks, a second copy of the weights over each group
        every = layout.data * layout.context if layout.replicate > 1 else group
        return Sharded(kind, group, every, every, 0, False, _bucket(effective, 3, hidden))
    whole = layout.accumulation > 1 and framework in NO_SYNC and group > 1
    if kind == "fsdp2":  # accelerate's no_sync reaches FSDP2 since PR #3762; a program of one's own must ask for it
        whole = whole and framework != "custom" and effective.versions.interval("accelerate").low >= (1, 11)
    effects: tuple[Effect, ...] = ()
    if whole and effective.spec.training.method == "full":
        effects = (Effect(
            "no_sync_keeps_gradients_whole", "training.gradient_accumulation_steps",
            "sharded gradients while they accumulate",
            "every rank keeps whole gradients between micro-steps (no_sync saves traffic, not memory)", (),
            "torch/distributed/fsdp/fully_sharded_data_parallel.py no_sync",
        ),)  # fmt: skip
    root = framework in ROOT_UNIT
    return Sharded(kind, group, 1 if whole else group, group, 2, root, numbers.compute, reshard_after_forward=True, effects=effects)


def _megatron(kind: ShardingKind, group: int, compute: float) -> Sharded:
    """The distributed optimizer cuts states; Megatron-FSDP cuts gradients too, or weights as well.

    Its units are transformer layers; what lies outside of them is a unit of its own
    (Megatron-LM core/distributed/fsdp: data_parallel_sharding_strategy optim_grads, optim_grads_params).
    """
    if kind == "zero2":
        return Sharded(kind, 1, group, group, 0, False, 0.0)
    if kind in ("zero3", "fsdp1", "fsdp2"):
        return Sharded("fsdp2", group, group, group, 2, True, compute, reshard_after_forward=True)
    return Sharded(kind, 1, 1, group, 0, False, 0.0)


def _bucket(effective: Effective, stage: int, hidden: int) -> float:
    """Bytes of DeepSpeed's reduce buckets: two of them when communication overlaps."""
    sizes = zero.buckets(stage, hidden)
    return float(sizes.reduce_bucket_size * effective.numbers.reduce * (2 if sizes.overlap_comm else 1))
