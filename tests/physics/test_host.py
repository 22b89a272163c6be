"""Host memory: the seed case that ran (C5), loading copies, offload."""

from __future__ import annotations

import pytest

from jobgen.physics.host import Host

from .specs import estimate

C5 = {
    "model__name": "Qwen/Qwen3-235B-A22B-Thinking-2507", "training__method": "qlora", "training__framework": "llama-factory",
    "training__lora": {"rank": 8}, "training__quantization": {"type": "nf4", "double_quant": True, "storage_dtype": "bf16"},
    "training__versions": {"transformers": "4.57.1", "deepspeed": "0.16.9", "peft": "0.17.1"}, "parallelism__sharding": "zero3",
    "offload": {"parameters": "cpu", "optimizer": "cpu"}, "resources": {"gpus_per_node": 4, "gpu": "h100-80gb", "memory_per_node": "960GB"},
}  # fmt: skip


def part(host: Host, name: str) -> float:
    """Gigabytes (10^9) of one line."""
    return sum(p.bytes for p in host.parts if p.id == name) / 1e9


def test_every_rank_loads_a_quantised_copy() -> None:
    found = estimate(**C5)
    assert part(found.host, "copies") == pytest.approx(492.7, abs=0.05)
    assert found.host.peak == found.host.load > found.host.steady


def test_partition_and_its_pinned_rounding() -> None:
    host = estimate(**C5).host
    assert part(host, "parameters") == pytest.approx(119.4, abs=0.05)
    assert part(host, "parameters") + part(host, "parameters_rounding") == pytest.approx(159.1, abs=0.05)


def test_more_gpus_need_more_memory_to_load() -> None:
    found = estimate(**{**C5, "resources": {"gpus_per_node": 8, "gpu": "h100-80gb"}})
    assert part(found.host, "copies") == pytest.approx(985.3, abs=0.05)


def test_gpu_keeps_quant_state() -> None:
    found = estimate(**C5)
    assert next(t.bytes for t in found.gpu.terms if t.id == "quant_state") / 1e9 == pytest.approx(3.75, abs=0.005)
    single = estimate(**{**C5, "training__quantization": {"type": "nf4", "double_quant": False, "storage_dtype": "bf16"}})
    assert next(t.bytes for t in single.gpu.terms if t.id == "quant_state") / 1e9 == pytest.approx(14.62, abs=0.005)


def test_offloaded_states_are_those_of_the_node() -> None:
    changes = {"training__framework": "deepspeed", "parallelism__sharding": "zero3", "resources__gpus_per_node": 8}
    one = estimate(**changes, offload={"optimizer": "cpu"})
    two = estimate(**changes, resources__nodes=2, offload={"optimizer": "cpu"})
    assert part(one.host, "optimizer") == pytest.approx(16 * one.parameters / 1e9)
    assert part(two.host, "optimizer") == pytest.approx(part(one.host, "optimizer") / 2)


def test_workers_and_asynchronous_checkpoints_count() -> None:
    quiet = estimate()
    busy = estimate(training__data={"samples": 1000, "workers": 4}, checkpoint={"async": True})
    assert busy.host.steady - quiet.host.steady == pytest.approx(4 * 0.5 * 2**30 + busy.storage.size)


def test_zero3_without_init_reads_the_model_once_per_rank() -> None:
    changes = {"parallelism__sharding": "zero3", "resources__gpus_per_node": 8}
    assert part(estimate(**changes).host, "copies") == 0
    found = estimate(**changes, training__loading="every_rank")
    assert part(found.host, "copies") == pytest.approx(8 * 2 * found.parameters / 1e9)
    written = estimate(**changes, training__options={"zero3_init_flag": False})
    assert written.host.load == found.host.load
