"""Adapters by path: which part of a mixture a target reaches."""

from __future__ import annotations

from tests.physics.specs import estimate

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
