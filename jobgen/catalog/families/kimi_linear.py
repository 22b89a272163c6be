"""Kimi Linear: latent attention every fourth layer, delta attention with a decay for each channel between."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import mla, parts, recurrent, transformer
from jobgen.catalog.families.fields import Fields

MOE = transformer.Moe(
    ("num_experts", "num_local_experts"), ("num_experts_per_token", "num_experts_per_tok"), layers="first",
    shared=("num_shared_experts", "n_shared_experts"), router_linear=False, router_float32=True, correction="buffer",
    linear_before=None, adapters=False,
)  # fmt: skip


def _delta(fields: Fields, hidden: int) -> Layer:
    given = fields.section("linear_attn_config")
    reader = Fields(given, fields.model_type, {}, "linear_attn_config")
    head_dim = reader.size("head_dim", default=fields.size("linear_head_dim", default=128))
    heads = reader.size("num_heads", default=fields.size("linear_num_heads", default=32))
    kernel = reader.size("short_conv_kernel_size", default=fields.size("linear_conv_kernel_dim", default=4))
    width = heads * head_dim
    matrices = tuple(
        parts.linear(name, hidden, width, "attention", "column") for name in ("q_proj", "k_proj", "v_proj")
    )
    matrices += (
        parts.linear("f_a_proj", hidden, head_dim, "attention", "none"),
        parts.linear("f_b_proj", head_dim, width, "attention", "column"),
        parts.linear("b_proj", hidden, heads, "attention", "column"),
        parts.linear("g_a_proj", hidden, head_dim, "attention", "none"),
        parts.linear("g_b_proj", head_dim, width, "attention", "column"),
        parts.linear("o_proj", width, hidden, "attention", "row"),
    )
    return recurrent.Recurrent(
        mixer="linear",
        matrices=matrices,
        norm_parameters=head_dim,
        other_parameters=3 * width * kernel + width + heads,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        state_dim=head_dim,
        float32_parameters=width,
    ).layer(hidden, 2)


def _full_layers(fields: Fields, depth: int) -> list[bool]:
    types = fields.words("layer_types", depth)
    if types is not None:
        return [kind == "full_attention" for kind in types]
    section = Fields(fields.section("linear_attn_config"), fields.model_type, {}, "linear_attn_config")
    listed = section.numbers("full_attn_layers")
    if listed is not None:
        return [index + 1 in listed for index in range(depth)]
    return [bool(index) and index % 4 == 0 for index in range(depth)]


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    ffn, vocab = fields.size("intermediate_size"), fields.size("vocab_size")
    mix = transformer.sparse(fields, MOE, hidden)
    full, delta = mla.latent(fields, hidden).layer(hidden), _delta(fields, hidden)
    types = fields.words("mlp_layer_types", depth)
    dense = fields.size("first_k_dense_replace", default=1, least=0)
    is_sparse = [kind == "sparse" for kind in types] if types else [index >= dense for index in range(depth)]
    kinds = []
    for is_full, sparse in zip(_full_layers(fields, depth), is_sparse, strict=True):
        layer = full if is_full else delta
        if sparse:
            layer = layer._replace(
                matrices=layer.matrices + mix.matrices, experts=mix.experts, top_k=mix.top_k, expert_ffn=mix.ffn,
                shared_ffn=mix.shared_ffn,
            )  # fmt: skip
        else:
            layer = layer._replace(matrices=layer.matrices + parts.mlp(hidden, ffn), ffn=ffn)
        kinds.append(layer)
    arch = parts.assemble(
        name, fields, kinds, hidden=hidden, vocab=vocab, router_buffers=mix.buffers * sum(is_sparse),
        max_positions=fields.size("model_max_length", "max_position_embeddings", default=0, least=0),
    )  # fmt: skip
    return arch._replace(module_class="KimiLinearDecoderLayer", moe_class="KimiLinearMoE" if arch.moe else "")
