"""No framework ignores a field in silence: the rendering changes, a finding names it, or nothing of the estimate does."""

from __future__ import annotations

from typing import Any

import pytest

from jobgen.checks import bases
from jobgen.checks.run import findings
from jobgen.effective.resolve import facts, known
from jobgen.effective.setup import Effective
from jobgen.effective.unheard import stated, unwritten
from jobgen.effective.versions import Versions
from jobgen.frameworks import NAMES, find
from jobgen.physics.estimate import estimate
from jobgen.spec.document import Document
from jobgen.spec.problem import SpecError

FIELDS: tuple[tuple[str, Any], ...] = (
    ("offload.activations", "cpu"), ("offload.optimizer", "cpu"), ("training.loss", "chunked"), ("training.loss", "vocab_parallel"),
    ("training.loss", "liger"), ("training.attention", "flex"), ("training.attention", "eager"), ("training.dtypes.weights", "fp32"),
    ("training.dtypes.moments", "bf16"), ("training.dtypes.master", "none"), ("training.packing", "padding_free"),
    ("training.optimizer.in_backward", True), ("checkpoint.async", True), ("training.loading", "every_rank"),
)  # fmt: skip


def _document(framework: str, sharding: str, path: str, value: Any) -> Document | None:
    edits = {"training.framework": framework, "parallelism.sharding": sharding, "training.versions": None,
             "training.options": None, "training.activation_checkpointing": "full"}  # fmt: skip
    try:
        return bases.edited(bases.edited(bases.base("full-8b-zero2"), edits), {path: value})
    except SpecError:
        return None


@pytest.mark.parametrize("framework", NAMES)
@pytest.mark.parametrize(("path", "value"), FIELDS, ids=[f"{path}-{value}" for path, value in FIELDS])
def test_nothing_is_ignored_in_silence(framework: str, path: str, value: Any) -> None:
    for sharding in sorted(find(framework).sharding):
        document = _document(framework, sharding, path, value)
        if document is None:
            continue
        effective = Effective(facts(document), Versions(known(document)))
        if stated(effective) or not unwritten(effective, path.replace("async", "async_")):
            continue
        found = findings(document, facts(document), known(document))
        if any(finding.path == path for finding in found):
            continue
        bare = bases.edited(document, {path: None})
        other = Effective(facts(bare), Versions(known(bare)))
        assert estimate(effective).gpu == estimate(other).gpu, (framework, sharding)
