"""What will really run: data types by framework, silent changes of optimizer, offload and sharding, batches."""

from __future__ import annotations

from typing import Any

import pytest

from jobgen.frameworks import states, zero
from jobgen.spec.models import OptimizerName

from ..physics.specs import effective


@pytest.mark.parametrize(
    ("framework", "sharding", "precision", "expected"),
    [
        ("torchtitan", "fsdp2", "bf16", (2, 4, 4, 0)),
        ("transformers", "fsdp1", "bf16", (2, 4, 4, 0)),
        ("llama-factory", "zero3", "bf16", (2, 2, 2, 4)),
        ("llama-factory", "none", "bf16", (4, 4, 4, 0)),
        ("axolotl", "none", "bf16", (2, 2, 2, 0)),
        ("torchtune", "fsdp2", "bf16", (2, 2, 2, 0)),
        ("litgpt", "fsdp1", "bf16_pure", (2, 2, 2, 0)),
        ("litgpt", "fsdp1", "bf16", (2, 4, 4, 0)),
        ("fsdp-qlora", "fsdp1", "bf16", (4, 4, 4, 0)),
        ("trl", "none", "bf16", (4, 4, 4, 0)),
        ("megatron-lm", "zero1", "bf16", (2, 2, 4, 4)),
        ("trl", "fsdp1", "bf16_pure", (2, 2, 2, 0)),
        ("deepspeed", "zero3", "bf16_pure", (2, 2, 2, 2)),
        ("transformers", "none", "fp16", (4, 4, 4, 0)),
        ("custom", "none", "fp32", (4, 4, 4, 0)),
        ("custom", "zero2", "fp16", (2, 2, 2, 4)),
    ],
)
def test_data_types(framework: str, sharding: str, precision: str, expected: tuple[float, ...]) -> None:
    numbers = effective(
        training__framework=framework, training__precision=precision, parallelism__sharding=sharding, resources__gpus_per_node=8,
        parallelism__tensor=2 if framework == "megatron-lm" else 1,
    ).numbers  # fmt: skip
    assert (numbers.weights, numbers.trainable, numbers.gradients, numbers.master) == expected
    assert numbers.source


def test_transformers_5_loads_the_checkpoints_dtype() -> None:
    old = effective(training__framework="transformers", training__versions={"transformers": "4.57.1"}).numbers
    new = effective(training__framework="transformers", training__versions={"transformers": "5.6.0"}).numbers
    assert (old.trainable, old.autocast_copies) == (4, True)
    assert (new.trainable, new.autocast_copies) == (2, False)


def test_trl_loads_what_it_is_told() -> None:
    told = effective(training__framework="trl", training__options={"dtype": "bfloat16"}).numbers
    assert (told.trainable, told.autocast_copies) == (2, False)
    weights = effective(training__framework="ms-swift", training__dtypes={"weights": "fp32"}).numbers
    assert (weights.trainable, weights.gradients, weights.autocast_copies) == (4, 4, True)


def test_deepspeed_keeps_16_bit_masters_since_one_release() -> None:
    changes = {"training__framework": "deepspeed", "training__precision": "bf16_pure", "parallelism__sharding": "zero3", "resources__gpus_per_node": 8}
    assert effective(**changes, training__versions={"deepspeed": "0.18.2"}).numbers.master == 4
    assert effective(**changes, training__versions={"deepspeed": "0.18.3"}).numbers.master == 2


def test_the_users_data_types_win() -> None:
    numbers = effective(training__framework="deepspeed", parallelism__sharding="zero2", resources__gpus_per_node=8,
                        training__dtypes={"gradients": "fp32", "master": "none", "reduce": "fp32"}).numbers  # fmt: skip
    assert (numbers.gradients, numbers.master, numbers.reduce) == (4, 0, 4)


def test_adapters_are_fp32_by_peft_and_bf16_elsewhere() -> None:
    assert effective(training__method="lora", training__framework="trl").numbers.adapters == 4
    assert effective(training__method="lora", training__framework="torchtune").numbers.adapters == 2


def test_every_optimizer_and_every_engine_has_a_source() -> None:
    assert set(states.OPTIMIZERS) == set(OptimizerName.__args__)
    assert all(known.source for known in states.OPTIMIZERS.values())
    assert all(state.source for state in states.STATES.values())


def test_eight_bit_optimizers_become_cpu_adam_under_deepspeed_offload() -> None:
    now = effective(training__framework="transformers", training__optimizer="paged_adamw_8bit", parallelism__sharding="zero3",
                    resources__gpus_per_node=8, offload={"optimizer": "cpu"})  # fmt: skip
    assert (now.stepped.name, now.stepped.where, now.stepped.moments_bytes) == ("adamw", "cpu", 8)
    assert [effect.facts for effect in now.stepped.effects] == [("OF02",)]


def test_zero_below_three_keeps_parameters_on_the_gpu() -> None:
    now = effective(training__framework="deepspeed", parallelism__sharding="zero2", resources__gpus_per_node=8, offload={"parameters": "cpu", "optimizer": "cpu"})
    assert (now.offloaded.parameters, now.offloaded.optimizer) == ("gpu", "cpu")
    assert [effect.facts for effect in now.offloaded.effects] == [("OF01",)]


def test_a_trainer_without_sharding_offloads_nothing() -> None:
    now = effective(training__framework="transformers", offload={"optimizer": "cpu"})
    assert now.offloaded.optimizer == "gpu"
    assert now.offloaded.effects[0].path == "offload.optimizer"
    assert effective(training__framework="torchtune", offload={"optimizer": "cpu"}).offloaded.optimizer == "cpu"


def test_fsdp_shards_over_context_ranks_too() -> None:
    now = effective(training__framework="torchtitan", parallelism__sharding="fsdp2", parallelism__context=4, resources__gpus_per_node=8)
    assert now.sharded.weights == 8
    alone = effective(training__framework="torchtitan", parallelism__sharding="fsdp2", parallelism__context=8, resources__gpus_per_node=8)
    assert alone.sharded.weights == 8


def test_hybrid_sharding_cuts_over_the_shard_group_only() -> None:
    now = effective(training__framework="torchtitan", parallelism__sharding="fsdp2", parallelism__replicate=2, resources__gpus_per_node=8)
    assert now.sharded.weights == 4


def test_hpz_keeps_a_second_partition_of_the_weights() -> None:
    now = effective(training__framework="deepspeed", parallelism__sharding="zero3", parallelism__replicate=2, resources__nodes=2, resources__gpus_per_node=8)
    assert (now.sharded.weights, now.sharded.gradients, now.sharded.optimizer) == (8, 16, 16)


def test_megatron_shards_the_optimizer_alone() -> None:
    now = effective(training__framework="ms-swift", parallelism__sharding="zero1", parallelism__tensor=4, resources__gpus_per_node=8)
    assert (now.sharded.weights, now.sharded.gradients, now.sharded.optimizer) == (1, 1, 2)


def test_preference_pairs_are_two_sequences() -> None:
    now = effective(training__objective="dpo", training__framework="trl", training__micro_batch_size=2)
    assert now.batch.micro == 4
    assert now.batch.global_samples == 2
    assert now.batch.tokens_per_step == 4 * 4096


def test_steps_from_samples_and_from_tokens() -> None:
    samples = effective(training__data={"samples": 1000, "epochs": 3}, training__gradient_accumulation_steps=8)
    assert samples.batch.steps == 375
    tokens = effective(training__data={"tokens": "3.2e9"}, training__packing="packed", training__gradient_accumulation_steps=8)
    assert tokens.batch.steps == -(-3_200_000_000 // (8 * 4096))


def test_learned_positions_bound_the_sequence() -> None:
    now = effective(model__name="openai-community/gpt2-xl", training__sequence_length=4096)
    assert now.batch.sequence == 1024


def test_buckets_that_are_written_are_those_that_are_counted() -> None:
    assert zero.buckets(3, 4096).reduce_bucket_size == 4096**2
    now = effective(training__framework="transformers", parallelism__sharding="zero2", resources__gpus_per_node=8)
    assert now.sharded.bucket_bytes == 2 * 500_000_000 * 2


def test_torchtitan_cuts_the_loss_unless_its_own_switch_says_not_to() -> None:
    def loss(version: str, **more: Any) -> str:
        made = effective(training__framework="torchtitan", training__versions={"torchtitan": version}, parallelism={"sharding": "fsdp2", "tensor": 2},
                         resources__gpus_per_node=8, **more)  # fmt: skip
        return made.activations.loss

    assert loss("0.2.0") == "vocab_parallel"
    assert loss("0.2.0", training__loss="standard") == "vocab_parallel"
    assert loss("0.2.0", training__options={"parallelism": {"disable_loss_parallel": True}}) == "standard"
