"""What shares the GPU with the trained model: reference, reward and critic models, a rollout engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobgen.catalog import counts
from jobgen.effective.options import option, switch
from jobgen.physics import allocator
from jobgen.physics.ledger import ALWAYS, GENERATE, LOAD, Term
from jobgen.physics.sizes import Sizes, Stage
from jobgen.physics.states import held, total

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

NEEDS_REFERENCE = frozenset({"dpo", "kto", "ppo"})
"""Objectives whose loss compares with a frozen model (ORPO does not; GRPO only with a KL term, off by default in TRL)."""


SLEEP: Mapping[str, tuple[str, bool]] = {
    "verl": ("actor_rollout_ref.rollout.free_cache_engine", True),
    "trl": ("vllm_enable_sleep_mode", False),
    "axolotl": ("trl.vllm_enable_sleep_mode", False),
    "ms-swift": ("sleep_level", False),
}
"""The switch by which a colocated engine gives its memory back while the policy trains, and its default (verl 0.9.1
trainer/config/rollout/rollout.yaml, workers/rollout/vllm_rollout/vllm_rollout.py release; TRL grpo_config.py,
grpo_trainer.py ``llm.sleep(level=2)``; ms-swift arguments: sleep_level 0). Frameworks without one keep the engine."""
OWN_PROCESS = frozenset({"verl"})
"""Frameworks whose engine is a server beside the training process (verl vllm_async_server.py): its CUDA context stays."""


def sleeps(effective: Effective) -> bool:
    """The engine on the training GPUs releases its weights and its cache until it generates again."""
    key, default = SLEEP.get(effective.spec.training.framework, ("", False))
    written = option(effective.spec, key) if key else None
    return default if written is None else switch(written) is not False


def emptied(effective: Effective, cached: tuple[Term, ...]) -> tuple[Term, ...]:
    """The allocator's unused blocks, which are given back before an engine wakes (verl utils/memory_utils.py
    aggressive_empty_cache; TRL grpo_trainer.py torch.cuda.empty_cache before wake_up)."""
    return tuple(term._replace(phases=term.phases & ~GENERATE) for term in cached) if sleeps(effective) else cached


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
        asleep = sleeps(effective)
        words = f"{rollout.engine} takes {rollout.gpu_memory_utilization:g} of the GPU" + (", and gives it back to train" if asleep else "")
        found.append(Term("rollout", "workspace", "allocated", GENERATE if asleep else ALWAYS, share, words,
                          "vLLM gpu_memory_utilization: weights, cache and graphs together; vLLM sleep mode"))  # fmt: skip
        if asleep and training.framework in OWN_PROCESS:
            own = next(term for term in allocator.outside(effective, sizes) if term.id == "context")
            found.append(own._replace(id="rollout_asleep", phases=ALWAYS & ~(LOAD | GENERATE),
                                      words=f"CUDA context of {rollout.engine}'s own process, which stays while it sleeps"))  # fmt: skip
    return tuple(found)


def _other(effective: Effective, name: str, sizes: Sizes) -> Any:
    """Bytes of another reference model; None where the catalogue does not know it (then the policy's size is taken)."""
    from jobgen.catalog import models

    try:
        arch = models.load(name)
    except models.UnknownModel:
        return None
    return effective.numbers.compute * counts.total(arch) / sizes.weights_shards / sizes.tensor
