"""The first Qwen (code comes with the weights): query, key and value in one matrix, ``intermediate_size`` twice the MLP's width."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, ffn, vocab = fields.size("num_attention_heads"), fields.size("intermediate_size"), fields.size("vocab_size")
    head_dim = fields.size("kv_channels", default=max(hidden // heads, 1))
    bias, width = not fields.flag("no_bias", True), heads * head_dim
    layer = Layer(
        mixer="full",
        matrices=(
            parts.linear("c_attn", hidden, 3 * width, "attention", "column", True),
            parts.linear("c_proj", width, hidden, "attention", "row", bias),
            *parts.mlp(hidden, max(ffn // 2, 1), bias, ("w1", "w2", "c_proj")),
        ),
        norm_parameters=2 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=max(ffn // 2, 1),
    )
    tables = (parts.embedding(vocab, hidden, "wte"),)
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, embeddings=tables,
        max_positions=fields.size("max_position_embeddings", "seq_length", default=0, least=0),
    )  # fmt: skip
    return arch._replace(module_class="QWenBlock")
