"""How model code computes a layer, as far as memory sees it: by model type (transformers) and by framework.

transformers' modules differ in the order of casts inside norms and in activation functions; other frameworks have
their own modules or fused kernels. Every entry names the file it was read in.
"""

from __future__ import annotations

from typing import Literal

from jobgen.spec.record import NamedTuple

Norm = Literal["rms", "rms_float32", "layer", "layer_float32", "layer_cast", "fused", "fused_float32"]
"""How a norm is computed.

rms: x to fp32, square, mean, rsqrt, product, back to the input's type, times weight (LlamaRMSNorm).
rms_float32: the weight is multiplied before the cast back (GemmaRMSNorm, Olmo2RMSNorm).
layer: torch's native layer_norm, which saves its input, mean and reciprocal deviation.
layer_float32: LayerNorm written out in fp32 (CohereLayerNorm).
layer_cast: native layer_norm over an fp32 copy of the input, no weight (OlmoLayerNorm).
fused: one kernel that saves its input and one fp32 number per row (torch's _fused_rms_norm, Liger, Transformer Engine).
fused_float32: the same over an fp32 copy of the input (torchtune's Fp32LayerNorm-like norms).
"""

Order = Literal["pre", "post", "both"]
"""Where the norms of a layer stand: before attention and MLP, after them, or both."""


class Module(NamedTuple):
    """What transformers does for one model type; the default is Llama's layer."""

    norm: Norm = "rms"
    order: Order = "pre"
    router_float32: bool = False
    """The router multiplies an fp32 copy of the hidden states."""
    positions: Literal["rotary", "partial", "none"] = "rotary"
    """rotary: products only; partial: the turned part and the rest are joined into a new tensor, head by head; the
    flash kernels then write an output of that layout, which is copied for the output projection."""
    softmax: Literal["float32", "upcast", "native", "sink"] = "float32"
    """Eager scores: soft-maxed in fp32 and cast back; from queries and keys in fp32 on; in their own type; so with a
    sink column."""
    attention_dropout: bool = False
    """Eager scores pass a dropout: one byte of mask and a scaled copy per score."""
    parallel: bool = False
    """Attention and MLP both read the layer's input, each through a norm of its own."""
    value_norm: bool = False
    """Values pass a norm without a weight."""
    router_norm: bool = False
    """The router has a norm and a scale of its own."""
    all_experts: bool = False
    """Every expert sees every token, scaled by its score (zero where it was not chosen)."""
    indexed_experts: bool = False
    """Its experts are one parameter, which a loop indexed expert by expert before transformers 5."""
    clamped: bool = False
    """Experts clamp gate and up and use ``gate * sigmoid(alpha * gate) * (up + 1)``."""
    softcap: bool = False
    """Scores pass a tanh, which only eager (and flex, flash) attention computes."""


MODULES: dict[str, Module] = {
    # transformers 5.24.0, models/*/modeling_*.py: the class of the norm and of the decoder layer
    "gemma": Module("rms_float32"),
    "gemma2": Module("rms_float32", "both", softcap=True),
    "gemma3": Module("rms_float32", "both"),
    "gemma3_text": Module("rms_float32", "both"),
    "gemma4": Module("rms_float32", "both", value_norm=True, router_norm=True),
    "gpt_oss": Module("rms_float32", softmax="sink", indexed_experts=True, clamped=True),
    "olmo": Module("layer_cast"),
    "olmo2": Module("rms_float32", "post"),
    "olmo3": Module("rms_float32", "post"),
    "exaone4": Module("rms", "post"),
    "glm": Module(positions="partial"),
    "glm4": Module("rms", "both", positions="partial"),
    "phi": Module("layer", positions="partial"),
    "phi3": Module(positions="partial"),
    "stablelm": Module("layer", positions="partial"),
    "gpt_neox": Module("layer", positions="partial", parallel=True),
    "gptj": Module("layer", softmax="upcast"),
    "nemotron": Module("layer", positions="partial"),
    "falcon": Module("layer", softmax="native", parallel=True),
    "bloom": Module("layer", positions="none"),
    "gpt2": Module("layer", positions="none", softmax="native", attention_dropout=True),
    "gpt_bigcode": Module("layer", positions="none", attention_dropout=True),
    "opt": Module("layer", positions="none"),
    "cohere": Module("layer_float32"),
    "cohere2": Module("layer_float32"),
    "nemotron_h": Module("rms_float32"),
    "qwen3_next": Module("rms_float32", positions="partial"),
    "qwen3_5": Module("rms_float32", positions="partial"),
    "qwen3_5_moe": Module("rms_float32", positions="partial"),
    "deepseek_v4": Module("rms_float32"),
    "deepseek_v2": Module(router_float32=True),
    "deepseek_v3": Module(router_float32=True),
    "deepseek_v32": Module(router_float32=True),
    "kimi_k2": Module(router_float32=True),
    "glm4_moe": Module(router_float32=True, positions="partial"),
    "glm4_moe_lite": Module(router_float32=True),
    "glm_moe_dsa": Module(router_float32=True),
    "dots1": Module(router_float32=True),
    "hunyuan_v1_moe": Module(router_float32=True),
    "llama4": Module(softmax="native", all_experts=True),
    "llama4_text": Module(softmax="native", all_experts=True),
    "ernie4_5_moe": Module(router_float32=True),
}


def module(model_type: str, layer_norm: bool) -> Module:
    """The entry of a model type, or Llama's layer with the kind of norm that the architecture states."""
    return MODULES.get(model_type, Module(norm="layer") if layer_norm else Module())


class Style(NamedTuple):
    """What a framework's own modules or kernels change."""

    norm: Norm | None = None
    """Replaces the model type's norm."""
    glu: Literal["module", "fused"] = "module"
    """fused: one kernel for activation and product that saves gate and up only and makes the product for the next
    matmul (Liger's SwiGLU, Megatron's bias_swiglu); the activated gate is never kept."""
    expand_kv: bool = True
    """Key and value heads are copied to the number of query heads where the kernel needs it (eager, efficient)."""
    softmax: Literal["module", "native"] = "module"
    """native: scores are soft-maxed in their own type (one fused kernel)."""
    repeat_kv: Literal["kernel", "always"] = "kernel"
    """always: keys and values are copied to the number of query heads before any kernel."""
    fused_qkv: bool = False
    """Query, key and value come from one matrix, whatever the checkpoint's layout; values stay a view of its output."""
    joined_heads: bool = False
    """The turned and the other part of each head are joined (transformers does so for partial rotary positions only)."""
    weighted_inside: bool = False
    """Routing weights are multiplied inside the experts' activation, so that their outputs are not kept."""
    native_activations: bool = False
    """torch's own kernel for every activation, where transformers writes some out."""
    source: str = ""


HF = Style(source="transformers 5.24.0, models/*/modeling_*.py")
STYLES: dict[str, Style] = {
    "torchtitan": Style("fused", repeat_kv="always", native_activations=True, source="torchtitan models/llama3/model/model.py: nn.RMSNorm; torch 2.9 rms_norm is one kernel"),
    "torchtune": Style("fused_float32", repeat_kv="always", native_activations=True, source="torchtune modules/rms_norm.py: F.rms_norm over the fp32 input"),
    "litgpt": Style(
        "rms_float32", repeat_kv="always", fused_qkv=True, joined_heads=True, native_activations=True,
        source="litgpt model.py: RMSNorm, CausalSelfAttention; lora.py: LoRAQKVLinear",
    ),
    "megatron-lm": Style("fused", "fused", fused_qkv=True, weighted_inside=True, native_activations=True, expand_kv=False, softmax="native", source="Megatron-LM megatron/core/fusions, transformer_engine layernorm_linear.py"),
    "nemo": Style("fused", "fused", fused_qkv=True, weighted_inside=True, native_activations=True, expand_kv=False, softmax="native", source="NeMo runs Megatron-LM's core modules"),
    "megatron-deepspeed": Style("fused", fused_qkv=True, native_activations=True, expand_kv=False, softmax="native", source="Megatron-DeepSpeed megatron/model/fused_layer_norm.py"),
    "unsloth": Style("fused", "fused", expand_kv=False, source="unsloth kernels/rms_layernorm.py, kernels/fast_lora.py"),
}  # fmt: skip


def style(framework: str, megatron: bool, liger: bool) -> Style:
    """A framework's style; ``megatron``: its Megatron back end; ``liger``: Liger kernels patched in."""
    if megatron:
        return STYLES["megatron-lm"]
    known = STYLES.get(framework)
    if known is None and liger:
        return Style("fused", "fused", source="Liger-Kernel transformers/monkey_patch.py: RMSNorm and SwiGLU")
    return known or HF
