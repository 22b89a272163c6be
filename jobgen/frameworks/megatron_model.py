"""An architecture in Megatron-LM's flags."""

from __future__ import annotations

from typing import Any

from jobgen.catalog.arch import Arch, Layer

SOURCE = "Megatron-LM core 0.18 megatron/training/arguments.py, megatron/core/transformer/transformer_config.py"
TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"})
"""Model types whose blocks are Megatron's: full RoPE, RMSNorm before attention and MLP, SwiGLU, and a router that takes
the softmax of the chosen experts (norm_topk_prob), which is the default without --moe-router-pre-softmax."""
GIVEN = ("num-layers", "use-checkpoint-args", "yaml-cfg")
"""Flags by which the user gives the architecture."""


def reason(arch: Arch) -> str:
    """Why jobgen does not write the flags of an architecture; '' where it does."""
    if arch.model_type not in TYPES:
        return f"jobgen knows no flags for model type {arch.model_type}"
    if any(layer.mixer != "full" for layer in arch.layers):
        return "its layers do not all have full attention"
    if any(not layer.gated or layer.activation != "silu" for layer in arch.layers):
        return "its MLP is not SwiGLU"
    if len(arch.layers) > 1:
        return "its layers are of several kinds"
    return ""


def flags(arch: Arch) -> dict[str, Any]:
    """The flags, without dropout, which the estimate does not count (both are 0.1 by default)."""
    if reason(arch):
        return {}
    (layer,) = arch.layers
    found: dict[str, Any] = {
        "num-layers": arch.depth,
        "hidden-size": arch.hidden,
        "ffn-hidden-size": layer.ffn or layer.expert_ffn,
        "num-attention-heads": layer.heads,
        "kv-channels": layer.head_dim,
        "position-embedding-type": "rope",
        "normalization": "RMSNorm",
        "swiglu": True,
        "disable-bias-linear": True,
        "untie-embeddings-and-output-weights": not arch.tied,
        "attention-dropout": 0.0,
        "hidden-dropout": 0.0,
    }
    if layer.kv_heads < layer.heads:
        found |= {"group-query-attention": True, "num-query-groups": layer.kv_heads}
    if any(matrix.bias for matrix in layer.matrices):
        found["add-qkv-bias"] = True
    if layer.norms_head:
        found["qk-layernorm"] = True
    if arch.rotary_base:
        found["rotary-base"] = int(arch.rotary_base)
    if arch.norm_epsilon:
        found["norm-epsilon"] = arch.norm_epsilon
    return found | _experts(layer)


def _experts(layer: Layer) -> dict[str, Any]:
    if not layer.experts:
        return {}
    return {"num-experts": layer.experts, "moe-router-topk": layer.top_k, "moe-ffn-hidden-size": layer.expert_ffn}
