"""GPT-2 and GPT-BigCode: learned positions, query, key and value in one matrix (one key-value head in the latter)."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture. GPT-2's projections are ``Conv1D``, which quantisers and adapters take like ``nn.Linear``."""
    hidden, depth = fields.size("n_embd", "hidden_size"), fields.size("n_layer", "num_hidden_layers")
    heads, vocab = fields.size("n_head", "num_attention_heads"), fields.size("vocab_size")
    positions = fields.size("n_positions", "max_position_embeddings")
    ffn = fields.size("n_inner", default=4 * hidden)
    head_dim = transformer.head_width(fields, hidden, heads)
    one = fields.model_type == "gpt_bigcode" and fields.flag("multi_query", True)
    kv_heads = 1 if one else heads
    layer = Layer(
        mixer="full",
        matrices=(
            parts.linear("c_attn", hidden, hidden + 2 * kv_heads * head_dim, "attention", "column", True),
            parts.linear("c_proj", hidden, hidden, "attention", "row", True),
            parts.linear("c_fc", hidden, ffn, "mlp", "column", True),
            parts.linear("c_proj", ffn, hidden, "mlp", "row", True),
        ),
        norm_parameters=4 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
        gated=False,
        activation=fields.word("activation_function", default="gelu_new"),
        dropouts=tuple(value for value in (fields.number("resid_pdrop"),) if value),
    )
    tables = (parts.embedding(vocab, hidden, "wte"), parts.embedding(positions, hidden, "wpe", "none"))
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", embeddings=tables,
        max_positions=positions, learned_positions=True,
    )  # fmt: skip
    return arch._replace(module_class="GPT2Block" if fields.model_type == "gpt2" else "GPTBigCodeBlock")
