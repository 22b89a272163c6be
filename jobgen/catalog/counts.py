"""Exact parameter counts, adapter sizes and 4-bit sizes of an architecture."""

from __future__ import annotations

from collections.abc import Iterator

from jobgen.catalog.arch import Arch, Layer, Matrix


def matrices(arch: Arch) -> Iterator[tuple[Matrix, int]]:
    """Every matrix and how often it stands (layers of one kind together; ``copies`` are inside the matrix)."""
    for layer, times in _layers(arch):
        for matrix in layer.matrices:
            yield matrix, times
    for matrix in arch.outer:
        yield matrix, 1


def _layers(arch: Arch) -> list[tuple[Layer, int]]:
    return [(layer, arch.pattern.count(index)) for index, layer in enumerate(arch.layers)]


def total(arch: Arch) -> int:
    """Trainable elements. Correction biases that transformers holds as buffers (``arch.router_buffers``) are not in."""
    inner = sum(times * (layer.norm_parameters + layer.other_parameters) for layer, times in _layers(arch))
    held = sum(times * matrix.parameters for matrix, times in matrices(arch))
    return held + inner + arch.final_norm_parameters + arch.other_parameters


def active(arch: Arch) -> int:
    """Elements that one token's pass touches: ``top_k`` of the routed experts and everything else."""
    idle = 0
    for layer, times in _layers(arch):
        if layer.experts:
            routed = sum(matrix.parameters for matrix in layer.matrices if matrix.part == "expert")
            idle += times * (routed - routed * layer.top_k // layer.experts)
    return total(arch) - idle
