"""Counts of every shipped model against what transformers, peft and bitsandbytes make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobgen.catalog import counts, models

ORACLE = {
    item["name"]: item
    for item in map(json.loads, (Path(__file__).parent / "oracle.jsonl").read_text(encoding="utf-8").splitlines())
}
MEASURED = [name for name, item in ORACLE.items() if "split" in item]
FOREIGN = {
    "internlm2": "measured as Llama: the real code joins query, key and value",
    "baichuan": "measured as Llama: the real code joins query, key and value",
    "bailing_moe_v2": "measured as GLM-4 MoE: the real code joins query, key and value and has a module an expert",
    "deepseek": "measured as GLM-4 MoE, in which the experts are joined and the router is fp32",
}
"""Model types whose code comes with the weights; the module names of a stand-in were measured."""


@pytest.mark.parametrize("name", ORACLE)
def test_total_and_active_are_exact(name: str) -> None:
    arch, truth = models.load(name), ORACLE[name]
    assert counts.total(arch) == truth["total_params"]
    assert counts.active(arch) == truth["active_params"]
    assert sum(counts.groups(arch).values()) == truth["total_params"]
    assert sum(counts.by_split(arch)) == truth["total_params"]


@pytest.mark.parametrize("name", MEASURED)
def test_groups_are_the_measured_ones(name: str) -> None:
    arch, truth = models.load(name), ORACLE[name]["split"]
    found = counts.groups(arch)
    get = truth.get
    assert found["head"] == get("lm_head", 0)
    if arch.model_type != "deepseek_v4":
        assert found.get("other", 0) == get("vision_or_other_modality", 0)
    if arch.model_type == "nemotron_h":  # measured in one lump, the layers' parts being called "mixer"
        lump = found["attention"] + found["mlp"] + found["experts"] + found["router"] + found["norm"]
        assert lump == sum(value for key, value in truth.items() if key not in ("embedding", "lm_head"))
        return
    assert found["experts"] == get("expert", 0)
    assert found["router"] == get("router", 0)
    assert found["norm"] == get("norm", 0)
    mixed = get("attention", 0) + get("linear_attn_or_ssm", 0)
    if arch.model_type == "deepseek_v4":  # hyper-connections of the attention side are counted with the MLP here
        rest = mixed + get("mlp", 0) + get("shared_expert", 0) + get("other", 0)
        assert found["attention"] + found["mlp"] + found.get("other", 0) == rest
        return
    assert found["attention"] == mixed
    assert found["mlp"] == get("mlp", 0) + get("shared_expert", 0)
    assert found["embedding"] == get("embedding", 0) + get("other", 0)


@pytest.mark.parametrize("name", MEASURED)
def test_fp32_elements_are_the_measured_ones(name: str) -> None:
    arch, truth = models.load(name), ORACLE[name]
    if arch.model_type == "deepseek":
        pytest.skip(FOREIGN["deepseek"])
    assert counts.float32_parameters(arch) == truth["fp32_params"]
    assert arch.router_buffers == truth["router_bias_buffers"]


@pytest.mark.parametrize("name", MEASURED)
def test_lora_is_exact(name: str) -> None:
    arch, truth = models.load(name), ORACLE[name]["lora"]
    if arch.model_type in FOREIGN:
        pytest.skip(FOREIGN[arch.model_type])
    rank = truth["r"]
    linear = counts.lora_parameters(arch, rank, expert_adapters=False)
    assert linear == truth["all_linear"]
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    assert counts.lora_parameters(arch, rank, attention) == truth["attn_targets"]
    if truth["peft_all_linear"] is not None:
        assert counts.lora_parameters(arch, rank) == truth["peft_all_linear"]


@pytest.mark.parametrize("name", MEASURED)
def test_nf4_is_exact(name: str) -> None:
    arch, truth = models.load(name), ORACLE[name]["nf4"]
    if arch.model_type in FOREIGN:
        pytest.skip(FOREIGN[arch.model_type])
    found = counts.nf4_bytes(arch)
    assert found.packed == truth["packed_bytes"]
    assert found.quant_state == truth["absmax_bytes"] + truth["code_table_bytes"]
    assert found.unquantised == truth["unquantised_bytes"]
    assert found.total == truth["total_bytes"]
    every = counts.nf4_bytes(arch, experts_quantised=True)
    assert every.total == truth["if_experts_also_nf4_total_bytes"]


SEEDS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-235B-A22B-Thinking-2507": {
        "old": 123_165_903_832, "router_kept": 123_238_943_712, "single": 134_032_855_424, "state": 14_617_851_264,
        "new": 460_240_295_904, "lora8": 1_654_929_408, "attention8": 25_411_584,
    },
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": {
        "old": 16_694_901_696, "router_kept": 16_713_523_968, "single": 18_070_416_384, "state": 1_870_543_872,
        "new": 59_719_877_376,
    },
    "Qwen/Qwen2.5-Coder-32B-Instruct": {
        "old": 19_215_015_680, "router_kept": 19_215_015_680, "single": 20_669_700_096, "state": 1_950_380_032,
        "new": 19_215_015_680,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SEEDS)
def test_sizes_under_transformers_4(name: str) -> None:
    """Each expert an ``nn.Linear`` of its own, the router one too."""
    arch, seed = models.load(name), SEEDS[name]
    assert counts.nf4_bytes(arch, fused=False).total == seed["old"]
    assert counts.nf4_bytes(arch, fused=False, routers_quantised=False).total == seed["router_kept"]
    single = counts.nf4_bytes(arch, double_quant=False, fused=False)
    assert (single.total, single.quant_state) == (seed["single"], seed["state"])
    assert counts.nf4_bytes(arch).total == seed["new"]
    if "lora8" in seed:
        assert counts.lora_parameters(arch, 8, fused=False) == seed["lora8"]
        attention = ("q_proj", "k_proj", "v_proj", "o_proj")
        assert counts.lora_parameters(arch, 8, attention, fused=False) == seed["attention8"]


def test_fused_experts_get_twice_the_rank() -> None:
    arch = models.load("Qwen3-Coder-30B-A3B-Instruct")
    assert counts.lora_parameters(arch, 16) == 996_507_648
    assert counts.lora_parameters(arch, 16, expert_adapters=False) == 13_369_344
    experts = counts.lora_parameters(arch, 16, ("gate_proj", "up_proj", "down_proj"))
    assert experts == 48 * 128 * (32 * (2048 + 1536) + 16 * (768 + 2048))


def test_modules_to_save() -> None:
    tied, untied = models.load("Qwen2.5-0.5B"), models.load("Qwen2.5-7B")
    assert counts.module_parameters(tied, ["lm_head"]) == tied.vocab * tied.hidden
    assert counts.module_parameters(untied, ["lm_head", "embed_tokens"]) == 2 * untied.vocab * untied.hidden
    assert "q_proj" in counts.target_names(untied)
    assert "embed_tokens" not in counts.target_names(untied)


def test_target_names_follow_the_releases() -> None:
    arch = models.load("Qwen3-30B-A3B")
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    assert counts.target_names(arch, expert_adapters=False) == (*attention, "lm_head")
    assert set(counts.target_names(arch, fused=False)) == {
        *attention,
        "gate",
        "gate_proj",
        "up_proj",
        "down_proj",
        "lm_head",
    }
    assert {"gate_up_proj", "gate_proj", "gate"} < set(counts.target_names(arch))
    assert counts.missing_partners(arch, ["q_proj", "gate_proj"]) == ("up_proj",)
    assert counts.missing_partners(arch, ["gate_proj", "up_proj"]) == ()
