"""Properties that every estimate has, whatever the model and the method."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobgen.api import check, estimate
from jobgen.catalog import models
from jobgen.effective.environment import UnreadableEnvironment, read_environment
from jobgen.physics.estimate import estimate_json
from jobgen.spec.document import Document, load_text
from jobgen.spec.problem import SpecError

BASE = """\
name: property
model: {name: Qwen/Qwen3-8B}
training: {method: full, sequence_length: 2048, micro_batch_size: 1, max_steps: 100}
parallelism: {sharding: zero3}
resources: {nodes: 2, gpus_per_node: 8, gpu: h100-80gb, memory_per_node: 2TB, fabric: infiniband}
checkpoint: {directory: /checkpoints/property, every_steps: 50, keep: 2}
"""
LORA = {"training.method": "lora", "training.lora": {"rank": 16, "target_modules": "all-linear"}}
METHODS: Mapping[str, Mapping[str, Any]] = {"full": {}, "lora": LORA, "qlora": LORA | {"training.method": "qlora"}}
SAMPLE = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3", "google/gemma-2-9b")
FRAMEWORKS = ("custom", "transformers", "deepspeed")
STATES = ("weights", "gradients", "optimizer")


@functools.cache
def base() -> Document:
    return load_text(BASE)


def figures(**edits: Any) -> dict[str, Any]:
    """The estimate's JSON after edits; ``__`` stands for a dot."""
    return numbers({name.replace("__", "."): value for name, value in edits.items()})


def numbers(edits: Mapping[str, Any]) -> dict[str, Any]:
    found = estimate_json(estimate(base().edited(edits)), "property.yaml")
    json.dumps(found, allow_nan=False)
    return found


def device(found: Mapping[str, Any]) -> float:
    return float(found["gpu"]["device_gib"])


def states(found: Mapping[str, Any]) -> float:
    return float(sum(found["gpu"]["components"][name] for name in STATES))


def term_bytes(edits: Mapping[str, Any], *components: str) -> float:
    """Bytes of all terms of these components, whatever their phase."""
    return float(sum(term.bytes for term in estimate(base().edited(edits)).gpu.terms if term.component in components))


def consistent(found: Mapping[str, Any]) -> None:
    gpu = found["gpu"]
    assert math.isclose(sum(gpu["components"].values()), gpu["device_gib"], rel_tol=1e-3, abs_tol=0.02)
    assert all(value >= 0 for value in gpu["components"].values())
    low, high = gpu["range_gib"]
    assert 0 < low <= gpu["device_gib"] <= high
    assert 0 < gpu["allocated_gib"] <= gpu["reserved_gib"] <= gpu["device_gib"]
    if gpu["capacity_gib"] is not None:
        wanted = "fits" if high <= gpu["capacity_gib"] else "does_not_fit" if low > gpu["capacity_gib"] else "tight"
        assert found["verdict"] == wanted
    assert found["host"]["peak_gib_per_node"] >= max(0, found["host"]["steady_gib_per_node"])
    assert found["time"]["step_seconds"] > 0
    assert found["time"]["total_seconds"] > 0
    assert found["checkpoint"]["retained_gib"] >= found["checkpoint"]["size_gib"] > 0


@pytest.mark.parametrize("part", range(6))
def test_every_model_has_an_estimate(part: int) -> None:
    for name in models.names()[part::6]:
        found = numbers({"model.name": name})
        consistent(found)
        whole = found["checkpoint"]["size_gib"] * 2**30 / found["model"]["parameters"]
        assert 11 <= whole <= 17, f"{name}: {whole:.1f} bytes a parameter in a checkpoint"


@pytest.mark.parametrize("method", ("lora", "qlora"))
@pytest.mark.parametrize("name", [*SAMPLE, "deepseek-ai/deepseek-moe-16b-base", "inclusionAI/Ling-mini-2.0", "openai/gpt-oss-20b", "google/gemma-3-4b-it"])
def test_adapters_have_an_estimate(name: str, method: str) -> None:
    found = numbers({"model.name": name, "parallelism.sharding": "none", **METHODS[method]})
    consistent(found)
    assert found["model"]["trainable_parameters"] < found["model"]["parameters"] / 4


@pytest.mark.parametrize("name", SAMPLE)
def test_sharding_more_saves(name: str) -> None:
    """Each ZeRO stage holds no more than the one before."""
    held = [states_of({"model.name": name, "parallelism.sharding": stage}) for stage in ("none", "zero1", "zero2", "zero3")]
    assert held == sorted(held, reverse=True)
    peaks = [device(numbers({"model.name": name, "parallelism.sharding": stage})) for stage in ("none", "zero1", "zero2", "zero3")]
    assert all(after <= before + 0.1 for before, after in itertools.pairwise(peaks)), peaks  # buckets come with a stage


def states_of(edits: Mapping[str, Any]) -> float:
    return term_bytes(edits, *STATES)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("sharding", ("zero3", "fsdp2", "fsdp1"))
def test_more_gpus_hold_no_more_states_each(framework: str, sharding: str) -> None:
    if framework == "deepspeed" and sharding != "zero3":
        pytest.skip("DeepSpeed has ZeRO alone")
    for name in SAMPLE[:4]:
        held = [
            states_of({"model.name": name, "training.framework": framework, "parallelism.sharding": sharding, "resources.nodes": nodes})
            for nodes in (1, 2, 3, 8, 64, 1000)
        ]
        assert held == sorted(held, reverse=True), (name, held)


@pytest.mark.parametrize("name", SAMPLE[:4])
@pytest.mark.parametrize("method", METHODS)
def test_more_tokens_take_no_less(name: str, method: str) -> None:
    given = {"model.name": name, **METHODS[method]}
    for field, values in (
        ("training.micro_batch_size", (1, 2, 3, 4, 8, 64, 2**30)),
        ("training.sequence_length", (1, 512, 513, 2048, 4096, 131072, 2**40)),
    ):
        peaks = [device(numbers(given | {field: value})) for value in values]
        assert peaks == sorted(peaks), (field, peaks)


@pytest.mark.parametrize("name", SAMPLE[:4])
@pytest.mark.parametrize("method", METHODS)
def test_less_checkpointing_takes_no_less(name: str, method: str) -> None:
    given = {"model.name": name, "training.micro_batch_size": 4, **METHODS[method]}
    peaks = [device(numbers(given | {"training.activation_checkpointing": {"mode": mode}})) for mode in ("full", "selective", "none")]
    assert peaks == sorted(peaks)
    peaks = [device(numbers(given | {"training.activation_checkpointing": {"mode": "selective", "policy": "layers", "every": n}})) for n in (1, 2, 4, 8)]
    assert peaks == sorted(peaks)


@pytest.mark.parametrize("name", SAMPLE)
def test_adapters_take_no_more_than_full(name: str) -> None:
    full, lora, qlora = (numbers({"model.name": name, "parallelism.sharding": "none", **METHODS[method]}) for method in METHODS)
    assert device(lora) <= device(full)
    weights = [term_bytes({"model.name": name, "parallelism.sharding": "none", **METHODS[method]}, "weights") for method in METHODS]
    assert weights == sorted(weights, reverse=True)
    assert lora["checkpoint"]["size_gib"] <= full["checkpoint"]["size_gib"]
    assert qlora["checkpoint"]["size_gib"] <= full["checkpoint"]["size_gib"]


@pytest.mark.parametrize("name", SAMPLE[:4])
def test_tensor_parallelism_takes_no_more(name: str) -> None:
    for framework in ("custom", "megatron-lm"):
        peaks = [
            device(numbers({"model.name": name, "training.framework": framework, "parallelism": {"sharding": "none", "tensor": size}}))
            for size in (1, 2, 4, 8)
        ]
        assert peaks == sorted(peaks, reverse=True), (framework, peaks)


@pytest.mark.parametrize("framework", ("transformers", "deepspeed"))
@pytest.mark.parametrize("name", SAMPLE[:4])
def test_offload_moves_memory_to_the_host(name: str, framework: str) -> None:
    given = {"model.name": name, "training.framework": framework}
    before = numbers(given)
    optimizer = numbers(given | {"offload": {"optimizer": "cpu"}})
    both = numbers(given | {"offload": {"optimizer": "cpu", "parameters": "cpu"}})
    assert device(both) <= device(optimizer) <= device(before)
    steady = [found["host"]["steady_gib_per_node"] for found in (before, optimizer, both)]
    assert steady == sorted(steady)
    assert steady[0] < steady[1]


@pytest.mark.parametrize(
    "edits",
    (
        {"resources.nodes": 10**9},
        {"training.sequence_length": 2**40, "training.micro_batch_size": 2**30, "resources.nodes": 10**9},
        {"resources.nodes": 125_000, "parallelism": {"sharding": "none", "tensor": 10**6}},
        {"resources.nodes": 125_000, "parallelism": {"sharding": "none", "context": 10**6}},
        {"resources.nodes": 125_000, "parallelism": {"sharding": "none", "pipeline": 10**6}},
        {"resources.nodes": 125_000, "parallelism": {"sharding": "none", "pipeline": 10**6}, "training.framework": "megatron-lm"},
        {**LORA, "training.lora": {"rank": 2**40}},
        {"training.max_steps": 10**15, "checkpoint.every_steps": 1},
    ),
)
def test_absurd_numbers_are_only_large(edits: dict[str, Any]) -> None:
    consistent(numbers(edits))
    found = check(base().edited(edits), target="slurm")
    assert all(len(finding.message) < 2000 for finding in found.findings)


def test_one_expert_and_a_number_beyond_any_count(tmp_path: Path) -> None:
    config = dict(models.find("openai/gpt-oss-20b")) | {"num_local_experts": 1, "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    consistent(numbers({"model": {"config": str(tmp_path)}}))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": %s}' % ("9" * 5000))
    with pytest.raises(SpecError, match="digits"):
        numbers({"model": {"config": str(tmp_path)}})


def test_files_of_any_size_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnreadableEnvironment, match="larger"):
        read_environment("/dev/zero")
    (tmp_path / "framework.yaml").write_text("a" * 2**24)
    found = check(base().edited({"training.config": str(tmp_path / "framework.yaml"), "launch.entrypoint": "train.py"}), target="slurm")
    assert [finding.code for finding in found.findings if "larger than" in finding.message]


def test_more_stages_than_layers_are_refused() -> None:
    for framework in ("custom", "megatron-lm"):
        document = base().edited({"resources.nodes": 8, "parallelism": {"sharding": "none", "pipeline": 64}, "training.framework": framework})
        assert "JG505" in {finding.code for finding in check(document, target="slurm").findings}
