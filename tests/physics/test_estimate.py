"""The estimate as a whole: phases, stages, verdict, JSON, arrays."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jobgen.physics.benchmark import candidates, peaks
from jobgen.physics.estimate import estimate as physics
from jobgen.physics.estimate import estimate_json, stage_terms, verdict
from jobgen.physics.ledger import FORWARD, PHASES, alive
from jobgen.physics.stages import in_flight, sizes, stages
from jobgen.physics.storage import storage

from .specs import GIB, effective, estimate, term


def test_components_of_the_peak_phase_add_up_to_the_device() -> None:
    for changes in ({}, {"training__method": "lora"}, {"parallelism__sharding": "fsdp2", "resources__gpus_per_node": 8}):
        gpu = estimate(**changes).gpu
        assert sum(gpu.components.values()) == pytest.approx(gpu.device)
        assert gpu.phases[gpu.phase] == gpu.device == max(gpu.phases.values())
        assert gpu.allocated <= gpu.reserved <= gpu.device
        assert gpu.low <= gpu.device <= gpu.high


def test_json_has_the_contracts_form() -> None:
    answer = estimate_json(estimate(training__max_steps=10, checkpoint={"keep": 3}), "s.yaml")
    assert answer["schema"] == "jobgen.estimate/1"
    assert set(answer) == {
        "schema", "spec", "model", "parallel", "batch", "steps", "gpu", "host", "checkpoint", "time", "data", "assumed_versions", "verdict",
    }  # fmt: skip
    assert set(answer["gpu"]) == {
        "allocated_gib", "reserved_gib", "device_gib", "range_gib", "capacity_gib", "phase", "worst_rank", "components",
    }  # fmt: skip
    assert set(answer["gpu"]["components"]) == {
        "weights", "gradients", "optimizer", "activations", "logits_and_loss", "communication", "workspace", "context",
    }  # fmt: skip
    assert answer["steps"] == 10
    assert answer["data"]["samples"] == 10
    assert answer["checkpoint"]["retained_gib"] == pytest.approx(4 * answer["checkpoint"]["size_gib"], abs=0.01)


def test_unknown_is_null() -> None:
    answer = estimate_json(estimate(), "s.yaml")
    assert (answer["steps"], answer["time"]["total_seconds"], answer["checkpoint"]["retained_gib"]) == (None, None, None)
    assert answer["host"]["capacity_gib"] is None


def test_verdict_uses_the_range() -> None:
    gpu = estimate().gpu
    assert verdict(gpu._replace(capacity=gpu.high * 1.01)) == "fits"
    assert verdict(gpu._replace(capacity=gpu.device)) == "tight"
    assert verdict(gpu._replace(capacity=gpu.low * 0.99)) == "does_not_fit"
    assert verdict(gpu._replace(capacity=math.inf)) == "tight"


def test_arrays_equal_scalars() -> None:
    numpy = pytest.importorskip("numpy")
    from jobgen.effective.resolve import assume
    from jobgen.physics.benchmark import SPEC
    from jobgen.spec import document

    many = candidates(4096)
    whole = peaks(many)
    now = assume(document.load_text(SPEC)).effective
    for index in range(0, 4096, 409):
        one = type(many)(*(value[index].item() if isinstance(value, numpy.ndarray) else value for value in many))
        assert peaks(one) == pytest.approx(whole[index], rel=1e-9), index
    stage = stages(now, many)[0]
    assert all(numpy.shape(alive(stage_terms(now, many, stage), bit, ("allocated",))) in ((), (4096,)) for bit, _ in PHASES)


def test_estimates_repeat() -> None:
    now = effective()
    assert physics(now) == physics(now)


def test_one_forward_one_backward_keeps_as_many_microbatches_as_stages_remain() -> None:
    assert [in_flight(stage, 4, 1, 16) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(0, 4, 1, 2) == 2


def test_interleaving_costs_the_published_factor() -> None:
    pipeline, chunks, layers = 4, 3, 48
    alone = in_flight(0, pipeline, 1, 64) * layers / pipeline
    interleaved = in_flight(0, pipeline, chunks, 64) * layers / pipeline
    assert interleaved / alone == pytest.approx(1 + (pipeline - 1) / (pipeline * chunks))  # Korthikanti et al. 2022


def test_pipeline_stages_hold_all_layers_once() -> None:
    now = effective(training__framework="megatron-lm", parallelism__pipeline=4, resources__gpus_per_node=4, training__gradient_accumulation_steps=8)
    found = stages(now, sizes(now))
    assert sum(stage.layers[0] for stage in found) == 32
    assert [stage.embedding for stage in found] == [True, False, False, False]
    assert [stage.head for stage in found] == [False, False, False, True]
    assert now.spec.parallelism.pipeline_layers is None
    uneven = effective(training__framework="megatron-lm", parallelism__pipeline=2, parallelism__pipeline_layers=[18, 14], resources__gpus_per_node=2)
    assert [stage.layers[0] for stage in stages(uneven, sizes(uneven))] == [18, 14]


def test_device_map_spreads_layers_over_the_gpus_of_one_process() -> None:
    whole = estimate(training__method="lora")
    split = estimate(training__method="lora", parallelism__device_map="balanced", resources__gpus_per_node=4)
    assert term(split, "weights") < 0.3 * term(whole, "weights")


def test_gradients_live_through_forward_when_they_accumulate() -> None:
    one, many = estimate(), estimate(training__gradient_accumulation_steps=4)
    difference = alive(many.gpu.terms, FORWARD, ("allocated",)) - alive(one.gpu.terms, FORWARD, ("allocated",))
    assert difference == term(one, "gradients")


def test_fused_loss_saves_what_people_measured() -> None:
    changes = {"training__method": "lora", "training__framework": "trl", "model__name": "meta-llama/Meta-Llama-3-8B", "training__micro_batch_size": 8}
    saved = estimate(**changes).gpu.allocated - estimate(**changes, training__loss="liger").gpu.allocated
    assert saved / GIB == pytest.approx(24, rel=0.65)  # measured with logits that a fused kernel keeps in half the bytes


def test_reference_model_is_a_second_copy_unless_adapters_can_be_switched_off() -> None:
    full = estimate(training__objective="dpo", training__framework="trl")
    lora = estimate(training__objective="dpo", training__framework="trl", training__method="lora")
    assert term(full, "reference") == 2 * full.parameters
    assert term(lora, "reference") == 0


def test_colocated_engine_takes_its_share() -> None:
    found = estimate(training__objective="grpo", training__framework="trl", training__rollout={"gpu_memory_utilization": 0.3})
    assert term(found, "rollout") == pytest.approx(0.3 * effective().gpu.usable_bytes)
    assert alive(found.gpu.terms, FORWARD, ("allocated",)) > 0.3 * effective().gpu.usable_bytes, "TRL's stays while it trains"


@pytest.mark.parametrize(
    ("framework", "options"),
    [("verl", {}), ("trl", {"vllm_enable_sleep_mode": True}), ("axolotl", {"trl": {"vllm_enable_sleep_mode": True}}), ("ms-swift", {"sleep_level": 2})],
)
def test_an_engine_that_sleeps_leaves_the_card_to_training(framework: str, options: dict[str, Any]) -> None:
    changes = {"training__objective": "grpo", "training__framework": framework, "training__rollout": {"gpu_memory_utilization": 0.5},
               "parallelism__sharding": "fsdp2", "resources__gpus_per_node": 8}  # fmt: skip
    asleep = estimate(**changes, training__options=options)
    engine = term(asleep, "rollout")
    for name, size in asleep.gpu.phases.items():
        bit = next(bit for bit, other in PHASES if other == name)
        here = sum(t.bytes for t in asleep.gpu.terms if t.id == "rollout" and t.phases & bit)
        assert here == (engine if name == "generate" else 0) and size >= here
    awake = estimate(**changes, training__options={"actor_rollout_ref.rollout.free_cache_engine": False} if framework == "verl" else {})
    assert alive(awake.gpu.terms, FORWARD, ("allocated",)) >= alive(asleep.gpu.terms, FORWARD, ("allocated",)) + engine
    assert term(awake, "rollout_asleep") == 0


def test_only_jobs_that_generate_have_that_phase() -> None:
    assert "generate" not in estimate().gpu.phases


def test_checkpoints() -> None:
    full = storage(effective(training__framework="deepspeed", parallelism__sharding="zero3", resources__gpus_per_node=8))
    parameters = estimate().parameters
    assert full.size == 14 * parameters  # 16-bit weights, fp32 masters and moments
    bare = storage(effective(training__framework="deepspeed", parallelism__sharding="zero3", resources__gpus_per_node=8, checkpoint={"optimizer_state": False, "keep": 2}))
    assert (bare.size, bare.retained) == (2 * parameters, 6 * parameters)
    adapters = storage(effective(training__method="lora", training__framework="trl", checkpoint={"content": "adapter_only", "optimizer_state": False}))
    assert adapters.size == 4 * estimate(training__method="lora", training__framework="trl").trainable_parameters


def test_time_counts_recomputation_and_active_parameters() -> None:
    none, full = estimate(training__activation_checkpointing="none"), estimate()
    assert full.time.flops / none.time.flops == pytest.approx(4 / 3)
    tokens = 4096
    assert none.time.flops == pytest.approx(6 * 7.11e9 * tokens * 1.06, rel=0.05)
    moe = estimate(model__name="Qwen/Qwen3-Coder-30B-A3B-Instruct")
    assert moe.time.flops < full.time.flops


def test_time_goes_by_the_datas_length_not_by_the_longest_allowed() -> None:
    whole = estimate(training__data={"samples": 1000}).time.flops
    short = estimate(training__data={"samples": 1000, "tokens_per_sample": 512}).time.flops
    assert 7 < whole / short < 9
    padded = estimate(training__data={"samples": 1000, "tokens_per_sample": 512}, training__micro_batch_size=2).time.flops
    assert padded / short == pytest.approx(2 * 1.5, rel=0.02)
    packed = estimate(training__data={"samples": 1000, "tokens_per_sample": 512}, training__packing="packed").time.flops
    assert packed == whole


def test_a_gather_enters_each_node_once_over_all_its_adapters() -> None:
    changes = {"parallelism__sharding": "zero3", "resources__gpus_per_node": 8, "resources__nodes": 4}
    slow = estimate(**changes, resources__fabric="tcp").time
    fast = estimate(**changes, resources__fabric="infiniband").time
    gathered = 2 * 2 * estimate().parameters  # forward and backward, 2 bytes each
    assert slow.communication == pytest.approx((gathered + 2 * estimate().parameters) * 31 / 32 / (50e9 / 8), rel=0.01)
    assert fast.communication < slow.communication / 30
    changes |= {"parallelism__sharding": "fsdp2", "training__gradient_accumulation_steps": 8, "resources__fabric": "tcp"}
    assert estimate(**changes, parallelism__replicate=4).time.communication < estimate(**changes).time.communication / 3


def test_generation_is_not_counted_and_said_so() -> None:
    assert not estimate().time.generates
    assert estimate(training__objective="grpo", training__framework="trl", training__rollout={}, training__max_steps=10).time.generates


def test_levers_are_sorted_by_what_they_save() -> None:
    from jobgen.physics.levers import levers
    from jobgen.spec import document

    from .specs import text

    base = document.load_text(text(training__micro_batch_size=4, training__activation_checkpointing="none"))
    from jobgen import api

    found = levers(effective(training__micro_batch_size=4, training__activation_checkpointing="none"), api.estimate(base), lambda path, value: api.estimate(base.edited({path: value})))
    assert len(found) == 3
    assert [lever.saves for lever in found] == sorted((lever.saves for lever in found), reverse=True)
    assert found[0].saves > 0
