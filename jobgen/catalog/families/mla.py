"""Latent attention with a mixture of experts: DeepSeek-V2, V3, V3.2 and the GLM types that follow them.

Shapes: DeepSeek-V2 report (2405.04434, section 2.1) and transformers 5.24.0 modelling files.
"""

from __future__ import annotations

from jobgen.catalog.arch import Arch, Layer, Matrix
from jobgen.catalog.families import parts, transformer
from jobgen.catalog.families.fields import Fields
from jobgen.spec.record import NamedTuple

COUNT = ("n_routed_experts", "num_experts", "num_local_experts")
MOES = {
    "deepseek_v2": ("DeepseekV2DecoderLayer", "DeepseekV2Moe"),
    "deepseek_v3": ("DeepseekV3DecoderLayer", "DeepseekV3MoE"),
    "kimi_k2": ("DeepseekV3DecoderLayer", "DeepseekV3MoE"),
    "deepseek_v32": ("DeepseekV32DecoderLayer", "DeepseekV32MoE"),
    "glm_moe_dsa": ("GlmMoeDsaDecoderLayer", "GlmMoeDsaMoE"),
    "glm4_moe_lite": ("Glm4MoeLiteDecoderLayer", "Glm4MoeLiteMoE"),
}
"""model_type -> classes of the decoder layer and of the mixture in transformers."""


class Latent(NamedTuple):
    """Latent attention: its matrices, the elements of its norms, and the widths that a layer states."""

    matrices: tuple[Matrix, ...]
    norm_parameters: int
    heads: int
    head_dim: int
    value_dim: int
    ranks: tuple[int, ...]

    def layer(self, hidden: int) -> Layer:
        """A layer with this attention and two norms, still without an MLP."""
        return Layer(
            "mla", self.matrices, 2 * hidden + self.norm_parameters, heads=self.heads, kv_heads=self.heads,
            head_dim=self.head_dim, value_dim=self.value_dim, latent_dims=self.ranks,
        )  # fmt: skip


def latent(fields: Fields, hidden: int) -> Latent:
    """The projections of multi-head latent attention, with or without a compressed query."""
    heads = fields.size("num_attention_heads")
    nope, rope = fields.size("qk_nope_head_dim"), fields.size("qk_rope_head_dim")
    value, kv_rank = fields.size("v_head_dim"), fields.size("kv_lora_rank")
    q_rank = fields.size_or_none("q_lora_rank")
    bias = fields.flag("attention_bias")
    width = heads * (nope + rope)
    if q_rank is None:
        query: tuple[Matrix, ...] = (parts.linear("q_proj", hidden, width, "attention", "column"),)
    else:
        query = (
            parts.linear("q_a_proj", hidden, q_rank, "attention", "none", bias),
            parts.linear("q_b_proj", q_rank, width, "attention", "column"),
        )
    matrices = (
        *query,
        parts.linear("kv_a_proj_with_mqa", hidden, kv_rank + rope, "attention", "none", bias),
        parts.linear("kv_b_proj", kv_rank, heads * (nope + value), "attention", "column"),
        parts.linear("o_proj", heads * value, hidden, "attention", "row", bias),
    )
    ranks = (q_rank or 0, kv_rank, rope)
    return Latent(matrices, (q_rank or 0) + kv_rank, heads, nope + rope, value, ranks)


def indexer(fields: Fields, hidden: int) -> tuple[tuple[Matrix, ...], int]:
    """The token selector of sparse attention (DeepSeek-V3.2) and the elements of its LayerNorm."""
    rank, heads, width = fields.size("q_lora_rank"), fields.size("index_n_heads"), fields.size("index_head_dim")
    weights = parts.linear("weights_proj", hidden, heads, "attention", "none")._replace(keep=True)
    matrices = (
        parts.linear("wq_b", rank, heads * width, "attention", "none"),
        parts.linear("wk", hidden, width, "attention", "none"),
        weights,
    )
    return matrices, 2 * width


def indexed(fields: Fields, depth: int) -> list[bool]:
    """Which layers select tokens themselves (GLM-5 lets some reuse the layer below's choice)."""
    if not fields.model_type.endswith(("_v32", "_dsa")):
        return [False] * depth
    given = fields.words("indexer_types", depth)
    if given is not None:
        return [kind == "full" for kind in given]
    pattern = fields.config.get("index_topk_pattern")
    if isinstance(pattern, str) and len(pattern) >= depth:
        return [letter == "F" for letter in pattern[:depth]]
    every = fields.size("index_topk_freq", default=1)
    offset = fields.size("index_skip_topk_offset", default=2, least=0)
    return [max(index - offset + 1, 0) % every == 0 for index in range(depth)]


def build(fields: Fields, name: str) -> Arch:
    """The architecture."""
    hidden, depth = fields.size("hidden_size"), fields.size("num_hidden_layers")
    vocab, ffn = fields.size("vocab_size"), fields.size("intermediate_size")
    old = fields.model_type == "deepseek_v2"
    moe = transformer.Moe(
        COUNT, layers="first", shared=("n_shared_experts",), router_linear=False, router_float32=True,
        correction="" if old else "buffer",
    )  # fmt: skip
    attention = latent(fields, hidden)
    base = attention.layer(hidden)._replace(activation=fields.word("hidden_act", default="silu"))
    mix = transformer.sparse(fields, moe, hidden)
    dense = base._replace(matrices=base.matrices + parts.mlp(hidden, ffn, fields.flag("mlp_bias")), ffn=ffn)
    sparse = base._replace(
        matrices=base.matrices + mix.matrices, experts=mix.experts, top_k=mix.top_k, expert_ffn=mix.ffn,
        shared_ffn=mix.shared_ffn,
    )  # fmt: skip
    if fields.model_type == "glm4_moe_lite" and not fields.has("first_k_dense_replace"):
        is_sparse = [index > 0 for index in range(depth)]
    else:
        is_sparse = transformer.sparse_layers(fields, moe, depth)
    selects = indexed(fields, depth)
    extra, extra_norm = indexer(fields, hidden) if any(selects) else ((), 0)
    kinds = []
    for index in range(depth):
        kind = sparse if is_sparse[index] else dense
        if selects[index]:
            kind = kind._replace(matrices=kind.matrices + extra, norm_parameters=kind.norm_parameters + extra_norm)
        kinds.append(kind)
    arch = parts.assemble(name, fields, kinds, hidden=hidden, vocab=vocab, router_buffers=mix.buffers * sum(is_sparse))
    layer_class, moe_class = MOES[fields.model_type]
    return arch._replace(module_class=layer_class, moe_class=moe_class if arch.moe else "")
