"""How the weights reach their place: who reads what, where it first lands, and how many copies a node holds.

The table for transformers is that of the project's seed cases (C4): its FSDP and ZeRO-3 branches leave quantised models
out, differently in 4.39-4.44, 4.45-4.57 and 5.x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobgen.effective.options import environment, flag, hugging_face, option, switch
from jobgen.effective.quantization import BNB, fused, requested
from jobgen.effective.setup import Effect, Loading

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective
    from jobgen.spec.models import Spec

_SHARDED = frozenset(("torchtitan", "megatron-lm", "megatron-deepspeed", "nemo"))
"""Frameworks whose ranks read only their part of a distributed checkpoint."""
_OPTIONS = (
    "fsdp_config.cpu_ram_efficient_loading", "fsdp_config.fsdp_cpu_ram_efficient_loading",
    "fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading", "qlora_sharded_model_loading",
)  # fmt: skip


def asked(spec: Spec) -> bool | None:
    """Whether rank 0 alone should load, in whichever of the places people write it; None when nothing says so."""
    if spec.training.loading != "auto":
        return spec.training.loading != "every_rank"
    written = flag(spec, *_OPTIONS)
    return switch(environment(spec, "FSDP_CPU_RAM_EFFICIENT_LOADING")) if written is None else written


def efficient(effective: Effective) -> bool:
    """Efficient loading is on: as asked, else the default (``accelerate launch`` turns it on, TrainingArguments do not)."""
    spec = effective.spec
    written = asked(spec)
    if written is not None:
        return written
    if spec.training.framework == "axolotl":
        return False
    launcher = spec.launch.launcher or effective.framework.launcher
    return launcher == "accelerate" and not effective.framework.starts_torchrun


def initialises(spec: Spec) -> bool:
    """DeepSpeed's zero.Init cuts weights while they are read, unless it is switched off (accelerate zero3_init_flag)."""
    return spec.training.loading != "every_rank" and flag(spec, "zero3_init_flag", "deepspeed_config.zero3_init_flag") is not False


def device_map(spec: Spec) -> str | None:
    """The device map that is asked for."""
    if spec.parallelism.device_map is not None:
        return spec.parallelism.device_map
    written = option(spec, "device_map", "model_init_kwargs.device_map")
    return written if isinstance(written, str) else None


def fp32_load(effective: Effective) -> bool:
    """The checkpoint is widened to fp32 on the way: an explicit dtype says so."""
    written = option(effective.spec, "torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype")
    return str(written).removeprefix("torch.") in ("float32", "fp32") or effective.spec.training.precision == "fp32"


def decide(effective: Effective) -> Loading:
    """How the weights are loaded."""
    spec = effective.spec
    per_node, width = effective.layout.processes_per_node, 4.0 if fp32_load(effective) else 2.0
    if spec.model.init == "random":
        return Loading("none", "meta", 0, width, False, False)
    if not hugging_face(spec):
        return _own(effective, per_node, width)
    quant = requested(spec)
    if quant is not None and quant.type in BNB:
        return _bitsandbytes(effective, per_node)
    return _plain(effective, per_node, width)


def _own(effective: Effective, per_node: int, width: float) -> Loading:
    """Frameworks with a loader of their own."""
    spec = effective.spec
    if spec.training.framework in _SHARDED or spec.training.backend == "megatron":
        return Loading("sharded", "gpu", 0, width, False, False)
    quantized = requested(spec) is not None
    if spec.training.framework in ("fsdp-qlora", "verl"):
        return Loading("rank0_broadcast", "cpu", 1, width, quantized, False)
    if spec.parallelism.sharding in ("fsdp1", "fsdp2"):
        return Loading("rank0_broadcast" if spec.training.framework == "litgpt" else "every_rank", "cpu", 0, width, False, False)
    return Loading("every_rank", "gpu", 0, width, quantized, True)


def _bitsandbytes(effective: Effective, per_node: int) -> Loading:
    """bitsandbytes quantises whole matrices while they are read."""
    spec, v, kind = effective.spec, effective.versions, effective.spec.parallelism.sharding
    on_gpu = Loading("every_rank", "gpu", 0, 2.0, True, True)
    placed = device_map(spec)
    if placed == "cpu":
        return Loading("every_rank", "cpu", per_node, 2.0, True, False)
    if placed is not None and effective.layout.world == 1:
        return on_gpu._replace(full_on_gpu=False)
    if kind == "zero3":
        if v["transformers"] >= (5, 0):
            return on_gpu._replace(effects=(_effect_zero3_gpu(),))
        return Loading("every_rank", "cpu", per_node, 2.0, True, False, (_effect_zero_init(),))
    if kind not in ("fsdp1", "fsdp2") or not efficient(effective):
        return on_gpu
    if spec.training.framework == "axolotl":
        return Loading("rank0_broadcast", "cpu", 1, 2.0, True, False)
    if v["transformers"] >= (5, 0):
        return on_gpu._replace(effects=(_effect_ignored("every rank loads the whole model onto its own GPU", ("QS02",)),))
    if v["transformers"] >= (4, 45):
        what = "every rank reads and quantises the whole bf16 checkpoint, then only rank 0 keeps its 4-bit copy"
        return Loading("rank0_broadcast", "cpu", 1, 2.0, True, False, (_effect_ignored(what, ("QS20",)),))
    what = "every rank keeps a whole 4-bit copy in host memory"
    return Loading("every_rank", "cpu", per_node, 2.0, True, False, (_effect_ignored(what, ("QS21",)),))


def _plain(effective: Effective, per_node: int, width: float) -> Loading:
    """Unquantised weights: safetensors files are mapped, so a copy is private only where its dtype or shape changes."""
    spec, kind, placed = effective.spec, effective.spec.parallelism.sharding, device_map(effective.spec)
    copies = per_node if width == 4.0 else 0
    if placed is not None and placed != "cpu" and effective.layout.world == 1:
        return Loading("every_rank", "gpu", 0, width, False, False)
    if kind == "zero3" and placed is None and not initialises(spec):
        return Loading("every_rank", "cpu", per_node, width, False, False)
    if kind == "zero3" and placed is None:
        if spec.training.framework != "ms-swift" and fused(effective):
            return Loading("sharded", "cpu", per_node, width, False, False, (_effect_zero3_fuses(),))
        return Loading("sharded", "gpu", 0, width, False, False)
    if kind in ("fsdp1", "fsdp2"):
        wanted = efficient(effective)
        if placed is None and fused(effective):
            effects = () if not wanted else (
                _effect_ignored("every rank fuses the experts into new tensors, a private copy of the whole model each", ("LH01",)),
            )  # fmt: skip
            return Loading("every_rank", "cpu", per_node, width, False, False, effects)
        if wanted:
            return Loading("rank0_broadcast", "cpu", 1, width, False, False)
        return Loading("every_rank", "cpu", copies, width, False, False)
    if placed == "cpu":
        return Loading("every_rank", "cpu", per_node, width, False, False)
    private = per_node if fused(effective) else copies
    return Loading("every_rank", "cpu", private, width, False, True)


def _effect_ignored(instead: str, facts: tuple[str, ...]) -> Effect:
    return Effect(
        "efficient_loading_ignored",
        "training.loading",
        "memory-saving loading (cpu_ram_efficient_loading)",
        instead,
        facts,
        "transformers modeling_utils.py, the guard `and not is_quantized` (PR #29587); issue #43749",
    )


def _effect_zero_init() -> Effect:
    return Effect(
        "zero_init_skipped",
        "parallelism.sharding",
        "ZeRO-3's partitioned loading (zero.Init)",
        "a quantised model is left out of it: every rank keeps a whole 4-bit copy in host memory until deepspeed.initialize",
        ("QS04",),
        "transformers 4.57.6 modeling_utils.py:839",
    )


def _effect_zero3_gpu() -> Effect:
    return Effect(
        "zero3_loads_whole_model_on_gpu",
        "parallelism.sharding",
        "ZeRO-3's partitioned loading (zero.Init)",
        "since transformers 5 every rank keeps the whole quantised model on its own GPU until deepspeed.initialize",
        ("QS03",),
        "transformers 4.57.6 modeling_utils.py:776-793, absent in 5.0.0-5.24.0",
    )


def _effect_zero3_fuses() -> Effect:
    return Effect(
        "zero3_fuses_on_every_rank",
        "parallelism.sharding",
        "ZeRO-3's loading shard by shard",
        "since transformers 5 every rank merges the whole checkpoint and fuses its experts in host memory first",
        (),
        "transformers 5 integrations/deepspeed.py _apply_weight_conversions_to_state_dict; patched by ms-swift",
    )
