"""What a model's units (layers of one kind, embedding, head, the rest) hold, by how each part is cut.

Counted once per architecture and set of categories (quantisation, frozen parts, adapters) and remembered: everything
after this is multiplication by sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.catalog import counts
from jobgen.catalog.arch import Arch, Layer, Matrix
from jobgen.effective.quantization import BNB4, fused, is_quantized, never_linear
from jobgen.physics.sizes import Sizes
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective, Quantized


UNTIES = frozenset({"litgpt"})
"""Frameworks that hold a tied head as a matrix of its own (litgpt/scripts/convert_hf_checkpoint.py copies the embedding)."""
QUANTISES_HEAD = frozenset({"litgpt"})
"""Frameworks that quantise the head too (lightning's BitsandbytesPrecision converts every nn.Linear)."""


class Bulk(NamedTuple):
    """An amount (elements or bytes) by how model parallelism cuts it."""

    vocabulary: float = 0
    tensor: float = 0
    replicated: float = 0
    expert: float = 0

    def __add__(self, other: Bulk) -> Bulk:  # type: ignore[override]
        return Bulk(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> Bulk:
        """A multiple."""
        return Bulk(*(factor * each for each in self))

    def local(self, sizes: Sizes) -> Any:
        """The part of one rank, before any sharding over data-parallel ranks."""
        total: Any = self.replicated
        if self.tensor or self.vocabulary:
            total = total + (self.tensor + self.vocabulary) / sizes.tensor
        if self.expert:
            total = total + self.expert / (sizes.expert * sizes.expert_tensor)
        return total

    def sharded(self, sizes: Sizes, shards: Any) -> Any:
        """The part of one rank when ``shards`` ranks share what a data-parallel rank holds.

        Experts are shared among the ranks that hold the same experts: fewer by expert / tensor.
        """
        total: Any = self.replicated / shards
        if self.tensor or self.vocabulary:
            total = total + (self.tensor + self.vocabulary) / (sizes.tensor * shards)
        if self.expert:
            held = sizes.expert * sizes.expert_tensor
            spread = sizes.tensor * shards
            total = total + self.expert / ((held + spread + abs(held - spread)) / 2)
        return total

    @property
    def whole(self) -> float:
        """All of it."""
        return self.vocabulary + self.tensor + self.replicated + self.expert


NOTHING = Bulk()


class Unit(NamedTuple):
    """One unit: elements, and bytes of the quantised part."""

    elements: Bulk
    """All weights."""
    plain: Bulk
    """Elements that are not quantised."""
    packed: Bulk
    """Bytes of quantised values."""
    state: Bulk
    """Bytes of the quantiser's scales and tables, which sharding leaves whole."""
    trained: Bulk
    """Elements that get a gradient."""
    adapters: Bulk
    """Elements of adapters (among ``trained``)."""
    matrix: float
    """Elements of the largest trained tensor."""
    dequantised: float
    """Elements of the largest tensor that is dequantised in one piece (its expert copies included where fused)."""


class Inventory(NamedTuple):
    """The units of a model. ``layers[i]`` is one layer of kind i."""

    layers: tuple[Unit, ...]
    embedding: Unit
    head: Unit
    rest: Unit
    """Final norm and other modalities."""
    embedding_trained: float
    """Elements of trained embeddings (32-bit states under bitsandbytes)."""


class Count(NamedTuple):
    """Elements of an architecture, counted once."""

    total: int
    active: int
    embedding: int
    """Of matrices that are looked up in, not multiplied."""


_COUNTS: dict[int, tuple[Arch, Count]] = {}


def count(arch: Arch) -> Count:
    """Total and active elements, remembered by the object."""
    found = _COUNTS.get(id(arch))
    if found is None or found[0] is not arch:
        if len(_COUNTS) > 256:
            _COUNTS.clear()
        looked_up = sum(m.parameters for m in arch.outer if m.part == "embedding")
        found = _COUNTS[id(arch)] = (arch, Count(counts.total(arch), counts.active(arch), looked_up))
    return found[1]


_SEEN: dict[tuple[object, ...], tuple[Arch, Inventory]] = {}


def inventory(effective: Effective) -> Inventory:
    """The inventory of a set-up."""
    training, quantized, adapters = effective.spec.training, effective.quantized, effective.adapters
    key = (
        id(effective.arch), training.framework, training.method, quantized[:5], adapters[:5], tuple(training.freeze),
        tuple(training.lora.modules_to_save), quantized.experts and fused(effective),
    )  # fmt: skip
    found = _SEEN.get(key)
    if found is None or found[0] is not effective.arch:
        if len(_SEEN) > 256:
            _SEEN.clear()
        found = _SEEN[key] = (effective.arch, _count(effective))
    return found[1]


def _count(effective: Effective) -> Inventory:
    arch, quantized = effective.arch, effective.quantized
    full = effective.spec.training.method == "full"
    saved = frozenset(effective.spec.training.lora.modules_to_save)
    frozen = frozenset(effective.spec.training.freeze)
    expert_share = _expert_share(effective)
    per_layer = effective.adapters.parameters / max(1, arch.depth)
    adapters = Bulk(
        tensor=per_layer * (1 - expert_share) / 2, replicated=per_layer * (1 - expert_share) / 2, expert=per_layer * expert_share
    )
    joined = quantized.experts and (fused(effective) or never_linear(arch))
    language = full and "language_model" not in frozen
    kinds = tuple(_layer(layer, quantized, language, saved, adapters, joined) for layer in arch.layers)
    embeddings = [m for m in arch.outer if m.part == "embedding"]
    heads = [m for m in arch.outer if m.part == "head"]
    others = [m for m in arch.outer if m.part not in ("embedding", "head")]
    embedding = _unit(embeddings, 0, quantized, language, saved, tied="lm_head" in saved and arch.tied)
    framework = effective.spec.training.framework
    if arch.tied and framework in UNTIES:
        heads = [Matrix("lm_head", arch.hidden, arch.vocab, "head", "vocab")]
    head = _unit(heads, 0, quantized, language, saved, everything=framework in QUANTISES_HEAD and quantized.type in BNB4)
    trains_other = full and not frozen & {"vision_tower", "audio_tower", "projector"}
    rest = _unit(others, arch.final_norm_parameters + arch.other_parameters, quantized, full, saved)
    if full and not trains_other:
        rest = rest._replace(trained=Bulk(replicated=arch.final_norm_parameters), matrix=0)
    return Inventory(kinds, embedding, head, rest, embedding.trained.whole)


def _layer(layer: Layer, quantized: Quantized, full: bool, saved: frozenset[str], adapters: Bulk, joined: bool) -> Unit:
    unit = _unit(list(layer.matrices), layer.norm_parameters + layer.other_parameters, quantized, full, saved, joined=joined)
    return unit._replace(trained=unit.trained + adapters, adapters=adapters)


def _unit(
    matrices: list[Matrix],
    others: float,
    quantized: Quantized,
    full: bool,
    saved: frozenset[str],
    tied: bool = False,
    joined: bool = False,
    everything: bool = False,
) -> Unit:
    """``joined``: experts are one tensor, which is dequantised in one piece; ``everything``: the head is quantised too."""
    elements = plain = Bulk(replicated=others)
    trained = Bulk(replicated=others) if full else NOTHING
    packed = state = NOTHING
    largest = dequantised = together = 0.0
    for matrix in matrices:
        weights, bias = matrix.copies * matrix.inputs * matrix.outputs, matrix.copies * matrix.outputs * matrix.bias
        held = _cut(matrix, weights, bias)
        elements = elements + held
        if everything or is_quantized(matrix, quantized):
            values, scales = _quantised(matrix, quantized)
            packed, state = packed + _cut(matrix, values, 0), state + _cut(matrix, scales, 0)
            plain = plain + _cut(matrix, 0, bias)
            if joined and matrix.part == "expert":  # both are operands of one layer's grouped products, which autograd saves
                together += matrix.inputs * matrix.outputs * matrix.copies
            else:
                dequantised = max(dequantised, matrix.inputs * matrix.outputs / max(1, len(matrix.unfused)))
        else:
            plain = plain + held
        if full or matrix.name in saved or (tied and matrix.name in ("embed_tokens", "wte")):
            trained = trained + held
            largest = max(largest, matrix.inputs * matrix.outputs * (matrix.copies if matrix.fused_since else 1))
    return Unit(elements, plain, packed, state, trained, NOTHING, largest, max(dequantised, together))


def _cut(matrix: Matrix, weights: float, bias: float) -> Bulk:
    if matrix.part == "expert":
        return Bulk(expert=weights + bias)
    if matrix.split == "vocab":
        return Bulk(vocabulary=weights + bias)
    if matrix.split == "column":
        return Bulk(tensor=weights + bias)
    if matrix.split == "row":
        return Bulk(tensor=weights, replicated=bias)
    return Bulk(replicated=weights + bias)


GROUP = 128
"""Elements that share a scale and a zero point in GPTQ checkpoints (the usual group size)."""


def _quantised(matrix: Matrix, quantized: Quantized) -> tuple[float, float]:
    """(values, scales) bytes of all copies of a matrix."""
    each = matrix.inputs * matrix.outputs
    match quantized.type:
        case "int8":  # bitsandbytes LLM.int8: int8 rows and one fp32 scale a row
            return matrix.copies * each, matrix.copies * 4.0 * matrix.outputs
        case "gptq-int4" | "gptq-int8":  # packed int32, fp16 scale and packed zero per group, int32 g_idx per input
            bits = 0.5 if quantized.type == "gptq-int4" else 1.0
            return matrix.copies * bits * each, matrix.copies * ((2 + bits) * each / GROUP + 4 * matrix.inputs)
        case "mxfp4":  # OCP microscaling: one 8-bit scale per 32
            return matrix.copies * 0.5 * each, matrix.copies * each / 32
        case "nvfp4":  # one fp8 scale per 16
            return matrix.copies * 0.5 * each, matrix.copies * each / 16
    pieces = matrix.copies * max(1, len(matrix.unfused))
    values, scales = counts.quantised_bytes(max(1, matrix.copies * each // pieces), quantized.double_quant)
    return float(pieces * values), float(pieces * scales)


def _expert_share(effective: Effective) -> float:
    """Share of the adapters' elements that lie on routed experts."""
    adapters, arch = effective.adapters, effective.arch
    if not adapters.parameters or not arch.moe:
        return 0.0
    fused = adapters.fused_experts
    names = "all-linear" if effective.spec.training.lora.target_modules == "all-linear" else adapters.targets
    everything = counts.lora_parameters(arch, adapters.rank, names, fused)
    bare = arch._replace(
        outer=(), layers=tuple(kind._replace(matrices=tuple(m for m in kind.matrices if m.part == "expert")) for kind in arch.layers)
    )
    if not everything:
        return 0.0
    return counts.lora_parameters(bare, adapters.rank, names, fused) / everything
