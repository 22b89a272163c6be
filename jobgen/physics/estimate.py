"""The estimate: all terms of every pipeline stage, the peak over phases and stages, host, storage and time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from jobgen.effective import batch as batches
from jobgen.physics import activations, allocator, colocated, gathered, logits, states
from jobgen.physics.host import Host, host
from jobgen.physics.inventory import count
from jobgen.physics.ledger import COMPONENTS, GENERATE, PHASES, Component, Term, alive, peak
from jobgen.physics.sizes import Sizes, Stage
from jobgen.physics.stages import distinct, sizes, stages
from jobgen.physics.storage import Storage, storage, trainable
from jobgen.physics.time import Time, time
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

GIB = 2**30
Verdict = Literal["fits", "tight", "does_not_fit"]
PER_BILLION = {"pretrain": (100e6, 300e6)}
"""Recommended tokens per 10^9 activated parameters; sft takes the other pair (the project's origin, part A)."""
SFT_PER_BILLION = (30e6, 100e6)


class GpuMemory(NamedTuple):
    """Bytes of the worst rank."""

    allocated: float
    reserved: float
    device: float
    low: float
    high: float
    capacity: float
    """Infinite for a card of which nothing is known (``usable_bytes`` is 0)."""
    phase: str
    worst_stage: int
    worst_rank: int
    components: Mapping[Component, float]
    """Alive in the peak phase; they add up to ``device``."""
    terms: tuple[Term, ...]
    """All terms of the worst stage; those of the peak phase are ``alive_terms``."""
    phases: Mapping[str, float]
    """Device bytes of the worst stage by phase."""

    @property
    def alive_terms(self) -> tuple[Term, ...]:
        """The terms of the peak phase, largest first."""
        bit = next(bit for bit, name in PHASES if name == self.phase)
        return tuple(sorted((t for t in self.terms if t.phases & bit and t.bytes), key=lambda t: -t.bytes))


class Estimate(NamedTuple):
    """Everything that is known of a set-up without running it."""

    model: str
    parameters: int
    active_parameters: int
    trainable_parameters: int
    world: int
    data: int
    shard: int
    global_batch: int
    tokens_per_step: int
    steps: int | None
    gpu: GpuMemory
    host: Host
    host_capacity: float | None
    storage: Storage
    time: Time
    data_tokens: float | None
    data_samples: float | None
    recommended_tokens: tuple[float, float]
    assumed_versions: Mapping[str, str]
    verdict: Verdict


def stage_terms(effective: Effective, numbers: Sizes, stage: Stage) -> tuple[Term, ...]:
    """All terms of one rank of a stage, allocated level only (numbers or arrays)."""
    return (
        *states.terms(effective, numbers, stage),
        *gathered.terms(effective, numbers, stage),
        *activations.terms(effective, numbers, stage),
        *(logits.terms(effective, numbers, stage) if stage.head else ()),
        *colocated.terms(effective, numbers, stage),
    )


def memory(effective: Effective, numbers: Sizes) -> GpuMemory:
    """The worst rank's memory."""
    best: tuple[float, Stage, tuple[Term, ...]] | None = None
    outside = allocator.outside(effective, numbers)
    for stage in distinct(stages(effective, numbers)):
        allocated = stage_terms(effective, numbers, stage)
        training = tuple(term for term in allocated if term.phases != GENERATE)
        beside = (*outside, *(term for term in training if term.level == "device"))
        cached = allocator.held_back(effective, training, allocator.reserve(effective, training, stage), beside)
        everything = (*allocated, *colocated.emptied(effective, cached), *outside)
        top = peak(everything, ("allocated", "reserved", "device")).bytes
        if best is None or top > best[0]:
            best = top, stage, everything
    assert best is not None
    device, stage, terms = best
    live = peak(terms, ("allocated",))
    levels: tuple[Any, ...] = ("allocated", "reserved", "device")
    generates = effective.spec.training.rollout is not None
    phases = {name: float(alive(terms, bit, levels)) for bit, name in PHASES if generates or bit != GENERATE}
    worst = max(phases, key=lambda name: phases[name])
    bit = next(bit for bit, name in PHASES if name == worst)
    components = {name: float(sum(t.bytes for t in terms if t.component == name and t.phases & bit)) for name in COMPONENTS}
    reserved = peak(terms, ("allocated", "reserved")).bytes
    outer = device - reserved
    doubt = allocator.doubt(effective)
    from jobgen.effective.resolve import capacity_bytes

    per_stage = effective.layout.world // max(1, effective.layout.pipeline)
    return GpuMemory(
        float(live.bytes), float(reserved), float(device), float(live.bytes * (1 - doubt.below) + outer), float(device * (1 + doubt.above)),
        float(capacity_bytes(effective.gpu)) or math.inf, worst, stage.index, stage.index * per_stage, components, terms, phases,
    )  # fmt: skip


def verdict(gpu: GpuMemory) -> Verdict:
    """``fits`` when even the upper end is below the card, ``does_not_fit`` when even the lower end is above.

    ``tight``, too, where the card's size is not known.
    """
    if math.isinf(gpu.capacity):
        return "tight"
    if gpu.high < gpu.capacity:
        return "fits"
    return "does_not_fit" if gpu.low > gpu.capacity else "tight"


def estimate(effective: Effective) -> Estimate:
    """Memory, storage, data and time of what will really run."""
    numbers = sizes(effective)
    gpu = memory(effective, numbers)
    arch, layout, training = effective.arch, effective.layout, effective.spec.training
    active = count(arch).active
    low, high = PER_BILLION.get(training.objective, SFT_PER_BILLION)
    return Estimate(
        model=arch.name,
        parameters=count(arch).total,
        active_parameters=active,
        trainable_parameters=trainable(effective),
        world=layout.world,
        data=layout.data,
        shard=layout.shard,
        global_batch=layout.global_batch,
        tokens_per_step=effective.batch.tokens_per_step,
        steps=effective.batch.steps,
        gpu=gpu,
        host=host(effective, numbers),
        host_capacity=host_capacity(effective),
        storage=storage(effective),
        time=time(effective, numbers),
        data_tokens=batches.tokens(effective),
        data_samples=batches.samples(effective),
        recommended_tokens=(low * active / 1e9, high * active / 1e9),
        assumed_versions={},
        verdict=verdict(gpu),
    )


def host_capacity(effective: Effective) -> float | None:
    """Host memory that the job may use on a node: as asked, else what the node type allows."""
    asked = effective.spec.resources.memory_per_node
    if asked is not None:
        return float(asked)
    node = effective.node
    if node is None:
        return None
    return float(node.slurm_bytes or node.kubernetes_bytes or node.memory_bytes)


def estimate_json(estimate: Estimate, spec_name: str) -> dict[str, Any]:
    """The contract's JSON. GiB with three digits; unknown is null."""
    gpu, found = estimate.gpu, estimate.host
    return {
        "schema": "jobgen.estimate/1",
        "spec": spec_name,
        "model": {
            "name": estimate.model,
            "parameters": estimate.parameters,
            "active_parameters": estimate.active_parameters,
            "trainable_parameters": estimate.trainable_parameters,
        },
        "parallel": {"world": estimate.world, "data": estimate.data, "shard": estimate.shard},
        "batch": {"global": estimate.global_batch, "tokens": estimate.tokens_per_step},
        "steps": estimate.steps,
        "gpu": {
            "allocated_gib": _gib(gpu.allocated),
            "reserved_gib": _gib(gpu.reserved),
            "device_gib": _gib(gpu.device),
            "range_gib": [_gib(gpu.low), _gib(gpu.high)],
            "capacity_gib": None if math.isinf(gpu.capacity) else _gib(gpu.capacity),
            "phase": gpu.phase,
            "worst_rank": gpu.worst_rank,
            "components": {name: _gib(size) for name, size in gpu.components.items()},
        },
        "host": {
            "peak_gib_per_node": _gib(found.peak),
            "load_gib_per_node": _gib(found.load),
            "steady_gib_per_node": _gib(found.steady),
            "capacity_gib": _gib(estimate.host_capacity),
        },
        "checkpoint": {"size_gib": _gib(estimate.storage.size), "retained_gib": _gib(estimate.storage.retained)},
        "time": {"step_seconds": _round(estimate.time.step), "total_seconds": _round(estimate.time.total)},
        "data": {
            "tokens": None if estimate.data_tokens is None else round(estimate.data_tokens),
            "samples": None if estimate.data_samples is None else round(estimate.data_samples),
            "recommended_tokens": [round(end) for end in estimate.recommended_tokens],
        },
        "assumed_versions": dict(estimate.assumed_versions),
        "verdict": estimate.verdict,
    }


def _gib(size: Any) -> float | None:
    return None if size is None else round(float(size) / GIB, 3)


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
