"""Pieces that families share: projections, MLPs, experts, norms, and the assembly of layers into an architecture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobgen.catalog.arch import Arch, Layer, Matrix, Part, Split
from jobgen.catalog.families.fields import Fields

FUSED = (5, 0)
"""The transformers release that turned the experts of all mixtures into 3-D parameters."""


def linear(name: str, inputs: int, outputs: int, part: Part, split: Split, bias: bool = False) -> Matrix:
    """An ``nn.Linear``."""
    return Matrix(name, inputs, outputs, part, split, bias)


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    bias: bool = False,
    out_bias: bool = False,
    names: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    query: int = 1,
) -> tuple[Matrix, ...]:
    """Query, key, value and output projections. ``query``: 2 where the query projection yields an output gate too."""
    q, kv = heads * head_dim, kv_heads * head_dim
    return (
        linear(names[0], hidden, q * query, "attention", "column", bias),
        linear(names[1], hidden, kv, "attention", "column", bias),
        linear(names[2], hidden, kv, "attention", "column", bias),
        linear(names[3], q, hidden, "attention", "row", out_bias),
    )


def mlp(
    hidden: int,
    ffn: int,
    bias: bool = False,
    names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    part: Part = "mlp",
    fused_gate: bool = False,
) -> tuple[Matrix, ...]:
    """An MLP: three names are a gated one, two a plain one (or, with ``fused_gate``, gate and up in one matrix)."""
    *inner, down = names
    width = 2 * ffn if fused_gate else ffn
    return (
        *(linear(name, hidden, width, part, "column", bias) for name in inner),
        linear(down, ffn, hidden, part, "row", bias),
    )


def experts(
    hidden: int,
    ffn: int,
    count: int,
    *,
    linear_before: Sequence[str] | None = ("gate_proj", "up_proj", "down_proj"),
    gated: bool = True,
    bias: bool = False,
    adapters: bool = True,
    modules: bool = False,
) -> tuple[Matrix, ...]:
    """Routed experts, one 3-D parameter for each of the two steps.

    ``linear_before``: names of an expert's ``nn.Linear`` modules before transformers 5, None if there were none.
    ``adapters``: peft >= 0.19 has a weight conversion for the model type, so that ``all-linear`` reaches the experts.
    ``modules``: each expert is a module of its own in every release (code that comes with the weights).
    """
    if modules and linear_before is not None:
        return tuple(matrix._replace(copies=count) for matrix in mlp(hidden, ffn, bias, linear_before, "expert"))
    seen = linear_before is not None
    names = tuple(linear_before or ())
    first = "gate_up_proj" if gated else "up_proj"
    since = FUSED if seen else None
    return (
        Matrix(first, hidden, (2 if gated else 1) * ffn, "expert", "column", bias, count, seen, since, names[:-1],
               adapter_rank=(2 if gated else 1) if adapters else 0),
        Matrix("down_proj", ffn, hidden, "expert", "row", bias, count, seen, since, names[-1:],
               adapter_rank=1 if adapters else 0),
    )  # fmt: skip


def router(
    hidden: int,
    count: int,
    *,
    name: str = "gate",
    linear_before: bool = True,
    bias: bool = False,
    float32: bool = False,
    adapters: bool = True,
) -> Matrix:
    """The gate that scores experts: a bare parameter since transformers 5, in many types an ``nn.Linear`` before."""
    since = FUSED if linear_before else None
    return Matrix(name, hidden, count, "router", "none", bias, 1, linear_before, since, float32=float32,
                  adapter_rank=1 if adapters else 0)  # fmt: skip


def embedding(vocab: int, hidden: int, name: str = "embed_tokens", split: Split = "vocab") -> Matrix:
    """A table of vectors."""
    return Matrix(name, vocab, hidden, "embedding", split, linear=False)


def head(hidden: int, vocab: int, name: str = "lm_head", bias: bool = False) -> Matrix:
    """The output projection, which quantisers and ``all-linear`` adapters leave alone."""
    return Matrix(name, hidden, vocab, "head", "vocab", bias, keep=True)


def norm(width: int, kind: str) -> int:
    """Elements of one norm: ``rms`` and ``layer_nobias`` have a scale, ``layer`` a bias too, ``none`` neither."""
    return {"rms": 1, "layer_nobias": 1, "layer": 2, "none": 0}[kind] * width


def window(fields: Fields) -> int | None:
    """The sliding window in tokens, None where it is switched off."""
    if not fields.flag("use_sliding_window", True):
        return None
    return fields.size_or_none("sliding_window")


def positions(fields: Fields) -> int:
    """``max_position_embeddings``, stretched by RoPE scaling. Some configurations give the length before (YaRN of Qwen:
    factor x original), others the length after it (Llama 3.1, Phi-3): the larger of both is taken."""
    written = fields.size("max_position_embeddings", "n_positions", default=0, least=0)
    _, scaling = fields.raw("rope_scaling", "rope_parameters")
    if not written or not isinstance(scaling, dict):
        return written
    kinds = [scaling, *(each for each in scaling.values() if isinstance(each, dict))]  # one for each kind of layer
    return max(written, *(_scaled(each, written) for each in kinds))


def _scaled(scaling: dict[str, object], written: int) -> int:
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1e6:
        return written
    return int(factor * (original if isinstance(original, int) and 0 < original <= written else written))


def assemble(
    name: str,
    fields: Fields,
    kinds: Iterable[Layer],
    *,
    hidden: int,
    vocab: int,
    outer: tuple[Matrix, ...] = (),
    tied: bool | None = None,
    head_bias: bool = False,
    norm_kind: str = "rms",
    embeddings: tuple[Matrix, ...] | None = None,
    head_name: str = "lm_head",
    final_norm: int | None = None,
    other: int = 0,
    float32: int = 0,
    max_positions: int = 0,
    router_buffers: int = 0,
    learned_positions: bool = False,
) -> Arch:
    """The architecture of a decoder whose layer i is ``kinds[i]``; equal layers are held once."""
    fields.finish()
    layers: dict[Layer, int] = {}
    pattern = tuple(layers.setdefault(kind, len(layers)) for kind in kinds)
    tied = fields.flag("tie_word_embeddings") if tied is None else tied
    tables = (embedding(vocab, hidden),) if embeddings is None else embeddings
    heads = () if tied else (head(hidden, vocab, head_name, head_bias),)
    return Arch(
        name=name,
        model_type=fields.model_type,
        hidden=hidden,
        vocab=vocab,
        layers=tuple(layers),
        pattern=pattern,
        outer=(*tables, *heads, *outer),
        tied=tied,
        final_norm_parameters=norm(hidden, norm_kind) if final_norm is None else final_norm,
        other_parameters=other + (vocab if tied and head_bias else 0),
        float32_parameters=float32,
        router_buffers=router_buffers,
        max_positions=max_positions or positions(fields),
        layer_norm=norm_kind.startswith("layer"),
        learned_positions=learned_positions,
        logit_softcap=fields.has("final_logit_softcapping") or "final_logit_softcapping" in fields.defaults,
    )
