"""Mixtures of experts on the tape: router, routed rows, shared experts."""

from __future__ import annotations

from jobgen.catalog.arch import Layer, Matrix
from jobgen.physics import blocks, cost
from jobgen.physics.blocks import Build
from jobgen.physics.modules import HF
from jobgen.physics.tape import Tape, Value


def mixture(tape: Tape, build: Build, x: Value, layer: Layer, stream: Value | None = None) -> Value:
    """Routed and shared experts of one layer.

    transformers' grouped_mm path (integrations/moe.py, 5.24): each routed row keeps its input, gate and up, the
    activated gate, their product and the expert's output (for the gradient of the routing weight). The looped
    path keeps the same rows expert by expert. ``stream``: the residual stream, which some routers read.
    """
    router = next(matrix for matrix in layer.matrices if matrix.part == "router" and matrix.outputs == layer.experts)
    seen = x
    if build.module.router_norm and stream is not None:
        normed = blocks.norm(tape, build._replace(trained=False), stream)
        seen = tape.op([normed], normed.width, normed.bytes, normed.unit, [normed] if build.trained else [])
    weights = route(tape, build, seen, layer, router)
    routed = experts(tape, build, x, weights, layer)
    shared = tuple(matrix for matrix in layer.matrices if matrix.part == "shared_expert")
    if not shared:
        return routed
    visited = blocks.mlp(tape, build, x, layer, shared)
    gate = next((matrix for matrix in layer.matrices if matrix.part == "router" and matrix.outputs == 1), None)
    if gate is not None:
        opened = blocks.activation(tape, blocks.linear(tape, build, x, gate, "sequence"), "sigmoid")
        visited = tape.op([visited, opened], visited.width, visited.bytes, visited.unit, [visited, opened])
    return blocks.add(tape, routed, visited)


def route(tape: Tape, build: Build, x: Value, layer: Layer, router: Matrix) -> Value:
    """Scores of all experts, and the weights of the chosen ones with their indices."""
    float32 = build.module.router_float32
    logits = blocks.linear(tape, build, x, router, "sequence", size=4 if float32 else 0)
    probabilities = tape.op([logits], layer.experts, 4, "sequence", save_output=True)
    indices = tape.value(layer.top_k, 8, "sequence", grad=False)
    chosen = tape.op([probabilities], layer.top_k, 4, "sequence", extra=[indices])
    normal = tape.op([chosen], layer.top_k, 4, "sequence", [chosen])
    return normal if float32 else blocks.cast(tape, normal, build.compute)


def everywhere(
    tape: Tape, build: Build, x: Value, weights: Value, layer: Layer, first: Matrix, second: Matrix
) -> Value:
    """All tokens through all experts, scaled by their scores before (transformers modeling_llama4.py Llama4TextMoe)."""
    size, k, ffn = build.compute, layer.experts, second.inputs
    keeps = build.trained
    copies = tape.op([x], k * first.inputs, size, "row")
    scaled = tape.op([copies, weights], k * first.inputs, size, "row", [copies, weights])
    wide = tape.op([scaled], k * first.outputs, size, "row_tensor", [scaled] if keeps else [], kind="addmm")
    product = blocks.gated(tape, build, wide, layer.activation, k * ffn, "row_tensor")
    out = tape.op([product], k * second.outputs, size, "row", [product] if keeps else [], kind="addmm")
    return tape.op([out], second.outputs, size, "sequence")


def experts(tape: Tape, build: Build, x: Value, weights: Value, layer: Layer) -> Value:
    """The routed rows: gather, gated MLP, weighting, sum."""
    *inner, second = (matrix for matrix in layer.matrices if matrix.part == "expert")
    first = inner[0]._replace(outputs=sum(matrix.outputs for matrix in inner))  # gate and up keep the same rows apart as in one
    size, k, ffn = build.compute, layer.top_k, second.inputs
    if build.module.all_experts and build.style is HF:
        return everywhere(tape, build, x, weights, layer, first, second)
    extra: list[Value] = []
    if build.autocast and build.weights != build.compute:
        extra = [tape.value(m.copies * m.inputs * m.outputs, size, "fixed_expert", grad=False) for m in (first, second)]
    if build.expert_adapters:
        extra = [tape.value(m.copies * m.inputs * m.outputs, size, "fixed_expert", grad=False) for m in (first, second)]
    merged = [each.cost for each in extra] if build.expert_adapters else [cost.ZERO, cost.ZERO]  # gradients, for the adapters
    keeps = build.trained or build.expert_adapters or (build.quantized_keeps_input and build.quantized_experts)
    indices = tape.value(k, 8, "row", grad=False)
    rows = tape.op([x], k * first.inputs, x.bytes, "row", extra=[indices])
    rows = blocks.cast(tape, rows, size)
    wide = tape.op([rows], k * first.outputs, size, "row_tensor", [*([rows] if keeps else []), *extra[:1]], backward=merged[0], kind="addmm")
    product = (
        blocks.gated(tape, build, wide, layer.activation, k * ffn, "row_tensor")
        if layer.gated
        else blocks.activation(tape, wide, layer.activation)
    )
    out = tape.op([product], k * second.outputs, size, "row", [*([product] if keeps else []), *extra[1:]], backward=merged[1], kind="addmm")
    if build.style.weighted_inside:
        return tape.op([out, weights], second.outputs, size, "sequence", [weights], extra=[tape.value(k, 8, "row", grad=False)])
    wide_size = max(size, weights.bytes)
    product_of_gradient = cost.cost("row", k * second.outputs * wide_size)
    weighted = tape.op([out, weights], k * second.outputs, wide_size, "row", [out, weights], backward=product_of_gradient)
    ordered = tape.op([weighted], k * second.outputs, wide_size, "row", extra=[tape.value(k, 8, "row", grad=False)])
    return blocks.cast(tape, tape.op([ordered], second.outputs, wide_size, "sequence"), size)
