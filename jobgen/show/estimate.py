"""The estimate as a table that a person can argue with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobgen.checks.words import billions
from jobgen.show.table import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobgen.physics.estimate import Estimate
    from jobgen.physics.levers import Lever

GIB = 2**30
VERDICTS = {"fits": "fits", "tight": "tight: it may or may not fit", "does_not_fit": "does not fit"}


def text(estimate: Estimate, levers: Sequence[Lever] = ()) -> str:
    """Every term of the peak phase with its formula and source, what would save most, then host, storage, data, time."""
    parts = (_head(estimate), _terms(estimate), _phases(estimate), _levers(levers), _host(estimate), _rest(estimate))
    return "\n\n".join(part for part in parts if part)


def gib(size: float | None) -> str:
    """Bytes as GiB with two digits; a dash for unknown."""
    return "-" if size is None else f"{size / GIB:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them; a dash for unknown."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def _head(estimate: Estimate) -> str:
    gpu = estimate.gpu
    size = f"GPU memory: {gib(gpu.device)} GiB ({gib(gpu.low)} to {gib(gpu.high)})"
    if math.isinf(gpu.capacity):
        fit = f"{size}; how much the GPU has is not known (give it: {{name: ..., memory: 80GiB}})"
    else:
        room = gpu.capacity - gpu.device
        left = f"{gib(room)} GiB left" if room > 0 else f"{gib(-room)} GiB too much"
        fit = f"{size} of {gib(gpu.capacity)}: {VERDICTS[estimate.verdict]}, {left}"
    return "\n".join(
        (
            f"{estimate.model}: {estimate.parameters / 1e9:.2f} B parameters, {estimate.active_parameters / 1e9:.2f} B active, {estimate.trainable_parameters / 1e9:.3g} B trained",
            f"{estimate.world} ranks: data parallel {estimate.data}, states cut over {estimate.shard}; {estimate.global_batch} samples and {estimate.tokens_per_step:,} tokens a step",
            fit,
            f"  live tensors {gib(gpu.allocated)} GiB, held by the allocator {gib(gpu.reserved)} GiB, on the device {gib(gpu.device)} GiB",
        )
    )


def _terms(estimate: Estimate) -> str:
    gpu = estimate.gpu
    sources: list[str] = []
    rows: list[tuple[str, ...]] = [
        (term.component, gib(term.bytes), f"{term.words} {_note(term.source, sources)}")
        for term in gpu.alive_terms
        if term.bytes >= max(0.005 * GIB, 1e-4 * gpu.device)
    ]
    small = gpu.device - sum(term.bytes for term in gpu.alive_terms if term.bytes >= max(0.005 * GIB, 1e-4 * gpu.device))
    if small > 1e-4 * GIB:
        rows.append(("smaller terms", gib(small), ""))
    rows.append(("sum", gib(gpu.device), ""))
    where = f"peak in phase {gpu.phase} on rank {gpu.worst_rank}" + (f" (pipeline stage {gpu.worst_stage})" if gpu.worst_stage else "")
    return f"{where}\n" + table(("component", "GiB", "what"), rows, right=(1,)) + _notes(sources)


def _note(source: str, sources: list[str]) -> str:
    """The number under which a source is listed below its table."""
    if source not in sources:
        sources.append(source)
    return f"[{sources.index(source) + 1}]"


def _notes(sources: Sequence[str]) -> str:
    return "".join(f"\n  [{number}] {source}" for number, source in enumerate(sources, 1))


def _phases(estimate: Estimate) -> str:
    shown = [(name, size) for name, size in estimate.gpu.phases.items() if size]
    return "by phase: " + ", ".join(f"{name} {gib(size)}" for name, size in shown) + " GiB"


def _levers(levers: Sequence[Lever]) -> str:
    if not levers:
        return ""
    rows = [(f"{lever.path}: {lever.value}", f"-{gib(lever.saves)}", lever.words) for lever in levers]
    return "largest levers\n" + table(("write", "GiB", "which means"), rows, right=(1,))


def _host(estimate: Estimate) -> str:
    sources: list[str] = []
    rows = [
        (part.during, gib(part.bytes), f"{part.words} {_note(part.source, sources)}")
        for part in estimate.host.parts
        if part.bytes >= 0.005 * GIB
    ]
    return "host RAM per node\n" + table(("during", "GiB", "what"), rows, right=(1,)) + _notes(sources) if rows else ""


def _rest(estimate: Estimate) -> str:
    host, storage, time = estimate.host, estimate.storage, estimate.time
    capacity = f" of {gib(estimate.host_capacity)}" if estimate.host_capacity is not None else ""
    kept = ", checkpoint.keep is not written" if storage.retained is None else f", {gib(storage.retained)} GiB kept"
    lines = [
        f"host RAM per node: {gib(host.peak)} GiB{capacity} (loading {gib(host.load)}, steady {gib(host.steady)})",
        f"checkpoint: {gib(storage.size)} GiB each{kept}",
    ]
    if estimate.data_tokens is None or estimate.steps is None:
        lines.append("data: not known (write training.data or training.max_steps)")
    else:
        low, high = estimate.recommended_tokens
        usual = f"usual for {billions(estimate.active_parameters)} active parameters: {billions(low)} to {billions(high)}"
        lines.append(f"data: {billions(estimate.data_tokens)} tokens in {estimate.steps:,} steps ({usual})")
    lines.append(
        f"time: {duration(time.step)} a step"
        + ("" if time.total is None else f", {duration(time.total)} in all")
        + (", without generating the completions" if time.generates else "")
    )
    if estimate.assumed_versions:
        lines.append("assumed, since no version is given: " + ", ".join(f"{name} {version}" for name, version in estimate.assumed_versions.items()))
    return "\n".join(lines)
