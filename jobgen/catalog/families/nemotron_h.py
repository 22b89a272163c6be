"""Nemotron-H: each layer is one thing, a Mamba-2 mixer, attention, an MLP or experts; none is gated."""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer
from jobgen.catalog.families import parts, recurrent, transformer
from jobgen.catalog.families.fields import Fields

LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
OLD = {"mamba": "linear_attention", "attention": "full_attention"}


def _types(fields: Fields) -> list[str]:
    pattern = fields.word("hybrid_override_pattern")
    if pattern:
        wrong = sorted(set(pattern) - set(LETTERS))
        if wrong:
            raise fields.bad(
                "hybrid_override_pattern", f"has letters other than {' '.join(LETTERS)}: {' '.join(wrong)}"
            )
        return [LETTERS[letter] for letter in pattern]
    for name in ("layers_block_type", "layer_types"):
        if fields.has(name):
            given = fields.words(name, 0) or []
            raw = fields.words(name, len(given) or 1)
            value = fields.config[name]
            raw = list(value) if isinstance(value, list) else raw or []
            kinds = [OLD.get(kind, kind) for kind in raw]
            wrong = sorted(set(kinds) - set(LETTERS.values()))
            if wrong:
                raise fields.bad(name, f"has unknown entries: {', '.join(wrong)}")
            return kinds
    fields.missing.append("hybrid_override_pattern or layers_block_type")
    return ["mlp"]


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv_heads, head_dim = transformer.kv_count(fields, heads), transformer.head_width(fields, hidden, heads)
    bias, mlp_bias = fields.flag("attention_bias"), fields.flag("mlp_bias")
    activation = fields.word("mlp_hidden_act", default="relu2")
    types = _types(fields)
    base = Layer("none", (), hidden, norms_hidden=1, gated=False, activation=activation)
    kinds: dict[str, Layer] = {}
    if "linear_attention" in types:
        kinds["linear_attention"] = recurrent.mamba2(
            hidden, fields.size("mamba_num_heads"), fields.size("mamba_head_dim"),
            fields.size("n_groups", "mamba_n_groups"), fields.size("ssm_state_size"),
            fields.size("conv_kernel", "mamba_d_conv"), fields.flag("use_bias"), fields.flag("use_conv_bias", True),
        ).layer(hidden, 1)  # fmt: skip
    if "full_attention" in types:
        kinds["full_attention"] = base._replace(
            mixer="full", matrices=parts.attention(hidden, heads, kv_heads, head_dim, bias, bias), heads=heads,
            kv_heads=kv_heads, head_dim=head_dim, value_dim=head_dim,
        )  # fmt: skip
    if "mlp" in types:
        ffn = fields.size("intermediate_size")
        kinds["mlp"] = base._replace(matrices=parts.mlp(hidden, ffn, mlp_bias, ("up_proj", "down_proj")), ffn=ffn)
    if "moe" in types:
        kinds["moe"] = _sparse(fields, base, hidden, mlp_bias)
    arch = parts.assemble(
        name, fields, [kinds[kind] for kind in types], hidden=hidden, vocab=fields.size("vocab_size"),
        embeddings=(parts.embedding(fields.size("vocab_size"), hidden, "embeddings"),),
        router_buffers=types.count("moe") * (kinds["moe"].experts if "moe" in kinds else 0),
    )  # fmt: skip
    return arch._replace(module_class="NemotronHBlock", moe_class="NemotronHMoE" if arch.moe else "")


def _sparse(fields: Fields, base: Layer, hidden: int, bias: bool) -> Layer:
    count, top_k = fields.size("n_routed_experts"), fields.size("num_experts_per_tok")
    ffn, shared = fields.size("moe_intermediate_size"), fields.size("moe_shared_expert_intermediate_size")
    latent = fields.size_or_none("moe_latent_size")
    matrices = (
        parts.router(hidden, count, linear_before=False, float32=True, adapters=False),
        *parts.experts(latent or hidden, ffn, count, linear_before=None, gated=False, adapters=False),
        *parts.mlp(hidden, shared, bias, ("up_proj", "down_proj"), "shared_expert"),
    )
    if latent:
        matrices += (
            parts.linear("fc1_latent_proj", hidden, latent, "mlp", "none", bias),
            parts.linear("fc2_latent_proj", latent, hidden, "mlp", "none", bias),
        )
    return base._replace(matrices=matrices, experts=count, top_k=top_k, expert_ffn=ffn, shared_ffn=shared)
