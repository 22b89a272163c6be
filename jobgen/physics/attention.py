"""Token mixers on the tape: attention with its kernels, latent attention, recurrent mixers."""

from __future__ import annotations

from jobgen.catalog.arch import Layer, Matrix
from jobgen.physics import cost
from jobgen.physics.blocks import Build, activation, cast, linear, norm, rotary
from jobgen.physics.tape import Tape, Value


def scores(tape: Tape, build: Build, query: Value, key: Value, value: Value, layer: Layer) -> Value:
    """Attention proper, by kernel; the result has ``heads x value_dim`` elements per token.

    flash: saves q, k, v, the output and one fp32 number per head and token (log-sum-exp; Dao 2022, 2205.14135).
    efficient: the same over keys and values copied to all heads, and the mask as a float tensor if there is one.
    eager: transformers' eager_attention_forward: fp32 softmax (4 bytes) and its bf16 copy (2) per score.
    One key-value head needs no copy: its repetition is a view.
    math: torch's fallback in fp32 (aten/src/ATen/native/transformers/attention.cpp).
    """
    heads, size = layer.heads, build.compute
    out_width = heads * layer.value_dim
    query, key, value = (cast(tape, each, size) for each in (query, key, value))
    tape.core_attention(True)
    everywhere = build.style.repeat_kv == "always"
    if (build.kernel != "flash" or everywhere) and 1 < layer.kv_heads < heads and build.style.expand_kv:
        key = tape.op([key], heads * layer.head_dim, size, "tensor")
        value = tape.op([value], out_width, size, "tensor")
    if build.kernel in ("flash", "efficient"):
        extra = [tape.value(heads, 4, "tensor", grad=False)]
        if build.kernel == "efficient" and build.masked:
            extra.append(tape.value(1, size, "mask", grad=False))
        out = tape.op([query, key, value], out_width, size, "tensor", [query, key, value], save_output=True, extra=extra, kind="attention")
        if build.kernel == "flash" and (
            build.module.positions == "partial" or build.style.joined_heads or layer.mixer == "mla"
        ):
            out = tape.op([out], out_width, size, "tensor")
    else:
        out = eager(tape, build, query, key, value, layer, out_width)
    tape.core_attention(False)
    return out


def eager(tape: Tape, build: Build, query: Value, key: Value, value: Value, layer: Layer, out_width: float) -> Value:
    """Scores written out: two matmuls around a softmax."""
    heads = layer.heads
    size = 4 if build.kernel == "math" else build.compute
    query, key, value = (cast(tape, each, size) for each in (query, key, value))
    if build.module.softmax == "upcast":
        query, key = cast(tape, query, 4), cast(tape, key, 4)
    raw_size = query.bytes
    raw = tape.op([query, key], heads, raw_size, "square", [query, key], kind="addmm")
    scaled = tape.op([raw], heads, raw_size, "square")
    if build.module.softcap:
        curve = tape.op([scaled], heads, raw_size, "square", save_output=True)
        scaled = tape.op([curve], heads, raw_size, "square")
    masked = tape.op([scaled], heads, raw_size, "square", aliases=True)
    native = build.style.softmax == "native" or build.module.softmax in ("native", "sink")
    soft_size = size if native else 4
    soft = tape.op([masked], heads, soft_size, "square", save_output=True)
    weights = cast(tape, soft, size)
    if build.module.attention_dropout:
        mask = tape.value(heads, 1, "square", grad=False)
        weights = tape.op([weights], heads, size, "square", extra=[mask])
    product = tape.op([weights, value], out_width, size, "tensor", [weights, value], kind="addmm")
    return tape.op([product], out_width, build.compute, "tensor")


def attention(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...]) -> Value:
    """Grouped-query attention: projections, optional norms over heads, rotary positions, kernel, output projection."""
    heads, kv = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    kv_value = layer.kv_heads * layer.value_dim
    *inner, output = matrices
    if build.style.fused_qkv and len(inner) > 1:
        named = next((matrix.name for matrix in inner if matrix.name in build.targets), inner[0].name)
        inner = [inner[0]._replace(name=named, outputs=sum(matrix.outputs for matrix in inner))]
    if len(inner) == 1:  # query, key and value from one matrix: views of one tensor
        both = linear(tape, build, x, inner[0], "tensor")
        query, key, value = (tape.view(both, width) for width in (heads, kv, kv_value))
    elif len(inner) == 2:  # values are the keys before positions
        query, key = (linear(tape, build, x, matrix, "tensor") for matrix in inner)
        value = tape.view(key)
    else:
        query, key, value = (linear(tape, build, x, matrix, "tensor") for matrix in inner[:3])
    gate = None
    if query.width == 2 * heads:  # the projection yields a gate of the output too (Qwen3-Next)
        query, gate = tape.view(query, heads), tape.view(query, heads)
    if layer.norms_head:
        if build.style.fused_qkv and layer.kv_heads < layer.heads:  # groups interleave heads: queries are copied out
            query = tape.op([query], heads, query.bytes, "tensor")
        query, key = norm(tape, build, query, layer.heads), norm(tape, build, key, layer.kv_heads)
    if build.module.value_norm:
        value = norm(tape, build._replace(trained=False), value, layer.kv_heads)
    if build.module.positions != "none":
        query, key = rotary(tape, build, query), rotary(tape, build, key)
    mixed = scores(tape, build, query, key, value, layer)
    if gate is not None:
        opened = activation(tape, gate, "sigmoid")
        mixed = tape.op([mixed, opened], mixed.width, mixed.bytes, mixed.unit, [mixed, opened])
    return linear(tape, build, mixed, output, "sequence")


def convolved(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...]) -> Value:
    """A short convolution between two gates (LFM2, modeling_lfm2.py Lfm2ShortConv)."""
    first, output = matrices
    both = linear(tape, build, x, first, "tensor")
    width, size = output.inputs, build.compute
    inner = tape.op([both], width, size, "tensor", [both])
    turned = tape.op([inner], width, size, "tensor", [inner], kind="addmm")
    gated = tape.op([both, turned], width, size, "tensor", [both, turned])
    return linear(tape, build, gated, output, "sequence")


def latent(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...]) -> Value:
    """Multi-head latent attention (DeepSeek-V2, 2405.04434, section 2.1), as transformers computes it for training."""
    by = {matrix.name: matrix for matrix in matrices}
    q_rank, kv_rank, rope = layer.latent_dims
    heads, nope = layer.heads, layer.head_dim - layer.latent_dims[2]
    if q_rank:
        low = norm(tape, build, linear(tape, build, x, by["q_a_proj"], "token"))
        query = linear(tape, build, low, by["q_b_proj"], "tensor")
    else:
        query = linear(tape, build, x, by["q_proj"], "tensor")
    compressed = linear(tape, build, x, by["kv_a_proj_with_mqa"], "token")
    inner = tape.view(compressed, kv_rank)
    turned = rotary(tape, build, tape.view(compressed, rope))
    wide = linear(tape, build, norm(tape, build, inner), by["kv_b_proj"], "tensor")
    value = tape.view(wide, heads * layer.value_dim)
    rotated = rotary(tape, build, tape.view(query, heads * rope))
    size = build.compute
    full_query = tape.op([query, rotated], heads * layer.head_dim, size, "tensor")
    full_key = tape.op([tape.view(wide, heads * nope), turned], heads * layer.head_dim, size, "tensor")
    return linear(tape, build, scores(tape, build, full_query, full_key, value, layer), by["o_proj"], "sequence")


def recurrent(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...]) -> Value:
    """Mamba, gated delta rule and other linear mixers with a chunked kernel.

    Structure of the fused kernels (mamba_ssm ssd_combined.py, fla chunk_gated_delta_rule): the projected input is kept,
    the convolution's output, the scan's output before its gated norm, and one state per chunk.
    """
    *inner, output = matrices
    made = [linear(tape, build, x, matrix, "tensor") for matrix in inner]
    width = output.inputs
    total = sum(value.width for value in made)
    mixed = tape.op(made, total, build.compute, "tensor", made)
    states = max(layer.state_dim, 1) * width / 64 if layer.state_dim else 0.0
    extra = [tape.value(states, 4, "tensor", grad=False)] if states else []
    scanned = tape.op([mixed], width, build.compute, "tensor", [mixed], save_output=True, extra=extra, kind="attention")
    gate = tape.op([scanned], width, build.compute, "tensor", backward=cost.scale(2, cost.cost("tensor", 4 * width)))
    return linear(tape, build, gate, output, "sequence")
