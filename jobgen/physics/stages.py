"""Sizes of a set-up, and what each pipeline stage holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.physics.arrays import smaller
from jobgen.physics.sizes import Sizes, Stage

if TYPE_CHECKING:
    from jobgen.catalog.arch import Arch
    from jobgen.effective.setup import Effective


def sizes(effective: Effective) -> Sizes:
    """The numbers of one spec."""
    layout, batch, sharded = effective.layout, effective.batch, effective.sharded
    return Sizes(
        micro=batch.micro,
        sequence=batch.sequence / layout.context,
        full_sequence=batch.sequence,
        tensor=layout.tensor,
        context=layout.context,
        expert=layout.expert,
        expert_tensor=layout.expert_tensor,
        data=layout.data,
        replicate=layout.replicate,
        weights_shards=sharded.weights,
        gradients_shards=sharded.gradients,
        optimizer_shards=sharded.optimizer,
        accumulation=batch.accumulation,
        pipeline=layout.pipeline,
        virtual_pipeline=effective.spec.parallelism.virtual_pipeline,
        world=layout.world,
        ranks_per_node=layout.processes_per_node,
        nodes=layout.nodes,
    )


def stages(effective: Effective, sizes: Sizes) -> tuple[Stage, ...]:
    """All pipeline stages, in order; one that holds everything without pipeline parallelism.

    A ``device_map`` over several GPUs of one process is a pipeline without overlap: one batch in flight.
    """
    arch, split = effective.arch, effective.spec.parallelism
    if split.device_map in ("auto", "balanced", "sequential"):
        devices = effective.spec.resources.gpus_per_node
        counts = _even(arch.depth, devices)
        return _stages(arch, counts, tuple(1 for _ in counts))
    pipeline = effective.layout.pipeline
    if pipeline == 1:
        return _stages(arch, (arch.depth,), (1,))
    held = min(pipeline, arch.depth + 1)  # the stages past the layers hold nothing (JG505)
    chunks = _even(arch.depth, held) if split.pipeline_layers is None else _written(tuple(split.pipeline_layers), pipeline)
    alive = tuple(in_flight(index, pipeline, split.virtual_pipeline, sizes.accumulation) for index in range(len(chunks)))
    return _stages(arch, chunks, alive)


def in_flight(index: int, pipeline: int, virtual: int, microbatches: Any) -> Any:
    """Microbatches whose activations one stage holds at once, in units of the whole stage.

    1F1B: pipeline - index (Narayanan et al. 2021, section 2.2). Interleaved with v chunks: the warm-up of
    2 (p - index - 1) + (v - 1) p chunks and the one running, each a v-th of the stage
    (Megatron-LM core/pipeline_parallel/schedules.py).
    """
    if virtual == 1:
        return smaller(microbatches, pipeline - index)
    chunks = 2 * (pipeline - index - 1) + (virtual - 1) * pipeline + 1
    return smaller(microbatches, chunks / virtual)


def _even(depth: int, parts: int) -> tuple[int, ...]:
    """Layers per stage; the first ones take what does not divide."""
    each, over = divmod(depth, parts)
    return tuple(each + (index < over) for index in range(parts))


def _written(layers: tuple[int, ...], pipeline: int) -> tuple[int, ...]:
    """Layers per stage from layers per chunk (chunk c of stage s is entry c x pipeline + s)."""
    return tuple(sum(layers[stage::pipeline]) for stage in range(pipeline))


def _stages(arch: Arch, counts: tuple[int, ...], alive: tuple[Any, ...]) -> tuple[Stage, ...]:
    found, start = list[Stage](), 0
    for index, count in enumerate(counts):
        kinds = arch.pattern[start : start + count]
        start += count
        held = tuple(kinds.count(kind) for kind in range(len(arch.layers)))
        found.append(Stage(index, held, index == 0, index == len(counts) - 1, alive[index]))
    return tuple(found)


def distinct(found: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages that can be the worst: later ones with the same layers hold fewer microbatches."""
    kept: dict[tuple[Any, ...], Stage] = {}
    for stage in found:
        kept.setdefault((stage.layers, stage.embedding, stage.head), stage)
    return tuple(kept.values())
