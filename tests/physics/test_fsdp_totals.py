"""Totals of FSDP2 set-ups against the simulated tracker (tests/physics/oracles/fsdp.jsonl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobgen.effective.resolve import assume
from jobgen.spec.document import load_text

from .specs import live, short

ROWS = [json.loads(line) for line in (Path(__file__).parent / "oracles" / "fsdp.jsonl").read_text().splitlines()]


def name(row: dict[str, Any]) -> str:
    case = row["case"]
    return f"{case['model']} x{case['world']} {'full' if case['checkpointing'] else 'none'}"


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_the_peak_of_a_step(row: dict[str, Any], tmp_path: Path) -> None:
    case = row["case"]
    setup = assume(load_text(f"""
name: a
model: {{config: {short(case["model"], case["layers"], tmp_path)}, init: random}}
training:
  {{objective: pretrain, method: full, framework: custom, sequence_length: {case["sequence"]}, packing: packed, max_steps: 10,
   activation_checkpointing: {"full" if case["checkpointing"] else "none"}, attention: flash_attention_2}}
parallelism: {{sharding: fsdp2}}
resources: {{gpus_per_node: {case["world"]}, gpu: h100-80gb}}
""")).effective
    assert 0.98 * row["peak"] <= max(live(setup).values()) <= 1.02 * row["peak"]
