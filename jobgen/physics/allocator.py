"""From live tensors to what nvidia-smi shows: caching allocator, CUDA context, communicators, and how sure it all is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.physics.arrays import larger
from jobgen.physics.ledger import ALWAYS, BACKWARD_END, BACKWARD_START, FORWARD, LOSS, PHASES, Term, alive, peak
from jobgen.physics.sizes import Sizes, Stage
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

MIB, GIB = 2**20, 2**30

CONTEXT = {7: 0.45 * GIB, 8: 0.5 * GIB, 9: 0.6 * GIB, 10: 0.8 * GIB, 12: 0.6 * GIB}
"""CUDA context with lazily loaded kernels by major compute capability (hardware notes, section 3: 256-481 MiB idle,
500-700 on Hopper, up to 900 on Blackwell; torch 2)."""
KERNELS = 0.3 * GIB
"""cuBLAS, cuDNN, flash-attention and Triton kernels that a training step loads (same section: 0.5-1.0 GiB at the peak)."""
HIP_CONTEXT = 0.45 * GIB
"""ROCm (same section: 300-600 MiB, known)."""
GROUP = 0.5 * GIB
"""One NCCL communicator with ring and tree channels (hardware notes, section 4: 544-688 MiB a group on A100 NVLink,
0.3-0.9 GiB computed from the code)."""
NVLS = 0.25 * GIB
"""NVLink SHARP buffers of one communicator on Hopper and later (same section: 256-384 MiB)."""


KNUTH = 1 / 3
"""Share that lies free between blocks of many sizes, without compaction (Knuth, TAOCP 1, 2.5: the fifty-percent rule;
0.30-0.35 of a layer's working set in the simulation below)."""
EQUAL = 0.2
"""Of the loss's largest moment, what equal lengths leave cached: the block of the 16-bit logits serves none of the fp32
copies that follow. Simulated: tests/physics/oracles/caching_allocator.py, 0.20 where the loss dominates."""
VARIED = 1.2
"""The same where lengths vary: for a length that none before reached, the largest tensors find no block and are made
anew. Mean of the simulation over medians of 1/2, 1/4, 1/8 and 1/16 of the longest: 1.2, 1.5, 1.3, 0.8."""
DROPPED = 2.0
"""The same where samples above the longest are dropped, not cut to it: the longest is reached in many small steps, each
larger than all blocks so far. Mean of the same simulation without the samples that are too long: 3.1, 2.7, 1.4, 0.8."""
DROPS = frozenset({"ms-swift"})
"""Frameworks that drop longer samples unless told otherwise (ms-swift argument.py and template_args.py:
truncation_strategy delete; the others cut: LLaMA-Factory cutoff_len, TRL max_length, LitGPT max_seq_length)."""


class Doubt(NamedTuple):
    """Relative uncertainty of the estimate of live tensors, below and above."""

    below: float
    above: float


def reserve(effective: Effective, allocated: tuple[Term, ...], stage: Stage) -> tuple[Term, ...]:
    """What the caching allocator holds beyond live tensors.

    Blocks are rounded to 512 B, segments to 2 MiB (20 MiB for blocks of 1-10 MiB), and a freed block that a smaller
    tensor splits cannot serve its own size again (c10/cuda/CUDACachingAllocator.cpp): as much as the largest transient
    tensor is lost once. Where shapes vary, blocks cached for an earlier shape stay beside those of the longest.
    """
    transient: Any = 0
    loss: Any = 0
    changing = varies(effective)
    moving = tuple(
        t for t in allocated if t.phases != ALWAYS and t.component in _MOVING and (changing or not t.id.startswith(_STEADY))
    )
    for bit, _ in PHASES:
        if bit & (FORWARD | LOSS | BACKWARD_START | BACKWARD_END):
            here = alive(tuple(t for t in moving if t.component == "logits_and_loss"), bit, ("allocated",))
            loss = larger(loss, here)
            transient = larger(transient, alive(moving, bit, ("allocated",)) - here)
    if expandable(effective):
        share, again = 0.05, 0.0
    else:
        share, again = KNUTH, EQUAL
        if changing:
            again = DROPPED if drops(effective) else VARIED
    source = "c10/cuda/CUDACachingAllocator.cpp: rounding, splitting, no defragmentation"
    return (
        Term("fragmentation", "workspace", "reserved", ALWAYS, share * transient + 64 * MIB,
             f"{share:.0%} of what comes and goes in a step: rounding and blocks that do not fit again", source),
        Term("loss_blocks", "workspace", "reserved", ALWAYS, again * loss,
             f"{again:.0%} of the loss's largest moment: its blocks are the largest, and were split or made for another length", source),
    )  # fmt: skip


def held_back(
    effective: Effective, allocated: tuple[Term, ...], cached: tuple[Term, ...], outside: tuple[Term, ...]
) -> tuple[Term, ...]:
    """The same on a card that is too small for it: before it fails, the allocator gives unused segments back.

    What cannot be given back (blocks that are partly in use) is taken as a tenth (c10 release_cached_blocks).
    """
    most = peak(allocated, ("allocated",)).bytes
    wanted = sum(term.bytes for term in cached)
    room = effective.gpu.usable_bytes - most - peak(outside, ("device",)).bytes
    if wanted <= room or not wanted or not effective.gpu.usable_bytes:
        return cached
    factor = max(0.1, room / wanted)
    return tuple(term._replace(bytes=factor * term.bytes, words=term.words + "; the card has no room for more") for term in cached)


def varies(effective: Effective) -> bool:
    """Tensors differ in size from step to step: padded batches, or experts spread over ranks, which receive other
    numbers of rows each time. Where a rank holds all experts, their rows together are always its tokens x top_k."""
    return effective.batch.padding or (effective.arch.moe and effective.layout.expert > 1)


def drops(effective: Effective) -> bool:
    """Samples that are too long are left out: as written, else the framework's own way."""
    from jobgen.effective.options import option

    written = option(effective.spec, "truncation_strategy", "excess_length_strategy")
    if written is not None:
        return written in ("delete", "drop")
    return effective.spec.training.framework in DROPS and effective.batch.padding


_STEADY = ("activations_kept", "gradients", "gradients_so_far")
"""Terms whose blocks find their own places again when nothing varies."""
_MOVING = frozenset({"activations", "logits_and_loss", "communication", "workspace", "gradients"})


EXPANDS = {"axolotl": (0, 6)}
"""Frameworks that set expandable_segments:True themselves, surely from this release on, unless the user set the variable
(axolotl utils/__init__.py set_pytorch_cuda_alloc_conf). Where the release is not known the larger answer stands."""


def expandable(effective: Effective) -> bool:
    """The allocator may grow segments, so that blocks do not have to match."""
    conf = effective.spec.launch.env.get("PYTORCH_CUDA_ALLOC_CONF", "") + effective.spec.launch.env.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments" in conf:
        return "expandable_segments:True" in conf.replace(" ", "")
    since = EXPANDS.get(effective.spec.training.framework)
    return since is not None and effective.versions.interval(effective.framework.library).low >= since


def outside(effective: Effective, sizes: Sizes) -> tuple[Term, ...]:
    """What torch's counters do not see."""
    gpu, layout = effective.gpu, effective.layout
    context = HIP_CONTEXT if gpu.compute_capability is None else CONTEXT.get(gpu.compute_capability[0], 0.6 * GIB)
    found = [Term("context", "context", "device", ALWAYS, context + KERNELS, "CUDA context and the kernels that a step loads",
                  "ml-engineering training/performance; pytorch #109888")]  # fmt: skip
    groups = sum(size > 1 for size in (
        layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data, layout.replicate,
    ))  # fmt: skip
    if groups:
        nvls = NVLS if gpu.compute_capability is not None and gpu.compute_capability[0] >= 9 and layout.processes_per_node >= 4 else 0.0
        found.append(Term("communicators", "context", "device", ALWAYS, groups * GROUP + nvls,
                          f"buffers of {groups} NCCL communicator{'s' if groups > 1 else ''}", "NVIDIA/nccl #964; buffers by the code of NCCL 2.30"))  # fmt: skip
    return tuple(found)


def doubt(effective: Effective) -> Doubt:
    """How far the live tensors may be off."""
    above = 0.08 + (0.04 if varies(effective) else 0.0) + (0.05 if effective.arch.moe else 0.0)
    return Doubt(0.12, above)
