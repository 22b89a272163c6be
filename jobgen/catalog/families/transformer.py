"""The decoder that most families share, with what differs between them as data (``table.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from jobgen.catalog.arch import Arch, Layer, Matrix, Mixer
from jobgen.catalog.families import parts
from jobgen.catalog.families.fields import Fields
from jobgen.spec.record import NamedTuple

SEPARATE = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED = ("gate_proj", "up_proj", "down_proj")


class Moe(NamedTuple):
    """How a family mixes experts; names are those of the configuration's fields."""

    experts: Sequence[str] = ("num_experts", "num_local_experts")
    top_k: Sequence[str] = ("num_experts_per_tok",)
    ffn: Sequence[str] = ("moe_intermediate_size",)
    layers: str = "step"
    """``step``: decoder_sparse_step and mlp_only_layers; ``first``: dense up to first_k_dense_replace; ``all``;
    ``range``: ERNIE's moe_layer_start_index, end and interval."""
    shared: Sequence[str] = ()
    """Field with the number of shared experts (each as wide as a routed one)."""
    shared_ffn: str = ""
    """Field with the total width of the shared expert."""
    shared_default: int = 0
    shared_gate: bool = False
    """A one-column gate on the shared expert."""
    router: str = "gate"
    router_linear: bool = True
    """The gate was an ``nn.Linear`` before transformers 5."""
    router_always_linear: bool = False
    """The gate still is an ``nn.Linear`` (or a subclass: ``router_subclass``)."""
    router_subclass: bool = False
    router_float32: bool = False
    correction: str = ""
    """The correction bias of the scores: ``buffer`` or ``parameter``."""
    linear_before: Sequence[str] | None = GATED
    adapters: bool = True
    modules: bool = False
    """Each expert is a module of its own in every release."""


class Traits(NamedTuple):
    """What differs. A bias is "" (never), "+" (always) or the name of the field that says so."""

    qkv_bias: str = "attention_bias"
    out_bias: str = "attention_bias"
    mlp_bias: str = ""
    head_bias: str = ""
    attention: Sequence[str] = SEPARATE
    """Names of the projections; two names: query, key and value in one matrix, and the output."""
    mlp: Sequence[str] = GATED
    fused_gate: bool = False
    norm: str = "rms"
    norms: int = 2
    """Norms over the hidden size in a layer."""
    one_norm_flag: str = ""
    """Field that leaves one norm: attention and MLP side by side."""
    qk_norm: str = ""
    """``head``: over a head's width; ``head_layer``: the same with a bias; ``full``: over all heads."""
    qk_norm_flag: str = ""
    """Field that switches the query and key norm on."""
    sliding: str = ""
    """Which layers slide when ``layer_types`` is absent: ``all``, ``alternate``, ``after`` (max_window_layers) or a
    period N: all but each Nth."""
    moe: Moe | None = None
    layer_class: str = ""
    moe_class: str = ""
    ffn: Sequence[str] = ("intermediate_size",)
    head_name: str = "lm_head"


def _bias(fields: Fields, spec: str) -> bool:
    return spec == "+" or (spec != "" and fields.flag(spec))


def mixers(fields: Fields, traits: Traits, depth: int) -> list[Mixer]:
    """Full or sliding attention, layer by layer."""
    given = fields.words("layer_types", depth)
    window = parts.window(fields)
    if given is not None:
        return ["sliding" if "sliding" in kind and window else "full" for kind in given]
    rule = traits.sliding
    if not window or not rule:
        return ["full"] * depth
    if rule == "all":
        return ["sliding"] * depth
    if rule == "after":
        first = fields.size("max_window_layers", default=depth, least=0)
        return ["sliding" if index >= first else "full" for index in range(depth)]
    period = 2 if rule == "alternate" else int(rule)
    period = fields.size("sliding_window_pattern", default=period) if rule != "alternate" else period
    return ["full" if (index + 1) % period == 0 else "sliding" for index in range(depth)]


def sparse_layers(fields: Fields, moe: Moe, depth: int) -> list[bool]:
    """Which layers hold experts."""
    given = fields.words("mlp_layer_types", depth)
    if given is not None:
        return [kind == "sparse" for kind in given]
    if moe.layers == "all":
        return [True] * depth
    if moe.layers == "first":
        dense = fields.size("first_k_dense_replace", default=0, least=0)
        return [index >= dense for index in range(depth)]
    if moe.layers == "range":
        start = fields.size("moe_layer_start_index", default=0, least=0)
        end = fields.size("moe_layer_end_index", default=-1, least=-1)
        every = fields.size("moe_layer_interval", default=1)
        end = depth - 1 if end == -1 else end
        return [(index + 1) % every == 0 and start <= index <= end for index in range(depth)]
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = fields.numbers("mlp_only_layers") or []
    return [index not in dense_only and (index + 1) % step == 0 for index in range(depth)]


class Sparse(NamedTuple):
    """The experts' side of a layer."""

    matrices: tuple[Matrix, ...]
    experts: int
    top_k: int
    ffn: int
    shared_ffn: int
    buffers: int
    extra: int


def sparse(fields: Fields, moe: Moe, hidden: int) -> Sparse:
    """Router, routed and shared experts as a configuration describes them."""
    count = fields.size(*moe.experts)
    top_k = fields.size(*moe.top_k)
    ffn = fields.size(*moe.ffn)
    if not fields.missing and top_k > count:
        raise fields.bad(moe.top_k[0], f"is {top_k}, more than the {count} experts")
    shared = 0
    if moe.shared:
        shared = ffn * fields.size(*moe.shared, default=moe.shared_default, least=0)
    elif moe.shared_ffn:
        shared = fields.size(moe.shared_ffn, least=0)
    gate = parts.router(hidden, count, name=moe.router, linear_before=moe.router_linear or moe.router_always_linear,
                        float32=moe.router_float32, adapters=moe.adapters)  # fmt: skip
    if moe.router_always_linear:
        gate = gate._replace(fused_since=None, subclass=moe.router_subclass, adapter_rank=0)
    routed = parts.experts(
        hidden, ffn, count, linear_before=moe.linear_before, adapters=moe.adapters, modules=moe.modules
    )
    matrices = (gate, *routed)
    if shared:
        matrices += parts.mlp(hidden, shared, part="shared_expert")
        if moe.shared_gate:
            matrices += (parts.linear("shared_expert_gate", hidden, 1, "router", "none"),)
    buffers = count if moe.correction == "buffer" else 0
    return Sparse(matrices, count, top_k, ffn, shared, buffers, count if moe.correction == "parameter" else 0)


def head_width(fields: Fields, hidden: int, heads: int) -> int:
    """Width of a head: given, or the hidden size over the heads."""
    width = fields.size_or_none("head_dim")
    if width is None:
        if not fields.missing and hidden % heads:
            raise fields.bad("num_attention_heads", f"is {heads}, which does not divide the hidden size {hidden}")
        width = max(hidden // heads, 1)
    return width


def kv_count(fields: Fields, heads: int) -> int:
    """Number of key-value heads."""
    count = fields.size_or_none("num_key_value_heads")
    count = heads if count is None else count
    if not fields.missing and heads % count:
        raise fields.bad("num_key_value_heads", f"is {count}, which does not divide the {heads} attention heads")
    return count


def dropouts(fields: Fields) -> tuple[float, ...]:
    """Dropout probabilities inside a layer that are not zero."""
    names = ("resid_pdrop", "residual_dropout", "hidden_dropout", "dropout")
    return tuple(value for value in (fields.number(name) for name in names) if value)


def build(fields: Fields, name: str, traits: Traits, outer: tuple[Matrix, ...] = (), other: int = 0) -> Arch:
    """The architecture of a family of the table."""
    hidden = fields.size("hidden_size")
    depth = fields.size("num_hidden_layers")
    heads = fields.size("num_attention_heads")
    vocab = fields.size("vocab_size")
    ffn = fields.size(*traits.ffn) if traits.moe is None or traits.moe.layers != "all" else 0
    kv_heads, head_dim = kv_count(fields, heads), head_width(fields, hidden, heads)
    qkv, out = _bias(fields, traits.qkv_bias), _bias(fields, traits.out_bias)
    if len(traits.attention) == 2:
        width = (heads + 2 * kv_heads) * head_dim
        projections: tuple[Matrix, ...] = (
            parts.linear(traits.attention[0], hidden, width, "attention", "column", qkv),
            parts.linear(traits.attention[1], heads * head_dim, hidden, "attention", "row", out),
        )
    else:
        projections = parts.attention(hidden, heads, kv_heads, head_dim, qkv, out, traits.attention)
    norms_head = 0
    norms = 1 if traits.one_norm_flag and fields.flag(traits.one_norm_flag) else traits.norms
    norm_parameters = norms * parts.norm(hidden, traits.norm)
    if traits.qk_norm and (not traits.qk_norm_flag or fields.flag(traits.qk_norm_flag)):
        norms_head = 2
        norm_parameters += {
            "head": 2 * head_dim,
            "head_layer": 4 * head_dim,
            "full": (heads + kv_heads) * head_dim,
        }[traits.qk_norm]
    gated = len(traits.mlp) == 3 or traits.fused_gate
    activation = fields.word("hidden_act", "hidden_activation", "activation_function", default="silu")
    common = Layer(
        mixer="full",
        matrices=(),
        norm_parameters=norm_parameters,
        norms_hidden=norms,
        norms_head=norms_head,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        gated=gated,
        activation=activation,
        other_parameters=2 if activation == "xielu" else 0,
        dropouts=dropouts(fields),
    )
    plain = parts.mlp(hidden, ffn, _bias(fields, traits.mlp_bias), traits.mlp, fused_gate=traits.fused_gate)
    dense = common._replace(matrices=projections + plain, ffn=ffn)
    moe_layer, buffers, is_sparse = dense, 0, [False] * depth
    if traits.moe is not None:
        is_sparse = sparse_layers(fields, traits.moe, depth)
        mix = sparse(fields, traits.moe, hidden)
        moe_layer = common._replace(
            matrices=projections + mix.matrices,
            experts=mix.experts,
            top_k=mix.top_k,
            expert_ffn=mix.ffn,
            shared_ffn=mix.shared_ffn,
            other_parameters=mix.extra,
            router_parameters=mix.extra,
            float32_parameters=mix.extra,
        )
        buffers = mix.buffers * sum(is_sparse)
    window = parts.window(fields)
    kinds = [
        (moe_layer if is_moe else dense)._replace(mixer=mixer, window=window if mixer == "sliding" else None)
        for mixer, is_moe in zip(mixers(fields, traits, depth), is_sparse, strict=True)
    ]
    arch = parts.assemble(
        name,
        fields,
        kinds,
        hidden=hidden,
        vocab=vocab,
        outer=outer,
        head_bias=_bias(fields, traits.head_bias),
        norm_kind=traits.norm,
        head_name=traits.head_name,
        other=other,
        router_buffers=buffers,
    )
    base, epsilon = (fields.number(name) if fields.has(name) else 0.0 for name in ("rope_theta", "rms_norm_eps"))
    return arch._replace(module_class=traits.layer_class, moe_class=traits.moe_class if arch.moe else "", rotary_base=base, norm_epsilon=epsilon)
