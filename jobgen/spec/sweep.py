"""Sweeps: several jobs from one spec, each with its own name and checkpoint directory."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from jobgen.spec.document import Document
from jobgen.spec.edit import DELETE, edit_layer
from jobgen.spec.merge import Layer
from jobgen.spec.paths import split
from jobgen.spec.problem import Problem, SpecError, dotted
from jobgen.spec.sections import Spec, Sweep

MAX_POINTS = 1000
_FIXED = ("name", "cluster", "sweep", "plan", "ignore", "after")
"""What a point cannot change: it would be another job."""

Point = dict[str, Any]


def points(sweep: Sweep) -> list[Point]:
    """Path to value for each job of a sweep."""
    if sweep.grid:
        return [dict(zip(sweep.grid, values, strict=True)) for values in itertools.product(*sweep.grid.values())]
    if sweep.zipped:
        return [dict(zip(sweep.zipped, values, strict=True)) for values in zip(*sweep.zipped.values(), strict=True)]
    return [dict(point) for point in sweep.points]


def expand(document: Document) -> list[tuple[str, Document]]:
    """Name suffix and document of each job; without a sweep, the one with an empty suffix. Raises SpecError."""
    sweep = document.spec.sweep
    if sweep is None:
        return [("", document)]
    every = points(sweep)
    return [
        (suffix, document.edited(_edits(document.spec, point, suffix)))
        for point, suffix in zip(every, suffixes(every), strict=True)
    ]


def _edits(spec: Spec, point: Point, suffix: str) -> dict[str, object]:
    edits: dict[str, object] = {"sweep": DELETE, **point, "name": f"{spec.name}-{suffix}"}
    directory = point.get("checkpoint.directory", spec.checkpoint.directory)
    if isinstance(directory, str) and "checkpoint.directory" not in point:
        edits["checkpoint.directory"] = f"{directory.rstrip('/')}/{suffix}"
    return edits


def suffixes(every: list[Point]) -> list[str]:
    """Short, valid and unique names: ``rank-8-learning_rate-1e-4``, shortened to the values or a hash where too long."""
    varied = [path for path in (every[0] if every else {}) if len({json.dumps(p.get(path), default=str) for p in every}) > 1]
    full = [_words(point, varied or list(point)) for point in every]
    result = []
    for point, name in zip(every, full, strict=True):
        if not name or len(name) > 40 or full.count(name) > 1:
            digest = hashlib.sha256(json.dumps(point, sort_keys=True, default=str).encode()).hexdigest()[:8]
            name = f"{name[:24].strip('-._')}-{digest}".lstrip("-")
        result.append(name)
    return result if len(set(result)) == len(result) else [f"{i}-{name}" for i, name in enumerate(result)]


def _words(point: Point, paths: list[str]) -> str:
    parts = []
    for path, value in point.items():
        if path in paths or len(paths) != len(point):
            text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value, default=str)
            word = re.sub(r"[^a-z0-9.]+", "-", f"{path.rpartition('.')[2]}-{text}".lower().replace("_", "-"))
            parts.append(word.strip("-."))
    return re.sub(r"-{2,}", "-", "-".join(parts)).strip("-.")


def faults(spec: Spec, layer: Layer, file: str) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a spec's sweep and plan: path, message, fix."""
    if spec.sweep is not None:
        shape = list(_shape(spec.sweep))
        yield from shape
        if not shape:
            yield from _values(spec, spec.sweep, layer, file)
    if spec.plan is not None:
        known = {"parallelism", "offload", "training", "resources", "checkpoint", "launch"}
        for i, path in enumerate(spec.plan.fix):
            if split(path) is None and path not in known:
                yield (f"plan.fix.{i}", *_unknown(path))
        for path, values in spec.plan.vary.items():
            wrong = list(_axis("plan.vary", path, values))
            yield from wrong or _candidates(path, values, layer, file)


def _shape(sweep: Sweep) -> Iterator[tuple[str, str, str]]:
    given = [name for name, value in (("grid", sweep.grid), ("zip", sweep.zipped), ("list", sweep.points)) if value]
    if len(given) != 1:
        words = f"both {' and '.join(f'`sweep.{name}`' for name in given)} say what varies" if given else "the sweep varies nothing"
        yield f"sweep.{given[-1]}" if given else "sweep", words, "write one of grid, zip and list"
        return
    for name, axes in (("grid", sweep.grid), ("zip", sweep.zipped)):
        for path, values in axes.items():
            yield from _axis(f"sweep.{name}", path, values)
    for i, point in enumerate(sweep.points):
        for path in point:
            yield from _axis(f"sweep.list.{i}", path, [point[path]])
        if not point:
            yield f"sweep.list.{i}", "this point changes nothing", "write path: value, or remove it"
    lengths = {path: len(values) for path, values in sweep.zipped.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{path}: {count}" for path, count in lengths.items())
        yield "sweep.zip", f"the lists of `sweep.zip` differ in length ({counts})", "give each as many values"
    count = math.prod(len(values) for values in sweep.grid.values()) if sweep.grid else len(sweep.points)
    if max(count, *lengths.values(), 0) > MAX_POINTS:
        yield f"sweep.{given[0]}", f"the sweep has {count} points; {MAX_POINTS} is the most", "sweep fewer values"


def _axis(where: str, path: str, values: list[Any]) -> Iterator[tuple[str, str, str]]:
    parts = split(path)
    if parts is None:
        yield (f"{where}.{path}", *_unknown(path))
    elif parts[0] in _FIXED:
        yield f"{where}.{path}", f"`{path}` cannot vary", "vary a field of the job's set-up"
    elif not values:
        yield f"{where}.{path}", f"`{path}` has no values", "list at least one"


def _unknown(path: str) -> tuple[str, str]:
    from jobgen.spec.fields import near_path

    near = near_path(path)
    return f"there is no field `{path}`", f"did you mean {near}?" if near else "write a field's path, such as training.options.learning_rate or launch.env.SEED"


def _candidates(path: str, values: list[Any], layer: Layer, file: str) -> Iterator[tuple[str, str, str]]:
    """Values that the field cannot hold; what does not fit together the planner sorts out."""
    from jobgen.spec.validate import validate

    plain = Layer({key: value for key, value in layer.tree.items() if key not in ("plan", "sweep")}, layer.marks)
    for value in values:
        try:
            problems: tuple[Problem, ...] | list[Problem] = validate(edit_layer(plain, {path: value}, "plan", file), file)[2]
        except SpecError as error:
            problems = error.problems
        for each in problems:
            if each.code == "JG002":
                yield f"plan.vary.{path}", f"with {path}: {value}: {each.message}", each.fix


def _values(spec: Spec, sweep: Sweep, layer: Layer, file: str) -> Iterator[tuple[str, str, str]]:
    """Validate every point; the first point with a problem speaks for those with the same."""
    from jobgen.spec.validate import validate

    every, seen = points(sweep), set()
    kind = "grid" if sweep.grid else "zip" if sweep.zipped else "list"
    for i, (point, suffix) in enumerate(zip(every, suffixes(every), strict=True)):
        try:
            changed = edit_layer(layer, _edits(spec, point, suffix), "sweep", file)
            problems = tuple(validate(changed, file)[2])
        except SpecError as error:
            problems = error.problems
        for each in problems:
            if (each.path, each.message) in seen:
                continue
            seen.add((each.path, each.message))
            axis = next((p for p in point if each.path == p or each.path.startswith(p + ".") or p.startswith(each.path + ".")), None)
            place = f"sweep.list.{i}" if kind == "list" else f"sweep.{kind}"
            values = ", ".join(f"{path}: {value}" for path, value in point.items())
            yield dotted((place, axis)) if axis else place, f"with {values}: {each.message}", each.fix
