"""Specs for tests of the estimate, made from few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobgen import api
from jobgen.catalog import models
from jobgen.effective.resolve import assume
from jobgen.effective.setup import Effective
from jobgen.physics.estimate import Estimate, stage_terms
from jobgen.physics.ledger import PHASES, alive
from jobgen.physics.stages import sizes, stages
from jobgen.spec import document

GIB = 2**30
BASE: dict[str, Any] = {
    "name": "test",
    "model": {"name": "mistralai/Mistral-7B-v0.1"},
    "training": {"method": "full", "framework": "custom", "sequence_length": 4096, "activation_checkpointing": "full"},
    "resources": {"gpus_per_node": 1, "gpu": "a100-80gb"},
}


def text(**changes: Any) -> str:
    """The base spec with dotted paths changed (``training__method="lora"``), as YAML."""
    spec = json.loads(json.dumps(BASE))
    for path, value in changes.items():
        node = spec
        *parents, last = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return json.dumps(spec)


def effective(**changes: Any) -> Effective:
    """What will run."""
    return assume(document.load_text(text(**changes))).effective


def estimate(**changes: Any) -> Estimate:
    """The estimate, as the API gives it."""
    return api.estimate(document.load_text(text(**changes)))


def live(setup: Effective) -> dict[str, float]:
    """Live tensors of the first stage by phase."""
    numbers = sizes(setup)
    terms = stage_terms(setup, numbers, stages(setup, numbers)[0])
    return {name: float(alive(terms, bit, ("allocated",))) for bit, name in PHASES}


def short(model: str, layers: int, folder: Path) -> str:
    """A config.json of the model with fewer layers, for ``model.config``."""
    path = folder / "config.json"
    path.write_text(json.dumps({**models.find(model), "num_hidden_layers": layers}))
    return str(path)


def term(found: Estimate, name: str) -> float:
    """Bytes of one term (0 when it is absent)."""
    return float(sum(t.bytes for t in found.gpu.terms if t.id == name))
