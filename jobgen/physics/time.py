"""Time of a step from arithmetic, offload traffic and communication, at stated utilisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.catalog.arch import Layer
from jobgen.physics.arrays import larger
from jobgen.physics.inventory import count
from jobgen.physics.sizes import Sizes
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

UTILISATION = 0.45
"""Share of the dense peak that the executed FLOPs of a well-fed step reach (throughput notes: 0.35-0.55 on dense models
in the published tables of llm-foundry, torchtitan and Megatron)."""
LINK = 0.8
"""Share of a link's one-way bandwidth that all-gather and reduce-scatter reach (hardware notes, section 5: 361 of 450)."""
PCIE = {3: 12e9, 4: 24e9, 5: 48e9, 6: 96e9}
"""Bytes a second one way that pinned copies reach by PCIe generation (about 0.8 of 16 lanes)."""
NODE_NETWORK = 50e9 / 8
"""Bytes a second of a node where nothing is known: 50 Gb/s."""
RAIL = 400e9 / 8
"""Bytes a second of one GPU's adapter on a fabric made for training, where the node type does not say."""


class Time(NamedTuple):
    """Seconds; None where no peak is known."""

    step: float | None
    total: float | None
    compute: float | None
    offload: float
    communication: float
    flops: float
    """Executed FLOPs of one optimizer step over all ranks, recomputation counted."""
    utilisation: float
    generates: bool
    """The step generates completions first; how long that takes goes by their lengths and is not counted."""


def model_flops(effective: Effective) -> float:
    """Forward FLOPs of one sequence: 2 x active weights per token and the attention products."""
    arch, tokens = effective.arch, length(effective)
    found = count(arch)
    active = found.active - found.embedding + (arch.vocab * arch.hidden if arch.tied else 0)
    matrices = 2.0 * active * tokens
    attention = sum(_attention(arch.layers[kind], tokens) for kind in arch.pattern)
    return matrices + attention


def length(effective: Effective) -> float:
    """Tokens of a sequence as it runs: of one shape, or the data's mean padded to the longest of its micro-batch.

    Of m lengths that fall off exponentially the longest is 1 + 1/2 + ... + 1/m means.
    """
    batch, training = effective.batch, effective.spec.training
    data = training.data
    if not batch.padding or data is None or data.tokens_per_sample is None:
        return batch.sequence
    together = 1 if training.packing == "padding_free" else batch.micro
    longest = sum(1 / place for place in range(1, min(together, 1024) + 1))
    return min(float(batch.sequence), data.tokens_per_sample * longest)


def _attention(layer: Layer, tokens: float) -> float:
    """Scores and their product with values, over the causal half (or the window)."""
    if layer.mixer not in ("full", "sliding", "chunked", "mla"):
        return 0.0
    keys = tokens / 2 if layer.window is None else min(tokens / 2, layer.window)
    return 2.0 * tokens * keys * layer.heads * (layer.head_dim + layer.value_dim)


def passes(effective: Effective) -> float:
    """Forward passes' worth of arithmetic in one step: 1 + 2 backward (1 where the weights are frozen) + recomputation."""
    backward = 2.0 if effective.spec.training.method == "full" else 1.0
    recomputed = {"none": 0.0, "selective": 0.3, "full": 1.0}[effective.activations.checkpointing]
    reference = 1.0 if effective.spec.training.objective in ("dpo", "kto", "ppo", "grpo") else 0.0
    return 1.0 + backward + recomputed + reference


def time(effective: Effective, sizes: Sizes) -> Time:
    """Seconds of an optimizer step and of the run."""
    layout, batch, gpu = effective.layout, effective.batch, effective.gpu
    sequences = layout.global_batch * (batch.micro // max(1, layout.micro_batch))
    flops = passes(effective) * model_flops(effective) * sequences
    peaks = gpu.peaks
    precision = effective.spec.training.precision
    peak = {"fp32": peaks.tf32 or peaks.fp32, "fp16": peaks.fp16 or peaks.bf16, "fp8": peaks.fp8 or peaks.bf16}.get(precision, peaks.bf16)
    offload, communication = _offload(effective), _communication(effective)
    generates = effective.spec.training.objective in ("grpo", "ppo")
    if not peak:
        return Time(None, None, None, offload, communication, flops, UTILISATION, generates)
    bubble = 1.0
    if layout.pipeline > 1:  # 1F1B: (p - 1) / m of the ideal time, / v interleaved (Narayanan et al. 2021, section 2.2)
        bubble += (layout.pipeline - 1) / (batch.accumulation * effective.spec.parallelism.virtual_pipeline)
    compute = flops / (layout.world * peak * 1e12 * UTILISATION) * bubble
    step = larger(larger(compute, communication), offload)
    return Time(step, None if batch.steps is None else step * batch.steps, compute, offload, communication, flops, UTILISATION, generates)


def _offload(effective: Effective) -> float:
    """Seconds that copies to and from the host take at least: weights each pass, gradients and weights each step."""
    placed, numbers, layout = effective.offloaded, effective.numbers, effective.layout
    rate = PCIE.get(effective.gpu.pcie_gen, PCIE[4])
    share = count(effective.arch).total / max(1, effective.sharded.weights) / layout.tensor / layout.pipeline
    moved: Any = 0.0
    if placed.parameters != "gpu":
        stored = 0.5 if effective.quantized.type in ("nf4", "fp4", "gptq-int4") else numbers.weights
        passes_ = 3 if effective.activations.checkpointing == "full" else 2
        moved += share * stored * passes_ * effective.batch.accumulation
    if placed.optimizer != "gpu" and effective.spec.training.method == "full":
        moved += share * (numbers.gradients + numbers.weights)
    return float(moved / rate)


def _communication(effective: Effective) -> float:
    """Seconds of gradient and weight traffic at least (arXiv 1910.02054): 2 or 3 times the weights."""
    layout, numbers, kind = effective.layout, effective.numbers, effective.sharded.kind
    if layout.data == 1:
        return 0.0
    gathers = kind in ("zero3", "fsdp1", "fsdp2")
    local = count(effective.arch).total / layout.tensor / layout.pipeline
    seconds = 0.0
    if gathers:
        seconds += _seconds(effective, local * numbers.compute * 2 * effective.batch.accumulation, layout.shard)
    if effective.spec.training.method == "full":
        if gathers:
            seconds += _seconds(effective, local * numbers.reduce, layout.shard)
        if not gathers or layout.replicate > 1:
            seconds += _seconds(effective, local * numbers.reduce * 2, layout.data)
    return seconds


def _seconds(effective: Effective, moved: float, group: int) -> float:
    """Seconds in which a ring over a group of data-parallel ranks gathers or reduces so many bytes.

    The bytes enter each node once, over the adapters of all its ranks in the group, whatever their number.
    """
    layout, gpu = effective.layout, effective.gpu
    rate = LINK * (gpu.link_bandwidth or 2 * PCIE.get(gpu.pcie_gen, PCIE[4])) / 2
    beside = max(1, layout.processes_per_node // (layout.tensor * layout.context))  # ranks of the group on one node
    if layout.nodes > 1 and group > beside:
        rate = min(rate, _network(effective) * min(1.0, beside / layout.processes_per_node))
    return moved * (group - 1) / group / rate


def _network(effective: Effective) -> float:
    """Bytes a second between nodes, over all adapters of one."""
    node = effective.node
    if node is not None and node.network_bits:
        return LINK * node.network_bits / 8
    if effective.spec.resources.fabric not in (None, "none", "tcp"):
        return LINK * RAIL * effective.layout.processes_per_node
    return NODE_NETWORK
