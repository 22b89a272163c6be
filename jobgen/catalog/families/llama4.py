"""Llama 4: routed experts that never were ``nn.Linear`` with one shared expert, chunked attention in most layers."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import multimodal, parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture; with a ``text_config``, of the whole multimodal model."""
    if "text_config" in fields.config:
        return multimodal.build(fields, name)
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, ffn = fields.size("num_attention_heads"), fields.size("intermediate_size")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    count, top_k = fields.size("num_local_experts"), fields.size("num_experts_per_tok")
    dense_ffn, bias = fields.size("intermediate_size_mlp"), fields.flag("attention_bias")
    step, chunk = fields.size("interleave_moe_layer_step", default=1), fields.size_or_none("attention_chunk_size")
    layer = Layer(
        mixer="full",
        matrices=parts.attention(hidden, heads, kv_heads, head_dim, bias, bias),
        norm_parameters=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
    )
    gate = parts.router(hidden, count, name="router", adapters=False)._replace(fused_since=None, subclass=True)
    sparse = layer._replace(
        matrices=(
            *layer.matrices,
            gate,
            *parts.experts(hidden, ffn, count, linear_before=None, adapters=False),
            *parts.mlp(hidden, ffn, part="shared_expert"),
        ),
        experts=count,
        top_k=top_k,
        expert_ffn=ffn,
        shared_ffn=ffn,
    )
    dense = layer._replace(matrices=layer.matrices + parts.mlp(hidden, dense_ffn), ffn=dense_ffn)
    moe_layers = fields.numbers("moe_layers")
    with_experts = set(range(step - 1, depth, step) if moe_layers is None else moe_layers)
    types = fields.words("layer_types", depth)
    rope = fields.numbers("no_rope_layers") or []
    every = fields.size("no_rope_layer_interval", default=4)
    if len(rope) < depth:
        rope = [int((index + 1) % every != 0) for index in range(depth)]
    kinds = []
    for index in range(depth):
        chunked = types[index] == "chunked_attention" if types else bool(rope[index])
        kind = sparse if index in with_experts else dense
        kinds.append(kind._replace(mixer="chunked", window=chunk) if chunked and chunk else kind)
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=fields.size("vocab_size"))
    return arch._replace(module_class="Llama4TextDecoderLayer", moe_class="Llama4TextMoe" if arch.moe else "")
