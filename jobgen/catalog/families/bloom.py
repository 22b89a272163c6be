"""BLOOM: ALiBi instead of positions, a norm after the embedding, query, key and value in one matrix."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size", "n_embed"), fields.size("n_layer", "num_hidden_layers")
    heads, vocab = fields.size("n_head", "num_attention_heads"), fields.size("vocab_size")
    head_dim = transformer.head_width(fields, hidden, heads)
    layer = Layer(
        mixer="full",
        matrices=(
            parts.linear("query_key_value", hidden, 3 * hidden, "attention", "column", True),
            parts.linear("dense", hidden, hidden, "attention", "row", True),
            parts.linear("dense_h_to_4h", hidden, 4 * hidden, "mlp", "column", True),
            parts.linear("dense_4h_to_h", 4 * hidden, hidden, "mlp", "row", True),
        ),
        norm_parameters=4 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=4 * hidden,
        gated=False,
        activation="gelu",
    )
    tables = (parts.embedding(vocab, hidden, "word_embeddings"),)
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", embeddings=tables,
        final_norm=4 * hidden,
    )  # fmt: skip
    return arch._replace(module_class="BloomBlock")
