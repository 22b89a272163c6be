"""Exact parameter counts, adapter sizes and 4-bit sizes of an architecture.

Every count equals what transformers 5.24.0 builds, peft 0.21.2 adapts and bitsandbytes 0.50.2 stores for each model
of the catalogue: ``tests/catalog`` compares them with measurements on the meta device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from jobgen.catalog.arch import Arch, Layer, Matrix
from jobgen.spec.record import NamedTuple

Group = Literal["embedding", "attention", "mlp", "experts", "router", "norm", "head", "other"]
GROUPS: dict[str, Group] = {
    "embedding": "embedding",
    "attention": "attention",
    "mlp": "mlp",
    "shared_expert": "mlp",
    "expert": "experts",
    "router": "router",
    "head": "head",
    "other": "other",
}
"""``Matrix.part`` -> group; shared experts count as MLP, since every token visits them."""
BLOCK = 64
"""Elements that share one scale (bitsandbytes' default)."""
NESTED = 256
"""Scales that share one scale of the second level."""


class Split(NamedTuple):
    """Elements by how model parallelism cuts them."""

    vocabulary: int
    """Token embedding and head: cut by tensor parallelism along the vocabulary."""
    tensor: int
    """Cut by tensor parallelism along rows or columns."""
    replicated: int
    """Norms, routers, low-rank inputs, other modalities: whole on every tensor-parallel rank."""
    expert: int
    """Routed experts: cut by expert and expert-tensor parallelism."""


class Nf4(NamedTuple):
    """Bytes of a 4-bit model."""

    packed: int
    """The 4-bit values, two to a byte."""
    quant_state: int
    """Scales and code tables."""
    unquantised: int
    """Everything that stays in 16 bit (or fp32)."""

    @property
    def total(self) -> int:
        """All three."""
        return self.packed + self.quant_state + self.unquantised


def layers(arch: Arch) -> Iterator[tuple[Layer, int]]:
    """Every kind of layer and how many there are."""
    for index, layer in enumerate(arch.layers):
        yield layer, arch.pattern.count(index)


def matrices(arch: Arch) -> Iterator[tuple[Matrix, int]]:
    """Every matrix and how often it stands (``copies`` are inside the matrix)."""
    for layer, times in layers(arch):
        for matrix in layer.matrices:
            yield matrix, times
    for matrix in arch.outer:
        yield matrix, 1


def total(arch: Arch) -> int:
    """Trainable elements. Correction biases that transformers holds as buffers (``arch.router_buffers``) are not in."""
    inner = sum(times * (layer.norm_parameters + layer.other_parameters) for layer, times in layers(arch))
    held = sum(times * matrix.parameters for matrix, times in matrices(arch))
    return held + inner + arch.final_norm_parameters + arch.other_parameters


def active(arch: Arch) -> int:
    """Elements that one token's pass touches: ``top_k`` of the routed experts and everything else."""
    idle = 0
    for layer, times in layers(arch):
        if layer.experts:
            routed = sum(matrix.parameters for matrix in layer.matrices if matrix.part == "expert")
            idle += times * (routed - routed * layer.top_k // layer.experts)
    return total(arch) - idle


def groups(arch: Arch) -> dict[Group, int]:
    """Elements by group, in a fixed order; they add up to ``total``. ``other`` (other modalities) only where it is."""
    found: dict[Group, int] = dict.fromkeys(GROUPS.values(), 0)
    found["norm"] = arch.final_norm_parameters
    for matrix, times in matrices(arch):
        found[GROUPS[matrix.part]] += times * matrix.parameters
    for layer, times in layers(arch):
        found["norm"] += times * layer.norm_parameters
        found["router"] += times * layer.router_parameters
        found["attention"] += times * layer.mixer_parameters
        found["mlp"] += times * (layer.other_parameters - layer.router_parameters - layer.mixer_parameters)
    found["other"] += arch.other_parameters
    order: tuple[Group, ...] = ("embedding", "attention", "mlp", "experts", "router", "norm", "head", "other")
    return {group: found[group] for group in order if group != "other" or found[group]}


def by_split(arch: Arch) -> Split:
    """Elements by how model parallelism cuts them; they add up to ``total``."""
    vocabulary = tensor = expert = 0
    for matrix, times in matrices(arch):
        held = times * matrix.parameters
        bias = times * matrix.copies * matrix.outputs if matrix.bias else 0
        if matrix.part == "expert":
            expert += held
        elif matrix.split == "vocab":
            vocabulary += held
        elif matrix.split == "column":
            tensor += held
        elif matrix.split == "row":
            tensor += held - bias
    return Split(vocabulary, tensor, total(arch) - vocabulary - tensor - expert, expert)


def float32_parameters(arch: Arch) -> int:
    """Elements that transformers 5 holds in fp32 when the model is loaded in 16 bit."""
    held = sum(times * matrix.parameters for matrix, times in matrices(arch) if matrix.float32)
    inner = sum(times * layer.float32_parameters for layer, times in layers(arch))
    return held + inner + arch.float32_parameters


def is_linear(matrix: Matrix, fused: bool) -> bool:
    """transformers holds it as ``nn.Linear``. ``fused``: of the releases since 5.0, experts are 3-D parameters."""
    return matrix.linear and not (fused and matrix.fused_since is not None)


def target_names(arch: Arch, fused: bool = True, expert_adapters: bool = True) -> tuple[str, ...]:
    """Names that a list of adapter targets may hold: those of an ``nn.Linear``, or of what peft >= 0.19 maps to one."""
    found: dict[str, None] = {}
    for matrix, _ in matrices(arch):
        if is_linear(matrix, fused):
            found |= dict.fromkeys(_names(matrix, fused))
        elif fused and expert_adapters and matrix.adapter_rank:
            found |= dict.fromkeys((*matrix.unfused, matrix.name))
    return tuple(found)


def missing_partners(arch: Arch, targets: Collection[str]) -> tuple[str, ...]:
    """Names that peft >= 0.19 demands beside ``targets``, gate and up of joined experts being one parameter now."""
    missing: dict[str, None] = {}
    for matrix, _ in matrices(arch):
        if matrix.part == "expert" and matrix.adapter_rank and len(set(matrix.unfused) & set(targets)) > 0:
            missing |= dict.fromkeys(name for name in matrix.unfused if name not in targets)
    return tuple(missing)


def _names(matrix: Matrix, fused: bool) -> tuple[str, ...]:
    """The modules that hold the matrix: since 5.0 itself, before that perhaps several."""
    return matrix.unfused if not fused and matrix.unfused and matrix.fused_since else (matrix.name,)


def lora_parameters(
    arch: Arch,
    rank: int,
    targets: str | Collection[str] = "all-linear",
    fused: bool = True,
    expert_adapters: bool = True,
) -> int:
    """Trainable elements of LoRA adapters of that rank.

    ``targets``: ``all-linear`` (every ``nn.Linear`` but the head, as peft does) or names of modules.
    ``fused``: transformers >= 5, whose experts are 3-D parameters. ``expert_adapters``: peft >= 0.19, which then
    adapts them all the same where it knows the model type: two joined matrices at twice the rank, the router too. It
    does so by renaming the targets, and modules outside the experts that have the old names (shared experts, the MLPs
    of dense layers) then get no adapter.
    """
    everything = targets == "all-linear"
    wanted = {targets} if isinstance(targets, str) else set(targets)
    renamed: set[str] = set()
    if fused and expert_adapters:
        adapted = (matrix for matrix, _ in matrices(arch) if matrix.part == "expert" and matrix.adapter_rank)
        renamed = {name for matrix in adapted for name in (*matrix.unfused, matrix.name)}
    count = 0
    for matrix, times in matrices(arch):
        names = _names(matrix, fused)
        if is_linear(matrix, fused):
            if (everything and matrix.part == "head") or matrix.name in renamed:
                continue
            width = matrix.outputs // len(names)
            hits = sum(everything or name in wanted for name in names)
            count += times * matrix.copies * hits * rank * (matrix.inputs + width)
        elif fused and expert_adapters and matrix.adapter_rank:
            known = {matrix.name, *matrix.unfused}
            if everything or known & wanted:
                each = matrix.adapter_rank * rank * (matrix.inputs + matrix.outputs)
                count += times * matrix.copies * each
    return count


def module_parameters(arch: Arch, names: Iterable[str]) -> int:
    """Elements of the modules of those names (``modules_to_save``); a tied ``lm_head`` is the token embedding."""
    wanted = set(names)
    count = sum(times * matrix.parameters for matrix, times in matrices(arch) if matrix.name in wanted)
    if arch.tied and "lm_head" in wanted:
        count += arch.vocab * arch.hidden
    return count


def quantised_bytes(elements: int, double_quant: bool = True) -> tuple[int, int]:
    """(packed, quant_state) bytes of one tensor in bitsandbytes' 4-bit format.

    A scale for each 64 elements: fp32, or with ``double_quant`` 8 bit with an fp32 scale for each 256 and an offset.
    """
    scales = -(-elements // BLOCK)
    if double_quant:
        return -(-elements // 2), scales + 4 * -(-scales // NESTED) + 4 + 4 * 16 + 4 * 256
    return -(-elements // 2), 4 * scales + 4 * 16


def nf4_bytes(
    arch: Arch,
    double_quant: bool = True,
    fused: bool = True,
    experts_quantised: bool = False,
    routers_quantised: bool = True,
    element_bytes: int = 2,
) -> Nf4:
    """Bytes of the model with its ``nn.Linear`` weights in 4 bit (nf4 or fp4: the same size).

    ``fused``: transformers >= 5, which leaves 3-D experts and routers in 16 bit and converts exact ``nn.Linear``
    only. ``experts_quantised``: the experts' 3-D parameters are converted too, each as one tensor.
    ``routers_quantised``: False leaves the routers out where ``fused`` is False and they were ``nn.Linear``.
    """
    packed = state = unquantised = 0
    for matrix, times in matrices(arch):
        weights = matrix.inputs * matrix.outputs
        bias = matrix.outputs if matrix.bias else 0
        converts = is_linear(matrix, fused) and not matrix.keep and not (fused and matrix.subclass)
        if matrix.part == "router" and not routers_quantised:
            converts = False
        width = 4 if matrix.float32 else element_bytes
        pieces = matrix.copies * len(_names(matrix, fused))
        if matrix.part == "expert" and experts_quantised and not converts:
            converts, pieces = True, 1
        if converts:
            four, scales = quantised_bytes(matrix.copies * weights // pieces, double_quant)
            packed += times * pieces * four
            state += times * pieces * scales
            unquantised += times * matrix.copies * bias * width
        else:
            unquantised += times * matrix.copies * (weights + bias) * width
    rest = arch.final_norm_parameters + arch.other_parameters
    wide = arch.float32_parameters
    for layer, times in layers(arch):
        rest += times * (layer.norm_parameters + layer.other_parameters)
        wide += times * layer.float32_parameters
    return Nf4(packed, state, unquantised + element_bytes * (rest - wide) + 4 * wide)
