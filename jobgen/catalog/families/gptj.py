"""GPT-J: attention and MLP side by side after one norm, no bias in the attention, a bias in the head."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("n_embd", "hidden_size"), fields.size("n_layer", "num_hidden_layers")
    heads, vocab = fields.size("n_head", "num_attention_heads"), fields.size("vocab_size")
    ffn, head_dim = fields.size("n_inner", default=4 * hidden), transformer.head_width(fields, hidden, heads)
    layer = Layer(
        mixer="full",
        matrices=(
            *parts.attention(hidden, heads, heads, head_dim, names=("q_proj", "k_proj", "v_proj", "out_proj")),
            *parts.mlp(hidden, ffn, True, ("fc_in", "fc_out")),
        ),
        norm_parameters=2 * hidden,
        norms_hidden=1,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
        gated=False,
        activation=fields.word("activation_function", default="gelu_new"),
        dropouts=tuple(value for value in (fields.number("resid_pdrop"),) if value),
    )
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", head_bias=True,
        embeddings=(parts.embedding(vocab, hidden, "wte"),),
    )  # fmt: skip
    return arch._replace(module_class="GPTJBlock")
