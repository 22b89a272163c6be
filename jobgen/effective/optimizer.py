"""The optimizer as it will run: moments, place, temporaries."""

from __future__ import annotations

from jobgen.effective.numbers import engine, moment
from jobgen.effective.setup import Effect, Effective, Stepped, Where
from jobgen.effective.unheard import unheard
from jobgen.frameworks import states


def decide(effective: Effective) -> Stepped:
    """Bytes of moments per trained element and where they lie."""
    training, sharding = effective.spec.training, effective.spec.parallelism.sharding
    asked = training.optimizer
    known = states.OPTIMIZERS[asked.name]
    name, effects = asked.name, list[Effect]()
    place: Where = effective.offloaded.optimizer
    each = moment(effective)
    if place == "cpu" and sharding in states.ZERO and training.framework in states.HF and name in states.CPU_ADAM:
        effects.append(Effect(
            "becomes_cpu_adam", "training.optimizer", f"training.optimizer: {name}",
            "DeepSpeed's CPU Adam steps instead, with fp32 moments in host memory"
            + (" and no decoupled weight decay" if name != "sgd" else ""), ("OF02",),
            "accelerate utils/deepspeed.py map_pytorch_optim_to_deepspeed; accelerator.py _prepare_deepspeed",
        ))  # fmt: skip
        name, known = "adamw", states.OPTIMIZERS["adamw"]
    elif known.paged and place == "gpu":
        place = "managed"
    moments = known.fixed if known.fixed is not None else known.moments * each
    temporary = known.every * each
    if place in ("cpu", "nvme") or training.framework in states.FUSED or engine(effective) == "megatron" or _fused(effective):
        temporary = 0.0
    in_backward = (asked.in_backward and not unheard(effective, "training.optimizer.in_backward")) or name in states.IN_BACKWARD
    return Stepped(name, moments, place, temporary, in_backward, tuple(effects))


def _fused(effective: Effective) -> bool:
    """The user's own options name torch's fused kernel."""
    options = effective.spec.training.options
    return any("fused" in str(options.get(key, "")) for key in ("optim", "optimizer")) or options.get("fused") is True
