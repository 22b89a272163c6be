"""Checkpoints: bytes of one, and what stays on storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobgen.physics.inventory import count, inventory
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective


KEEPS_ALL = frozenset({"megatron-lm"})
"""Frameworks without a word for checkpoint.keep (Megatron-LM core 0.18 training/arguments.py leaves most_recent_k out)."""


class Storage(NamedTuple):
    """Bytes."""

    size: float
    """One checkpoint."""
    retained: float | None
    """Those kept and the one being written; where the framework keeps all, all of the run. None without a limit."""


def trainable(effective: Effective) -> int:
    """Elements that are trained."""
    if effective.spec.training.method != "full":
        return effective.adapters.parameters + effective.adapters.saved_modules_parameters
    found, arch = inventory(effective), effective.arch
    whole = sum(unit.trained.whole * arch.pattern.count(kind) for kind, unit in enumerate(found.layers))
    return int(whole + found.embedding.trained.whole + found.head.trained.whole + found.rest.trained.whole)


def storage(effective: Effective) -> Storage:
    """Size of one checkpoint and of all that are retained.

    Weights are written in their 16 bit (fp32 shards in fp32), adapters alone when adapters are trained; optimizer state
    is masters and moments of what is trained.
    """
    checkpoint, numbers = effective.spec.checkpoint, effective.numbers
    trained = trainable(effective)
    adapters = effective.spec.training.method != "full"
    if adapters and checkpoint.content != "full":
        weights = numbers.adapters * trained
    else:
        width = numbers.trainable if checkpoint.content == "sharded" else min(numbers.weights, numbers.trainable)
        weights = (numbers.weights if adapters else width) * count(effective.arch).total + (numbers.adapters * trained if adapters else 0)
    optimizer = (numbers.master + effective.stepped.moments_bytes) * trained if checkpoint.optimizer_state else 0.0
    size = weights + optimizer
    keep = checkpoint.keep
    if effective.spec.training.framework in KEEPS_ALL:
        steps, every = effective.batch.steps, checkpoint.every_steps
        keep = steps // every if steps and every else None
        return Storage(size, None if keep is None else size * max(1, keep))
    return Storage(size, None if keep is None else size * (keep + 1))
