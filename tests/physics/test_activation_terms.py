"""Terms of activations and logits: how they move with sizes, policies, kernels and frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobgen.effective.resolve import assume
from jobgen.effective.setup import Effective
from jobgen.physics import activations, logits
from jobgen.physics.ledger import BACKWARD_END, BACKWARD_START, LOSS, Term, alive
from jobgen.physics.sizes import Sizes, Stage
from jobgen.spec.document import load_text

SPEC = """
name: a
model: {name: Qwen/Qwen2.5-7B}
training: {method: full, framework: transformers, precision: bf16_pure, sequence_length: 4096, micro_batch_size: 1, max_steps: 10, packing: packed}
resources: {gpus_per_node: 8, gpu: h100-80gb}
"""
ONE = Sizes(*[1] * len(Sizes._fields))._replace(sequence=4096, full_sequence=4096)
STAGE = Stage(0, (28,), True, True, 1)


def effective(**sets: Any) -> Effective:
    """The base with paths replaced (dots written as two underscores)."""
    pairs = [f"{path.replace('__', '.')}={value}" for path, value in sets.items()]
    return assume(load_text(SPEC, sets=pairs)).effective


def term(given: tuple[Term, ...], name: str) -> Any:
    return next(each.bytes for each in given if each.id == name)


def kept(setup: Effective, sizes: Sizes = ONE, stage: Stage = STAGE) -> Any:
    return term(activations.terms(setup, sizes, stage), "activations_kept")


def test_a_layer_of_qwen_keeps_the_measured_bytes() -> None:
    per_layer = kept(effective()) / 28
    assert per_layer / (4096 * 3584) == pytest.approx(62.89, abs=0.01)


def test_full_checkpointing_keeps_the_layers_inputs() -> None:
    setup = effective(training__activation_checkpointing="full")
    assert kept(setup) == 28 * 2 * 4096 * 3584


def test_layers_checkpointed_every_second_keep_half() -> None:
    whole, none = kept(effective(training__activation_checkpointing="full")), kept(effective())
    half = kept(effective(training__activation_checkpointing="{mode: selective, every: 2, policy: layers}"))
    assert half == pytest.approx((whole + none) / 2)


def test_core_attention_drops_the_scores_only() -> None:
    eager = {"training__attention": "eager"}
    none = kept(effective(**eager))
    core = kept(effective(**eager, training__activation_checkpointing="{mode: selective, policy: core_attention}"))
    assert none - core == pytest.approx(28 * 6 * 28 * 4096**2)  # fp32 softmax and its copy, 28 heads


def test_a_megatron_gpt_layer_keeps_34_bytes_per_token_and_width() -> None:
    """Korthikanti et al. 2022 (2205.05198), table 2: 34 s b h without the scores, all of it cut by sequence parallelism."""
    sets = {"model__name": "openai-community/gpt2-xl", "training__framework": "megatron-lm", "parallelism__tensor": 4, "parallelism__sequence_parallel": "true"}
    sizes = ONE._replace(sequence=1024, full_sequence=1024, tensor=4)
    stage = STAGE._replace(layers=(48,))
    assert kept(effective(**sets), sizes, stage) / (48 * 1024 * 1600 / 4) == pytest.approx(34, rel=0.01)


def test_pipeline_keeps_each_microbatch_in_flight() -> None:
    assert kept(effective(), stage=STAGE._replace(in_flight=4)) == 4 * kept(effective())


def test_tensor_parallel_cuts_all_but_norms_and_sequence_parallel_those_too() -> None:
    base = {"training__framework": "megatron-lm", "parallelism__tensor": 4}
    whole = kept(effective(training__framework="megatron-lm"))
    split = ONE._replace(tensor=4)
    without = kept(effective(**base, parallelism__sequence_parallel="false"), split)
    with_it = kept(effective(**base), split)
    assert with_it == pytest.approx(whole / 4, rel=1e-3)
    assert whole / 4 < without < whole


def test_context_parallel_cuts_the_sequence() -> None:
    assert kept(effective(), ONE._replace(sequence=1024, context=4)) == pytest.approx(kept(effective()) / 4)


def test_offloaded_activations_are_on_the_host() -> None:
    setup = effective(training__activation_checkpointing="full", offload__activations="cpu")
    terms = activations.terms(setup, ONE, STAGE)
    assert "activations_kept" not in {each.id for each in terms}
    assert activations.host_bytes(setup, ONE, STAGE) == 28 * 2 * 4096 * 3584


def test_arrays_give_what_numbers_give() -> None:
    setup = effective()
    micro = np.array([1.0, 2.0, 8.0])
    many = (*activations.terms(setup, ONE._replace(micro=micro), STAGE), *logits.terms(setup, ONE._replace(micro=micro), STAGE))
    for index, count in enumerate(micro):
        one = (*activations.terms(setup, ONE._replace(micro=int(count)), STAGE), *logits.terms(setup, ONE._replace(micro=int(count)), STAGE))
        for phase in (LOSS, BACKWARD_START, BACKWARD_END):
            assert alive(many, phase, ("allocated",))[index] == pytest.approx(alive(one, phase, ("allocated",)))


def test_compiled_layers_keep_less() -> None:
    assert 0.5 * kept(effective()) < kept(effective(training__compile="true")) < 0.75 * kept(effective())  # matmuls' operands stay
    lora = effective(training__method="lora", training__compile="true")
    assert kept(lora) < 0.9 * kept(effective(training__method="lora"))


def test_the_loss_by_implementation() -> None:
    logit = 4096 * 152064

    def total(**sets: Any) -> float:
        return float(alive(logits.terms(effective(**sets), ONE, STAGE), LOSS, ("allocated",)) / logit)

    assert total() == pytest.approx(12)
    assert total(training__loss="liger") < 2
    assert total(training__framework="megatron-lm") == pytest.approx(6)
    assert total(training__framework="torchtune") < 7
    assert logits.terms(effective(training__objective="reward"), ONE, STAGE) == ()
    assert logits.terms(effective(), ONE, STAGE._replace(head=False)) == ()


@pytest.mark.parametrize(
    ("sets", "kernel"),
    [
        ({}, "sdpa"),
        ({"training__attention": "eager"}, "eager"),
        ({"resources__gpu": "v100-32gb"}, "efficient"),
        ({"training__packing": "none", "training__micro_batch_size": 4}, "efficient"),
        ({"training__precision": "fp32"}, "efficient"),
        ({"model__name": "deepseek-ai/DeepSeek-V2-Lite"}, "efficient"),
        ({"model__name": "google/gemma-2-9b"}, "eager"),
        ({"training__framework": "megatron-lm"}, "flash_attention_2"),
    ],
)
def test_the_kernel_that_runs(sets: dict[str, Any], kernel: str) -> None:
    assert effective(**sets).activations.attention == kernel


def test_asking_for_sdpa_where_there_is_none_is_an_effect() -> None:
    setup = effective(model__name="google/gemma-2-9b", training__attention="sdpa")
    assert [effect.id for effect in setup.activations.effects] == ["sdpa_is_eager"]


def test_selective_means_what_the_framework_means() -> None:
    sets = {"training__activation_checkpointing": "selective"}
    assert effective(**sets, training__framework="torchtitan").activations.policy == "ops"
    assert effective(**sets, training__framework="megatron-lm").activations.policy == "core_attention"
