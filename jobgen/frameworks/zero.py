"""Sizes that jobgen writes into DeepSpeed's JSON. Physics reads the same numbers, so the estimate is of what will run.

Keys follow ``zero_optimization`` of the DeepSpeed configuration; sizes are elements unless a name says bytes.
"""

from __future__ import annotations

from jobgen.spec.record import NamedTuple


class Buckets(NamedTuple):
    """Bucket sizes of one ZeRO stage."""

    reduce_bucket_size: int
    """Elements of gradients reduced together."""
    allgather_bucket_size: int
    """Stages 1 and 2: elements of weights gathered together after the step."""
    overlap_comm: bool
    """A second reduce bucket fills while the first is on the wire."""
    contiguous_gradients: bool
    stage3_prefetch_bucket_size: int
    stage3_param_persistence_threshold: int
    """Parameters below this many elements stay whole."""
    stage3_max_live_parameters: int
    stage3_max_reuse_distance: int
    """A parameter used again within this many elements is not released."""
    sub_group_size: int
    """Stage 3 steps this many elements at a time."""


GATHER = 500_000_000
"""DeepSpeed's default of reduce_bucket_size and allgather_bucket_size (runtime/zero/config.py)."""
LIVE = 1_000_000_000
"""DeepSpeed's default of stage3_max_live_parameters, stage3_max_reuse_distance and sub_group_size."""


def buckets(stage: int, hidden: int) -> Buckets:
    """The sizes of a stage for a model of that hidden size.

    Stage 3 follows what transformers fills in for ``auto`` (integrations/deepspeed.py, ``trainer_config_finalize``):
    hidden^2, 0.9 x hidden^2 and 10 x hidden. Stages 1 and 2 keep DeepSpeed's own defaults.
    """
    if stage == 3:
        return Buckets(hidden * hidden, GATHER, True, True, int(0.9 * hidden * hidden), 10 * hidden, LIVE, LIVE, LIVE)
    return Buckets(GATHER, GATHER, True, True, 50_000_000, 100_000, LIVE, LIVE, LIVE)


def stage(sharding: str) -> int:
    """``zero3`` is 3; 0 where DeepSpeed's ZeRO does not run."""
    return int(sharding[4]) if sharding.startswith("zero") else 0
