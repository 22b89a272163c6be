"""Lengths of sequences and of runs, and the learning rate that nobody wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobgen import api
from jobgen.catalog import models
from jobgen.checks.registry import Finding
from jobgen.frameworks import NAMES
from jobgen.spec.document import load_text
from tests.physics.specs import text

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512,
    "vocab_size": 1000, "max_position_embeddings": 32768,
}  # fmt: skip


def found(code: str, target: str | None = None, **changes: Any) -> list[Finding]:
    return [f for f in api.check(load_text(text(**changes)), target=target).findings if f.code == code]


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        (None, 32768),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 131072),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 65536),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 4096}}, 32768),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}, "sliding_attention": {"rope_type": "default"}}}, 262144),
        ({"rope_scaling": {"type": "longrope", "long_factor": [1.0], "original_max_position_embeddings": 4096}}, 32768),
        ({"rope_scaling": {"factor": "four"}}, 32768),
    ],
)
def test_positions_with_the_scaling_of_rope(tmp_path: Path, scaling: dict[str, Any] | None, positions: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | (scaling or {})))
    assert models.load(None, tmp_path).max_positions == positions


def test_a_sequence_beyond_the_positions_is_a_warning_with_numbers() -> None:
    (warning,) = found("JG862", model__name="meta-llama/Llama-2-7b-hf", training__sequence_length=16384)
    assert warning.severity == "warning" and "16384 tokens" in warning.message and "4096 positions" in warning.message
    assert "factor of 4" in warning.fix and warning.edits == {"training.sequence_length": 4096}
    assert not found("JG862", model__name="meta-llama/Llama-2-7b-hf", training__sequence_length=4096)
    assert not found("JG862", model__name="meta-llama/Llama-2-7b-hf", training__sequence_length=16384, model__init="random")
    assert not found("JG862", model__name="bigscience/bloom-560m", training__sequence_length=16384), "ALiBi has no maximum"


@pytest.mark.parametrize("model", ["openai-community/gpt2-xl", "facebook/opt-1.3b", "bigcode/starcoderbase"])
def test_a_sequence_beyond_a_table_of_positions_is_an_error(model: str) -> None:
    (error,) = found("JG863", model__name=model, training__sequence_length=65536)
    assert error.severity == "error" and "index out of range" in error.message
    assert not found("JG862", model__name=model, training__sequence_length=65536)
    assert not found("JG863", model__name=model, training__sequence_length=1024)


@pytest.mark.parametrize("framework", NAMES)
def test_a_run_without_a_length_is_said(framework: str) -> None:
    (said,) = found("JG864", training__framework=framework, resources__gpus_per_node=8)
    assert said.severity == ("warning" if framework.startswith("megatron") else "info")
    for length in ({"training__max_steps": 10}, {"training__data": {"tokens": 1e9}}, {"training__data": {"samples": 1000}}):
        assert not found("JG864", training__framework=framework, resources__gpus_per_node=8, **length)


def test_the_frameworks_own_length_is_named() -> None:
    assert "3 epochs" in found("JG864", training__framework="trl")[0].message
    assert "10000 steps" in found("JG864", training__framework="torchtitan")[0].message
    assert "2 epochs" in found("JG864", training__framework="trl", training__data={"epochs": 2})[0].message
    assert not found("JG864", training__framework="trl", training__options={"num_train_epochs": 2})


@pytest.mark.parametrize(("framework", "default"), [("deepspeed", "1e-3"), ("transformers", "5e-5"), ("llama-factory", "5e-5"), ("fsdp-qlora", "1e-5")])
def test_a_learning_rate_that_is_the_frameworks_own_is_said(framework: str, default: str) -> None:
    (said,) = found("JG331", training__framework=framework)
    assert said.severity == "info" and said.message.endswith(f"takes {default}")
    key = "lr" if framework == "fsdp-qlora" else "learning_rate"
    assert not found("JG331", training__framework=framework, training__options={key: 1e-5})


@pytest.mark.parametrize(("framework", "key", "launch"), [("axolotl", "learning_rate", {}), ("megatron-lm", "lr", {"entrypoint": "pretrain_gpt.py"})])
def test_where_there_is_no_default_a_job_without_one_is_warned_of_and_a_whole_one_refused(
    tmp_path: Path, framework: str, key: str, launch: dict[str, Any]
) -> None:
    changes = {"training__framework": framework, "checkpoint__directory": "/c", "training__max_steps": 10, "launch": launch}
    assert found("JG331", **changes)[0].severity == "info", "check alone does not need all of a job"
    assert found("JG331", target="slurm", **changes)[0].severity == "warning"
    (tmp_path / "own.yaml").write_text("datasets: [{path: mine}]\n")
    assert found("JG331", target="slurm", **changes, training__config=str(tmp_path / "own.yaml"))[0].severity == "error"
    assert not found("JG331", target="slurm", **changes, training__options={key: 1e-5})
    assert not found("JG331", target="slurm", **{**changes, "launch": {**launch, "args": [f"--{key}", "1e-5"]}})
    (tmp_path / "own.yaml").write_text(f"{key}: 1.0e-5\n")
    assert not found("JG331", target="slurm", **changes, training__config=str(tmp_path / "own.yaml"))


def test_programs_of_the_users_own_have_their_own_rate() -> None:
    for framework in ("custom", "accelerate", "unsloth", "nemo", "torchtune"):
        assert not found("JG331", training__framework=framework)


def test_steps_of_the_users_own_beside_an_amount_of_data() -> None:
    (said,) = found("JG703", training__framework="trl", training__data={"tokens": 1e9}, training__options={"max_steps": 100})
    assert "max_steps: 100" in said.message and "training.data" in said.message


def test_a_model_that_the_framework_is_not_told() -> None:
    old = {"training__framework": "torchtitan", "training__versions": {"torchtitan": "0.2.0"}}
    assert not found("JG867", **old, model__name="meta-llama/Llama-3.1-8B")
    assert "debug model" in found("JG867", **old, model__name="Qwen/Qwen2.5-7B")[0].message
    (other,) = found("JG867", **old, model__name="meta-llama/Llama-3.1-8B", training__options={"model.flavor": "70B"})
    assert "llama3 70B is trained" in other.message
    new = {"training__framework": "torchtitan", "training__versions": {"torchtitan": "0.3.0"}, "model__name": "meta-llama/Llama-3.1-8B"}
    assert "module: llama3, config: llama3_8b" in found("JG867", **new)[0].fix
    assert not found("JG867", **new, training__options={"module": "llama3", "config": "llama3_8b"})
    assert "deepseek_v3" in found("JG867", training__framework="megatron-lm", model__name="deepseek-ai/DeepSeek-V3")[0].message


def test_megatron_keeps_every_checkpoint() -> None:
    (all_,) = found("JG840", training__framework="megatron-lm", model__name="meta-llama/Llama-3.1-8B", training__max_steps=1000,
                    checkpoint={"directory": "/c", "every_steps": 100, "keep": 2})  # fmt: skip
    assert "all 10 are kept" in all_.message
