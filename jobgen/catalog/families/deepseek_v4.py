"""DeepSeek-V4: compressed sparse attention over one wide key-value head, hyper-connections between layers."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer, Matrix, Split
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields

RATIOS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def _linear(name: str, inputs: int, outputs: int, split: Split = "none", keep: bool = False) -> Matrix:
    return Matrix(name, inputs, outputs, "attention", split, keep=keep)


def _types(fields: Fields, depth: int) -> list[str]:
    given = fields.words("layer_types", depth)
    if given is not None:
        return given
    ratios = fields.numbers("compress_ratios")
    if ratios is not None:
        if len(ratios) < depth or set(ratios) - set(RATIOS):
            raise fields.bad("compress_ratios", f"must hold 0, 4 or 128 for each of the {depth} layers")
        return [RATIOS[ratio] for ratio in ratios[:depth]]
    return [RATIOS[4] if index > 1 and index % 2 else RATIOS[128] for index in range(depth)]


def build(fields: Fields, name: str) -> Arch:
    """The architecture. Norms, sinks, position biases and hyper-connections are held in fp32."""
    hidden, depth, vocab = fields.size("hidden_size"), fields.size("num_hidden_layers"), fields.size("vocab_size")
    heads, head_dim, rank = fields.size("num_attention_heads"), fields.size("head_dim"), fields.size("q_lora_rank")
    groups, out_rank, streams = fields.size("o_groups"), fields.size("o_lora_rank"), fields.size("hc_mult")
    if not fields.missing and heads * head_dim % groups:
        raise fields.bad("o_groups", f"is {groups}, which does not divide {heads} heads of {head_dim}")
    base_matrices = (
        _linear("q_a_proj", hidden, rank),
        _linear("q_b_proj", rank, heads * head_dim, "column"),
        _linear("kv_proj", hidden, head_dim),
        _linear("o_a_proj", heads * head_dim // groups, groups * out_rank, "column")._replace(subclass=True),
        _linear("o_b_proj", groups * out_rank, hidden, "row"),
    )
    mixing = (2 + streams) * streams
    hyper = 2 * (mixing * streams * hidden + mixing + 3)
    moe = transformer.Moe(
        ("n_routed_experts", "num_local_experts"), layers="all", router_linear=False, correction="buffer",
        linear_before=None, adapters=False,
    )  # fmt: skip
    mix = transformer.sparse(fields, moe, hidden)
    feed = mix.matrices + parts.mlp(hidden, mix.ffn, part="shared_expert")
    norms = 2 * hidden + rank + head_dim
    layer = Layer(
        mixer="full", matrices=(), norm_parameters=norms, heads=heads, kv_heads=1, head_dim=head_dim,
        value_dim=head_dim, latent_dims=(rank, head_dim, fields.size("qk_rope_head_dim", default=64)),
        experts=mix.experts, top_k=mix.top_k, expert_ffn=mix.ffn, shared_ffn=mix.ffn,
    )  # fmt: skip
    kinds = []
    for kind in _types(fields, depth):
        extra, extra_norm, bias = _compressor(fields, kind, hidden, head_dim, rank)
        other = heads + bias + hyper
        kinds.append(
            layer._replace(
                mixer="sliding" if kind == RATIOS[0] else "full",
                window=fields.size("sliding_window") if kind == RATIOS[0] else None,
                matrices=base_matrices + extra + feed,
                norm_parameters=norms + extra_norm,
                other_parameters=other,
                mixer_parameters=heads + bias,
                float32_parameters=other + norms + extra_norm,
            )
        )
    collapse = streams * streams * hidden + streams + 1
    hashed = fields.size("num_hash_layers", default=3, least=0)
    arch = parts.assemble(
        name, fields, kinds, hidden=hidden, vocab=vocab, other=collapse, float32=collapse + hidden,
        router_buffers=mix.buffers * max(depth - hashed, 0),
    )  # fmt: skip
    return arch._replace(module_class="DeepseekV4DecoderLayer", moe_class="DeepseekV4SparseMoeBlock")


def _compressor(
    fields: Fields, kind: str, hidden: int, head_dim: int, rank: int
) -> tuple[tuple[Matrix, ...], int, int]:
    """Matrices, norm elements and position biases of a layer's compressor."""
    if kind == RATIOS[0]:
        return (), 0, 0
    if kind == RATIOS[128]:
        pair = (_linear("kv_proj", hidden, head_dim, keep=True), _linear("gate_proj", hidden, head_dim, keep=True))
        return pair, head_dim, 128 * head_dim
    heads, width = fields.size("index_n_heads"), fields.size("index_head_dim")
    matrices = (
        _linear("kv_proj", hidden, 2 * head_dim, keep=True),
        _linear("gate_proj", hidden, 2 * head_dim, keep=True),
        _linear("kv_proj", hidden, 2 * width, keep=True),
        _linear("gate_proj", hidden, 2 * width, keep=True),
        _linear("q_b_proj", rank, heads * width),
        _linear("weights_proj", hidden, heads, keep=True),
    )
    return matrices, head_dim + width, 4 * 2 * (head_dim + width)
