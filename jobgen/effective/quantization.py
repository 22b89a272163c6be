"""The base weights as they will be stored: which matrices a quantiser reaches, by framework and version.

bitsandbytes replaces modules that are exactly ``nn.Linear``. Since transformers 5 the routed experts of a layer are
one 3-D parameter, which it leaves in bf16 without a word, unless the framework quantises it itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.setup import Effect, Quantized
from jobgen.spec.sections import Quantization

if TYPE_CHECKING:
    from jobgen.catalog.arch import Arch, Matrix
    from jobgen.effective.setup import Effective
    from jobgen.spec.models import Spec

BNB4, BNB8 = frozenset(("nf4", "fp4")), frozenset(("int8",))
BNB = BNB4 | BNB8
_DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "uint8": 1}
_SETS_STORAGE = frozenset(("llama-factory", "axolotl", "trl", "fsdp-qlora"))
"""Frameworks that set bitsandbytes' quant_storage to the training dtype themselves."""
_NONE = Quantized(None, False, False, False, False, 0, False)


def requested(spec: Spec) -> Quantization | None:
    """The quantisation the spec asks for: its section, or nf4 for qlora."""
    training = spec.training
    if training.quantization is not None:
        return training.quantization
    return _DEFAULT if training.method == "qlora" else None


_DEFAULT = Quantization.model_construct()


def bnb4(spec: Spec) -> bool:
    """4 bits by bitsandbytes."""
    quant = requested(spec)
    return quant is not None and quant.type in BNB4


def wants_experts(spec: Spec) -> bool:
    """The user asks for quantised experts, in the spec's words or the framework's."""
    quant = requested(spec)
    return bool(quant is not None and quant.moe_experts is True) or flag(spec, "quantize_moe_experts") is True


def storage(spec: Spec) -> str:
    """Data type of the packed storage: as written, else what the framework sets (bitsandbytes' default is uint8)."""
    quant = requested(spec)
    if quant is None:
        return "uint8"
    written = quant.storage_dtype or _dtype(option(spec, "bnb_4bit_quant_storage"))
    if written is not None:
        return written
    if spec.training.framework == "fsdp-qlora" and spec.training.precision == "fp16":
        return "fp32"  # train.py fp16_autocast: quant_storage is torch_dtype
    if spec.training.framework in _SETS_STORAGE:
        return {"bf16_pure": "bf16", "fp8": "bf16"}.get(spec.training.precision, spec.training.precision)
    return "uint8"


def _dtype(value: object) -> str | None:
    name = str(value).removeprefix("torch.").lower()
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "uint8": "uint8", "bf16": "bf16", "fp16": "fp16"}.get(name)


def fused_since(arch: Arch) -> tuple[int, ...] | None:
    """The transformers release from which the experts are 3-D parameters; None for dense models and unfused ones."""
    found = [m.fused_since for layer in arch.layers for m in layer.matrices if m.part == "expert" and m.fused_since]
    return max(found, default=None)


def fused(effective: Effective) -> bool:
    """The experts are 3-D parameters in the version that will run."""
    since = fused_since(effective.arch)
    if since is None or not hugging_face(effective.spec):
        return False
    return effective.versions["transformers"] >= since


def never_linear(arch: Arch) -> bool:
    """The experts have been 3-D parameters from the model's first release (Llama 4, gpt-oss, Gemma 4)."""
    return any(m.part == "expert" and not m.linear for layer in arch.layers for m in layer.matrices)


def is_quantized(matrix: Matrix, quantized: Quantized) -> bool:
    """Whether this matrix is stored quantised. Heads, embeddings and listed modules never are."""
    if quantized.type is None or matrix.keep or matrix.part in ("head", "embedding"):
        return False
    if matrix.part == "expert":
        return quantized.experts
    if not matrix.linear:
        return False
    if matrix.part == "router":
        return quantized.router or matrix.fused_since is None
    return True


def decide(effective: Effective) -> Quantized:
    """The base weights as stored."""
    spec, arch = effective.spec, effective.arch
    quant = requested(spec)
    if quant is None:
        return _NONE
    effects: list[Effect] = []
    experts = arch.moe and _experts(effective, quant, effects)
    router = False
    if arch.moe and quant.type in BNB and _linear_router(arch):
        since = _router_since(arch)
        router = since is None or not hugging_face(spec) or not effective.versions["transformers"] >= since
    kept = storage(spec)
    return Quantized(
        type=quant.type,
        double_quant=quant.double_quant and quant.type in BNB4,
        experts=experts,
        router=router,
        head=False,
        storage_bytes=_DTYPE_BYTES[kept],
        sharded=_sharded(effective, quant, kept, effects),
        effects=tuple(effects),
    )


def _linear_router(arch: Arch) -> bool:
    return any(m.part == "router" and m.linear and not m.keep and not m.float32 for layer in arch.layers for m in layer.matrices)


def _router_since(arch: Arch) -> tuple[int, ...] | None:
    found = [m.fused_since for layer in arch.layers for m in layer.matrices if m.part == "router" and m.fused_since]
    return max(found, default=None)


def _experts(effective: Effective, quant: Quantization, effects: list[Effect]) -> bool:
    """Whether the routed experts are quantised."""
    spec, v = effective.spec, effective.versions
    if quant.moe_experts is False:
        return False
    if quant.type not in BNB or not (fused(effective) or never_linear(effective.arch)):
        return True
    framework, wanted = spec.training.framework, wants_experts(spec)
    if framework == "axolotl" and wanted and v["axolotl"] >= (0, 15):
        return True
    if framework == "unsloth" and v["unsloth"] >= (2026, 6):
        return True
    if framework == "custom" and wanted:
        return True
    effects.append(Effect(
        "experts_stay_bf16",
        "training.quantization.moe_experts" if wanted else "training.quantization.type",
        "4-bit quantisation of the routed experts" if quant.type in BNB4 else "8-bit quantisation of the routed experts",
        "bitsandbytes replaces nn.Linear only, and "
        + ("this model's experts are" if never_linear(effective.arch) else "since transformers 5 the experts are")
        + " 3-D parameters: they stay bf16",
        ("QS01",),
        "transformers 5.24.0 integrations/bitsandbytes.py replace_with_bnb_linear; bitsandbytes issue #1849",
    ))  # fmt: skip
    return False


def _sharded(effective: Effective, quant: Quantization, kept: str, effects: list[Effect]) -> bool:
    """Whether the sharding cuts the packed weights."""
    kind = effective.spec.parallelism.sharding
    if kind not in ("zero3", "fsdp1", "fsdp2"):
        return False
    if kind == "fsdp2" and quant.type in BNB4 and kept == "uint8" and hugging_face(effective.spec):
        if not effective.versions["accelerate"] >= (1, 14):
            return True
        effects.append(Effect(
            "packed_weights_not_sharded",
            "parallelism.sharding",
            "FSDP2 sharding of the 4-bit base",
            "accelerate leaves integer parameters out of sharding, so every GPU holds the whole base",
            ("QS09",),
            "accelerate utils/fsdp_utils.py, PR #3987",
        ))  # fmt: skip
        return False
    return True
