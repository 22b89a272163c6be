"""Fields that a framework has no word for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.unheard import DEFAULTS, stated, unwritten, value

if TYPE_CHECKING:
    from jobgen.frameworks.table import Option

ELSEWHERE = frozenset({"no_offload_without_sharding", "zero_parameters_stay"})
"""Effects that other rules quote."""


@rule(
    "JG393", "warning", "init", "effective",
    bad=Example("full-8b-torchtune", {"training.attention": "eager"}),
    good=Example("full-8b-torchtune", {}),
    fix="remove the field, or choose a framework that has it",
    sources=("the framework's own option table (jobgen.frameworks)",),
)  # fmt: skip
def unheard(case: Case) -> list[Outcome]:
    """The framework has no such option

    What is written for the framework is the same with the field and without it, so the field would change the checks and
    not the job. The estimate does not count on it.
    """
    if stated(case.effective):
        return []
    said = {effect.path for effect in case.effective.effects if effect.id in ELSEWHERE}
    return [_outcome(case, path) for path in DEFAULTS if _name(path) not in said and _silent(case, path)]


def _silent(case: Case, path: str) -> bool:
    name = _name(path)
    if not case.wrote(name) or not unwritten(case.effective, path):
        return False
    given = value(case.spec, path)
    return not _anyway(case, path, given)


def _anyway(case: Case, path: str, given: object) -> bool:
    """The framework does it without being told."""
    from jobgen.effective.activations import unasked_loss

    if path == "training.attention":
        return {given, case.framework.attention} <= {"sdpa", "flash_attention_2"}  # the same kernel on these GPUs
    if path == "training.loss":
        return bool(given == unasked_loss(case.effective))
    if path == "training.packing":
        return given == "packed"  # what pretraining does, and a statement about the data elsewhere
    if path == "training.backend":
        return bool(given == "transformers" and case.framework.trainer == "hf")
    if path == "checkpoint.every_epochs":
        return bool(given == 1 and (case.framework.checkpoint.pattern or "").startswith("epoch"))
    if path == "training.loading":
        return bool(given == case.effective.loading.mode)
    return False


def _outcome(case: Case, path: str) -> Outcome:
    name, given, framework = _name(path), value(case.spec, path), case.spec.training.framework
    release = next((option for option in case.framework.options if option.field == name and _later(case, option)), None)
    where = f" in this release (from {'.'.join(map(str, release.since))} on it is {release.key})" if release else " for it that jobgen could write"
    shown = str(given).lower() if isinstance(given, bool) else given
    return Outcome(name, f"{shown} does nothing: {framework} has no option{where}", f"remove {name}, or choose a framework that has it",
                   {name: None})  # fmt: skip


def _later(case: Case, option: Option) -> bool:
    """The row is of a release that this one is known to be older than."""
    interval = case.effective.memo.known.get(option.library or case.framework.library)
    return interval is not None and bool(option.since) and interval.high <= option.since


def _name(path: str) -> str:
    return path.replace("async_", "async")


_OFFLOADS = ("offload.optimizer", "offload.parameters", "offload.activations")
_OFF = frozenset({"none", None, 1})
_NEEDS: dict[str, tuple[str, ...]] = {
    "offload.pin_memory": _OFFLOADS, "offload.nvme_path": _OFFLOADS[:2], "parallelism.context_method": ("parallelism.context",),
    "kubernetes.secret": ("launch.secrets",), "slurm.array_limit": ("slurm.extra.array",),
}  # fmt: skip
"""Fields that say how another one is done."""


@rule(
    "JG394", "warning", "read", "spec",
    bad=Example("full-8b-fsdp2", {"parallelism.context_method": "ulysses"}),
    good=Example("full-8b-fsdp2", {}),
    fix="remove it, or write the field that it belongs to",
    sources=("the spec: each field names what it belongs to",),
)  # fmt: skip
def belongs_to_nothing(case: Case) -> list[Outcome]:
    """A field has no effect without another one

    How offloaded memory is held, how the context is split, where secrets come from: nothing of it happens in this job. A
    cluster's profile may say it for all jobs.
    """
    return [
        Outcome(path, f"{path} has no effect without {' or '.join(needs)}", f"remove {path}, or write {needs[0]}", {path: None})
        for path, needs in _NEEDS.items() if _own(case, path) and all(_unset(case, each) for each in needs)
    ]  # fmt: skip


def _own(case: Case, path: str) -> bool:
    return case.wrote(path) and case.document.origin(path).file == case.document.file


def _unset(case: Case, path: str) -> bool:
    node: object = case.spec
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else getattr(node, part, None)
    return not node or (isinstance(node, str | int) and node in _OFF)
