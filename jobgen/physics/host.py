"""Host memory of one node: while loading, in steady state, and at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.catalog import counts
from jobgen.effective.numbers import engine
from jobgen.frameworks import zero
from jobgen.physics import activations
from jobgen.physics.arrays import larger, power_of_two
from jobgen.physics.inventory import count, inventory
from jobgen.physics.sizes import Sizes, Stage
from jobgen.physics.stages import stages
from jobgen.physics.storage import storage, trainable
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

GIB = 2**30
PROCESS = 2.5 * GIB
"""One rank's resident pages after CUDA starts: interpreter, torch, CUDA libraries (1.96 GiB with torch 2.2 and CUDA 11.8,
pytorch #113326; 2.75 in libtorch, #70416; 2 more than before cuDNN is loaded, #19397)."""
WORKER = 0.5 * GIB
"""One data-loader process: its own interpreter with torch and a data library imported (0.31 GiB of torch alone, pytorch
#113326; 0.49 of its own in torch's loader benchmark, pytorch pull request 159432). Token batches are far below that."""
DATA_WORKERS = 0
"""transformers and torch start none unless asked (dataloader_num_workers, num_workers)."""


class Part(NamedTuple):
    """One line of the host's breakdown, bytes per node. ``during``: load, steady or both."""

    id: str
    during: str
    bytes: Any
    words: str
    source: str


class Host(NamedTuple):
    """Bytes per node."""

    load: Any
    steady: Any
    peak: Any
    parts: tuple[Part, ...]


def host(effective: Effective, sizes: Sizes) -> Host:
    """Host memory of a node. Loading and steady state do not coincide; what every process needs is in both."""
    parts = (*_always(effective, sizes), *_loading(effective, sizes), *_offloaded(effective, sizes), *_saving(effective, sizes))
    load: Any = sum(part.bytes for part in parts if part.during in ("load", "both"))
    steady: Any = sum(part.bytes for part in parts if part.during in ("steady", "both"))
    return Host(load, steady, larger(load, steady), parts)


def _always(effective: Effective, sizes: Sizes) -> list[Part]:
    found = [Part("processes", "both", sizes.ranks_per_node * PROCESS, "a process per rank: interpreter, torch, CUDA libraries", "pytorch #113326, #70416")]
    data = effective.spec.training.data
    workers = data.workers if data is not None and data.workers is not None else DATA_WORKERS
    if workers:
        found.append(Part("workers", "steady", sizes.ranks_per_node * workers * WORKER, f"{workers} data-loader processes per rank", "pytorch #113326, pull request 159432"))
    return found


def model_bytes(effective: Effective) -> float:
    """The base weights as stored: quantised where they are, else 16 bit."""
    found, arch, width = inventory(effective), effective.arch, effective.loading.dtype_bytes
    units = [(unit, arch.pattern.count(kind)) for kind, unit in enumerate(found.layers)]
    units += [(found.embedding, 1), (found.head, 1), (found.rest, 1)]
    if effective.quantized.type is None or not effective.loading.quantized_copy:
        return width * count(arch).total
    return sum(n * (unit.packed.whole + unit.state.whole + 2.0 * unit.plain.whole) for unit, n in units)


def _loading(effective: Effective, sizes: Sizes) -> list[Part]:
    loading = effective.loading
    copies = loading.copies_per_node
    if loading.mode == "none" or not copies:
        return []
    each = model_bytes(effective)
    what = "quantised" if loading.quantized_copy else f"{8 * loading.dtype_bytes:.0f}-bit"
    return [Part("copies", "load", copies * each, f"{copies} private {what} cop{'ies' if copies > 1 else 'y'} of the weights",
                 "effective loading")]  # fmt: skip


def _offloaded(effective: Effective, sizes: Sizes) -> list[Part]:
    placed, numbers = effective.offloaded, effective.numbers
    found: list[Part] = []
    arch, trained = effective.arch, trainable(effective)
    share = sizes.world / sizes.nodes / sizes.world  # the part of all states that one node's ranks hold
    full = effective.spec.training.method == "full"
    name = engine(effective)
    if placed.parameters == "cpu":
        if full:
            weights = (numbers.weights if name.startswith("deepspeed") else numbers.trainable) * count(arch).total * share
        else:
            weights = _frozen(effective) * share
        weights = weights * (sizes.replicate if not isinstance(sizes.replicate, int) or sizes.replicate > 1 else 1)
        found.append(Part("parameters", "steady", weights, "this node's part of the parameters", "effective offload"))
        if placed.pinned:
            found.append(Part("parameters_rounding", "steady", _rounded(effective, sizes) - weights,
                              "pinned buffers rounded up to powers of two", "ATen CachingHostAllocator.h; rules LH03"))  # fmt: skip
    if placed.optimizer == "cpu":
        words, kept, buffers = _states(effective, name)
        cut = share if effective.sharded.kind != "none" else sizes.ranks_per_node
        found.append(Part("optimizer", "steady", kept * trained * cut, f"{words} x {kept:g} B of this node's part",
                          "DeepSpeed stage3.py estimate_zero3_model_states_mem_needs: 16-18 bytes a parameter"))  # fmt: skip
        if placed.pinned and name == "deepspeed":
            each = trained / max(1, effective.sharded.optimizer)
            rounded = sizes.ranks_per_node * (_pinned(4.0 * each) - 4.0 * each)
            found.append(Part("optimizer_rounding", "steady", buffers * rounded, "pinned masters and gradients rounded up to powers of two",
                              "ATen CachingHostAllocator.h; DeepSpeed stage3.py fp32 partitions of sub_group_size"))  # fmt: skip
    if effective.stepped.where == "managed":
        found.append(Part("paged", "steady", effective.stepped.moments_bytes * trained / max(1, effective.sharded.optimizer) * sizes.ranks_per_node,
                          "paged moments when the driver moved them off the GPU", "bitsandbytes functional.get_paged: cudaMallocManaged"))  # fmt: skip
    if "nvme" in (placed.parameters, placed.optimizer):
        found.append(Part("nvme_buffers", "steady", sizes.ranks_per_node * SWAP_BUFFERS * SWAP_BUFFER * 2.0, "pinned buffers of the swapper",
                          "DeepSpeed runtime/zero/offload_config.py: buffer_count 5, buffer_size 1e8"))  # fmt: skip
    kept_away = max((float(activations.host_bytes(effective, sizes, stage)) for stage in _stages(effective, sizes)), default=0.0)
    if kept_away:
        found.append(Part("activations", "steady", sizes.ranks_per_node * kept_away, "offloaded activations of every rank", "torch.autograd.graph.save_on_cpu"))
    return found


SWAP_BUFFERS, SWAP_BUFFER = 5, 10**8
"""DeepSpeed's defaults for parameters on NVMe."""


def _stages(effective: Effective, sizes: Sizes) -> tuple[Stage, ...]:
    return stages(effective, sizes) if effective.offloaded.activations == "cpu" else ()


def _states(effective: Effective, name: str) -> tuple[str, float, int]:
    """(what is kept on the host, bytes per trained element, how many pinned fp32 buffers)."""
    moments = effective.stepped.moments_bytes
    if name.startswith("deepspeed"):
        return "masters, moments and gradients", 8.0 + moments, 2
    if name == "megatron":
        return "masters, moments and gradients", effective.numbers.master + moments + 4.0, 0
    if effective.sharded.kind in ("fsdp1", "fsdp2"):
        return "moments and gradients", moments + effective.numbers.gradients, 0
    return "masters and moments", effective.numbers.master + moments, 0


def _pinned(size: float) -> float:
    """Bytes of one fp32 state in pinned buffers of ``sub_group_size`` elements."""
    each = 4.0 * zero.LIVE
    whole, rest = divmod(size, each)
    return whole * power_of_two(each) + power_of_two(rest)


def _frozen(effective: Effective) -> float:
    """Bytes of the frozen base that sharding cuts and offload moves: quantised values and 16-bit rest, no quant_state."""
    found, arch = inventory(effective), effective.arch
    units = [(unit, arch.pattern.count(kind)) for kind, unit in enumerate(found.layers)]
    units += [(found.embedding, 1), (found.head, 1), (found.rest, 1)]
    return sum(n * (unit.packed.whole + effective.numbers.weights * unit.plain.whole) for unit, n in units)


def _rounded(effective: Effective, sizes: Sizes) -> Any:
    """Bytes of all pinned buffers of a node: one per parameter and rank (DeepSpeed partitions each parameter)."""
    ranks, width = effective.sharded.weights, effective.numbers.weights
    total = 0.0
    for matrix, times in counts.matrices(effective.arch):
        stored = _stored(effective, matrix.part) if matrix.linear else width
        pieces = matrix.copies * max(1, len(matrix.unfused) if matrix.unfused else 1)
        each = matrix.copies * matrix.inputs * matrix.outputs / pieces * stored / ranks
        total += times * pieces * power_of_two(each)
    return total * effective.layout.world / effective.layout.nodes


def _stored(effective: Effective, part: str) -> float:
    quantized = effective.quantized
    if quantized.type is None or part in ("head", "embedding") or (part == "expert" and not quantized.experts):
        return effective.numbers.weights
    return 0.5 if quantized.type in ("nf4", "fp4", "gptq-int4") else 1.0


def _saving(effective: Effective, sizes: Sizes) -> list[Part]:
    checkpoint = effective.spec.checkpoint
    if not checkpoint.async_:
        return []
    size = storage(effective).size / sizes.nodes
    return [Part("async_checkpoint", "steady", size, "a host copy of the checkpoint while it is written", "torch.distributed.checkpoint async_save")]
