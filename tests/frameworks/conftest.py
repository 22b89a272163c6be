"""Specs in a few words, and what a framework makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jobgen.frameworks import find
from jobgen.frameworks.config import NONE, Config
from jobgen.frameworks.write import Configured, configure
from jobgen.spec.document import load_text
from jobgen.spec.models import Spec

BASE: dict[str, Any] = {
    "name": "job",
    "model": {"name": "Qwen/Qwen2.5-Coder-32B"},
    "training": {
        "method": "full", "sequence_length": 4096, "micro_batch_size": 2, "gradient_accumulation_steps": 8, "max_steps": 100,
    },
    "resources": {"nodes": 2, "gpus_per_node": 8, "gpu": "a100-80gb"},
    "checkpoint": {"directory": "/ckpt/job", "every_steps": 50, "keep": 2},
}  # fmt: skip
HIDDEN = 5120


def make(framework: str, sets: Mapping[str, Any] | None = None) -> Spec:
    """The base spec for a framework with values set by dotted path (None removes)."""
    tree = json.loads(json.dumps(BASE))
    tree["training"]["framework"] = framework
    for path, value in (sets or {}).items():
        node = tree
        *parents, leaf = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(leaf, None)
        else:
            node[leaf] = value
    return load_text(json.dumps(tree)).spec


@pytest.fixture(scope="session")
def spec() -> Callable[..., Spec]:
    return make


@pytest.fixture(scope="session")
def written() -> Callable[..., Configured]:
    """``written("trl", {"parallelism.sharding": "zero3"}, trl="1.16")``."""

    def write(
        framework: str, sets: Mapping[str, Any] | None = None, config: Config = NONE, **versions: str
    ) -> Configured:
        made = make(framework, sets)
        known = {name: _exactly(text) for name, text in versions.items()}
        resolved = {"model.hidden_size": HIDDEN, "model.layer_class": "Qwen2DecoderLayer"}
        return configure(made, find(framework, made.training.backend), resolved, known, config)

    return write


def _exactly(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    low = tuple(int(part) for part in text.split("."))
    while len(low) > 1 and low[-1] == 0:
        low = low[:-1]
    return low, (*low, 0, 0, 0, 0, 1)
