"""The configuration alone trains the model, for the length, that was checked."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from jobgen.effective.resolve import assume
from jobgen.launch.build import build
from jobgen.launch.job import Job
from jobgen.spec.document import load_text

TREE: dict[str, Any] = {
    "name": "x", "model": {"name": "meta-llama/Llama-3.1-8B"},
    "training": {"method": "full", "sequence_length": 4096, "micro_batch_size": 2, "gradient_accumulation_steps": 4},
    "resources": {"gpus_per_node": 8, "gpu": "h100-80gb"}, "checkpoint": {"directory": "/ckpt/x", "every_steps": 50},
    "launch": {},
}  # fmt: skip


def job(framework: str, **changes: Any) -> Job:
    """The job of a small spec; changes by path with ``__`` for dots."""
    tree = json.loads(json.dumps(TREE))
    tree["training"]["framework"] = framework
    if framework in ("transformers", "megatron-lm", "megatron-deepspeed", "fsdp-qlora"):
        tree["launch"]["entrypoint"] = "train.py"
    for path, value in changes.items():
        node = tree
        *parents, leaf = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return build(assume(load_text(json.dumps(tree))).effective)


def words(job: Job) -> list[str]:
    return [word.literal or "" for word in job.command.words]


def flags(job: Job) -> dict[str, str]:
    """``--flag value``; a switch has the value ''."""
    said = words(job)
    return {
        word.lstrip("-").replace("-", "_"): "" if i + 1 == len(said) or said[i + 1].startswith("--") else said[i + 1]
        for i, word in enumerate(said) if word.startswith("--")
    }  # fmt: skip


def file(job: Job, name: str) -> dict[str, Any]:
    text = next(file.content for file in job.files if file.name == name)
    return dict(tomllib.loads(text) if name.endswith(".toml") else yaml.safe_load(text))


@pytest.mark.parametrize("objective", ["pretrain", "sft", "reward", "dpo", "kto"])
def test_llama_factory_is_told_to_train(objective: str) -> None:
    assert file(job("llama-factory", training__objective=objective), "llamafactory.yaml")["do_train"] is True
    mine = job("llama-factory", training__objective=objective, training__options={"do_train": False})
    assert file(mine, "llamafactory.yaml")["do_train"] is False, "the user's own word wins"


def test_a_program_of_the_trainers_examples_is_told_to_train() -> None:
    assert flags(job("transformers"))["do_train"] == "True"


def test_all_that_training_arguments_cannot_say_is_said() -> None:
    (note,) = [note for note in job("transformers", training__attention="sdpa").notes if "TrainingArguments hold no" in note]
    assert "model.path" in note and "training.sequence_length" in note and "training.attention" in note
    assert "training.packing" not in note and "training.reference" not in note


DATA = {"tokens": 1e9}
STEPS = 3815
"""10^9 tokens at 8 ranks x 2 x 4 sequences of 4096."""
WORDS = [
    ("transformers", "max_steps", {}), ("trl", "max_steps", {}), ("llama-factory", "max_steps", {}), ("axolotl", "max_steps", {}),
    ("ms-swift", "max_steps", {}), ("torchtune", "max_steps_per_epoch", {}), ("torchtitan", "training.steps", {}),
    ("megatron-lm", "train_iters", {}), ("megatron-deepspeed", "train_iters", {}), ("litgpt", "train.max_steps", {}),
    ("nemo", "train.train_iters", {"launch__entrypoint": "pretrain.py"}),
    ("verl", "trainer.total_training_steps", {"training__objective": "grpo", "training__rollout": {}, "parallelism__sharding": "fsdp2"}),
]  # fmt: skip


def said(job: Job) -> dict[str, Any]:
    """All keys of flags, assignments and files, dotted where nested."""
    found: dict[str, Any] = dict(flags(job)) | dict(word.split("=", 1) for word in words(job) if "=" in word)
    for one in job.files:
        for key, value in file(job, one.name).items():
            found |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return found


@pytest.mark.parametrize(("framework", "word", "more"), WORDS)
def test_an_amount_of_data_is_written_as_the_steps_that_the_estimate_shows(framework: str, word: str, more: dict[str, Any]) -> None:
    tree = {**more, "training__data": DATA}
    assert int(said(job(framework, **tree))[word]) == STEPS
    packed = {"samples": 200000, "tokens_per_sample": 512}
    assert int(said(job(framework, **more, training__data=packed, training__packing="packed"))[word]) == 391


@pytest.mark.parametrize(("framework", "word"), [("trl", "num_train_epochs"), ("axolotl", "num_epochs"), ("torchtune", "epochs"), ("litgpt", "train.epochs")])
def test_epochs_that_the_user_writes_stay_epochs(framework: str, word: str) -> None:
    found = said(job(framework, training__data={"samples": 1000, "epochs": 3}))
    assert int(found[word]) == 3
    assert not {"max_steps", "max_steps_per_epoch", "train.max_steps"} & found.keys()


def test_epochs_are_steps_where_the_framework_counts_none() -> None:
    assert int(said(job("torchtitan", training__data={"samples": 64000, "epochs": 3}))["training.steps"]) == 3000


def test_fsdp_qlora_counts_batches() -> None:
    assert int(said(job("fsdp-qlora", training__data=DATA))["max_steps"]) == 4 * STEPS


def test_litgpt_counts_what_its_command_counts() -> None:
    tuned = said(job("litgpt", training__max_steps=70))
    assert (tuned["train.max_steps"], tuned["train.epochs"]) == (70, 70), "it ends at its epochs (5), however many steps it may make"
    trained = said(job("litgpt", training__objective="pretrain", training__max_steps=70))
    assert trained["train.max_tokens"] == 70 * 64 * 4096
    assert not {"train.max_steps", "train.epochs"} & trained.keys(), "pretrain refuses them"


def test_torchtitans_own_loss_is_left_alone() -> None:
    def switched(**changes: Any) -> Any:
        made = job("torchtitan", parallelism__tensor=2, parallelism__sharding="fsdp2", training__versions={"torchtitan": "0.2.0"}, **changes)
        return file(made, "torchtitan.toml")["parallelism"].get("disable_loss_parallel")

    assert switched() is None
    assert switched(training__loss="standard") is None
    assert switched(training__options={"parallelism.disable_loss_parallel": True}) is True
    assert switched(training__loss="vocab_parallel") is False


OLD = {"torchtitan": "0.2.0"}


@pytest.mark.parametrize(
    ("model", "name", "flavor"),
    [("meta-llama/Llama-3.1-8B", "llama3", "8B"), ("Qwen/Qwen3-30B-A3B", "qwen3", "30B-A3B"), ("deepseek-ai/DeepSeek-V3", "deepseek_v3", "671B")],
)
def test_torchtitan_is_told_the_registered_model_of_the_architecture(model: str, name: str, flavor: str) -> None:
    found = said(job("torchtitan", model__name=model, training__versions=OLD))
    assert (found["model.name"], found["model.flavor"]) == (name, flavor)
    assert found["checkpoint.initial_load_in_hf"] is True
    assert "checkpoint.initial_load_in_hf" not in said(job("torchtitan", model__init="random", training__versions=OLD))
    mine = said(job("torchtitan", training__versions=OLD, training__options={"model.flavor": "8B_flex"}))
    assert mine["model.flavor"] == "8B_flex"


def test_torchtitan_is_told_no_model_that_it_does_not_register() -> None:
    assert "model.flavor" not in said(job("torchtitan", model__name="Qwen/Qwen2.5-7B", training__versions=OLD))
    assert "model.flavor" not in said(job("torchtitan", model__name="Qwen/Qwen3-8B", training__versions={"torchtitan": "0.1.0"}))


def test_megatron_is_told_the_architecture() -> None:
    found = flags(job("megatron-lm"))
    sizes = {"num_layers": "32", "hidden_size": "4096", "ffn_hidden_size": "14336", "num_attention_heads": "32", "num_query_groups": "8", "kv_channels": "128"}
    assert sizes.items() <= found.items()
    assert {"group_query_attention", "swiglu", "disable_bias_linear", "untie_embeddings_and_output_weights"} <= found.keys()
    assert (found["normalization"], found["position_embedding_type"], found["hidden_dropout"]) == ("RMSNorm", "rope", "0.0")
    assert not {"add_qkv_bias", "qk_layernorm", "num_experts"} & found.keys()
    sparse = flags(job("megatron-lm", model__name="Qwen/Qwen3-30B-A3B"))
    assert (sparse["num_experts"], sparse["moe_router_topk"], sparse["moe_ffn_hidden_size"]) == ("128", "8", "768") and "qk_layernorm" in sparse
    tied = flags(job("megatron-lm", model__name="Qwen/Qwen2.5-0.5B"))
    assert "add_qkv_bias" in tied and "untie_embeddings_and_output_weights" not in tied
    assert flags(job("megatron-lm", training__options={"hidden_dropout": 0.1, "num-layers": 4}))["num_layers"] == "4"
    assert "num_layers" not in flags(job("megatron-lm", model__name="deepseek-ai/DeepSeek-V3"))
    assert "num_layers" not in flags(job("megatron-lm", training__options={"use-checkpoint-args": True}))


def test_litgpt_pretrain_takes_a_name_not_a_folder() -> None:
    anew = said(job("litgpt", training__objective="pretrain", model__init="random"))
    assert anew["model_name"] == "Llama-3.1-8B" and "checkpoint_dir" not in anew and "initial_checkpoint_dir" not in anew
    further = said(job("litgpt", training__objective="pretrain", checkpoint__resume="never", model__path="/m/llama"))
    assert further["initial_checkpoint_dir"] == "/m/llama"
    assert any("random weights" in note for note in job("litgpt", training__objective="pretrain").notes)
    assert "checkpoint_dir" in said(job("litgpt"))
