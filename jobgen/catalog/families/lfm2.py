"""LFM2: short gated convolutions with attention in some layers."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def _ffn(fields: Fields) -> int:
    """The MLP's width: two thirds of the nominal one, scaled and rounded up, unless that is switched off."""
    ffn = fields.size("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return ffn
    step = fields.size("block_multiple_of", default=256)
    ffn = int(fields.number("block_ffn_dim_multiplier", 1.0) * int(2 * ffn / 3))
    return step * -(-ffn // step)


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, vocab = fields.size("num_attention_heads"), fields.size("vocab_size")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    kernel, bias, ffn = fields.size("conv_L_cache"), fields.flag("conv_bias"), _ffn(fields)
    feed = parts.mlp(hidden, ffn, names=("w1", "w3", "w2"))
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    attention = Layer(
        mixer="full",
        matrices=parts.attention(hidden, heads, kv_heads, head_dim, names=names) + feed,
        norm_parameters=2 * hidden + 2 * head_dim,
        norms_head=2,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
    )
    kept = hidden * kernel + (hidden if bias else 0)
    convolution = Layer(
        mixer="conv",
        matrices=(
            parts.linear("in_proj", hidden, 3 * hidden, "attention", "column", bias),
            parts.linear("out_proj", hidden, hidden, "attention", "row", bias),
            *feed,
        ),
        norm_parameters=2 * hidden,
        other_parameters=kept,
        mixer_parameters=kept,
        state_dim=kernel,
        ffn=ffn,
    )
    types = fields.words("layer_types", depth)
    if types is None:
        listed = fields.numbers("full_attn_idxs")
        types = ["full_attention" if listed is None or index in listed else "conv" for index in range(depth)]
    tied = fields.flag("tie_embedding" if fields.has("tie_embedding") else "tie_word_embeddings", True)
    kinds = [attention if kind == "full_attention" else convolution for kind in types]
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=vocab, tied=tied)
    return arch._replace(module_class="Lfm2DecoderLayer")
