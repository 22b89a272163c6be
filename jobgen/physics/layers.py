"""A decoder layer on the tape, and what lies outside of the layers."""

from __future__ import annotations

from functools import lru_cache

from jobgen.catalog.arch import Layer, Matrix
from jobgen.physics import attention, blocks, moe
from jobgen.physics.blocks import Build
from jobgen.physics.tape import Profile, Tape, Value, profile


@lru_cache(maxsize=512)
def layer_profile(layer: Layer, hidden: int, build: Build) -> Profile:
    """What one decoder layer keeps and needs."""
    tape = Tape()
    start = tape.value(hidden, build.residual, "sequence")
    end = decoder(tape, build, start, layer)
    return profile(tape, start, end)


def decoder(tape: Tape, build: Build, x: Value, layer: Layer) -> Value:
    """Norms, mixer and MLP around the residual stream."""
    order = build.module.order
    mixer = tuple(matrix for matrix in layer.matrices if matrix.part == "attention")
    dense = tuple(matrix for matrix in layer.matrices if matrix.part == "mlp")
    before, after = order in ("pre", "both"), order in ("post", "both")
    has_mlp = bool(dense or layer.experts)
    if (layer.norms_hidden == 1 or build.module.parallel) and mixer and has_mlp:  # attention and MLP side by side
        normed = blocks.norm(tape, build, x)
        mixed = drop(tape, layer, mix(tape, build, blocks.gather(tape, build, normed), layer, mixer))
        normed = blocks.norm(tape, build, x) if layer.norms_hidden > 1 else normed
        fed = drop(tape, layer, feed(tape, build, blocks.gather(tape, build, normed), layer, dense))
        return blocks.add(tape, blocks.add(tape, x, mixed), fed)
    if mixer:
        given = blocks.norm(tape, build, x) if before else x
        mixed = drop(tape, layer, mix(tape, build, blocks.gather(tape, build, given), layer, mixer))
        x = blocks.add(tape, x, blocks.norm(tape, build, mixed) if after else mixed)
    if has_mlp:
        given = blocks.norm(tape, build, x) if before else x
        fed = drop(tape, layer, feed(tape, build, blocks.gather(tape, build, given), layer, dense, x))
        x = blocks.add(tape, x, blocks.norm(tape, build, fed) if after else fed)
    return x


def drop(tape: Tape, layer: Layer, x: Value) -> Value:
    """Dropout before a residual sum: its mask is one byte per element."""
    if not layer.dropouts:
        return x
    return tape.op([x], x.width, x.bytes, x.unit, extra=[tape.value(x.width, 1, x.unit, grad=False)])


def mix(tape: Tape, build: Build, x: Value, layer: Layer, matrices: tuple[Matrix, ...]) -> Value:
    """The layer's token mixer."""
    if layer.mixer == "mla":
        return attention.latent(tape, build, x, layer, matrices)
    if layer.mixer == "conv":
        return attention.convolved(tape, build, x, layer, matrices)
    if layer.mixer in ("linear", "mamba"):
        return attention.recurrent(tape, build, x, layer, matrices)
    return attention.attention(tape, build, x, layer, matrices)


def feed(tape: Tape, build: Build, x: Value, layer: Layer, dense: tuple[Matrix, ...], stream: Value | None = None) -> Value:
    """The layer's MLP or mixture; both where they stand side by side, each with norms of its own (Gemma 4)."""
    if layer.experts and dense and stream is not None:
        fed = blocks.norm(tape, build, blocks.mlp(tape, build, x, layer, dense))
        mixed = moe.mixture(tape, build, blocks.norm(tape, build, stream), layer, stream)
        return blocks.add(tape, fed, blocks.norm(tape, build, mixed))
    if layer.experts:
        return moe.mixture(tape, build, x, layer)
    return blocks.mlp(tape, build, x, layer, dense)


@lru_cache(maxsize=512)
def final_norm_profile(hidden: int, build: Build) -> Profile:
    """The norm after the last layer and the head's input."""
    tape = Tape()
    start = tape.value(hidden, build.residual, "sequence")
    out = blocks.norm(tape, build, start)
    given = blocks.gather(tape, build, blocks.cast(tape, out, build.compute))
    end = tape.op([given], hidden, build.compute, given.unit, [given] if build.trained else [])
    return profile(tape, start, end)
