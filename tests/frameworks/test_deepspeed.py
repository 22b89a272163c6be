"""The DeepSpeed JSON key by key."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from jobgen.frameworks import zero

STAGES = {"zero1": 1, "zero2": 2, "zero3": 3}
OFFLOADS = [("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "nvme")]
MATRIX = list(
    itertools.product(STAGES, OFFLOADS, ["bf16", "fp16", "fp32"], ["transformers", "deepspeed", "accelerate", "custom"])
)


def content(done: Any) -> dict[str, Any]:
    return json.loads(dict(done.files)["deepspeed.json"])


@pytest.mark.parametrize(("sharding", "offload", "precision", "framework"), MATRIX)
def test_every_key(written: Any, sharding: str, offload: tuple[str, str], precision: str, framework: str) -> None:
    stage, (optimizer, parameters) = STAGES[sharding], offload
    sets = {"parallelism.sharding": sharding, "training.precision": precision,
            "offload.optimizer": optimizer, "offload.parameters": parameters if stage == 3 else "none"}  # fmt: skip
    if "nvme" in offload:
        sets["offload.nvme_path"] = "/local/nvme"
    found = content(written(framework, sets))
    assert found.pop("train_micro_batch_size_per_gpu") == 2
    assert found.pop("gradient_accumulation_steps") == 8
    assert found.pop("train_batch_size") == 2 * 8 * 16
    assert found.pop("bf16") == {"enabled": precision == "bf16"}
    assert found.pop("fp16") == {"enabled": precision == "fp16"}
    block = found.pop("zero_optimization")
    assert block.pop("stage") == stage
    assert block.pop("reduce_scatter") is True

    def device(name: str) -> dict[str, Any]:
        place: dict[str, Any] = {"device": name}
        if name != "none":
            place["pin_memory"] = True
        if name == "nvme":
            place["nvme_path"] = "/local/nvme"
        return place

    assert block.pop("offload_optimizer") == device(optimizer)
    if stage == 3:
        assert block.pop("offload_param") == device(parameters)
        assert block.pop("stage3_gather_16bit_weights_on_model_save") is False
    sizes = zero.buckets(stage, 5120)._asdict()
    for key, value in block.items():
        assert value == sizes.pop(key), key
    assert (
        all("stage3" in key or key == "sub_group_size" for key in sizes)
        if stage < 3
        else set(sizes) == {"allgather_bucket_size"}
    )
    if framework == "deepspeed":
        assert found.pop("optimizer") == {"type": "AdamW", "params": {}}
    if framework == "transformers":
        assert found.pop("gradient_clipping") == "auto"
    assert found == {}


def test_auto_stands_only_where_a_trainer_fills_it(written: Any) -> None:
    for framework in ("deepspeed", "accelerate", "custom"):
        assert "auto" not in json.dumps(content(written(framework, {"parallelism.sharding": "zero3"})))


@pytest.mark.parametrize(
    ("micro", "steps", "tensor", "context"), [(1, 1, 1, 1), (3, 4, 1, 1), (2, 8, 2, 1), (1, 2, 1, 4), (4, 1, 4, 2)]
)
def test_the_batch_adds_up(written: Any, micro: int, steps: int, tensor: int, context: int) -> None:
    found = content(written("deepspeed", {
        "parallelism": {"sharding": "zero3", "tensor": tensor, "context": context, "context_method": "ulysses"},
        "training.micro_batch_size": micro, "training.gradient_accumulation_steps": steps,
    }))  # fmt: skip
    data = 16 // (tensor * context)
    assert (
        found["train_batch_size"]
        == found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * data
    )


def test_a_global_batch_alone_gives_the_accumulation(written: Any) -> None:
    found = content(written("deepspeed", {
        "parallelism.sharding": "zero2", "training.gradient_accumulation_steps": None, "training.global_batch_size": 128,
    }))  # fmt: skip
    assert (found["train_batch_size"], found["gradient_accumulation_steps"]) == (128, 4)


def test_the_users_own_settings_stay_beside_ours(written: Any) -> None:
    options = {"zero_optimization": {"round_robin_gradients": True}, "aio.queue_depth": 32, "learning_rate": 1e-5}
    found = content(written("deepspeed", {"parallelism.sharding": "zero2", "training.options": options}))
    assert found["zero_optimization"]["round_robin_gradients"] is True
    assert found["zero_optimization"]["stage"] == 2
    assert found["aio"] == {"queue_depth": 32}
    assert found["optimizer"]["params"] == {"lr": 1e-5}


def test_foreign_optimizers_are_allowed(written: Any) -> None:
    found = content(written("transformers", {
        "parallelism.sharding": "zero2", "training.optimizer": "adamw_8bit", "offload.optimizer": "cpu",
    }))  # fmt: skip
    assert found["zero_allow_untested_optimizer"] is True
    assert found["zero_force_ds_cpu_optimizer"] is False
    assert "optimizer" not in found


def test_bf16_pure_needs_a_release_that_has_it(written: Any) -> None:
    sets = {"parallelism.sharding": "zero2", "training.precision": "bf16_pure"}
    new = content(written("deepspeed", sets, deepspeed="0.18.3"))
    assert new["bf16"] == {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    old = written("deepspeed", sets, deepspeed="0.18.2")
    assert content(old)["bf16"] == {"enabled": True}
    assert any("fp32 master" in note for note in old.notes)
    assert ("--bf16",) in written("transformers", sets).args


def test_a_full_checkpoint_and_a_replicated_one(written: Any) -> None:
    found = content(
        written("deepspeed", {"parallelism": {"sharding": "zero3", "replicate": 2}, "checkpoint.content": "full"})
    )
    assert found["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
    assert found["zero_optimization"]["zero_hpz_partition_size"] == 8
