"""pydantic's errors as sentences about what the user wrote."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from jobgen.spec import fields
from jobgen.spec.merge import Layer
from jobgen.spec.models import Spec
from jobgen.spec.problem import Path, Problem, dotted
from jobgen.spec.validate import problem, value_at

EXAMPLES = {
    "name": "name: qwen-sft",
    "model": "model: {name: Qwen/Qwen2.5-7B-Instruct}",
    "training": "training: {method: full, sequence_length: 4096}",
    "training.method": "method: full (or lora, qlora)",
    "training.sequence_length": "sequence_length: 4096",
    "resources": "resources: {nodes: 1, gpus_per_node: 8, gpu: h100-80gb}",
    "resources.gpus_per_node": "gpus_per_node: 8",
    "resources.gpu": "gpu: h100-80gb",
    "resources.gpu.name": "gpu: h100-80gb, or {name: h100-80gb, memory: 80GiB}",
}
SYNONYMS = {
    "per_device_train_batch_size": "training.micro_batch_size", "batch_size": "training.micro_batch_size",
    "learning_rate": "training.options.learning_rate", "lr": "training.options.learning_rate",
    "train_batch_size": "training.global_batch_size", "dtype": "training.precision", "bf16": "training.precision",
    "max_seq_length": "training.sequence_length", "max_length": "training.sequence_length",
    "seq_length": "training.sequence_length", "cutoff_len": "training.sequence_length",
    "sequence_len": "training.sequence_length", "gradient_checkpointing": "training.activation_checkpointing",
    "tp": "parallelism.tensor", "pp": "parallelism.pipeline", "cp": "parallelism.context", "ep": "parallelism.expert",
    "tensor_parallel": "parallelism.tensor", "pipeline_parallel": "parallelism.pipeline",
    "zero_stage": "parallelism.sharding", "gpus": "resources.gpus_per_node", "num_nodes": "resources.nodes",
    "nnodes": "resources.nodes", "memory": "resources.memory_per_node", "mem": "resources.memory_per_node",
    "nproc_per_node": "launch.processes_per_node", "time": "launch.time_limit", "walltime": "launch.time_limit",
    "script": "launch.entrypoint", "container_image": "launch.image", "output_dir": "checkpoint.directory",
    "save_steps": "checkpoint.every_steps", "save_total_limit": "checkpoint.keep", "epochs": "training.data.epochs",
    "num_train_epochs": "training.data.epochs", "eval": "training.evaluation", "r": "training.lora.rank",
    "lora_alpha": "training.lora.alpha", "gradient_accumulation": "training.gradient_accumulation_steps",
}  # fmt: skip
"""Names people know from other tools."""


def judge(layer: Layer, file: str) -> Spec | Layer | list[Problem]:
    """pydantic's word on a tree: a Spec, the layer to try instead, or what is wrong."""
    try:
        return Spec.model_validate(layer.tree)
    except ValidationError as error:
        return as_text(error, layer) or complaints(error, layer, file)


def complaints(error: ValidationError, layer: Layer, file: str) -> list[Problem]:
    """One problem for each place that is wrong."""
    by_path: dict[Path, list[dict[str, Any]]] = {}
    for each in error.errors(include_url=False, include_context=False):
        by_path.setdefault(written(each, layer.tree), []).append(dict(each))
    paths = {path for path, group in by_path.items() if not _said_below(path, group, by_path)}
    for path in [path for path in paths if by_path[path][0]["type"] == "extra_forbidden"]:
        fix = unknown(path, layer.tree)[1]  # a misspelt required key is one mistake, not two
        paths.discard((*path[:-1], fix.removeprefix("did you mean ").rstrip("?")))
    return [_complaint(path, group, layer, file) for path, group in by_path.items() if path in paths]


def _said_below(path: Path, group: list[dict[str, Any]], others: Iterable[Path]) -> bool:
    """Another branch of the union got further and complains about something below."""
    types = all(each["type"].endswith("_type") for each in group)
    return types and any(len(other) > len(path) and other[: len(path)] == path for other in others)


def written(error: Any, tree: Any) -> Path:
    """pydantic's location without the names of union branches."""
    path: list[str | int] = []
    location = error["loc"]
    for i, part in enumerate(location):
        if (isinstance(tree, dict) and part in tree) or (isinstance(tree, list) and isinstance(part, int) and part < len(tree)):
            tree = tree[part]
        elif i == len(location) - 1 and error["type"] == "missing":
            tree = None
        else:
            continue
        path.append(part)
    return tuple(path)


def _complaint(path: Path, group: list[dict[str, Any]], layer: Layer, file: str) -> Problem:
    kinds = {each["type"] for each in group}
    if "extra_forbidden" in kinds:
        message, fix = unknown(path, layer.tree)
        return problem(layer, file, path, message, fix, "JG002", key=True)
    if "missing" in kinds and _absent(layer.tree, path):
        name = dotted(path)
        example = EXAMPLES.get(name) or _example(path)
        return problem(layer, file, path, f"`{path[-1]}` is required here", f"write {example}", "JG002")
    message, fix = wrong_value(path, group, layer)
    return problem(layer, file, path, message, fix, "JG002")


def _absent(tree: Any, path: Path) -> bool:
    parent = value_at(tree, path[:-1])
    return isinstance(parent, dict) and path[-1] not in parent


def _example(path: Path) -> str:
    kind = fields.kind_at(path)
    return f"{path[-1]}: " + (f"with {fields.words(kind)}" if kind else "and its value")


def unknown(path: Path, tree: Any) -> tuple[str, str]:
    """An unknown key: the nearest one here, or the place where this one belongs."""
    name, parent = str(path[-1]), path[:-1]
    kind = fields.kind_at(parent)
    here = fields.keys(kind) if kind else []
    where = f"under `{dotted(parent)}`" if parent else "at the top level"
    message = f"there is no `{name}` {where}"
    if (close := fields.near(name, here, 0.85)) is not None:
        return message, f"did you mean {close}?"
    if (belongs := fields.elsewhere(name)) and (target := belongs[0].rpartition(".")[0]):
        return message, f"it belongs under {target.replace('.-', '')}: write {_nested(belongs[0])}"
    if belongs:
        return message, "it belongs at the top level: indent it less"
    if (close := fields.near(name, here)) is not None:
        return message, f"did you mean {close}?"
    if (synonym := SYNONYMS.get(name.lower())) is not None:
        return message, f"jobgen calls it {synonym}"
    if (near := fields.near_path(name)) is not None:
        return message, f"did you mean {near}?"
    if parent[:1] == ("training",):
        return message, "a key of the framework itself goes under training.options"
    return message, f"the fields here are: {', '.join(here)}" if here else "remove it"


def _nested(path: str) -> str:
    parts = [part for part in path.split(".") if part != "-"]
    return "{" + ": {".join(parts) + ": ..." + "}" * len(parts)


def shown(value: Any, raw: str | None = None) -> str:
    """A value as the user sees it, with its kind."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"{raw or str(value).lower()}, a boolean"
    if isinstance(value, int | float):
        return f"the number {raw or value}"
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return f"the text {json.dumps(text, ensure_ascii=False)}" if text else "an empty text"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "a map"


def wrong_value(path: Path, group: list[dict[str, Any]], layer: Layer) -> tuple[str, str]:
    """A value of the wrong type, out of range or not among the choices."""
    value = value_at(layer.tree, path)
    mark = layer.marks.get(path)
    raw = mark.raw if mark else None
    if path and path[-1] not in (value_at(layer.tree, path[:-1]) or {}) and isinstance(path[-1], str):
        value = None
    kind = fields.kind_at(path)
    expected = fields.words(kind) if kind else "another value"
    message = f"this is {shown(value, raw)}"
    choices = fields.choices(kind) if kind else []
    if choices and isinstance(value, str):
        close = fields.near(value, choices)
        owner = path[:-1] if isinstance(path[-1], int) or (mark and mark.short) else path
        message = f"`{value[:60]}` is not a value of `{owner[-1]}`"
        return message, f"did you mean {close}? It takes {expected}" if close else f"write {expected}"
    for each in group:
        if each["type"] == "value_error":
            said, _, form = each["msg"].removeprefix("Value error, ").partition(": write ")
            return said, f"write {form}" if form else f"write {expected}"
    if any(each["type"] in _BOUNDS for each in group):
        return f"{shown(value, raw).removeprefix('the number ')} is out of range", f"write {expected}"
    if "string_pattern_mismatch" in {e["type"] for e in group}:
        return f"`{value}` does not have the right form", _pattern_fix(path)
    if value is None:
        return "the value is empty", f"write {expected}, or remove the key"
    branches = [branch.annotation for branch in fields.options(kind)] if kind else []
    better = _rewrite(value, raw, branches)
    return (f"{message}; it takes {expected}", better) if better else (message, f"write {expected}")


_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "string_too_short", "string_too_long",
           "too_short", "too_long"}  # fmt: skip


def _pattern_fix(path: Path) -> str:
    if path[0] == "ignore":
        return "write a rule's code such as JG305"
    return "use letters, digits, `.`, `_` and `-`, and start with a letter or digit"


def _rewrite(value: Any, raw: str | None, branches: list[Any]) -> str:
    """What to write instead, as near as possible to what was written; empty where nothing is near."""
    scalar = isinstance(value, str | int | float | bool)
    if not scalar:
        return "write a single value" if branches and {str, int, float, bool}.issuperset(branches) else ""
    if str in branches and scalar:
        return f'quote it: "{raw if raw is not None else value}"'
    if list[str] in branches or any(typing.get_origin(branch) is list and value in fields.choices(fields.Kind(typing.get_args(branch)[0])) for branch in branches):
        return f"write a list: [{json.dumps(value) if isinstance(value, str) else raw or value}]"
    if bool in branches and str(value).lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        return f"write {'true' if str(value).lower() in ('true', 'yes', 'on', '1') else 'false'} without quotes"
    if int in branches and isinstance(value, float) and value == int(value):
        return f"write {int(value)}"
    if (int in branches or float in branches) and isinstance(value, str):
        try:
            return f"write {float(value):g} without quotes"
        except ValueError:
            return ""
    return ""


def as_text(error: ValidationError, layer: Layer) -> Layer | None:
    """``--set launch.env.X=1``: on the command line a number is text where text is needed. None: nothing to do."""
    from jobgen.spec.merge import assign

    changed = None
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path = written(each, layer.tree)
        mark = layer.marks.get(path)
        if each["type"] == "string_type" and mark and mark.value.layer == "command line" and mark.raw is not None:
            changed = assign(changed or layer, path, mark.raw, {(): mark._replace(raw=None)})
    return changed
