"""Granite 4: Mamba-2 or attention in each layer, a shared MLP in all of them, experts beside it or none."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, recurrent, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, shared = fields.size("num_attention_heads"), fields.size("shared_intermediate_size")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    bias, count = fields.flag("attention_bias"), fields.size("num_local_experts", least=0)
    activation = fields.word("hidden_act", default="silu")
    attention = Layer(
        mixer="full",
        matrices=parts.attention(hidden, heads, kv_heads, head_dim, bias, bias),
        norm_parameters=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
    )
    types = fields.words("layer_types", depth) or fields.words("layers_block_type", depth) or ["mamba"] * depth
    mamba = attention
    if any(kind in ("mamba", "linear_attention") for kind in types):
        mamba = _mamba(fields, hidden)
    matrices = parts.mlp(
        hidden, shared, names=("input_linear", "output_linear"), part="shared_expert" if count else "mlp",
        fused_gate=True,
    )  # fmt: skip
    feed = Layer("none", matrices, 0, ffn=shared)
    if count:
        ffn, top_k = fields.size("intermediate_size"), fields.size("num_experts_per_tok")
        matrices += (
            parts.router(hidden, count, name="router", adapters=False),
            *parts.experts(hidden, ffn, count, linear_before=None, adapters=False),
        )
        feed = Layer("none", matrices, 0, experts=count, top_k=top_k, expert_ffn=ffn, shared_ffn=shared)
    kinds = []
    for kind in types:
        layer = mamba if kind in ("mamba", "linear_attention") else attention
        kinds.append(
            layer._replace(
                matrices=layer.matrices + feed.matrices,
                activation=activation,
                ffn=feed.ffn,
                experts=feed.experts,
                top_k=feed.top_k,
                expert_ffn=feed.expert_ffn,
                shared_ffn=feed.shared_ffn,
            )
        )
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=fields.size("vocab_size"))
    return arch._replace(
        module_class="GraniteMoeHybridDecoderLayer", moe_class="GraniteMoeHybridMoE" if arch.moe else ""
    )


def _mamba(fields: Fields, hidden: int) -> Layer:
    heads = fields.size("mamba_n_heads")
    inner = fields.size("mamba_expand") * hidden
    if not fields.missing and inner % heads:
        raise fields.bad("mamba_n_heads", f"is {heads}, which does not divide the inner width {inner}")
    return recurrent.mamba2(
        hidden, heads, max(inner // heads, 1), fields.size("mamba_n_groups"), fields.size("mamba_d_state"),
        fields.size("mamba_d_conv"), fields.flag("mamba_proj_bias"), fields.flag("mamba_conv_bias", True),
    ).layer(hidden, 2)  # fmt: skip
