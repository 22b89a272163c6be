"""gpt-oss: biased experts that never were ``nn.Linear``, and a learned sink for each head."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, ffn = fields.size("num_attention_heads"), fields.size("intermediate_size")
    count, top_k = (
        fields.size("num_local_experts", "num_experts"),
        fields.size("num_experts_per_tok", "experts_per_token"),
    )
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    bias, window = fields.flag("attention_bias"), parts.window(fields)
    layer = Layer(
        mixer="full",
        matrices=(
            *parts.attention(hidden, heads, kv_heads, head_dim, bias, bias),
            parts.router(hidden, count, name="router", linear_before=False, bias=True, adapters=False),
            *parts.experts(hidden, ffn, count, linear_before=None, bias=True, adapters=False),
        ),
        norm_parameters=2 * hidden,
        other_parameters=heads,
        mixer_parameters=heads,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        experts=count,
        top_k=top_k,
        expert_ffn=ffn,
    )
    mixers = transformer.mixers(fields, transformer.Traits(sliding="alternate"), depth)
    kinds = [layer._replace(mixer=mixer, window=window if mixer == "sliding" else None) for mixer in mixers]
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=fields.size("vocab_size"))
    return arch._replace(module_class="GptOssDecoderLayer", moe_class="GptOssMLP")
