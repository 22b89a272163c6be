"""Sizes of the base weights as rules quote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobgen.catalog import counts
from jobgen.effective.adapters import fused
from jobgen.effective.quantization import BNB4, BNB8
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.checks.case import Case

MARGIN = 1.05
"""What the rest of a process needs beside weights it loads, on the GPU or in host memory."""


class Stored(NamedTuple):
    """Bytes of the base as it lies in memory."""

    packed: int
    state: int
    rest: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.packed + self.state + self.rest


def bf16(case: Case) -> int:
    """The checkpoint in 16 bit."""
    return 2 * counts.total(case.arch)


def stored(case: Case) -> Stored:
    """The base as it will really be stored."""
    quantized = case.effective.quantized
    if quantized.type is None:
        return Stored(0, 0, bf16(case))
    if quantized.type not in BNB4 | BNB8:
        return _four_bit(case, False, True, True, False)
    return _four_bit(case, fused(case.effective), quantized.experts, quantized.router, quantized.double_quant)


def intended(case: Case) -> Stored:
    """The base with its experts quantised, as the spec reads."""
    quantized = case.effective.quantized
    return _four_bit(case, False, True, True, quantized.double_quant)


def _four_bit(case: Case, is_fused: bool, experts: bool, routers: bool, double: bool) -> Stored:
    packed, state, rest = counts.nf4_bytes(
        case.arch, double, is_fused, experts_quantised=is_fused and experts, routers_quantised=routers
    )
    if case.effective.quantized.type in BNB8 or case.effective.quantized.type == "gptq-int8":
        packed *= 2
    return Stored(packed, state, rest)


def ranks_sharing(case: Case) -> int:
    """Ranks or GPUs over which the base is spread once it is in place."""
    if case.layout.world == 1 and case.spec.parallelism.device_map is not None:
        return case.spec.resources.gpus_per_node
    if not case.effective.quantized.sharded and case.effective.quantized.type is not None:
        return 1
    return case.layout.shard if case.spec.parallelism.sharding in ("zero3", "fsdp1", "fsdp2") else 1


def moe_block(case: Case) -> int:
    """The largest MoE block of one layer, as stored: ZeRO-3 gathers it whole when it is a leaf."""
    largest = 0
    for layer, _ in counts.layers(case.arch):
        weights = sum(m.parameters for m in layer.matrices if m.part in ("expert", "router", "shared_expert"))
        if layer.experts:
            largest = max(largest, weights)
    return largest // 2 if case.effective.quantized.type in BNB4 and case.effective.quantized.experts else 2 * largest


def pinned(case: Case) -> int:
    """Host bytes of a node's partitions when each tensor's is rounded up to a power of two (torch's pinned allocator)."""
    quantized, world = case.effective.quantized, max(1, case.layout.shard)
    is_fused, total = fused(case.effective), 0
    for matrix, times in counts.matrices(case.arch):
        pieces = matrix.copies * (len(matrix.unfused) if matrix.unfused and not is_fused else 1)
        if is_fused and matrix.fused_since:
            pieces = 1
        elements = matrix.copies * matrix.inputs * matrix.outputs // pieces
        four = quantized.type in BNB4 and counts.is_linear(matrix, is_fused) and not matrix.keep
        if matrix.part == "router" and not quantized.router:
            four = False
        each = elements / 2 if four else elements * 2
        total += times * pieces * power_of_two(each / world)
    return total * case.layout.processes_per_node


def power_of_two(size: float) -> int:
    """The next power of two."""
    return 1 << max(0, int(-(-size // 1)) - 1).bit_length()


def host_bytes(case: Case) -> int | None:
    """Host memory of a node that the job may take: what it asks for, else what the node type leaves to jobs."""
    asked = case.spec.resources.memory_per_node
    if asked is not None:
        return asked
    node = case.node
    if node is None:
        return None
    if case.target in ("k8s", "trainjob", "jobset") and node.kubernetes_bytes:
        return node.kubernetes_bytes
    if case.target == "slurm" and node.slurm_bytes:
        return node.slurm_bytes
    return node.memory_bytes
