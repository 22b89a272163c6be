"""Adapters by path: which part of a mixture a target reaches."""

from __future__ import annotations

import pytest

from jobgen import api
from jobgen.spec.document import load_text
from tests.physics.specs import effective, estimate, text

MOE = {"model__name": "Qwen/Qwen3-Next-80B-A3B-Instruct", "training__method": "lora", "training__framework": "axolotl",
       "training__versions": {"transformers": "4.57.6"}}  # fmt: skip


def trained(*targets: str) -> int:
    """Elements of adapters of rank 8."""
    return estimate(**MOE, training__lora={"rank": 8, "target_modules": list(targets)}).trainable_parameters


def test_a_shared_expert_is_none_of_the_routed_ones() -> None:
    assert trained("shared_expert.up_proj", "q_proj") < trained("up_proj", "q_proj") / 100


def test_experts_are_all_routed_experts() -> None:
    both = 8 * (2 * 2048 + 2 * 512 + 512 + 2048) * 512 * 48  # gate, up and down of 512 experts in 48 layers
    assert trained("q_proj", "experts") - trained("q_proj") == both


@pytest.mark.parametrize(("framework", "expected"), [("trl", 0.05), ("litgpt", 0.05), ("fsdp-qlora", 0.1), ("llama-factory", 0), ("custom", 0)])
def test_dropout_is_the_frameworks_own_until_it_is_written(framework: str, expected: float) -> None:
    changes = {"training__method": "lora", "training__framework": framework}
    assert effective(**changes).adapters.dropout == expected
    assert effective(**changes, training__lora={"dropout": None}).adapters.dropout == expected
    assert effective(**changes, training__lora={"dropout": 0}).adapters.dropout == 0
    assert effective(training__framework=framework).adapters.dropout == 0


def test_trls_own_dropout_stops_adapters_on_parameters() -> None:
    moe = {"model__name": "Qwen/Qwen3-30B-A3B", "training__method": "lora", "training__framework": "trl",
           "training__versions": {"trl": "0.27.2", "transformers": "5.2.0", "peft": "0.21.2"},
           "training__options": {"lora_target_parameters": ["mlp.experts.gate_up_proj"]}}  # fmt: skip
    stopped = [f.code for f in api.check(load_text(text(**moe))).findings if f.severity == "error"]
    assert "JG608" in stopped
    mended = api.check(load_text(text(**moe, training__lora={"dropout": 0}))).findings
    assert "JG608" not in [f.code for f in mended]


@pytest.mark.parametrize(
    ("framework", "versions", "refused"),
    [
        ("trl", {"trl": "0.27.2"}, ""), ("trl", {"trl": "0.20.0"}, "trl >= 0.21"), ("trl", {"trl": "0.27.2", "peft": "0.16.0"}, "peft >= 0.17"),
        ("axolotl", {"axolotl": "0.13.1"}, ""), ("ms-swift", {"ms-swift": "3.7.0"}, "ms-swift >= 3.7.3"), ("unsloth", {"unsloth": "2026.8.1"}, ""),
        ("custom", {}, ""), ("llama-factory", {}, "no option"), ("torchtune", {}, "no option"), ("litgpt", {}, "no option"), ("verl", {}, "no option"),
    ],
)  # fmt: skip
def test_experts_are_refused_where_they_cannot_be_written(framework: str, versions: dict[str, str], refused: str) -> None:
    changes = {"model__name": "Qwen/Qwen3-30B-A3B", "training__method": "lora", "training__framework": framework,
               "training__versions": {"peft": "0.21.2", **versions}, "resources__gpus_per_node": 8,
               "training__lora": {"target_modules": ["q_proj", "experts"]}}  # fmt: skip
    found = [f for f in api.check(load_text(text(**changes))).findings if f.code == "JG610"]
    assert [refused in f.message for f in found] == ([True] if refused else [])
