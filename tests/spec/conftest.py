from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jobgen.spec.document import Document, Problem, SpecError, load_text

BASE = """\
name: sft
model: {name: Qwen/Qwen2.5-7B-Instruct}
training:
  method: full
  sequence_length: 4096
resources:
  nodes: 2
  gpus_per_node: 8
  gpu: h100-80gb
"""


@pytest.fixture
def base() -> str:
    return BASE


@pytest.fixture
def full() -> Path:
    return Path(__file__).parent / "full.yaml"


@pytest.fixture
def refuse() -> Callable[..., tuple[Problem, ...]]:
    """Load a spec that must be refused and give its problems."""

    def run(text: str, sets: Sequence[str] = ()) -> tuple[Problem, ...]:
        with pytest.raises(SpecError) as caught:
            load_text(text, "s.yaml", sets=sets)
        return caught.value.problems

    return run


@pytest.fixture
def accept() -> Callable[..., Document]:
    def run(text: str, sets: Sequence[str] = ()) -> Document:
        return load_text(text, "s.yaml", sets=sets)

    return run
