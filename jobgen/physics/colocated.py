"""What shares the GPU with the trained model: reference, reward and critic models, a rollout engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.catalog import counts
from jobgen.physics.ledger import ALWAYS, Term
from jobgen.physics.sizes import Sizes, Stage
from jobgen.physics.states import held, total

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

NEEDS_REFERENCE = frozenset({"dpo", "kto", "ppo"})
"""Objectives whose loss compares with a frozen model (ORPO does not; GRPO only with a KL term, off by default in TRL)."""


def has_reference(effective: Effective) -> bool:
    """A second copy of the weights is held. With adapters the policy without them is the reference (peft disable_adapter)."""
    training = effective.spec.training
    if training.reference is not None:
        return training.reference.model is not None and (training.method == "full" or training.reference.model != "policy")
    return training.objective in NEEDS_REFERENCE and training.method == "full"


def terms(effective: Effective, sizes: Sizes, stage: Stage) -> tuple[Term, ...]:
    """Further models and engines on the same GPU."""
    training, found = effective.spec.training, list[Term]()
    units = held(effective, stage)
    weights = effective.numbers.compute * total(units, "elements").sharded(sizes, sizes.weights_shards)
    if has_reference(effective):
        size: Any = weights
        name = training.reference.model if training.reference is not None else "policy"
        if name not in (None, "policy"):
            size = _other(effective, str(name), sizes) or weights
        found.append(Term("reference", "weights", "allocated", ALWAYS, size, f"reference model ({name}) in 16 bit",
                          "TRL dpo_trainer.py: a frozen copy, prepared like the policy"))  # fmt: skip
    if training.objective == "ppo":
        found.append(Term("reward_and_critic", "weights", "allocated", ALWAYS, 2 * weights, "reward and value models of the policy's size in 16 bit",
                          "TRL ppo_trainer.py"))  # fmt: skip
    rollout = training.rollout
    if rollout is not None and rollout.mode == "colocate" and rollout.engine != "hf":
        share = rollout.gpu_memory_utilization * effective.gpu.usable_bytes
        found.append(Term("rollout", "workspace", "allocated", ALWAYS, share, f"{rollout.engine} takes {rollout.gpu_memory_utilization:g} of the GPU",
                          "vLLM gpu_memory_utilization: weights, cache and graphs together"))  # fmt: skip
    return tuple(found)


def _other(effective: Effective, name: str, sizes: Sizes) -> Any:
    """Bytes of another reference model; None where the catalogue does not know it (then the policy's size is taken)."""
    from jobgen.catalog import models

    try:
        arch = models.load(name)
    except models.UnknownModel:
        return None
    return effective.numbers.compute * counts.total(arch) / sizes.weights_shards / sizes.tensor
