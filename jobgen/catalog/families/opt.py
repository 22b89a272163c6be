"""OPT: learned positions (two more than the limit), biases everywhere, in the 350M model a narrower embedding."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer, Matrix
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads, ffn, vocab = fields.size("num_attention_heads"), fields.size("ffn_dim"), fields.size("vocab_size")
    positions = fields.size("max_position_embeddings")
    width = fields.size("word_embed_proj_dim", default=hidden)
    before, bias = fields.flag("do_layer_norm_before", True), fields.flag("enable_bias", True)
    final = before and not fields.flag("_remove_final_layer_norm")
    kind = "layer" if fields.flag("layer_norm_elementwise_affine", True) else "none"
    head_dim = transformer.head_width(fields, hidden, heads)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    layer = Layer(
        mixer="full",
        matrices=(
            *parts.attention(hidden, heads, heads, head_dim, bias, bias, names),
            *parts.mlp(hidden, ffn, bias, ("fc1", "fc2")),
        ),
        norm_parameters=2 * parts.norm(hidden, kind),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        ffn=ffn,
        gated=False,
        activation=fields.word("activation_function", default="relu"),
        dropouts=tuple(value for value in (fields.number("dropout"),) if value),
    )
    tables: tuple[Matrix, ...] = (
        parts.embedding(vocab, width),
        parts.embedding(positions + 2, hidden, "embed_positions", "none"),
    )
    if width != hidden:
        tables += (
            Matrix("project_in", width, hidden, "embedding", "none"),
            Matrix("project_out", hidden, width, "embedding", "none"),
        )
    arch = parts.assemble(
        name, fields, [layer] * depth, hidden=hidden, vocab=vocab, norm_kind="layer", embeddings=tables,
        final_norm=parts.norm(hidden, kind) if final else 0, max_positions=positions, learned_positions=True,
    )  # fmt: skip
    return arch._replace(module_class="OPTDecoderLayer")
