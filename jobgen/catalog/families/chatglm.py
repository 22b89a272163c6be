"""ChatGLM2 and 3, GLM-4-9B's first release (code comes with the weights): grouped heads, gate and up in one matrix."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_layers", "num_hidden_layers")
    heads, ffn = fields.size("num_attention_heads"), fields.size("ffn_hidden_size")
    vocab = fields.size("padded_vocab_size", "vocab_size")
    head_dim = fields.size("kv_channels", default=max(hidden // heads, 1))
    grouped = fields.flag("multi_query_attention")
    kv_heads = fields.size("multi_query_group_num") if grouped else heads
    bias = fields.flag("add_bias_linear")
    qkv = bias or fields.flag("add_qkv_bias")
    layer = Layer(
        mixer="full",
        matrices=(
            parts.linear("query_key_value", hidden, (heads + 2 * kv_heads) * head_dim, "attention", "column", qkv),
            parts.linear("dense", heads * head_dim, hidden, "attention", "row", bias),
            *parts.mlp(hidden, ffn, bias, ("dense_h_to_4h", "dense_4h_to_h"), fused_gate=True),
        ),
        norm_parameters=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
    )
    tables = (parts.embedding(vocab, hidden, "word_embeddings"),)
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, embeddings=tables, head_name="output_layer",
        max_positions=fields.size("seq_length", default=0, least=0),
    )  # fmt: skip
    return arch._replace(module_class="GLMBlock")
