"""GPT-NeoX (Pythia): LayerNorm, biases everywhere but in the head, query, key and value in one matrix."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, ffn = fields.size("num_attention_heads"), fields.size("intermediate_size")
    vocab, bias = fields.size("vocab_size"), fields.flag("attention_bias", True)
    head_dim = transformer.head_width(fields, hidden, heads)
    layer = Layer(
        mixer="full",
        matrices=(
            parts.linear("query_key_value", hidden, 3 * hidden, "attention", "column", bias),
            parts.linear("dense", hidden, hidden, "attention", "row", bias),
            parts.linear("dense_h_to_4h", hidden, ffn, "mlp", "column", True),
            parts.linear("dense_4h_to_h", ffn, hidden, "mlp", "row", True),
        ),
        norm_parameters=4 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
        gated=False,
        activation=fields.word("hidden_act", default="gelu"),
        dropouts=tuple(value for value in (fields.number("hidden_dropout"),) if value),
    )
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", head_name="embed_out",
        embeddings=(parts.embedding(vocab, hidden, "embed_in"),),
    )  # fmt: skip
    return arch._replace(module_class="GPTNeoXLayer")
