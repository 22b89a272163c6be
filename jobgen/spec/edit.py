"""Edits: path to value. On plain trees, on layers, and on YAML text with comments and formatting kept."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from typing import Any, Final

from jobgen.spec import fields
from jobgen.spec.merge import Layer, Mark, assign
from jobgen.spec.problem import Origin, Path, Problem, SpecError


class _Delete:
    def __repr__(self) -> str:
        return "DELETE"


DELETE: Final = _Delete()
"""The value that removes a key."""


def path_of(path: str) -> Path:
    """A dotted path as keys and indexes; raises ValueError for an unknown one."""
    parts = fields.split(path)
    if parts is None:
        near = fields.near_path(path)
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
    """YAML text with values set or removed; everything else stays as it was, comments included."""
    from jobgen.spec.read import read_text

    wanted = apply_edits(_long(text), edits)
    text, rest = _splice(text, edits)
    if rest:
        text = _round_trip(text, rest)
    if _long(text) != wanted:
        raise ValueError("the file's form does not let it be edited in place (aliases or merge keys?); edit it by hand")
    read_text(text, "<edited>")
    return text


def _long(text: str) -> dict[str, Any]:
    from jobgen.spec.merge import layer_of
    from jobgen.spec.read import read_text

    return layer_of(read_text(text, "<edited>"), "spec", "<edited>").tree


def _splice(text: str, edits: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Replace scalars where they stand; what is left needs a round trip."""
    from jobgen.spec.merge import SHORT
    from jobgen.spec.read import read_text

    places = read_text(text, "<edited>").places
    rest: dict[str, object] = {}
    spans: list[tuple[int, int, str]] = []
    for name, value in edits.items():
        path = path_of(name)
        if path not in places and SHORT.get(path[:-1]) == path[-1]:
            path = path[:-1]  # the short form holds this key alone
        place = places.get(path)
        new = scalar_text(value)
        old = text[place.start : place.end] if place else ""
        if place is None or place.start < 0 or not old.strip() or "\n" in old or old[0] in "|>&!*" or new is None:
            rest[name] = value
        else:
            spans.append((place.start, place.end, new))
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text, rest


def scalar_text(value: object) -> str | None:
    """A scalar as YAML writes it so that it is read back as it is; None for maps, lists and DELETE."""
    import json

    from jobgen.spec.scalars import resolve

    if value is None or isinstance(value, bool):
        return fields.repr_plain(value)
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        return None
    plain = value and value.isascii() and all(c.isalnum() or c in "._/-+" for c in value) and value[0] not in "-"
    if plain and resolve(value) == (value, None):
        return value
    return json.dumps(value, ensure_ascii=False)


def _round_trip(text: str, edits: Mapping[str, object]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString
    from ruamel.yaml.util import load_yaml_guess_indent

    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML(pure=True)
    yaml.preserve_quotes = True
    yaml.width = 2**16
    if offset is not None and offset >= 0 and indent:
        yaml.indent(mapping=_map_indent(text), sequence=max(indent, offset + 2), offset=offset)
    else:
        yaml.indent(mapping=_map_indent(text), sequence=4, offset=2)
    data = yaml.load(text)
    for name, value in edits.items():
        _edit_node(data, path_of(name), _quoted(value, DoubleQuotedScalarString))
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue().replace("\n", "\r\n") if "\r\n" in text else out.getvalue()


def _map_indent(text: str) -> int:
    """Indentation of the first nested line."""
    for line in text.splitlines():
        stripped = line.lstrip(" ")
        if stripped and line != stripped and stripped[0] not in "#-":
            return len(line) - len(stripped)
    return 2


def _quoted(value: Any, quote: Any) -> Any:
    """Text that a plain scalar would not give back, quoted."""
    if isinstance(value, dict):
        return {key: _quoted(each, quote) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_quoted(each, quote) for each in value]
    if isinstance(value, str) and scalar_text(value) != value:
        return quote(value)
    return value


def _edit_node(node: Any, path: tuple[Any, ...], value: Any) -> None:
    from jobgen.spec.merge import SHORT

    for depth, part in enumerate(path[:-1]):
        below = node[part] if isinstance(node, list) else node.get(part)
        if below is None:
            if value is DELETE:
                return
            node[part] = below = {}
        elif isinstance(below, str) and (key := SHORT.get(path[: depth + 1])):
            if value is DELETE and path[-1] != key:
                return
            node[part] = below = {key: below}
        node = node[part]
    last = path[-1]
    if value is not DELETE:
        node[last] = value
    elif isinstance(node, list):
        del node[last]
    else:
        node.pop(last, None)
