"""Quantised base weights in LLaMA-Factory and Axolotl: what each of them refuses."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.quantization import SHARDS, loading_off, quantizes
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.loading import efficient
from jobgen.effective.options import flag, option
from jobgen.effective.quantization import requested, wants_experts


@rule(
    "JG213", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.quantization.type": "gptq-int4"}),
    good=Example("qlora-235b-zero3", {}),
    fix="the unquantised checkpoint with nf4",
    sources=("LLaMA-Factory model/model_utils/quantization.py:105", "LLaMA-Factory issues #2939, #3343"),
    facts=("QS13",),
)  # fmt: skip
def llama_factory_ptq(case: Case) -> Outcome | None:
    """LLaMA-Factory refuses pre-quantised models under ZeRO-3 and FSDP

    GPTQ, AWQ and AQLM checkpoints cannot be sharded there: it raises at start.
    """
    if case.spec.training.framework != "llama-factory" or case.spec.parallelism.sharding not in SHARDS:
        return None
    if not quantizes(case, frozenset(("gptq-int4", "gptq-int8"))):
        return None
    return Outcome(
        "training.quantization.type", f"LLaMA-Factory refuses a pre-quantised model under {case.spec.parallelism.sharding}",
        "train the unquantised checkpoint: training.quantization.type: nf4", {"training.quantization.type": "nf4"},
    )  # fmt: skip


@rule(
    "JG214", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"quantization_method": "hqq"}}),
    good=Example("qlora-235b-zero3", {"training.options": {"quantization_method": "bnb"}}),
    fix="bitsandbytes 4-bit, or DDP or ZeRO up to stage 2",
    sources=("LLaMA-Factory model/model_utils/quantization.py:211,223",),
    facts=("QS14",),
)  # fmt: skip
def llama_factory_hqq(case: Case) -> Outcome | None:
    """LLaMA-Factory's HQQ and EETQ cannot be sharded

    It raises at start under ZeRO-3 and FSDP.
    """
    method = str(option(case.spec, "quantization_method", default="")).lower()
    if case.spec.training.framework != "llama-factory" or method not in ("hqq", "eetq"):
        return None
    if case.spec.parallelism.sharding not in SHARDS or requested(case.spec) is None:
        return None
    return Outcome(
        "training.options.quantization_method", f"{method} does not work under {case.spec.parallelism.sharding}",
        "write quantization_method: bnb", {"training.options.quantization_method": "bnb"},
    )  # fmt: skip


@rule(
    "JG215", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.quantization.type": "int8"}),
    good=Example("qlora-235b-zero3", {}),
    fix="training.quantization.type: nf4",
    sources=("LLaMA-Factory model/model_utils/quantization.py:199",),
    facts=("QS15",),
)  # fmt: skip
def llama_factory_int8(case: Case) -> Outcome | None:
    """LLaMA-Factory shards 4-bit models only

    8-bit models under ZeRO-3 or FSDP raise "Only 4-bit quantized model can use fsdp+qlora".
    """
    if case.spec.training.framework != "llama-factory" or case.spec.parallelism.sharding not in SHARDS:
        return None
    if not quantizes(case, frozenset(("int8",))):
        return None
    return Outcome(
        "training.quantization.type", f"an 8-bit base cannot be used under {case.spec.parallelism.sharding} in LLaMA-Factory",
        "write training.quantization.type: nf4", {"training.quantization.type": "nf4"},
    )  # fmt: skip


@rule(
    "JG216", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"use_unsloth": True}}),
    good=Example("qlora-235b-zero3", {"training.options": {"use_unsloth": False}}),
    fix="use_unsloth: false, or zero2",
    sources=("LLaMA-Factory hparams/parser.py:533",),
    facts=("QS16",),
)  # fmt: skip
def llama_factory_unsloth_zero3(case: Case) -> Outcome | None:
    """Unsloth in LLaMA-Factory does not work with ZeRO-3

    It raises at start.
    """
    spec = case.spec
    if spec.training.framework != "llama-factory" or spec.parallelism.sharding != "zero3" or not flag(spec, "use_unsloth"):
        return None
    return Outcome(
        "training.options.use_unsloth", "use_unsloth does not work with ZeRO-3", "remove use_unsloth",
        {"training.options.use_unsloth": False},
    )  # fmt: skip


@rule(
    "JG217", "error", "init", "spec",
    bad=Example("qlora-32b-axolotl", {"training.objective": "dpo"}),
    good=Example("qlora-32b-axolotl", {}),
    fix="ZeRO-3 or FSDP1",
    sources=("Axolotl utils/schemas/validation.py:1077",),
    facts=("QS17",),
)  # fmt: skip
def axolotl_fsdp2_preference(case: Case) -> Outcome | None:
    """Axolotl refuses quantised preference training under FSDP2

    load_in_4bit or load_in_8bit with DPO, KTO, ORPO or IPO raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.parallelism.sharding != "fsdp2" or not quantizes(case):
        return None
    if spec.training.objective not in ("dpo", "kto", "orpo"):
        return None
    return Outcome(
        "parallelism.sharding", f"Axolotl refuses a quantised base with {spec.training.objective} under FSDP2",
        "write parallelism.sharding: zero3", {"parallelism.sharding": "zero3"},
    )  # fmt: skip


@rule(
    "JG224", "error", "init", "spec",
    bad=Example("qlora-32b-axolotl", {"training.versions": {"axolotl": "0.15.0"}, "model.name": "Qwen/Qwen3-30B-A3B", "training.quantization.moe_experts": True,
                                       "training.options": {"fsdp_config": {"cpu_ram_efficient_loading": True}}}),
    good=Example("qlora-32b-axolotl", {"training.versions": {"axolotl": "0.15.0"}, "model.name": "Qwen/Qwen3-30B-A3B", "training.quantization.moe_experts": True}),
    fix="fsdp_config.cpu_ram_efficient_loading: false",
    sources=("Axolotl docs/expert_quantization.qmd, limitations",),
    facts=("QS12",),
    versions="Axolotl >= 0.15",
)  # fmt: skip
def axolotl_quantized_experts_hang(case: Case) -> Outcome | None:
    """Axolotl's expert quantisation hangs with memory-saving loading

    quantize_moe_experts under FSDP2 with cpu_ram_efficient_loading does not end in useful time.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.parallelism.sharding != "fsdp2" or not quantizes(case):
        return None
    if not wants_experts(spec) or not efficient(case.effective) or not case.v["axolotl"] >= (0, 15):
        return None
    path, edits = loading_off(case)
    return Outcome(path, "quantize_moe_experts with memory-saving loading under FSDP2 hangs or loads for hours",
                   "turn memory-saving loading off", edits)  # fmt: skip
