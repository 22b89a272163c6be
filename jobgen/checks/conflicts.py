"""Keys in the framework's own words that say something else than the spec, which owns them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import config_of, flags_of
from jobgen.effective.options import READ
from jobgen.frameworks import write
from jobgen.frameworks.config import NONE, Config

if TYPE_CHECKING:
    from jobgen.frameworks.table import Known

_ARGS = "launch.args"
_MADE = {
    "training.precision.of_method": "training.precision", "training.lora.target_parameters": "training.lora.target_modules",
    "checkpoint.strategy": "checkpoint.every_steps", "training.evaluates": "training.evaluation.every_steps",
    "checkpoint.resume.mode": "checkpoint.resume", "parallel.nodes": "resources.nodes", "parallel.world": "resources.gpus_per_node",
    "parallel.data": "resources.gpus_per_node", "parallel.shard": "parallelism.sharding",
}  # fmt: skip
"""Values that follow from several fields, with the field that a user would change."""


@rule(
    "JG703", "error", "read", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"per_device_train_batch_size": 4}}),
    good=Example("full-8b-zero2", {"training.options": {"per_device_train_batch_size": 1}}),
    fix="the value in the spec's own field, and the key removed",
    sources=("the framework's own option table (jobgen.frameworks)",),
    facts=("BA01", "BA03"),
)  # fmt: skip
def contradicted(case: Case) -> list[Outcome]:
    """A key of the framework says something else than the spec

    The spec owns the field, so its value is what is checked, estimated and written; the key would be overridden in
    training.options, and would win in launch.args.
    """
    found: list[Outcome] = []
    for one in _conflicts(case, _arguments(case)):
        in_args = one.file == _ARGS
        if one.agrees or (one.file and not in_args) or one.ours is None or one.path in READ:
            continue
        path = f"launch.args.{one.column}" if in_args else f"training.options.{one.key}"
        owner = _MADE.get(one.path, one.path)
        said = one.meant if owner == one.path else None
        line = case.document.locate(owner).line
        edits: dict[str, Any] | None = None
        if not in_args and "." not in one.key:
            edits = {path: None} if said is None else {owner: said, path: None}
        meant = f"remove {one.key}" if said is None else f"write {owner}: {said} and remove {one.key}"
        found.append(Outcome(path, f"{one.key}: {one.theirs}, but {owner} (line {line}) makes it {one.ours}", meant, edits))
    return found


@rule(
    "JG704", "warning", "read", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"dataloader_num_workers": 8}}),
    good=Example("full-8b-zero2", {"training.data.workers": 8}),
    fix="the value in the spec's own field, and the key removed",
    sources=("the framework's own option table (jobgen.frameworks)",),
)  # fmt: skip
def unseen(case: Case) -> list[Outcome]:
    """A key that the spec owns is written in the framework's words

    Checks and estimates read the spec's field. A key of the framework's own file is overridden where the field has a
    value.
    """
    found: list[Outcome] = []
    overridden: list[str] = []
    for one in _conflicts(case, config_of(case)):
        if one.agrees or one.path in READ:
            continue
        if one.file:
            if one.ours is not None:
                overridden.append(f"{one.key}: {one.theirs} (line {one.line}; {_MADE.get(one.path, one.path)} makes it {one.ours})")
            continue
        if one.ours is None and one.path not in _MADE:
            path = f"training.options.{one.key}"
            edits: dict[str, Any] | None = None
            if one.meant is not None and "." not in one.key:
                edits = {one.path: one.meant, path: None}
            found.append(Outcome(path, f"{one.key}: {one.theirs} is not seen by checks and estimates, which read {one.path}",
                                 f"write {one.path}{'' if one.meant is None else f': {one.meant}'} and remove {one.key}", edits))  # fmt: skip
    if overridden:
        found.append(Outcome("training.config", f"{case.spec.training.config} says otherwise than the spec, which wins: {', '.join(overridden)}",
                             "remove these keys from the file, or change the spec"))  # fmt: skip
    return found


def _arguments(case: Case) -> Config:
    """``launch.args`` as a file, each key at its index."""
    if not case.spec.launch.args:
        return NONE
    flags = flags_of(case)
    values = {form: _scalar(value) for name, (value, _) in flags.items() for form in {name, name.replace("_", "-")}}
    places = {form: (1, index) for name, (_, index) in flags.items() for form in {name, name.replace("_", "-")}}
    return Config(_ARGS, values, places)


def _scalar(value: Any) -> Any:
    """A word as the program would read it."""
    if not isinstance(value, str):
        return value
    lower = value.lower()
    if lower in ("true", "false"):
        return lower == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _conflicts(case: Case, config: Config) -> Iterator[write.Conflict]:
    spec = case.spec
    if not case.framework.options or not (spec.training.options or config.values):
        return
    known: Mapping[str, Known] = case.effective.memo.known
    steps = {"training.steps": case.effective.batch.steps}
    for one in write.conflicts(spec, case.framework, steps, known, config):
        made_by_data = one.path == "training.max_steps" and spec.training.max_steps is None and one.ours is not None
        yield one._replace(path="training.data", meant=None) if made_by_data else one
