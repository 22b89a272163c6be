"""GPUs by the names people and drivers give them."""

from __future__ import annotations

import pytest

from jobgen.catalog import gpus

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "found"),
    [("h100", "h100-80gb"), ("H100", "h100-80gb"), ("NVIDIA H100 80GB HBM3", "h100-80gb"), ("h100_sxm5", "h100-80gb"),
     ("NVIDIA-A100-SXM4-80GB", "a100-80gb"), ("a100 80gb", "a100-80gb"), ("Tesla-T4", "t4"), ("4090", "rtx-4090"),
     ("GeForce RTX 3090", "rtx-3090"), ("mi250x", "mi250x-gcd"), ("AMD Instinct MI300X", "mi300x"), ("L40S", "l40s"),
     ("h200", "h200"), ("gh200", "gh200-96gb"), ("b200", "b200")],
)  # fmt: skip
def test_names(name: str, found: str) -> None:
    assert gpus.find(name).name == found


def test_every_name_and_alias_leads_to_its_entry() -> None:
    for gpu in gpus.every():
        assert gpus.find(gpu.name) == gpu
        for alias in gpu.aliases:
            if alias not in gpus.AMBIGUOUS:
                assert gpus.find(alias) == gpu
        assert gpu.usable_range[0] <= gpu.usable_bytes <= gpu.usable_range[1]
        assert gpu.usable_bytes <= gpu.memory_bytes
        assert gpu.source
        assert gpu.confidence


@pytest.mark.parametrize(
    ("name", "memory", "found"),
    [("a100", 80 * GIB, "a100-80gb"), ("a100", 80 * 10**9, "a100-80gb"), ("a100", 40 * 10**9, "a100-40gb"),
     ("A100", 79 * GIB, "a100-80gb"), ("v100", 32 * GIB, "v100-32gb"), ("h100", 80 * GIB, "h100-80gb"),
     ("h100", 94 * 10**9, "h100-nvl"), ("gh200", 144 * 10**9, "gh200-144gb"), ("h100", 200 * GIB, "h100-80gb")],
)  # fmt: skip
def test_the_memory_decides_between_sizes(name: str, memory: int, found: str) -> None:
    assert gpus.find(name, memory).name == found


def test_sizes_without_memory_are_ambiguous() -> None:
    with pytest.raises(gpus.UnknownGpu) as caught:
        gpus.find("a100")
    assert caught.value.candidates == ("a100-40gb", "a100-80gb")


def test_an_unknown_name_has_near_ones() -> None:
    for wrong, near in (("h101", "h100"), ("rtx-4009", "rtx-4090"), ("mi355", "mi355x")):
        with pytest.raises(gpus.UnknownGpu) as caught:
            gpus.find(wrong)
        assert near in caught.value.nearest
    with pytest.raises(LookupError):
        gpus.find("")
    with pytest.raises(LookupError):
        gpus.find("", 80 * GIB)


def test_what_an_entry_says() -> None:
    h100 = gpus.find("h100")
    assert h100.compute_capability == (9, 0)
    assert h100.memory_bytes == 81559 * 2**20
    assert h100.usable_bytes == int(79.18 * GIB)
    assert h100.peaks.bf16 == 989.4
    assert h100.link_bandwidth == 900e9
    assert h100.fp8
    assert h100.flash_attention_3
    t4, gcd = gpus.find("t4"), gpus.find("mi250x")
    assert not t4.bf16
    assert t4.link_bandwidth is None
    assert gcd.compute_capability is None
    assert gcd.target == "gfx90a"
    assert gpus.is_size_of(h100, 80 * GIB)
    assert not gpus.is_size_of(h100, 96 * GIB)
