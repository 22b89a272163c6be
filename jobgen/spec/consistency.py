"""Fields that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from jobgen.spec.merge import Layer
from jobgen.spec.models import Spec
from jobgen.spec.problem import Problem


def contradictions(spec: Spec, layer: Layer, file: str) -> Iterator[Problem]:
    """Every contradiction in a spec."""
    yield from ()
