"""The worked cases that the project started from: exact verdicts, the facts that must and must not fire, the numbers.

A case is written in the spec's words; ``reasons`` are ids of researched facts, which rules name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from jobgen.checks.registry import Finding, rules
from jobgen.checks.run import findings, verdict
from jobgen.effective.resolve import facts, known
from jobgen.spec.document import load_text

BIG, DENSE, SMALL = "Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct"


class Checked(NamedTuple):
    verdict: str
    facts: frozenset[str]
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]

    def says(self, *numbers: str) -> None:
        text = " ".join(finding.message for finding in self.findings)
        missing = [number for number in numbers if number not in text]
        assert not missing, f"{missing} not in {text}"


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        result[head] = merged(result.get(head, {}), {rest: value}) if rest else value
    return result


def check(**changes: Any) -> Checked:
    """The base of all cases (235B QLoRA on 4 x H100 80 GB with 960 GB) with changes; ``a__b`` is the path a.b."""
    base = {
        "name": "case",
        "model": {"name": BIG},
        "training": {"method": "qlora", "sequence_length": 2048, "activation_checkpointing": "full",
                     "quantization": {"type": "nf4", "double_quant": True, "storage_dtype": "bf16"}},
        "resources": {"gpus_per_node": 4, "gpu": "h100-80gb", "memory_per_node": "960GB"},
    }  # fmt: skip
    spec = merged(base, {path.replace("__", "."): value for path, value in changes.items()})
    document = load_text(json.dumps(spec), "case.yaml")
    found = findings(document, facts(document), known(document))
    table = rules()
    assert [f for f in found if f.code == "JG999"] == []
    named = frozenset(fact for f in found if f.code in table for fact in table[f.code].facts)
    return Checked(verdict(found), named, tuple(f.code for f in found if f.severity == "error"), found)


def expect(case: Checked, word: str | None, reasons: Sequence[str] = (), never: Sequence[str] = ()) -> None:
    shown = [f"{f.severity} {f.code} {f.message}" for f in case.findings]
    assert word is None or case.verdict == word, shown
    assert set(reasons) <= case.facts, (set(reasons) - case.facts, shown)
    assert not set(never) & case.facts, (set(never) & case.facts, shown)


EFFICIENT_AXOLOTL = {"fsdp_config": {"cpu_ram_efficient_loading": True}}
C1 = {"training__framework": "axolotl", "parallelism__sharding": "fsdp2"}


def test_c1a_axolotl_fsdp2_with_memory_saving_loading() -> None:
    case = check(**C1, training__versions={"axolotl": "0.14.0", "transformers": "5.0.0", "accelerate": "1.12.0", "peft": "0.18.1"},
                 training__options=EFFICIENT_AXOLOTL)  # fmt: skip
    expect(case, "error", ["QS01", "MO08", "QS27"])
    case.says("460.2 GB", "123.2 GB")


def test_c1a_before_transformers_5() -> None:
    case = check(**C1, training__versions={"axolotl": "0.13.1", "transformers": "4.57.6"}, training__options=EFFICIENT_AXOLOTL)
    expect(case, "error", ["QS27"], ["QS01", "MO08"])
    case.says("123.2 GB")


@pytest.mark.parametrize("spelling", [
    {"training__options": {"qlora_sharded_model_loading": True}},
    {"training__loading": "rank0_broadcast"},
    {"launch__env": {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}},
    {"training__options": {"fsdp_cpu_ram_efficient_loading": True}},
])  # fmt: skip
def test_c1a_in_any_spelling(spelling: Mapping[str, Any]) -> None:
    expect(check(**C1, training__versions={"axolotl": "0.14.0"}, **spelling), "error", ["QS01", "MO08", "QS27"])


def test_c1a_quantised_experts_hang() -> None:
    case = check(**C1, training__versions={"axolotl": "0.15.0", "transformers": "5.3.0"}, training__options=EFFICIENT_AXOLOTL,
                 training__quantization__moe_experts=True)  # fmt: skip
    expect(case, "error", ["QS12"], ["QS01", "QS27"])


def test_c1b_without_memory_saving_loading() -> None:
    case = check(**C1, training__versions={"axolotl": "0.13.1", "transformers": "4.57.6"})
    expect(case, "error", ["QS11"])
    case.says("123.2 GB", "85.5 GB")


def test_c1b_control_a_dense_model_fits() -> None:
    case = check(**C1, training__versions={"axolotl": "0.13.1", "transformers": "4.57.6"}, model__name=DENSE)
    expect(case, "pass", [], ["QS11"])


C2 = {"training__framework": "unsloth", "launch__processes_per_node": 1, "launch__launcher": "python", "parallelism__device_map": "balanced"}


def test_c2_unsloth_device_map() -> None:
    expect(check(**C2, training__versions={"unsloth": "2026.2", "transformers": "4.57.6"}), "error", ["PE07"])


def test_c2_fixed() -> None:
    expect(check(**C2, training__versions={"unsloth": "2026.8", "transformers": "4.57.6"}), "pass", [], ["PE07"])


def test_c2_transformers_5_leaves_experts() -> None:
    case = check(**C2, training__versions={"unsloth": "2026.3", "transformers": "5.2.0"})
    expect(case, "error", ["QS01"])
    case.says("460.2 GB")


@pytest.mark.parametrize(("release", "reasons", "never"), [
    ("4.47.1", ["FV01"], ["FV02"]), ("4.48.0", ["FV01", "FV02"], []), ("4.51.0", ["FV02"], ["FV01"]),
])  # fmt: skip
def test_c3_fsdp_qlora_has_no_release(release: str, reasons: list[str], never: list[str]) -> None:
    case = check(training__framework="fsdp-qlora", training__versions={"transformers": release}, parallelism__sharding="fsdp1")
    expect(case, "error", reasons, never)


C4 = {
    "training__framework": "llama-factory", "parallelism__sharding": "fsdp1",
    "offload": {"parameters": "cpu", "optimizer": "cpu"}, "training__loading": "rank0_broadcast",
}  # fmt: skip


@pytest.mark.parametrize("release", ["4.39.3", "4.44.2"])
def test_c4_before_the_model(release: str) -> None:
    expect(check(**C4, training__versions={"transformers": release}), "error", ["FV01"])


@pytest.mark.parametrize("versions", [
    {"transformers": "4.51.3"}, {"transformers": "4.57.6"}, {"transformers": ">=4.51,<5"}, {"llamafactory": "0.9.4"},
    {"llamafactory": "0.9.3", "transformers": "4.52.4"}, {"llamafactory": "0.9.4", "transformers": "4.57.1"},
])  # fmt: skip
def test_c4_every_rank_reads_but_one_keeps(versions: dict[str, str]) -> None:
    case = check(**C4, training__versions=versions)
    expect(case, "pass_with_warnings", ["QS20"], ["LH01"])
    case.says("123.2 GB", "1880.7 GB")


@pytest.mark.parametrize("spelling", [
    {"training__options": {"fsdp_config": {"cpu_ram_efficient_loading": True}}}, {"launch__env": {"FSDP_CPU_RAM_EFFICIENT_LOADING": "1"}},
    {"training__options": {"fsdp_config": {"fsdp_cpu_ram_efficient_loading": "true"}}},
])  # fmt: skip
def test_c4_in_any_spelling(spelling: Mapping[str, Any]) -> None:
    without = {key: value for key, value in C4.items() if key != "training__loading"}
    expect(check(**without, **spelling, training__versions={"transformers": "4.57.1"}), "pass_with_warnings", ["QS20"], ["LH01"])


@pytest.mark.parametrize("versions", [
    {"llamafactory": "0.9.5", "transformers": "5.6.0"}, {"transformers": "5.0.0", "peft": "0.18.1"}, {"llamafactory": "0.9.5", "transformers": "5.2.0", "peft": "0.18.0"},
])  # fmt: skip
def test_c4_transformers_5_on_the_gpu(versions: dict[str, str]) -> None:
    case = check(**C4, training__versions=versions)
    expect(case, "error", ["QS01", "QS02", "MO04"])
    case.says("460.2 GB")


@pytest.mark.parametrize("spelling", [{"parallelism__device_map": "cpu", "launch__processes_per_node": 4}, {"training__options": {"device_map": "cpu"}}])
def test_c4_transformers_5_on_the_cpu(spelling: Mapping[str, Any]) -> None:
    case = check(**C4, **spelling, training__versions={"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"})
    expect(case, "error", ["QS01", "LH01", "MO04"])
    case.says("1841.0 GB", "960.0 GB")


C5 = {
    "training__framework": "llama-factory", "parallelism__sharding": "zero3",
    "offload": {"parameters": "cpu", "optimizer": "cpu", "pin_memory": True},
}  # fmt: skip
C5_VERSIONS = {"llamafactory": "0.9.4", "transformers": "4.57.1", "deepspeed": "0.16.9", "peft": "0.17.1"}


def test_c5_the_one_that_worked() -> None:
    case = check(**C5, training__versions=C5_VERSIONS)
    expect(case, "pass_with_warnings", ["QS05", "QS22", "OF06"], ["QS04", "LH03", "MO01"])
    assert case.errors == ()
    case.says("119.4 GB", "159.1 GB", "3.75 GB", "1.21 GB", "29.2 GB")


def test_c5_half_the_memory() -> None:
    case = check(**C5, training__versions=C5_VERSIONS, resources__memory_per_node="480GB")
    expect(case, "error", ["QS04"])
    case.says("492.7 GB")


def test_c5_twice_the_gpus() -> None:
    case = check(**C5, training__versions=C5_VERSIONS, resources__gpus_per_node=8)
    expect(case, "error", ["QS04"])
    case.says("985.3 GB")


def test_c5_single_quantisation() -> None:
    case = check(**C5, training__versions=C5_VERSIONS, training__quantization__double_quant=False)
    expect(case, "pass_with_warnings", ["QS06"])
    case.says("14.6 GB")


def test_c5_transformers_5() -> None:
    case = check(**C5, training__versions={"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"})
    expect(case, "error", ["QS01", "QS03", "MO04"])
    case.says("460.2 GB")


@pytest.mark.parametrize("versions", [{"llamafactory": "0.9.2"}, {**C5_VERSIONS, "llamafactory": "0.9.2"}])
def test_c5_old_llama_factory(versions: dict[str, str]) -> None:
    expect(check(**C5, training__versions=versions), "error", ["FV01"])


def test_c5_conversion() -> None:
    case = check(**C5, training__versions=C5_VERSIONS, launch__finish=["python zero_to_fp32.py . out"])
    expect(case, "pass_with_warnings", ["CK14"])
    case = check(**C5, training__versions=C5_VERSIONS, launch__finish=["python zero_to_fp32.py . out --exclude_frozen_parameters"])
    expect(case, "pass_with_warnings", [], ["CK14"])


def test_k1_dense_under_transformers_5() -> None:
    case = check(model__name=DENSE, training__framework="llama-factory", training__versions={"transformers": "5.6.0", "peft": "0.18.1"},
                 parallelism__sharding="zero3")  # fmt: skip
    expect(case, None, [], ["QS01", "QS03", "MO04"])
    assert case.errors == ()


def test_k2_small_mixture_before_transformers_5() -> None:
    case = check(model__name=SMALL, training__versions={"transformers": "4.57.6"})
    expect(case, None, [], ["QS01"])
    assert case.errors == ()


def test_k3_small_mixture_is_not_4_bit() -> None:
    case = check(model__name=SMALL, training__versions={"transformers": "5.24.0", "peft": "0.21.2"})
    expect(case, None, ["QS01"])
    case.says("59.7 GB", "16.7 GB")


def test_k4_adapters_on_attention_only() -> None:
    case = check(model__name=SMALL, training__method="lora", training__quantization=None, training__versions={"transformers": "5.0.0", "peft": "0.18.1"})
    expect(case, None, ["MO04"])


def test_k5_optimizer_is_replaced() -> None:
    for framework in ("custom", "transformers", "trl", "accelerate", "axolotl", "llama-factory"):
        case = check(model__name=DENSE, training__framework=framework, parallelism__sharding="zero3", offload__optimizer="cpu", training__optimizer="paged_adamw_8bit")
        expect(case, None, ["OF02"])
