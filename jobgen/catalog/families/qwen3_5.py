"""Qwen3-Next and Qwen3.5: three gated delta layers to one of attention with an output gate, dense or with experts."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import multimodal, parts, recurrent, transformer
from jobgen.catalog.families.fields import Fields

CLASSES = {
    "qwen3_next": ("Qwen3NextDecoderLayer", "Qwen3NextSparseMoeBlock"),
    "qwen3_5": ("Qwen3_5DecoderLayer", ""),
    "qwen3_5_moe": ("Qwen3_5MoeDecoderLayer", "Qwen3_5MoeSparseMoeBlock"),
}
"""model_type without ``_text`` -> classes of the decoder layer and of the mixture in transformers."""


def build(fields: Fields, name: str) -> Arch:
    """The architecture; with a ``text_config``, of the whole multimodal model."""
    if "text_config" in fields.config:
        return multimodal.build(fields, name)
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads = fields.size("num_attention_heads")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    bias = fields.flag("attention_bias")
    family = fields.model_type.removesuffix("_text")
    attention = Layer(
        mixer="full",
        matrices=parts.attention(hidden, heads, kv_heads, head_dim, bias, bias, query=2),
        norm_parameters=2 * hidden + 2 * head_dim,
        norms_head=2,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
    )
    delta = recurrent.gated_delta(fields, hidden).layer(hidden, 2)
    types = fields.words("layer_types", depth)
    if types is None:
        every = fields.size("full_attention_interval", default=4)
        types = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(depth)]
    has_experts = family != "qwen3_5"
    moe = transformer.Moe(
        shared_ffn="shared_expert_intermediate_size", shared_gate=True, adapters=family == "qwen3_next",
        layers="step" if family == "qwen3_next" else "all",
    )  # fmt: skip
    is_sparse = transformer.sparse_layers(fields, moe, depth) if has_experts else [False] * depth
    mix = transformer.sparse(fields, moe, hidden) if has_experts else None
    ffn = fields.size("intermediate_size") if not all(is_sparse) else 0
    kinds = []
    for kind, sparse in zip(types, is_sparse, strict=True):
        layer = delta if kind in ("linear_attention", "mamba") else attention
        if sparse and mix:
            layer = layer._replace(
                matrices=layer.matrices + mix.matrices, experts=mix.experts, top_k=mix.top_k, expert_ffn=mix.ffn,
                shared_ffn=mix.shared_ffn,
            )  # fmt: skip
        else:
            layer = layer._replace(matrices=layer.matrices + parts.mlp(hidden, ffn), ffn=ffn)
        kinds.append(layer)
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=fields.size("vocab_size"))
    layer_class, moe_class = CLASSES[family]
    return arch._replace(module_class=layer_class, moe_class=moe_class if arch.moe else "")
