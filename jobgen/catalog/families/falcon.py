"""Falcon: attention and MLP side by side, query, key and value in one matrix of a subclass of ``nn.Linear``."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden = fields.size("hidden_size", "n_embed")
    depth = fields.size("num_hidden_layers", "n_layer")
    heads = fields.size("num_attention_heads", "n_head")
    vocab, ffn = fields.size("vocab_size"), fields.size("ffn_hidden_size", default=4 * hidden)
    new, parallel = fields.flag("new_decoder_architecture"), fields.flag("parallel_attn", True)
    if not fields.missing and hidden % heads:
        raise fields.bad("num_attention_heads", f"is {heads}, which does not divide the hidden size {hidden}")
    head_dim = max(hidden // heads, 1)
    if new:
        kv_heads = fields.size("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if fields.flag("multi_query", True) else heads
    bias = fields.flag("bias")
    matrices = (
        parts.linear("query_key_value", hidden, (heads + 2 * kv_heads) * head_dim, "attention", "column", bias),
        parts.linear("dense", hidden, hidden, "attention", "row", bias),
        parts.linear("dense_h_to_4h", hidden, ffn, "mlp", "column", bias),
        parts.linear("dense_4h_to_h", ffn, hidden, "mlp", "row", bias),
    )
    norms = fields.size("num_ln_in_parallel_attn", default=2 if new else 1) if parallel else 2
    layer = Layer(
        mixer="full",
        matrices=tuple(matrix._replace(subclass=True) for matrix in matrices),
        norm_parameters=norms * 2 * hidden,
        norms_hidden=norms,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
        gated=False,
        activation=fields.word("activation", default="gelu"),
    )
    tables = (parts.embedding(vocab, hidden, "word_embeddings"),)
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", embeddings=tables
    )
    return arch._replace(module_class="FalconDecoderLayer")
