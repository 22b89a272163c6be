"""The set-ups that the oracle of saved tensors measures."""

from __future__ import annotations

from typing import Any

MODELS = (
    "Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1", "google/gemma-2-9b",
    "google/gemma-3-1b-it", "microsoft/Phi-3-mini-4k-instruct", "allenai/OLMo-2-1124-7B", "EleutherAI/pythia-1.4b",
    "openai-community/gpt2-xl", "facebook/opt-1.3b", "bigscience/bloom-1b7", "tiiuae/falcon-7b", "bigcode/starcoder2-7b",
    "CohereLabs/c4ai-command-r7b-12-2024", "THUDM/GLM-4-9B-0414", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen1.5-MoE-A2.7B", "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
    "microsoft/phi-2", "stabilityai/stablelm-2-1_6b", "ibm-granite/granite-3.1-2b-base", "zai-org/GLM-4.5-Air",
    "swiss-ai/Apertus-8B-Instruct-2509", "tencent/Hunyuan-A13B-Instruct", "zai-org/GLM-4.7-Flash", "allenai/Olmo-3-1025-7B",
    "LiquidAI/LFM2-1.2B", "EleutherAI/gpt-j-6B", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "microsoft/Phi-3.5-MoE-instruct",
)  # fmt: skip
EAGER_ONLY = ("bigscience/bloom-1b7", "google/gemma-2-9b", "openai/gpt-oss-20b", "tiiuae/falcon-7b")
"""No sdpa in transformers, or (Falcon) not through its attention interface."""


def cases() -> list[dict[str, Any]]:
    """The rows of the table: the arguments of ``measure`` with the model's name."""
    rows: list[dict[str, Any]] = []
    for name in MODELS:
        kernels = ("eager",) if name in EAGER_ONLY else ("sdpa", "eager")
        rows += [{"model": name, "kernel": kernel, "checkpointing": full} for kernel in kernels for full in (False, True)]
    for name in ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"):
        rows += [{"model": name, "kernel": kernel} for kernel in ("flash", "efficient")]
        rows += [{"model": name, "kernel": "efficient", "masked": True}]
    for name in ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "openai-community/gpt2-xl", "Qwen/Qwen3-8B"):
        for full in (False, True):
            rows += [{"model": name, "checkpointing": full, "weights": "fp32", "autocast": True}]
            rows += [{"model": name, "checkpointing": full, "rank": 16, "adapter_dtype": "fp32"}]
            if name != "openai-community/gpt2-xl":  # layer_norm is on CUDA's autocast list, not on the CPU's
                rows += [{"model": name, "checkpointing": full, "rank": 16, "adapter_dtype": "fp32", "autocast": True}]
            rows += [{"model": name, "checkpointing": full, "rank": 16, "adapter_dtype": "bf16"}]
    rows += [{"model": name, "weights": "fp32"} for name in ("Qwen/Qwen2.5-7B", "openai-community/gpt2-xl")]
    rows += [{"model": "meta-llama/Llama-3.1-8B", "kernel": kernel, "micro": 2} for kernel in ("sdpa", "eager")]
    return rows
