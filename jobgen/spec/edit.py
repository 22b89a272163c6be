"""Edits: path to value, on plain trees and layers; on YAML text with comments kept, see `rewrite`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from jobgen.spec.merge import Layer, Mark, assign
from jobgen.spec.paths import split
from jobgen.spec.problem import Origin, Path, Problem, SpecError


class _Delete:
    def __repr__(self) -> str:
        return "DELETE"


DELETE: Final = _Delete()
"""The value that removes a key."""


def path_of(path: str) -> Path:
    """A dotted path as keys and indexes; raises ValueError for an unknown one."""
    parts = split(path)
    if parts is None:
        from jobgen.spec.fields import near_path

        near = near_path(path)
        raise ValueError(f"there is no field `{path}`" + (f"; did you mean {near}?" if near else ""))
    return parts


def apply_edits(tree: Mapping[str, Any], edits: Mapping[str, object]) -> dict[str, Any]:
    """A copy of a plain tree with values set or removed; raises ValueError for a path that leads nowhere."""
    return _apply(Layer(copy.deepcopy(dict(tree)), {}), edits, Mark(Origin("", "", 1, 1), Origin("", "", 1, 1))).tree


def edit_layer(layer: Layer, edits: Mapping[str, object], name: str, file: str) -> Layer:
    """A layer with values set or removed, under the layer name given; raises SpecError."""
    where = Origin(name, file, 1, 1)
    try:
        return _apply(layer, edits, Mark(where, where))
    except ValueError as reason:
        raise SpecError([Problem(file, 1, 1, "", str(reason), "change the path", "JG002")]) from None


def _apply(layer: Layer, edits: Mapping[str, object], mark: Mark) -> Layer:
    for name, value in edits.items():
        path = path_of(name)
        if value is DELETE:
            layer = _remove(layer, path)
        else:
            own = copy.deepcopy(value)
            old = layer.marks.get(path)
            marks = {below: mark if old is None else mark._replace(value=_at(old.value, mark), key=_at(old.key, mark))
                     for below in _below(own)}  # fmt: skip
            layer = assign(layer, path, own, marks)
    return layer


def _at(old: Origin, mark: Mark) -> Origin:
    """The old position under the new layer's name: what a fix changes still points at what was written."""
    return old._replace(layer=mark.value.layer)


def _below(value: Any, path: Path = ()) -> list[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, below in items for each in _below(below, (*path, key)))]


def _remove(layer: Layer, path: Path) -> Layer:
    tree = copy.deepcopy(layer.tree)
    node: Any = tree
    part: Any
    for part in path[:-1]:
        if not ((isinstance(node, dict) and part in node) or (isinstance(node, list) and part in range(len(node)))):
            return layer
        node = node[part]
    last = path[-1]
    if isinstance(node, dict):
        node.pop(last, None)
    elif isinstance(node, list) and isinstance(last, int) and last < len(node):
        del node[last]
        # marks of later entries move up by one
        size = len(path)
        moved = {}
        for p, mark in layer.marks.items():
            if p[: size - 1] == path[:-1] and len(p) >= size and isinstance(index := p[size - 1], int) and index >= last:
                if index > last:
                    moved[(*p[: size - 1], index - 1, *p[size:])] = mark
            else:
                moved[p] = mark
        return Layer(tree, moved, layer.problems)
    return Layer(tree, {p: m for p, m in layer.marks.items() if p[: len(path)] != path}, layer.problems)


def edit_text(text: str, edits: Mapping[str, object]) -> str:
    """YAML text with values set or removed; everything else stays as it was, comments included. Raises ValueError
    where the file's form does not allow it."""
    from jobgen.spec.rewrite import rewrite

    for name, value in edits.items():
        text = rewrite(text, path_of(name), name, value)
    return text
