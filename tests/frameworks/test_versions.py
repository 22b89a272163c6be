"""Names by version; the newest where nothing is known, with one note that says what would decide it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml


def flags(done: Any) -> dict[str, str]:
    words = [word[0] for word in done.args]
    return dict(zip(words[::2], words[1::2], strict=False))


@pytest.mark.parametrize(
    ("library", "version", "framework", "sets", "there", "absent"),
    [
        ("transformers", "4.45", "transformers", {"training.evaluation.every_steps": 10}, "--eval_strategy", "--evaluation_strategy"),
        ("transformers", "5.24", "transformers", {"training.evaluation.every_steps": 10}, "--eval_strategy", "--evaluation_strategy"),
        ("transformers", "4.40", "transformers", {"training.evaluation.every_steps": 10}, "--evaluation_strategy", "--eval_strategy"),
        ("transformers", "5.22", "transformers", {"training.activation_checkpointing": "full"}, "--gradient_checkpointing", "--activation_checkpointing"),
        ("transformers", "5.23", "transformers", {"training.activation_checkpointing": "full"}, "--activation_checkpointing", "--gradient_checkpointing"),
    ],
)  # fmt: skip
def test_flags(
    written: Any, library: str, version: str, framework: str, sets: dict[str, Any], there: str, absent: str
) -> None:
    found = flags(written(framework, sets, **{library: version}))
    assert there in found and absent not in found


@pytest.mark.parametrize(
    ("framework", "file", "versions", "sets", "there", "absent"),
    [
        ("trl", "trl.yaml", {"trl": "0.12.2"}, {}, {"max_seq_length": 4096}, "max_length"),
        ("trl", "trl.yaml", {"trl": "0.19"}, {}, {"max_length": 4096}, "max_seq_length"),
        ("trl", "trl.yaml", {"trl": "0.26"}, {"training.dtypes.weights": "bf16"}, {"dtype": "bfloat16"}, "torch_dtype"),
        ("trl", "trl.yaml", {"trl": "0.22"}, {"training.dtypes.weights": "bf16"}, {"torch_dtype": "bfloat16"}, "dtype"),
        ("trl", "trl.yaml", {"trl": "1.16"}, {}, {"gradient_checkpointing": False}, "max_seq_length"),
        ("axolotl", "axolotl.yaml", {"axolotl": "0.11"}, {"parallelism.context": 2}, {"sequence_parallel_degree": 2}, "context_parallel_size"),
        ("axolotl", "axolotl.yaml", {"axolotl": "0.12"}, {"parallelism.context": 2}, {"context_parallel_size": 2}, "sequence_parallel_degree"),
        ("axolotl", "axolotl.yaml", {"axolotl": "0.10"}, {"training.attention": "flash_attention_2"}, {"flash_attention": True}, "attn_implementation"),
        ("axolotl", "axolotl.yaml", {"axolotl": "0.21"}, {"parallelism.sharding": "fsdp2"}, {"fsdp_version": 2}, "fsdp"),
        ("llama-factory", "llamafactory.yaml", {"llamafactory": "0.9.5"}, {}, {"cutoff_len": 4096, "stage": "sft"}, "max_length"),
    ],
)  # fmt: skip
def test_files(
    written: Any,
    framework: str,
    file: str,
    versions: dict[str, str],
    sets: dict[str, Any],
    there: dict[str, Any],
    absent: str,
) -> None:
    found = yaml.safe_load(dict(written(framework, sets, **versions).files)[file])
    assert found.items() >= there.items()
    assert absent not in found


def test_fsdp_of_a_trainer_by_release(written: Any) -> None:
    sets = {"parallelism.sharding": "fsdp2", "offload.parameters": "cpu", "offload.optimizer": "cpu"}
    new = flags(written("transformers", sets, transformers="5.10", accelerate="1.14"))
    assert new["--fsdp"] == "True"
    assert '"version": 2' in new["--fsdp_config"] and '"cpu_offload": true' in new["--fsdp_config"]
    middle = written("transformers", sets, transformers="5.4", accelerate="1.14")
    assert flags(middle)["--fsdp"] == "full_shard auto_wrap offload"
    assert '"version": 2' in flags(middle)["--fsdp_config"]
    old = written("transformers", sets, transformers="4.57", accelerate="1.14")
    assert flags(old)["--fsdp"] == "full_shard auto_wrap offload"
    assert dict(old.env)["FSDP_VERSION"] == ("2",)


def test_a_name_that_holds_everywhere_needs_no_note(written: Any) -> None:
    done = written("transformers", {"training.activation_checkpointing": "full"})
    assert "--gradient_checkpointing" in flags(done)
    assert not any("transformers" in note for note in done.notes)


def test_an_open_version_is_one_note(written: Any) -> None:
    done = written("trl", {"training.dtypes.weights": "bf16", "offload.activations": "cpu"})
    notes = [note for note in done.notes if "which trl runs" in note]
    assert len(notes) == 1
    assert "dtype" in notes[0] and "activation_offloading" in notes[0]


def test_torchtitan_has_a_file_until_0_2_and_flags_from_0_3(written: Any) -> None:
    old = written("torchtitan", {"parallelism.sharding": "fsdp2"}, torchtitan="0.2.2")
    assert [name for name, _ in old.files] == ["torchtitan.toml"]
    new = written("torchtitan", {"parallelism.sharding": "fsdp2"}, torchtitan="0.3.0")
    assert not new.files
    assert flags(new)["--training.seq_len"] == "4096"
    assert "--optimizer.name" not in flags(new)
