"""Configurations that the catalogue does not hold: other families, broken fields, unknown types."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from jobgen.catalog import counts, families, models
from jobgen.catalog.families import multimodal

TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "in_chans": 3, "patch_size": 14}
DEEP = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24]}
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Qwen2.5-VL-7B-Instruct": (
        {"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
         "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
         "vision_config": {**TOWER, "out_hidden_size": 3584}},
        8_292_166_656,
    ),
    "Qwen2.5-VL-3B-Instruct": (
        {"model_type": "qwen2_5_vl", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
         "num_hidden_layers": 36, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
         "vision_config": {**TOWER, "out_hidden_size": 2048}},
        3_754_622_976,
    ),
    "Qwen2-VL-7B-Instruct": (
        {"model_type": "qwen2_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
         "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
         "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584, "in_chans": 3}},
        8_291_375_616,
    ),
    "Qwen3-VL-8B-Instruct": (
        {"model_type": "qwen3_vl", "text_config": {
            "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
         "vision_config": {**DEEP, "out_hidden_size": 4096}},
        8_767_123_696,
    ),
    "Qwen3-VL-30B-A3B-Instruct": (
        {"model_type": "qwen3_vl_moe", "text_config": {
            "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32, "num_hidden_layers": 48,
            "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "moe_intermediate_size": 768,
            "num_experts": 128, "num_experts_per_tok": 8, "tie_word_embeddings": False},
         "vision_config": {**DEEP, "out_hidden_size": 2048}},
        31_070_754_032,
    ),
    "MiniMax-M2": (
        {"model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
         "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
         "num_local_experts": 256, "num_experts_per_tok": 8},
        228_689_748_992,
    ),
    "Qwen-7B": (
        {"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "intermediate_size": 22016, "kv_channels": 128, "no_bias": True, "vocab_size": 151936},
        7_721_324_544,
    ),
    "chatglm3-6b": (
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32,
         "ffn_hidden_size": 13696, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
         "padded_vocab_size": 65024, "add_qkv_bias": True, "add_bias_linear": False},
        6_243_584_000,
    ),
    "gemma-3-4b-it, as written on the Hub": (
        {"model_type": "gemma3", "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "sliding_window": 1024},
         "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False}},
        4_300_079_472,
    ),
}  # fmt: skip
"""Fields of config.json and elements of the checkpoint, as the Hub shows them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_families_outside_the_catalogue_are_exact_too(name: str) -> None:
    config, elements = PUBLISHED[name]
    arch = models.load(config=config, name=name)
    assert counts.total(arch) == elements
    assert sum(counts.groups(arch).values()) == elements


def test_a_file_lacking_sizes_names_them() -> None:
    with pytest.raises(models.MissingFields) as caught:
        models.load(config={"model_type": "llama", "hidden_size": 4096, "vocab_size": 32000})
    assert caught.value.fields == ("num_hidden_layers", "num_attention_heads", "intermediate_size")
    with pytest.raises(models.MissingFields, match="text_config"):
        models.load(config={"model_type": "gemma3"})


def test_an_unknown_type_is_not_guessed() -> None:
    with pytest.raises(models.UnknownArchitecture) as caught:
        models.load(config={"model_type": "lama", "hidden_size": 64})
    assert "llama" in str(caught.value)
    assert "num_hidden_layers" in str(caught.value)
    for wrong in ("", "../arch", "fields", "__init__", "parts", "a b"):
        with pytest.raises(models.UnknownArchitecture):
            models.load(config={"model_type": wrong})
    for config in ({}, {"model_type": None}, {"model_type": 3}):
        with pytest.raises(models.BadConfig):
            models.load(config=config)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", -1), ("hidden_size", "4096"), ("num_hidden_layers", 10**9), ("tie_word_embeddings", "no"),
     ("num_key_value_heads", 5), ("num_attention_heads", 0), ("vocab_size", 1.5), ("hidden_act", 3)],
)  # fmt: skip
def test_a_bad_value_is_named(field: str, value: object) -> None:
    with pytest.raises(models.BadConfig) as caught:
        models.load(config={**models.find("Llama-3.1-8B"), field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


def test_more_active_experts_than_there_are_is_an_error() -> None:
    with pytest.raises(models.BadConfig, match="num_experts_per_tok"):
        models.load(config={**models.find("Qwen3-30B-A3B"), "num_experts_per_tok": 200})


BAD: tuple[object, ...] = ("x", -1, 0, 10**30, None, [], {}, 1.5, True, [1], ["a"], "", float("nan"), 3, [None])


def _places(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _places(value, (*above, key))


@pytest.mark.parametrize("kind", sorted({str(models.find(name)["model_type"]) for name in models.names()}))
def test_no_configuration_ends_in_a_traceback(kind: str) -> None:
    """Whatever one field holds, there is an architecture with a positive count or one of our errors."""
    name = next(name for name in models.names() if models.find(name)["model_type"] == kind)
    config = models.find(name)
    for place in _places(config):
        for value in (*BAD, "delete"):
            changed = copy.deepcopy(config)
            section: dict[str, Any] = changed
            for key in place[:-1]:
                section = section[key]
            if value == "delete":
                del section[place[-1]]
            else:
                section[place[-1]] = value
            try:
                arch = models.load(config=changed)
            except (models.BadConfig, models.UnknownArchitecture):
                continue
            assert counts.total(arch) > 0
            assert counts.active(arch) > 0
            assert min(counts.groups(arch).values()) >= 0
            assert min(counts.nf4_bytes(arch)) >= 0


def test_every_described_type_has_facts_and_a_layer_class() -> None:
    for name in models.names():
        arch = models.load(name)
        assert arch.module_class
        assert bool(arch.moe_class) == arch.moe
    outside = {"baichuan", "bailing_moe_v2", "chatglm", "deepseek", "internlm", "internlm2", "kimi_k2", "mimo", "qwen"}
    for kind in families.known():
        assert bool(families.facts(kind)) != (kind in outside), kind
    assert set(multimodal.TEXT) == set(multimodal.TOWERS)


def test_first_releases() -> None:
    assert models.load("Qwen3-235B-A22B").first_release == (4, 51)
    assert models.load("Llama-3.1-8B").first_release is None
    assert models.load("gemma-2-9b").first_release == (4, 42)
    assert models.load("gpt-oss-20b").first_release == (4, 55)
    assert models.load("Baichuan2-7B-Base").first_release is None


def test_layers_stand_where_they_belong() -> None:
    gemma = models.load("gemma-3-27b-pt")
    assert [gemma.layers[kind].mixer for kind in gemma.pattern[:6]] == ["sliding"] * 5 + ["full"]
    hybrid = models.load("Qwen3-Next-80B-A3B-Instruct")
    assert [hybrid.layers[kind].mixer for kind in hybrid.pattern[:4]] == ["linear"] * 3 + ["full"]
    deep = models.load("DeepSeek-V3")
    assert [deep.layers[kind].experts for kind in deep.pattern[:4]] == [0, 0, 0, 256]
    assert deep.layers[-1].latent_dims == (1536, 512, 64)
