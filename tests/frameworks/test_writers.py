"""What each framework is told."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from jobgen.effective.resolve import assume
from jobgen.frameworks import NAMES, find
from jobgen.frameworks.config import read_config
from jobgen.frameworks.table import Slot
from jobgen.launch.build import build
from jobgen.spec.document import load_text

CONFIG_DIR, RESUME = Slot.CONFIG_DIR, Slot.RESUME_FROM


def parsed(done: Any, name: str) -> dict[str, Any]:
    text = dict(done.files)[name]
    return tomllib.loads(text) if name.endswith(".toml") else yaml.safe_load(text)


def pairs(done: Any) -> dict[str, str]:
    words = [word[0] for word in done.args]
    return {
        word: (words[i + 1] if i + 1 < len(words) else "") for i, word in enumerate(words) if str(word).startswith("--")
    }


@pytest.mark.parametrize("framework", NAMES)
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_every_framework_writes_something_or_says_why_not(written: Any, framework: str, method: str) -> None:
    done = written(framework, {"training.method": method})
    assert done.args or done.files or done.notes or framework == "custom"
    for word in (*done.args, *(done.command or ()), *done.launcher_args, *done.resume_args):
        assert isinstance(word, tuple) and all(isinstance(part, str) for part in word)
        assert all("{config}" not in part for part in word)


@pytest.mark.parametrize("framework", NAMES)
def test_the_same_spec_is_written_the_same_way(written: Any, framework: str) -> None:
    sets = {
        "training.method": "qlora",
        "training.data": {"samples": 100, "tokens_per_sample": 10},
        "training.max_steps": None,
    }
    assert written(framework, sets) == written(framework, sets)


def test_transformers_flags(written: Any) -> None:
    done = written("transformers", {"parallelism.sharding": "zero3", "training.options": {"learning_rate": 1e-5}})
    found = pairs(done)
    assert found["--per_device_train_batch_size"] == "2"
    assert found["--gradient_accumulation_steps"] == "8"
    assert found["--output_dir"] == "/ckpt/job"
    assert found["--learning_rate"] == "1e-05"
    assert (found["--save_strategy"], found["--save_steps"], found["--save_total_limit"]) == ("steps", "50", "2")
    assert done.args[-2:] == (("--deepspeed",), (CONFIG_DIR, "/deepspeed.json"))
    assert done.resume_args == (("--resume_from_checkpoint",), (RESUME,))


def test_transformers_file_where_the_user_places_it(written: Any) -> None:
    config = read_config("learning_rate: 1.0e-5\nreport_to: none\n", "conf/sft.yaml")
    done = written("transformers", {"launch.args": ["{config}"]}, config=config)
    file = parsed(done, "sft.yaml")
    assert done.config_file == "sft.yaml"
    assert file["report_to"] == "none" and file["max_steps"] == 100
    assert not done.args


def test_resuming_from_a_path_and_never(written: Any) -> None:
    given = written("transformers", {"checkpoint.resume": "/ckpt/other/checkpoint-5"})
    assert given.resume_args == (("--resume_from_checkpoint",), (RESUME,))
    assert "--resume_from_checkpoint" not in pairs(given)
    assert not written("transformers", {"checkpoint.resume": "never"}).resume_args


def test_epochs_stand_only_without_steps(written: Any) -> None:
    data = {"training.data": {"samples": 1000, "tokens_per_sample": 100, "epochs": 3}, "training.max_steps": None}
    found = pairs(written("transformers", data))
    assert found["--num_train_epochs"] == "3"
    assert "--max_steps" not in found


def test_trl_starts_its_script_with_one_file(written: Any) -> None:
    done = written("trl", {"training.method": "qlora", "training.objective": "dpo"}, trl="1.16")
    assert done.command == (("-m",), ("trl.scripts.dpo",), ("--config",), (CONFIG_DIR, "/trl.yaml"))
    file = parsed(done, "trl.yaml")
    assert file["use_peft"] is True and file["load_in_4bit"] is True and file["bnb_4bit_quant_type"] == "nf4"
    assert file["lora_target_modules"] == "all-linear" and file["max_length"] == 4096


OWN = [
    ("llama-factory", ((CONFIG_DIR, "/llamafactory.yaml"),)),
    ("axolotl", ((CONFIG_DIR, "/axolotl.yaml"),)),
    ("litgpt", (("--config",), (CONFIG_DIR, "/litgpt.yaml"))),
]


@pytest.mark.parametrize(("framework", "args"), OWN)
def test_an_entry_point_gets_the_config_as_the_frameworks_program_would(written: Any, framework: str, args: Any) -> None:
    assert written(framework, {"launch.entrypoint": "my.py"}).args == args
    for said in (["--spec", "{config}"], ["mine.yaml"]):
        assert not written(framework, {"launch.entrypoint": "my.py", "launch.args": said}).args


def test_an_entry_point_of_the_users_own_gets_the_config(written: Any) -> None:
    done = written("trl", {"launch.entrypoint": "my.py"})
    assert done.command is None
    assert done.args == (("--config",), (CONFIG_DIR, "/trl.yaml"))
    placed = written("trl", {"launch.command": ["trl", "sft", "--config", "{config}"]})
    assert placed.command == (("trl",), ("sft",), ("--config",), (CONFIG_DIR, "/trl.yaml"))
    assert not placed.args


def test_llama_factory(written: Any) -> None:
    done = written("llama-factory", {"parallelism.sharding": "zero3", "training.method": "qlora", "training.activation_checkpointing": "full",
                                     "training.lora.target_modules": ["q_proj", "v_proj"]}, llamafactory="0.9.4")  # fmt: skip
    file = parsed(done, "llamafactory.yaml")
    assert (
        file["finetuning_type"] == "lora" and file["quantization_bit"] == 4 and file["lora_target"] == "q_proj,v_proj"
    )
    assert file["disable_gradient_checkpointing"] is False and "gradient_checkpointing" not in file
    assert file["deepspeed"]["zero_optimization"]["stage"] == 3
    env = dict(done.env)
    assert env["FORCE_TORCHRUN"] == ("1",) and env["NNODES"] == ("2",) and env["NODE_RANK"] == (Slot.NODE_RANK,)
    assert done.command == (("llamafactory-cli",), ("train",), (CONFIG_DIR, "/llamafactory.yaml"))
    assert not done.resume_args, "it resumes by itself"


def test_axolotl(written: Any) -> None:
    config = read_config("datasets:\n  - path: my/data\n    type: chat_template\nlearning_rate: 2.0e-5\n", "ax.yaml")
    done = written("axolotl", {"parallelism.sharding": "zero2", "training.method": "qlora", "training.loss": "liger",
                               "training.packing": "packed"}, config=config, axolotl="0.13")  # fmt: skip
    file = parsed(done, "axolotl.yaml")
    assert file["datasets"] == [{"path": "my/data", "type": "chat_template"}]
    assert file["adapter"] == "qlora" and file["load_in_4bit"] is True and file["lora_target_linear"] is True
    assert file["sample_packing"] is True and file["sequence_len"] == 4096
    assert file["plugins"] == ["axolotl.integrations.liger.LigerPlugin"]
    assert file["deepspeed"]["train_batch_size"] == 256
    assert done.command == (("-m",), ("axolotl.cli.train",), (CONFIG_DIR, "/axolotl.yaml"))


def test_torchtitan_toml(written: Any) -> None:
    sets = {
        "parallelism": {"sharding": "fsdp2", "tensor": 4, "pipeline": 2},
        "training.activation_checkpointing": "selective",
    }
    file = parsed(written("torchtitan", sets, torchtitan="0.2.1"), "torchtitan.toml")
    assert file["parallelism"]["tensor_parallel_degree"] == 4
    assert file["parallelism"]["data_parallel_shard_degree"] == 2
    assert file["training"]["local_batch_size"] == 16, "a pipeline's microbatches are in the local batch"
    assert file["parallelism"]["pipeline_parallel_microbatch_size"] == 2
    assert file["training"]["global_batch_size"] == 2 * 8 * 2
    assert (file["job"]["dump_folder"], file["checkpoint"]["folder"]) == ("/ckpt/job", "checkpoint")
    assert file["checkpoint"]["enable"] is True and file["activation_checkpoint"]["mode"] == "selective"


def test_megatron_flags(written: Any) -> None:
    done = written("megatron-lm", {
        "parallelism": {"sharding": "zero1", "tensor": 4, "pipeline": 2, "sequence_parallel": True},
        "training.activation_checkpointing": "full", "training.options": {"num_layers": 64, "swiglu": True},
    }, **{"megatron-core": "0.15"})  # fmt: skip
    found = pairs(done)
    assert found["--tensor-model-parallel-size"] == "4" and found["--global-batch-size"] == "32"
    assert found["--save"] == found["--load"] == "/ckpt/job"
    assert {"--use-distributed-optimizer", "--sequence-parallel", "--bf16", "--swiglu"} <= found.keys()
    assert found["--num-layers"] == "64" and found["--recompute-num-layers"] == "1"
    assert ("CUDA_DEVICE_MAX_CONNECTIONS", ("1",)) in done.env


@pytest.mark.parametrize(
    ("framework", "sets", "flag"),
    [
        ("megatron-lm", {}, ("--sequence-parallel",)),
        ("nemo", {}, ("model.sequence_parallel=true",)),
        ("ms-swift", {"training.backend": "megatron"}, ("--sequence_parallel", "True")),
    ],
)
def test_megatron_is_told_of_the_sequence_parallelism_that_was_counted(written: Any, framework: str, sets: Any, flag: Any) -> None:
    def asked(**parallelism: Any) -> bool:
        words = [str(word[0]) for word in written(framework, {**sets, "parallelism": parallelism}).args]
        return any(tuple(words[i : i + len(flag)]) == flag for i in range(len(words)))

    assert asked(tensor=4)
    assert asked(tensor=4, sequence_parallel=True)
    assert not asked(tensor=4, sequence_parallel=False)
    assert not asked(tensor=1)


def test_ms_swift_both_engines(written: Any) -> None:
    done = written("ms-swift", {"parallelism.sharding": "zero3"}, **{"ms-swift": "4.2"})
    assert done.command == (("swift",), ("sft",)) and pairs(done)["--add_version"] == "False"
    done = written(
        "ms-swift",
        {"training.backend": "megatron", "parallelism.tensor": 8, "training.objective": "dpo"},
        **{"ms-swift": "3.9"},
    )
    assert done.command == (("megatron",), ("rlhf",))
    assert pairs(done)["--save"] == "/ckpt/job" and pairs(done)["--rlhf_type"] == "dpo"


def test_torchtune_litgpt_and_verl(written: Any) -> None:
    done = written("torchtune", {"parallelism.sharding": "fsdp2", "training.method": "lora"})
    assert done.command[:3] == (("tune",), ("run",), ("lora_finetune_distributed",))
    assert parsed(done, "torchtune.yaml")["model"]["apply_lora_to_mlp"] is True
    done = written("litgpt", {"training.method": "qlora", "resources.nodes": 1, "resources.gpus_per_node": 1})
    assert done.command[:2] == (("litgpt",), ("finetune_lora",))
    assert parsed(done, "litgpt.yaml")["quantize"] == "bnb.nf4-dq"
    done = written(
        "verl",
        {"training.objective": "grpo", "training.rollout": {"num_generations": 8}, "parallelism.sharding": "fsdp2"},
    )
    words = [word[0] for word in done.args]
    assert "actor_rollout_ref.rollout.n=8" in words and "data.train_batch_size=32" in words


def test_litgpt_keeps_the_optimizers_arguments(written: Any) -> None:
    theirs = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.0002}}
    assert parsed(written("litgpt", {"training.options": {"optimizer": theirs}}), "litgpt.yaml")["optimizer"] == theirs
    assert parsed(written("litgpt", {"training.optimizer": "sgd", "training.options": {"optimizer": theirs}}), "litgpt.yaml")["optimizer"] == "SGD"


def test_custom_ships_the_users_file_and_the_engines(written: Any) -> None:
    config = read_config("lr: 1.0e-5\n", "my.yaml")
    done = written("custom", {"parallelism.sharding": "zero2", "launch.args": ["--config", "{config}"]}, config=config)
    assert {name for name, _ in done.files} == {"my.yaml", "deepspeed.json"}
    assert done.config_file == "my.yaml"


@pytest.mark.parametrize(
    ("framework", "file", "key", "modules"),
    [("trl", "trl.yaml", "lora_target_parameters", "lora_target_modules"), ("axolotl", "axolotl.yaml", "lora_target_parameters", "lora_target_modules")],
)
def test_experts_are_parameters_not_modules(framework: str, file: str, key: str, modules: str) -> None:
    def made(*targets: str) -> dict[str, Any]:
        text = json.dumps({
            "name": "x", "model": {"name": "Qwen/Qwen3-30B-A3B"}, "resources": {"gpus_per_node": 8, "gpu": "h100-80gb"},
            "training": {"method": "lora", "framework": framework, "sequence_length": 4096, "max_steps": 1, "lora": {"target_modules": list(targets)}},
            "checkpoint": {"directory": "/c"},
        })  # fmt: skip
        job = build(assume(load_text(text)).effective)
        return dict(yaml.safe_load(next(f.content for f in job.files if f.name == file)))

    both = made("q_proj", "experts")
    assert both[modules] == ["q_proj"] and both[key] == ["experts.gate_up_proj", "experts.down_proj"]
    assert not made("experts").get(modules) and key in made("experts")
    assert key not in made("q_proj")


@pytest.mark.parametrize("framework", NAMES)
def test_a_dropout_that_the_spec_leaves_open_is_left_to_the_framework(written: Any, framework: str) -> None:
    def said(dropout: float | None) -> str:
        done = written(framework, {"training.method": "lora", "training.lora": {"dropout": dropout} if dropout is not None else {}})
        return " ".join([*(text for _, text in done.files), *(str(word) for word in done.args)])

    assert "dropout" not in said(None)
    owned = [row for row in find(framework).options if row.field == "training.lora.dropout" and row.file != "python"]
    assert ("dropout" in said(0.07)) is bool(owned)


def test_frozen_parts_are_said_only_of_models_that_have_them(written: Any) -> None:
    assert "freeze_vision_tower" not in parsed(written("llama-factory", llamafactory="0.9.4"), "llamafactory.yaml")
    file = parsed(
        written("llama-factory", {"training.freeze": ["vision_tower"]}, llamafactory="0.9.4"), "llamafactory.yaml"
    )
    assert file["freeze_vision_tower"] is True and file["freeze_multi_modal_projector"] is False
