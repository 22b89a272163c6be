"""Model states against published formulas (memory notes, section 3 and 4) and the project's seed figures."""

from __future__ import annotations

import pytest

from .specs import GIB, effective, estimate, term

MISTRAL = 7_241_732_096


def test_pure_bf16_needs_six_bytes_after_the_step_and_ten_at_it() -> None:
    found = estimate(training__precision="bf16_pure", training__framework="trl")
    assert term(found, "weights") + term(found, "moments") == 6 * MISTRAL
    step = sum(term(found, name) for name in ("weights", "gradients", "moments", "foreach"))
    assert step == 10 * MISTRAL
    assert found.gpu.phase == "step"
    assert found.gpu.allocated / GIB == pytest.approx(67.46, abs=0.05)  # measured, whatever the batch


def test_fsdp1_upcasts_to_sixteen_bytes_and_twenty_at_the_step() -> None:
    found = estimate(training__framework="trl", parallelism__sharding="fsdp1", resources__gpus_per_node=4)
    kept = sum(term(found, name) for name in ("weights", "gradients", "moments"))
    assert kept == pytest.approx(16 * MISTRAL / 4)
    assert kept + term(found, "foreach") == pytest.approx(20 * MISTRAL / 4)


def test_deepspeed_shards_sixteen_bytes_by_stage() -> None:
    for sharding, weights, gradients in (("zero1", 1, 1), ("zero2", 1, 8), ("zero3", 8, 8)):
        found = estimate(training__framework="deepspeed", parallelism__sharding=sharding, resources__gpus_per_node=8)
        assert term(found, "weights") == pytest.approx(2 * MISTRAL / weights), sharding
        assert term(found, "gradients") == pytest.approx(2 * MISTRAL / gradients), sharding
        assert term(found, "master") + term(found, "moments") == pytest.approx(12 * MISTRAL / 8), sharding


def test_megatron_needs_eighteen_bytes_or_six_and_twelve_over_data_parallel_ranks() -> None:
    from jobgen.physics.stages import sizes, stages
    from jobgen.physics.states import padded_vocabulary

    now = effective(training__framework="megatron-lm", parallelism__tensor=2, resources__gpus_per_node=8)
    numbers = sizes(now)
    padding = padded_vocabulary(now, numbers, stages(now, numbers)[0])
    assert padding == (32000 // -256 * -256 - 32000) * 4096 * 2
    whole = estimate(training__framework="megatron-lm", parallelism__tensor=2, resources__gpus_per_node=8)
    norms = 65 * 4096  # replicated over tensor ranks
    elements = (MISTRAL - norms + padding) / 2 + norms
    names = ("weights", "gradients", "master", "moments")
    assert sum(term(whole, name) for name in names) == pytest.approx(18 * elements)
    cut = estimate(training__framework="megatron-lm", parallelism__tensor=2, parallelism__sharding="zero1", resources__gpus_per_node=8)
    assert sum(term(cut, name) for name in names) == pytest.approx((6 + 12 / 4) * elements)


def test_ddp_holds_gradients_twice() -> None:
    found = estimate(training__framework="trl", training__precision="bf16_pure", resources__gpus_per_node=8)
    assert term(found, "ddp_buckets") == term(found, "gradients") == 2 * MISTRAL


def test_optimizer_in_backward_holds_one_gradient() -> None:
    found = estimate(training__framework="torchtune", training__optimizer={"name": "adamw", "in_backward": True})
    assert term(found, "gradients") == 2 * 4096 * 32000  # the embedding, or the head


def test_no_sync_keeps_gradients_whole_under_fsdp() -> None:
    one = estimate(training__framework="trl", parallelism__sharding="fsdp1", resources__gpus_per_node=4)
    two = estimate(training__framework="trl", parallelism__sharding="fsdp1", resources__gpus_per_node=4, training__gradient_accumulation_steps=2)
    assert term(one, "gradients") == pytest.approx(4 * MISTRAL / 4)
    assert term(two, "gradients") == pytest.approx(2 * MISTRAL)


def test_eight_bit_states_keep_embeddings_in_fp32() -> None:
    found = estimate(training__framework="axolotl", training__optimizer="adamw_8bit")
    embedding = 32000 * 4096
    assert term(found, "moments") == pytest.approx(2 * (1 + 4 / 256) * (MISTRAL - embedding) + 8 * embedding)
    assert term(found, "foreach") == 0


def test_paged_states_are_outside_of_the_allocator() -> None:
    found = estimate(training__framework="trl", training__optimizer="paged_adamw", training__precision="bf16_pure")
    paged = next(t for t in found.gpu.terms if t.id == "paged_moments")
    assert (paged.phases, paged.bytes) == (0, 8 * MISTRAL)
    assert sum(part.bytes for part in found.host.parts if part.id == "paged") == 8 * MISTRAL


def test_frozen_four_bit_weights_and_their_state() -> None:
    found = estimate(training__method="qlora", model__name="Qwen/Qwen2.5-Coder-32B-Instruct", training__framework="llama-factory")
    assert term(found, "packed") == 15_602_810_880
    assert term(found, "quant_state") == 495_695_616
    assert term(found, "packed") + term(found, "quant_state") + term(found, "weights") == pytest.approx(19_215_015_680, rel=1e-6)


def test_sharding_leaves_quant_state_whole() -> None:
    changes = {"training__method": "qlora", "training__framework": "llama-factory", "parallelism__sharding": "zero3"}
    found = estimate(**changes, model__name="Qwen/Qwen2.5-Coder-32B-Instruct", resources__gpus_per_node=4, training__versions={"transformers": "4.57.1"})
    assert term(found, "packed") == pytest.approx(15_602_810_880 / 4)
    assert term(found, "quant_state") == 495_695_616


def test_offloaded_optimizer_leaves_the_gpu() -> None:
    changes = {"training__framework": "llama-factory", "parallelism__sharding": "zero3", "resources__gpus_per_node": 8}
    found = estimate(**changes, offload={"optimizer": "cpu", "parameters": "cpu"})
    assert [term(found, name) for name in ("master", "moments", "gradients", "weights", "foreach")] == [0, 0, 0, 0, 0]


def test_moe_memory_follows_total_parameters() -> None:
    changes = {"training__framework": "llama-factory", "parallelism__sharding": "zero3", "resources__gpus_per_node": 8}
    found = estimate(**changes, model__name="Qwen/Qwen3-Coder-30B-A3B-Instruct")
    assert found.parameters == 30_532_122_624
    assert term(found, "weights") == pytest.approx(2 * found.parameters / 8)
    low, high = found.recommended_tokens
    assert (low / 1e9, high / 1e9) == (pytest.approx(0.1006, rel=1e-3), pytest.approx(0.3353, rel=1e-3))
