"""Gemma 4: wide heads in full layers, keys reused as values there, experts beside the MLP, per-layer embeddings."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer, Matrix
from jobgen.catalog.families import multimodal, parts
from jobgen.catalog.families.fields import Fields


def _layer(fields: Fields, hidden: int, full: bool, shared: bool) -> Layer:
    heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
    head_dim, bias = fields.size("head_dim"), fields.flag("attention_bias")
    same = full and fields.flag("attention_k_eq_v")
    if full:
        head_dim = fields.size("global_head_dim", default=head_dim)
    if same:
        kv_heads = fields.size("num_global_key_value_heads", default=kv_heads)
    ffn = fields.size("intermediate_size") * (2 if shared and fields.flag("use_double_wide_mlp") else 1)
    q, k, v, o = parts.attention(hidden, heads, kv_heads, head_dim, bias, bias)
    attention = (q, o) if shared else (q, k, o) if same else (q, k, v, o)
    norms, extra = 4, 0
    matrices = attention + parts.mlp(hidden, ffn)
    layer = Layer(
        mixer="full" if full else "sliding",
        matrices=matrices,
        norm_parameters=0,
        norms_head=1 if shared else 2,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        window=None if full else fields.size_or_none("sliding_window"),
        ffn=ffn,
        activation=fields.word("hidden_activation", default="gelu_pytorch_tanh"),
    )
    if fields.flag("enable_moe_block"):
        count, top_k = fields.size("num_experts"), fields.size("top_k_experts")
        expert_ffn = fields.size("moe_intermediate_size")
        gate = Matrix("proj", hidden, count, "router", "none")
        matrices += (gate, *parts.experts(hidden, expert_ffn, count, linear_before=None, adapters=False))
        norms, extra = norms + 3, hidden + count
        layer = layer._replace(experts=count, top_k=top_k, expert_ffn=expert_ffn)
    per_layer = fields.size("hidden_size_per_layer_input", default=0, least=0)
    if per_layer:
        matrices += (
            parts.linear("per_layer_input_gate", hidden, per_layer, "mlp", "none"),
            parts.linear("per_layer_projection", per_layer, hidden, "mlp", "none"),
        )
        norms += 1
    return layer._replace(
        matrices=matrices,
        norms_hidden=norms,
        norm_parameters=norms * hidden + layer.norms_head * head_dim,
        other_parameters=extra,
        router_parameters=extra,
    )


def build(fields: Fields, name: str) -> Arch:
    """The architecture; with a ``text_config``, of the whole multimodal model."""
    if "text_config" in fields.config:
        return multimodal.build(fields, name)
    hidden, depth, vocab = fields.size("hidden_size"), fields.size("num_hidden_layers"), fields.size("vocab_size")
    types = fields.words("layer_types", depth)
    if types is None:
        types = ["full_attention" if (index + 1) % 6 == 0 else "sliding_attention" for index in range(depth)]
    types = [*types[:-1], "full_attention"]
    first_shared = depth - fields.size("num_kv_shared_layers", default=0, least=0)
    kinds = [_layer(fields, hidden, kind == "full_attention", i >= first_shared) for i, kind in enumerate(types)]
    per_layer = fields.size("hidden_size_per_layer_input", default=0, least=0)
    tables: tuple[Matrix, ...] = (parts.embedding(vocab, hidden),)
    other = 0
    if per_layer:
        width = depth * per_layer
        per_vocab = fields.size("vocab_size_per_layer_input", default=vocab)
        tables += (
            parts.embedding(per_vocab, width, "embed_tokens_per_layer"),
            Matrix("per_layer_model_projection", hidden, width, "embedding", "none"),
        )
        other = per_layer
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=vocab, embeddings=tables, other=other)
    return arch._replace(module_class="Gemma4TextDecoderLayer", moe_class="Gemma4TextExperts" if arch.moe else "")
