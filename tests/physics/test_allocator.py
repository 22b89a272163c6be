"""The allocator's constants against the simulation of its rules (oracles/caching_allocator.py), and small cards."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from jobgen.physics import allocator

from .specs import GIB, effective, estimate

ROWS = [json.loads(line) for line in (Path(__file__).parent / "oracles" / "reserved.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("dropped", [False, True])
def test_varied_lengths_leave_more_than_the_loss_cached(dropped: bool) -> None:
    found = [row["beyond"] / row["loss"] for row in ROWS if row["median"] and row["dropped"] == dropped]
    assert statistics.mean(found) == pytest.approx(allocator.DROPPED if dropped else allocator.VARIED, abs=0.1)


def test_equal_lengths_leave_a_fifth_of_the_loss_and_a_third_of_the_rest() -> None:
    for row in ROWS:
        if row["median"] is None:
            expected = allocator.EQUAL * row["loss"] + allocator.KNUTH * (row["peak"] - row["loss"])
            assert row["beyond"] == pytest.approx(expected, rel=0.2), row["shape"]


def test_the_allocator_gives_back_what_a_card_has_no_room_for() -> None:
    changes = {"training__method": "lora", "training__framework": "trl", "model__name": "Qwen/Qwen2.5-7B-Instruct"}
    large = estimate(**changes, resources__gpu={"name": "test", "memory": "141GiB"})
    small = estimate(**changes, resources__gpu={"name": "test", "memory": "30GiB"})
    assert small.gpu.allocated == large.gpu.allocated
    assert small.gpu.reserved < large.gpu.reserved
    assert small.gpu.device <= 30 * GIB


def test_expandable_segments_leave_little_cached() -> None:
    plain, grown = estimate(), estimate(launch={"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}})
    assert grown.gpu.reserved - grown.gpu.allocated < 0.5 * (plain.gpu.reserved - plain.gpu.allocated)


def test_each_kind_of_group_has_a_communicator() -> None:
    one = estimate(parallelism__sharding="fsdp2", training__framework="torchtitan", resources__gpus_per_node=8)
    two = estimate(parallelism__sharding="fsdp2", parallelism__tensor=2, training__framework="torchtitan", resources__gpus_per_node=8)
    single = estimate()
    names = [[t.words for t in found.gpu.terms if t.id == "communicators"] for found in (single, one, two)]
    assert names == [[], ["buffers of 1 NCCL communicator"], ["buffers of 2 NCCL communicators"]]


def test_a_framework_may_let_segments_grow_itself() -> None:
    adapted = {"training__framework": "axolotl", "training__method": "lora"}
    unknown, recent = estimate(**adapted), estimate(**adapted, training__versions={"axolotl": "0.12.0"})
    assert recent.gpu.allocated == unknown.gpu.allocated
    assert recent.gpu.reserved - recent.gpu.allocated < 0.2 * (unknown.gpu.reserved - unknown.gpu.allocated)


def test_experts_on_one_rank_receive_as_many_rows_each_step() -> None:
    changes = {"model__name": "Qwen/Qwen3-30B-A3B", "training__packing": "packed", "training__framework": "trl", "resources__gpus_per_node": 8}
    assert not allocator.varies(effective(**changes))
    spread = {**changes, "training__framework": "megatron-lm", "parallelism": {"expert": 8, "sharding": "zero1"}}
    assert allocator.varies(effective(**spread))
