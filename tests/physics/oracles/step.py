"""Peak memory of whole training steps on one GPU, simulated with fake tensors: nothing left out, nothing added.

Weights, gradients, AdamW moments and everything in between are followed by storage (``saved.Live``) through two steps of
transformers' own model, loss and (checkpointed) layers; the second step is measured, in three parts.

    python step.py        rewrites step.jsonl (needs torch, transformers, peft); each case runs in a process of its own
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import Any

MODELS = (
    "meta-llama/Llama-3.2-1B", "Qwen/Qwen3-4B", "mistralai/Mistral-7B-v0.1", "google/gemma-2-2b", "microsoft/phi-4",
    "Qwen/Qwen3-30B-A3B",
)  # fmt: skip
MORE = (
    "microsoft/Phi-3-mini-4k-instruct", "allenai/OLMo-2-0425-1B", "CohereLabs/c4ai-command-r7b-12-2024", "ibm-granite/granite-3.1-2b-base",
    "HuggingFaceTB/SmolLM3-3B", "THUDM/GLM-4-9B-0414", "google/gemma-3-1b-pt", "openai/gpt-oss-20b", "allenai/OLMoE-1B-7B-0924",
    "mistralai/Mixtral-8x7B-v0.1", "zai-org/GLM-4.7-Flash",
)  # fmt: skip
HALF_ONLY = ("facebook/opt-1.3b", "EleutherAI/pythia-1.4b", "microsoft/phi-2", "bigcode/starcoder2-3b", "stabilityai/stablelm-2-1_6b")
"""LayerNorm runs in fp32 under CUDA's autocast, and in 16 bit under the CPU's, which is what can be simulated."""
KINDS: tuple[dict[str, Any], ...] = (
    {"weights": "bf16"}, {"weights": "fp32", "autocast": True}, {"weights": "bf16", "autocast": True, "rank": 16},
)  # fmt: skip
CASES = [
    {"model": model, **kind, "checkpointing": checkpointing, "micro": micro, "sequence": 1664}
    for model in MODELS
    for kind in KINDS
    for checkpointing in (False, True)
    for micro in (1, 4)
    if not (model == "Qwen/Qwen3-30B-A3B" and kind["weights"] == "fp32")  # grouped products want 16 bit, and fake autocast casts none
] + [
    {"model": model, **kind, "checkpointing": checkpointing, "micro": 2, "sequence": 1664}
    for model in (*MORE, *HALF_ONLY)
    for kind in (KINDS[0], KINDS[2])
    for checkpointing in (False, True)
    if "rank" not in kind or model in MORE
]


def measure(
    config: dict[str, Any], weights: str, checkpointing: bool, micro: int, sequence: int, autocast: bool = False, rank: int = 0
) -> dict[str, int]:
    """Peaks of the second step's forward with loss, backward and optimizer step, and bytes between steps."""
    import saved
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    saved.prepare()
    model = saved.build(saved.configuration(config, 4), {"bf16": torch.bfloat16, "fp32": torch.float32}[weights], saved.NAMES["flash"])
    if rank:
        model = saved.adapters(model, rank, "fp32", 0.0, checkpointing)
    model.train()
    with FakeTensorMode():
        saved.to_fake(model)
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
        ids, labels = (torch.zeros((micro, sequence), dtype=torch.long) for _ in range(2))
        live = saved.Live(set())
        with live:
            for tensor in (*model.parameters(), *model.buffers()):
                live._add(tensor)
            live.ignore([ids, labels])
            for _ in range(2):
                live.peaks.clear()
                live.mark("before")
                with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
                    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
                gc.collect()
                live.mark("forward")
                loss.backward()
                del loss
                live.mark("backward")
                optimizer.step()
                live.mark("step")
                optimizer.zero_grad(set_to_none=True)
                gc.collect()
        return {**{name: size for name, size in live.peaks.items() if name != "before"}, "between": live.live}


if __name__ == "__main__":
    import rows

    sys.exit(rows.main(__file__, CASES, measure))
