"""The sizes that physics multiplies: numbers for one spec, numpy arrays for many candidates at once."""

from __future__ import annotations

from typing import Any

from jobgen.spec.record import NamedTuple

Number = Any
"""An int or float, or a numpy array of them."""


class Sizes(NamedTuple):
    """Everything about the split and the batch that can vary without changing which branch of the code runs."""

    micro: Number
    """Sequences per data-parallel rank and micro-step."""
    sequence: Number
    """Tokens per sequence on this rank (after the context split, before the tensor split of sequence parallel)."""
    full_sequence: Number
    """Tokens per sequence before the context split."""
    tensor: Number
    context: Number
    expert: Number
    expert_tensor: Number
    data: Number
    """Data-parallel ranks."""
    replicate: Number
    weights_shards: Number
    """Ranks over which weights, gradients and optimizer states are cut (1: whole)."""
    gradients_shards: Number
    optimizer_shards: Number
    accumulation: Number
    pipeline: Number
    virtual_pipeline: Number
    world: Number
    ranks_per_node: Number
    nodes: Number


class Stage(NamedTuple):
    """What one pipeline stage holds. ``layers[i]`` counts the layers of kind ``arch.layers[i]`` on it."""

    index: int  # type: ignore[assignment]  # shadows tuple.index on purpose
    layers: tuple[Number, ...]
    embedding: bool
    head: bool
    in_flight: Number
    """Microbatches whose activations are alive at once (1F1B: min(accumulation, pipeline - index), more when
    interleaved; Narayanan et al. 2021, section 2.2)."""
