"""MiniMax-Text-01: seven lightning attention layers to one of softmax attention, experts in all."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, vocab = fields.size("num_attention_heads"), fields.size("vocab_size")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    moe = transformer.Moe(
        ("num_local_experts",), ffn=("intermediate_size",), layers="all", linear_before=("w1", "w3", "w2")
    )
    mix = transformer.sparse(fields, moe, hidden)
    width = heads * head_dim
    full = Layer(
        mixer="full",
        matrices=parts.attention(hidden, heads, kv_heads, head_dim) + mix.matrices,
        norm_parameters=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        experts=mix.experts,
        top_k=mix.top_k,
        expert_ffn=mix.ffn,
    )
    lightning = full._replace(
        mixer="linear",
        matrices=(
            parts.linear("qkv_proj", hidden, 3 * width, "attention", "column"),
            parts.linear("out_proj", width, hidden, "attention", "row"),
            parts.linear("output_gate", hidden, width, "attention", "column"),
            *mix.matrices,
        ),
        norm_parameters=2 * hidden + width,
        kv_heads=heads,
        state_dim=head_dim,
    )
    types = fields.words("layer_types", depth)
    if types is None:
        types = ["linear_attention" if index % 2 else "full_attention" for index in range(depth)]
    kinds = [lightning if kind == "linear_attention" else full for kind in types]
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=vocab)
    return arch._replace(module_class="MiniMaxDecoderLayer", moe_class="MiniMaxSparseMoeBlock")
