"""The file of ``accelerate launch``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobgen.frameworks.table import Slot

NEEDED = {"compute_environment", "distributed_type", "num_machines", "num_processes", "rdzv_backend"}


def content(done: Any) -> dict[str, Any]:
    return yaml.safe_load(dict(done.files)["accelerate.yaml"])


@pytest.mark.parametrize(
    ("sharding", "kind"),
    [("none", "MULTI_GPU"), ("zero2", "DEEPSPEED"), ("zero3", "DEEPSPEED"), ("fsdp1", "FSDP"), ("fsdp2", "FSDP")],
)
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "bf16_pure"])
def test_the_file_is_whole(written: Any, sharding: str, kind: str, precision: str) -> None:
    done = written("accelerate", {"parallelism.sharding": sharding, "training.precision": precision})
    file = content(done)
    assert file.keys() >= NEEDED
    assert file["distributed_type"] == kind
    assert (file["num_processes"], file["num_machines"]) == (16, 2)
    assert not file.keys() & {"machine_rank", "main_process_ip", "main_process_port"}
    assert done.launcher_args[:2] == (("--config_file",), (Slot.CONFIG_DIR, "/accelerate.yaml"))
    if kind == "DEEPSPEED":
        assert "mixed_precision" not in file, "refused beside a DeepSpeed JSON"
        assert file["deepspeed_config"] == {
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": sharding == "zero3",
        }
        assert done.launcher_args[2:] == (("--deepspeed_config_file",), (Slot.CONFIG_DIR, "/deepspeed.json"))
    else:
        assert file["mixed_precision"] == {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "bf16_pure": "no"}[precision]


def test_fsdp_in_both_versions(written: Any) -> None:
    sets = {"training.activation_checkpointing": "full", "offload.parameters": "cpu", "offload.optimizer": "cpu"}
    second = content(written("accelerate", sets | {"parallelism.sharding": "fsdp2"}, accelerate="1.15"))["fsdp_config"]
    assert second == {
        "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer", "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_sync_module_states": True, "fsdp_offload_params": True, "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_activation_checkpointing": True,
    }  # fmt: skip
    first = content(written("accelerate", sets | {"parallelism.sharding": "fsdp1"}, accelerate="1.4"))["fsdp_config"]
    assert first["fsdp_sharding_strategy"] == "FULL_SHARD"
    assert "fsdp_version" not in first


@pytest.mark.parametrize("loading", [True, False])
def test_a_written_loading_option_reaches_the_file(written: Any, loading: bool) -> None:
    for options in (
        {"fsdp_config": {"cpu_ram_efficient_loading": loading}},
        {"fsdp_config.fsdp_cpu_ram_efficient_loading": loading},
    ):
        done = written("trl", {"parallelism.sharding": "fsdp2", "training.options": options})
        assert content(done)["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is loading


def test_sizes_beyond_data_parallelism(written: Any) -> None:
    file = content(
        written("accelerate", {"parallelism": {"sharding": "fsdp2", "replicate": 2, "tensor": 2}}, accelerate="1.12")
    )
    assert file["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4,
        "parallelism_config_tp_size": 2, "parallelism_config_cp_size": 1,
    }  # fmt: skip


def test_another_launcher_gets_the_variables(written: Any) -> None:
    env = dict(
        written("accelerate", {"parallelism.sharding": "fsdp2", "launch.launcher": "torchrun"}, accelerate="1.15").env
    )
    assert env["ACCELERATE_USE_FSDP"] == ("true",)
    assert env["FSDP_VERSION"] == ("2",)
    assert env["FSDP_TRANSFORMER_CLS_TO_WRAP"] == ("Qwen2DecoderLayer",)
    env = dict(written("accelerate", {"parallelism.sharding": "zero3", "launch.launcher": "torchrun"}).env)
    assert env["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == (Slot.CONFIG_DIR, "/deepspeed.json")


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed here")
@pytest.mark.parametrize("sharding", ["none", "zero3", "fsdp2"])
def test_accelerate_reads_it(written: Any, sharding: str, tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    path = tmp_path / "accelerate.yaml"
    path.write_text(dict(written("accelerate", {"parallelism.sharding": sharding}).files)["accelerate.yaml"])
    assert load_config_from_file(str(path)).num_processes == 16
