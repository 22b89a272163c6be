"""Quantised base weights: what is quantised at all, and which sharding can hold it."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.weights import (
    host_bytes,
    intended,
    moe_block,
    pinned,
    ranks_sharing,
    stored,
)
from jobgen.checks.words import gb
from jobgen.effective.loading import device_map
from jobgen.effective.options import TRAINER
from jobgen.effective.quantization import BNB, bnb4, requested, storage

OLD_TRANSFORMERS = "4.57.6"
"""The last release in which bitsandbytes sees every expert and ZeRO-3 or FSDP keep 4-bit copies in host memory."""
SHARDS = ("zero3", "fsdp1", "fsdp2")
LLAMA_FACTORY = Example("qlora-235b-zero3", {"training.versions": {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"}})


def quantizes(case: Case, kinds: frozenset[str] = BNB) -> bool:
    """The base is quantised in one of these formats."""
    quant = requested(case.spec)
    return quant is not None and quant.type in kinds


def older(case: Case) -> dict[str, object]:
    """Edits to the last transformers 4, through the framework's own release where that pins it."""
    if case.spec.training.framework == "axolotl":
        return {"training.versions": {"axolotl": "0.13.1"}}
    edits: dict[str, object] = {"training.versions.transformers": OLD_TRANSFORMERS}
    if case.spec.training.framework == "llama-factory":
        edits = {"training.versions.transformers": "4.57.1", "training.versions.llamafactory": "0.9.4"}
        if case.wrote("training.versions.peft"):
            edits["training.versions.peft"] = "0.17.1"
    return edits


def too_large(case: Case) -> bool:
    """The base does not fit where it will lie: on one GPU, or its part on each."""
    held = stored(case).total
    return held > case.gpu.usable_bytes * (1 if case.effective.loading.full_on_gpu else ranks_sharing(case))


@rule(
    "JG201", "error", "load", "effective",
    bad=LLAMA_FACTORY,
    good=Example("qlora-235b-zero3", {}),
    fix="transformers < 5 (4.57.6), or Axolotl >= 0.15 with quantize_moe_experts, or Unsloth >= 2026.6",
    sources=("transformers 5.24.0 integrations/bitsandbytes.py replace_with_bnb_linear", "bitsandbytes issue #1849", "unsloth issue #4032"),
    facts=("QS01", "QS26"),
    versions="transformers >= 5.0 with bitsandbytes up to 0.50.2",
)  # fmt: skip
def experts_stay_bf16(case: Case) -> Outcome | None:
    """Routed experts are not quantised since transformers 5

    bitsandbytes replaces modules that are exactly nn.Linear. transformers 5 holds the experts of a layer as one 3-D
    parameter, which it leaves in bf16 and says nothing: a 235B mixture "in 4 bit" is 460 GB instead of 123 GB.
    """
    if not case.arch.moe or not quantizes(case):
        return None
    effect = next((e for e in case.effective.quantized.effects if e.id == "experts_stay_bf16"), None)
    if effect is None:
        return None
    held, wanted = stored(case).total, intended(case).total
    experts = max(layer.experts for layer in case.arch.layers)
    fits = not too_large(case)
    edits = older(case)
    if case.spec.training.framework == "unsloth":
        edits = {"training.versions.unsloth": "2026.8.1"}
    return Outcome(
        effect.path,
        f"{effect.ignored} is ignored: all {experts} experts of a layer stay bf16, so the base takes {gb(held)}, not {gb(wanted)}"
        + (f"; each GPU has {gb(case.gpu.memory_bytes)}" if not fits else ""),
        _words(edits) + ", or a framework that quantises 3-D experts itself (Axolotl >= 0.15 quantize_moe_experts, Unsloth >= 2026.6)",
        edits,
        "warning" if fits else "error",
    )


def map_path(case: Case) -> str:
    """Where the device map is asked for."""
    if case.spec.parallelism.device_map is not None:
        return "parallelism.device_map"
    return "training.options.device_map" if case.option("device_map") is not None else "training.options.model_init_kwargs.device_map"


def _words(edits: dict[str, object]) -> str:
    return ", ".join(f"write {path}: {value}" for path, value in edits.items())


@rule(
    "JG205", "info", "init", "effective",
    bad=Example("qlora-235b-zero3", {}),
    good=Example("qlora-8b", {}),
    fix="budget the scales on each GPU beside the rank's share of the packed weights",
    sources=("DeepSpeed runtime/zero/partition_parameters.py", "measured with DeepSpeed 0.19.8 and transformers 4.57.6"),
    facts=("QS05", "MO02"),
)  # fmt: skip
def zero3_partitions_packed(case: Case) -> Outcome | None:
    """ZeRO-3 shards 4-bit weights but not their scales

    deepspeed.initialize partitions the packed weights over the ranks like any parameter. quant_state (absmax and code
    tables) is not a parameter: it stays whole on every GPU. A MoE block that is a ZeRO-3 leaf is gathered at once.
    """
    if case.spec.parallelism.sharding != "zero3" or not bnb4(case.spec) or case.layout.shard == 1:
        return None
    base, ranks = stored(case), case.layout.shard
    each = (base.packed + base.rest) / ranks
    node = each * case.layout.processes_per_node
    place = "in host memory" if case.effective.offloaded.parameters == "cpu" else "on its GPU"
    block = f", one gathered MoE block {gb(moe_block(case))}" if case.arch.moe else ""
    rounded = f", {gb(pinned(case))} when pinned" if case.effective.offloaded.parameters == "cpu" else ""
    return Outcome(
        "parallelism.sharding",
        f"after initialisation each rank holds 1/{ranks} of the 4-bit weights {place} ({gb(node)} a node{rounded}); the "
        f"scales are not sharded: {gb(base.state)} on every GPU{block}",
        "nothing to do; the estimate has both",
    )  # fmt: skip


@rule(
    "JG206", "warning", "load", "effective",
    bad=Example("qlora-235b-zero3", {"training.quantization.double_quant": False}),
    good=Example("qlora-235b-zero3", {}),
    fix="training.quantization.double_quant: true",
    sources=("bitsandbytes 0.50.2 quantize_4bit, measured", "transformers 4.57.6 modeling_utils.py:776-793"),
    facts=("QS06",),
)  # fmt: skip
def scales_unsharded(case: Case) -> Outcome | None:
    """Scales without double quantisation fill every GPU

    Without double quantisation there is an fp32 scale for each 64 weights, and sharding does not cut them: 14.6 GB on
    every GPU for 235B parameters instead of 3.75 GB.
    """
    if case.spec.parallelism.sharding not in SHARDS or not bnb4(case.spec) or case.effective.quantized.double_quant:
        return None
    state = stored(case).state
    if state <= 0.05 * case.gpu.memory_bytes:
        return None
    return Outcome(
        "training.quantization.double_quant",
        f"the fp32 scales are kept whole on every GPU: {gb(state)} of {gb(case.gpu.memory_bytes)}",
        "write training.quantization.double_quant: true", {"training.quantization.double_quant": True},
    )  # fmt: skip


@rule(
    "JG207", "error", "init", "spec",
    bad=Example("qlora-235b-fsdp", {"training.quantization.storage_dtype": "uint8"}),
    good=Example("qlora-235b-fsdp", {}),
    fix="training.quantization.storage_dtype: the training dtype (bf16)",
    sources=("torch 2.13.0 distributed/fsdp/_flat_param.py:810", "bitsandbytes docs/source/fsdp_qlora.md"),
    facts=("QS07",),
)  # fmt: skip
def fsdp1_integer_storage(case: Case) -> Outcome | None:
    """FSDP1 cannot flatten integer storage

    bitsandbytes packs 4-bit weights into uint8 unless told otherwise. FSDP1 joins parameters into one flat float
    parameter and stops: "Cannot flatten integer dtype tensors".
    """
    if case.spec.parallelism.sharding != "fsdp1" or not bnb4(case.spec) or storage(case.spec) != "uint8":
        return None
    dtype = {"fp16": "fp16", "fp32": "fp32"}.get(case.spec.training.precision, "bf16")
    return Outcome(
        "training.quantization.storage_dtype", "the 4-bit weights are stored as uint8, which FSDP1 refuses to flatten",
        f"write training.quantization.storage_dtype: {dtype}", {"training.quantization.storage_dtype": dtype},
    )  # fmt: skip


@rule(
    "JG208", "error", "init", "spec",
    bad=Example("qlora-235b-fsdp", {"training.quantization.storage_dtype": "fp16"}),
    good=Example("qlora-235b-fsdp", {}),
    fix="training.quantization.storage_dtype equal to the training dtype",
    sources=("torch 2.13.0 distributed/fsdp/_flat_param.py:812", "bitsandbytes docs/source/fsdp_qlora.md"),
    facts=("QS08",),
)  # fmt: skip
def fsdp1_mixed_storage(case: Case) -> Outcome | None:
    """FSDP1 needs one dtype in a flat parameter

    Storage in another dtype than the rest of a layer either stops with "Must flatten tensors with uniform dtype" or,
    with a wrapping policy around it, wraps every 4-bit layer alone, which costs memory and communication.
    """
    spec = case.spec
    kept, wanted = storage(spec), {"fp16": "fp16", "fp32": "fp32"}.get(spec.training.precision, "bf16")
    if spec.parallelism.sharding != "fsdp1" or not bnb4(spec) or kept in ("uint8", wanted):
        return None
    return Outcome(
        "training.quantization.storage_dtype", f"the 4-bit weights are stored as {kept} but the rest of the model is {wanted}",
        f"write training.quantization.storage_dtype: {wanted}", {"training.quantization.storage_dtype": wanted},
    )  # fmt: skip


@rule(
    "JG209", "warning", "init", "effective",
    bad=Example("full-8b-fsdp2", {"training.method": "qlora", "training.versions.accelerate": "1.14.0"}),
    good=Example("full-8b-fsdp2", {"training.method": "qlora", "training.versions.accelerate": "1.14.0", "training.quantization": {"storage_dtype": "bf16"},
                                   "training.loading": "every_rank"}),
    fix="training.quantization.storage_dtype: bf16",
    sources=("accelerate utils/fsdp_utils.py, PR #3987",),
    facts=("QS09",),
    versions="accelerate >= 1.14",
)  # fmt: skip
def fsdp2_leaves_integers_whole(case: Case) -> Outcome | None:
    """FSDP2 leaves uint8 4-bit weights unsharded

    accelerate keeps non-float parameters out of FSDP2's sharding and warns once: every GPU then holds the whole base.
    """
    if case.spec.parallelism.sharding != "fsdp2" or not bnb4(case.spec):
        return None
    effect = next((e for e in case.effective.quantized.effects if e.id == "packed_weights_not_sharded"), None)
    if effect is None:
        return None
    return Outcome(
        "training.quantization.storage_dtype", f"{effect.ignored} is ignored: {effect.instead} ({gb(stored(case).total)})",
        "write training.quantization.storage_dtype: bf16", {"training.quantization.storage_dtype": "bf16"},
    )  # fmt: skip


@rule(
    "JG218", "error", "init", "spec",
    bad=Example("lora-8b-ddp", {"training.method": "qlora", "training.options": {"device_map": "auto"}}),
    good=Example("lora-8b-ddp", {"training.method": "qlora"}),
    fix="no device map: each rank then loads onto its own GPU",
    sources=("accelerate accelerator.py:1838-1844, :1470-1480",),
    facts=("QS18", "LA01"),
)  # fmt: skip
def device_map_with_ranks(case: Case) -> Outcome | None:
    """A device map over several GPUs and several ranks exclude each other

    A map such as auto lays one model over all GPUs of a process. accelerate refuses to train such a model in any
    distributed mode.
    """
    spread = device_map(case.spec)
    if spread not in ("auto", "balanced", "sequential", "balanced_low_0") or case.layout.world == 1:
        return None
    path = map_path(case)
    return Outcome(
        path, f"device_map: {spread} lays one model over the GPUs of a process, but {case.layout.world} ranks each load their own",
        "remove device_map, or run one process: launch.processes_per_node: 1", {path: None},
    )  # fmt: skip


@rule(
    "JG222", "warning", "first_step", "estimate",
    bad=Example("qlora-235b-zero3", {}),
    good=Example("qlora-235b-zero3", {"offload.parameters": "none"}),
    fix="offload.parameters: none",
    sources=("PEFT docs/source/accelerate/deepspeed.md:434",),
    facts=("QS22",),
)  # fmt: skip
def needless_parameter_offload(case: Case) -> Outcome | None:
    """Parameter offload of a sharded 4-bit base that would fit the GPUs

    Offload moves every layer over PCIe in each pass. PEFT's own guide reports more GPU memory with it than without,
    so it is worth its time only where the sharded base does not fit.
    """
    if case.spec.parallelism.sharding != "zero3" or not bnb4(case.spec) or case.effective.offloaded.parameters != "cpu":
        return None
    base, ranks = stored(case), case.layout.shard
    each = (base.packed + base.rest) / ranks
    working = case.estimate.gpu.device
    if each + base.state > 0.8 * case.gpu.usable_bytes or each + working > 0.8 * case.gpu.usable_bytes:
        return None
    room = host_bytes(case)
    node = gb(each * case.layout.processes_per_node)
    kept = f"{node} of {gb(room)} host memory" if room else f"{node} of host memory"
    return Outcome(
        "offload.parameters",
        f"the base need not be offloaded: a rank's share is {gb(each)}, which with everything else makes {gb(each + working)} of "
        f"{gb(case.gpu.memory_bytes)}; offload takes {kept} and moves {gb(base.packed / ranks)} to each GPU in every pass",
        "write offload.parameters: none", {"offload.parameters": "none"},
    )  # fmt: skip


@rule(
    "JG223", "warning", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.versions.bitsandbytes": "0.42.0"}),
    good=Example("qlora-235b-zero3", {"training.versions.bitsandbytes": "0.45.5"}),
    fix="bitsandbytes >= 0.43.3, accelerate >= 1.0.1, transformers > 4.44.2, trl > 0.11.4, peft > 0.13.0",
    sources=("PEFT docs/source/accelerate/fsdp.md:169, deepspeed.md:171",),
    facts=("QS23",),
    versions="bitsandbytes < 0.43.3, accelerate < 1.0.1, transformers <= 4.44.2, trl <= 0.11.4, peft <= 0.13.0",
)  # fmt: skip
def below_documented_minimum(case: Case) -> Outcome | None:
    """Sharded QLoRA needs a set of releases

    Below the documented set it fails in many ways: out of memory, dtype errors, checkpoints that cannot be written.
    """
    if case.spec.parallelism.sharding not in SHARDS or not bnb4(case.spec) or case.spec.training.framework == "fsdp-qlora":
        return None
    least = {"bitsandbytes": (0, 43, 3), "accelerate": (1, 0, 1), "transformers": (4, 45), "peft": (0, 13, 1)}
    if case.spec.training.framework == "trl":
        least["trl"] = (0, 11, 5)
    old = [name for name, release in least.items() if case.v[name] < release]
    if not old:
        return None
    good = {"bitsandbytes": "0.45.5", "accelerate": "1.6.0", "transformers": OLD_TRANSFORMERS, "peft": "0.17.1", "trl": "0.24.0"}
    edits = {f"training.versions.{name}": good[name] for name in old}
    return Outcome(
        "training.versions", f"{', '.join(old)} older than what PEFT documents for QLoRA under {case.spec.parallelism.sharding}",
        "; ".join(f'write training.versions.{name}: "{good[name]}" or newer' for name in old), edits,
    )  # fmt: skip


def loading_off(case: Case) -> tuple[str, dict[str, object]]:
    """The place that turned memory-saving loading on, and the edits that turn it off."""
    spec = case.spec
    if spec.training.loading != "auto":
        return "training.loading", {"training.loading": "every_rank"}
    edits: dict[str, object] = {}
    options = spec.training.options
    for key in ("fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading", "qlora_sharded_model_loading"):
        if key in options:
            edits[f"training.options.{key}"] = False
    inner = options.get("fsdp_config")
    if isinstance(inner, dict):
        for key in ("cpu_ram_efficient_loading", "fsdp_cpu_ram_efficient_loading"):
            if key in inner:
                edits[f"training.options.fsdp_config.{key}"] = False
    if "FSDP_CPU_RAM_EFFICIENT_LOADING" in spec.launch.env:
        edits["launch.env.FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    return (next(iter(edits)), edits) if edits else ("training.loading", {"training.loading": "every_rank"})


def huggingface_trainer(case: Case) -> bool:
    """A transformers Trainer runs the loop."""
    return case.spec.training.framework in TRAINER and case.spec.training.backend != "megatron"
