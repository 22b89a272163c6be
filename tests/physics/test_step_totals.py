"""Totals of whole training steps on one GPU against the simulated tracker (tests/physics/oracles/step.jsonl)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobgen.effective.resolve import assume
from jobgen.spec.document import load_text

from .specs import live, short

ORACLES = Path(__file__).parent / "oracles"
ROWS = [json.loads(line) for line in (ORACLES / "step.jsonl").read_text().splitlines()]
LAYERS = 4
ADDED_APART = {("google/gemma-2-2b", "autocast full x1")}
"""A tied table whose two gradients stand out: fake tensors are added out of place, into a third; real ones are not
(torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace)."""


def kind(row: dict[str, Any]) -> str:
    case = row["case"]
    precision = "lora" if "rank" in case else "autocast" if "autocast" in case else "half"
    return f"{precision} {'full' if case['checkpointing'] else 'none'} x{case['micro']}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']['model']} {kind(row)}")
def test_the_peak_of_a_step(row: dict[str, Any], tmp_path: Path) -> None:
    case = row["case"]
    training: dict[str, Any] = {
        "objective": "sft", "method": "full", "framework": "transformers", "sequence_length": case["sequence"],
        "micro_batch_size": case["micro"], "packing": "packed", "data": {"tokens": 1000000},
        "precision": "bf16" if "autocast" in case else "bf16_pure", "attention": "flash_attention_2",
        "activation_checkpointing": "full" if case["checkpointing"] else "none",
        "versions": {"torch": "2.9", "transformers": "5.2"},
    }  # fmt: skip
    if case["weights"] == "fp32":
        training["dtypes"] = {"weights": "fp32"}
    if "rank" in case:
        training |= {"method": "lora", "lora": {"rank": case["rank"], "target_modules": "all-linear", "dropout": 0}}
    setup = assume(load_text(json.dumps({
        "name": "a", "model": {"config": short(case["model"], LAYERS, tmp_path)}, "training": training,
        "resources": {"gpus_per_node": 1, "gpu": "h100-80gb"},
    }))).effective  # fmt: skip
    found = live(setup)
    step, passes = found["step"], max(found[phase] for phase in ("forward", "loss", "backward_start", "backward_end"))
    assert step == pytest.approx(row["step"], rel=0.01)
    within = 0.06 if (case["model"], kind(row)) in ADDED_APART else 0.02
    assert max(passes, step) == pytest.approx(max(row["forward"], row["backward"], row["step"]), rel=within)


@pytest.mark.oracle
@pytest.mark.parametrize("row", ROWS[::61], ids=lambda row: f"{row['case']['model']} {kind(row)}")
def test_the_table_is_what_the_script_measures(row: dict[str, Any]) -> None:
    for needed in ("torch", "transformers", "peft"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    command = [sys.executable, "-W", "ignore", str(ORACLES / "step.py"), "--case", json.dumps(row["case"])]
    again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(again.splitlines()[-1]) == row
