"""What each checkpointing policy keeps of a layer, and what it has to make again."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from jobgen.physics import cost
from jobgen.physics.cost import ZERO, Cost
from jobgen.physics.layers import layer_profile
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.catalog.arch import Layer
    from jobgen.effective.setup import Activations
    from jobgen.physics.blocks import Build

FIXED = 7
"""Index of the first coefficient that counts weights' copies (``cost.UNITS``)."""


class Part(NamedTuple):
    """One layer under a policy."""

    kept: tuple[tuple[float, Cost], ...]
    """Weighted coefficients of what stays until the layer's backward (weights: shares of layers)."""
    working: tuple[Cost, ...]
    """Peaks of the layer's backward beyond what is kept."""
    forward: tuple[Cost, ...]
    """Peaks of its forward beyond what is kept."""
    casts: Cost
    """Copies of weights that autocast caches through the forward pass although nothing is saved."""


@lru_cache(maxsize=2048)
def _part(layer: Layer, hidden: int, build: Build, mode: str, policy: str, every: int) -> Part:
    profile, compiled = layer_profile(layer, hidden, build), build.compiled
    saved = profile.compiled if compiled else profile.saved
    backward = profile.compiled_training if compiled else profile.backward
    peaks = backward if compiled else backward + profile.again
    # autocast keeps copies of leaves only, not an expert's matrix with its adapter added (autocast_mode.cpp cached_cast)
    copies = ZERO[:FIXED] + (profile.saved[FIXED:-1] + ZERO[-1:] if build.expert_adapters else profile.saved[FIXED:])
    if mode == "none":
        return Part(((1.0, saved),), _beyond(backward, saved), () if compiled else _beyond(profile.again, saved), ZERO)
    again = _beyond(peaks, profile.input)
    if mode == "full":
        return Part(((1.0, profile.input),), again, profile.forward, copies)
    if policy == "layers":
        share = 1 / every
        return Part(((share, profile.input), (1 - share, saved)), again, profile.forward, cost.scale(share, copies))
    if policy == "core_attention":
        kept = cost.less(saved, profile.squares)
        return Part(((1.0, kept),), _beyond(peaks, kept), _beyond(profile.forward, kept), ZERO)
    kept = cost.add(profile.input, profile.policy)
    return Part(((1.0, kept),), _beyond(peaks, kept), profile.forward, copies)


def part(layer: Layer, hidden: int, build: Build, now: Activations) -> Part:
    """What a layer keeps and needs under the effective policy."""
    return _part(layer, hidden, build, now.checkpointing, now.policy, now.every)


def _beyond(peaks: tuple[Cost, ...], kept: Cost) -> tuple[Cost, ...]:
    return tuple(cost.less(peak, kept) for peak in peaks)
