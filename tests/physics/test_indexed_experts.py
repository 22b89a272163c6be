"""Experts that a loop takes one by one out of one parameter: each gives back a gradient as large as the whole."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from .specs import estimate, term

ORACLES = Path(__file__).parent / "oracles"
GPT_OSS = {"model": {"name": "openai/gpt-oss-20b"}, "resources": {"gpus_per_node": 8, "gpu": "h200"}, "parallelism": {"sharding": "fsdp2"}}
STACK = 32 * 2880 * 5760
"""Elements of gate_up_proj."""


@pytest.mark.parametrize(("release", "size"), [({"transformers": "4.57.1"}, 2 * STACK), ({}, 2 * STACK), ({"transformers": "5.2.0"}, 0)])
def test_one_more_gradient_until_transformers_5(release: dict[str, str], size: int) -> None:
    found = estimate(**GPT_OSS, training__framework="axolotl", training__versions=release)
    assert term(found, "indexed_experts") == size


@pytest.mark.parametrize("other", [{"training__method": "lora"}, {"model": {"name": "Qwen/Qwen3-30B-A3B"}}, {"training__framework": "torchtitan"}])
def test_not_where_experts_are_frozen_modules_of_their_own_or_grouped(other: dict[str, object]) -> None:
    found = estimate(**{**GPT_OSS, "training__framework": "axolotl", **other})
    assert term(found, "indexed_experts") == 0


@pytest.mark.oracle
def test_torch_holds_a_gradient_of_the_whole_beside_the_sum() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("saved", ORACLES / "saved.py")
    assert spec is not None
    assert spec.loader is not None
    saved = importlib.util.module_from_spec(spec)
    sys.modules["saved"] = saved
    spec.loader.exec_module(saved)
    stack = torch.nn.Parameter(torch.randn(32, 64, 256))
    tokens = torch.randn(8, 64)
    live = saved.Live(set())
    with live:
        live.ignore([stack, tokens])
        sum((tokens @ stack[expert]).sum() for expert in range(32)).backward()
    whole = 4 * stack.numel()
    assert live.live - whole < 0.1 * whole, "one gradient stays"
    assert live.peak > 1.95 * whole, "and one more lived beside it"
