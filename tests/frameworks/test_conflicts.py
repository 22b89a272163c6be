"""Owned keys that the user wrote in the framework's words."""

from __future__ import annotations

from typing import Any

import pytest

from jobgen.frameworks import find
from jobgen.frameworks.config import NONE, read_config
from jobgen.frameworks.write import conflicts
from jobgen.spec.problem import SpecError


def found(spec: Any, framework: str, sets: dict[str, Any] | None = None, config: Any = NONE) -> list[Any]:
    made = spec(framework, sets or {})
    return list(conflicts(made, find(framework, made.training.backend), config=config))


def test_a_contradiction_has_both_values_and_the_position(spec: Any) -> None:
    config = read_config("learning_rate: 1.0e-5\n\nper_device_train_batch_size: 4\n", "sft.yaml")
    (one,) = found(spec, "trl", config=config)
    assert (one.path, one.key, one.file, one.line, one.column) == (
        "training.micro_batch_size",
        "per_device_train_batch_size",
        "sft.yaml",
        3,
        1,
    )
    assert (one.ours, one.theirs, one.meant, one.agrees) == (2, 4, 4, False)


def test_options_are_looked_at_too(spec: Any) -> None:
    (one,) = found(spec, "axolotl", {"training.options": {"micro_batch_size": 4, "learning_rate": 1e-5}})
    assert (one.file, one.ours, one.theirs) == ("", 2, 4)


def test_another_spelling_of_the_same_agrees_and_stays(spec: Any, written: Any) -> None:
    sets = {"training.options": {"optim": "adamw_torch_fused"}}
    (one,) = found(spec, "transformers", sets)
    assert one.agrees
    assert ("adamw_torch_fused",) in written("transformers", sets).args


def test_a_field_that_the_spec_leaves_unset(spec: Any) -> None:
    (one,) = found(spec, "trl", {"training.options": {"attn_implementation": "flash_attention_2"}})
    assert (one.path, one.ours, one.meant, one.agrees) == ("training.attention", None, "flash_attention_2", False)


def test_nested_and_dotted_keys(spec: Any) -> None:
    for options in ({"zero_optimization": {"stage": 3}}, {"zero_optimization.stage": 3}):
        (one,) = found(spec, "deepspeed", {"parallelism.sharding": "zero2", "training.options": options})
        assert (one.path, one.ours, one.theirs, one.meant) == ("parallelism.sharding", 2, 3, "zero3")


@pytest.mark.parametrize("key", ["micro-batch-size", "--micro-batch-size", "micro_batch_size"])
def test_flags_in_any_spelling(spec: Any, key: str) -> None:
    assert [one.theirs for one in found(spec, "megatron-lm", {"training.options": {key: 4}})] == [4]


def test_a_toml_position(spec: Any) -> None:
    config = read_config("[training]\n# size\nseq_len = 2048\n", "t.toml")
    (one,) = found(spec, "torchtitan", config=config)
    assert (one.line, one.ours, one.theirs) == (3, 4096, 2048)


def test_keys_that_the_spec_does_not_own_are_the_users(spec: Any) -> None:
    assert not found(
        spec, "transformers", {"training.options": {"learning_rate": 1e-5, "warmup_steps": 10, "my_flag": True}}
    )


@pytest.mark.parametrize(
    ("text", "name"), [("- a\n", "x.yaml"), ("[1]", "x.json"), ("{", "x.json"), ("a = ", "x.toml"), ("a: [", "x.yaml")]
)
def test_a_broken_file_is_an_error_with_a_position(text: str, name: str) -> None:
    with pytest.raises(SpecError) as error:
        read_config(text, name)
    assert error.value.problems[0].file == name


def test_json_with_tabs() -> None:
    assert read_config('{\n\t"a": 1\n}', "x.json").values == {"a": 1}
