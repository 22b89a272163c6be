"""One edit of a YAML text, as a person would make it: a value replaced, a line added or removed.

Each way is tried and the result read again: what does not come out as meant is discarded, and ruamel.yaml's round trip
is the last resort (it keeps comments, but may move blank lines).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from jobgen.spec.edit import DELETE, apply_edits
from jobgen.spec.merge import SHORT, layer_of
from jobgen.spec.problem import Path, SpecError, repr_plain
from jobgen.spec.read import Place, read_text
from jobgen.spec.scalars import resolve

Places = dict[Path, Place]


def rewrite(text: str, path: Path, name: str, value: object) -> str:
    """The text with one value set or removed; raises ValueError where its form does not allow it."""
    before = _tree(text)
    wanted = apply_edits(before, {name: value})
    if wanted == before:
        return text
    places = read_text(text, "<edited>").places
    ways: tuple[Callable[[str, Places, Path, object], str | None], ...] = (_replace, _add, _remove, _round_trip)
    for way in ways:
        try:
            made = way(text, places, path, value)
            if made is not None and _tree(made) == wanted:
                return made
        except (SpecError, LookupError, TypeError, AttributeError, ValueError):
            continue
    raise ValueError(f"`{name}` cannot be edited in place in this file (aliases or merge keys?); edit it by hand")


def _tree(text: str) -> dict[str, Any]:
    return layer_of(read_text(text, "<edited>"), "spec", "<edited>").tree


def _replace(text: str, places: Places, path: Path, value: object) -> str | None:
    """A scalar where it stands."""
    if path not in places and SHORT.get(path[:-1]) == path[-1]:
        path = path[:-1]  # the short form holds this key alone
    place, new = places.get(path), flow_text(value)
    if place is None or place.start < 0 or new is None:
        return None
    old = text[place.start : place.end]
    if not old.strip() or "\n" in old or old[0] in "|>&!*":
        return None
    return text[: place.start] + new + text[place.end :]


def _add(text: str, places: Places, path: Path, value: object) -> str | None:
    """A new key after the last one of its map, on a line of its own or inside braces."""
    new = flow_text(value)
    if new is None or path in places:
        return None
    at = next(path[:n] for n in range(len(path) - 1, -1, -1) if path[:n] in places)
    missing = path[len(at) :]
    children = [p for p in places if len(p) == len(at) + 1 and p[: len(at)] == at]
    if not children or not all(isinstance(part, str) for part in (*missing, children[0][-1])):
        return None
    keys = [key_text(str(part)) for part in missing]
    lines = _lines(text)
    first = places[children[0]]
    indent = first.key_column - 1
    if set(lines[first.key_line - 1][:indent]) - set(" -"):  # braces
        last = places[children[-1]]
        added = f", {': {'.join(keys)}: {new}" + "}" * (len(keys) - 1)
        return text[: last.end] + added + text[last.end :] if last.end >= 0 else None
    step = _map_indent(text)
    ending = "\r\n" if "\r\n" in text else "\n"
    added = "".join(f"{' ' * (indent + step * i)}{key}:{ending}" for i, key in enumerate(keys[:-1]))
    added += f"{' ' * (indent + step * (len(keys) - 1))}{keys[-1]}: {new}{ending}"
    after = _last_line(text, places, at)
    if after == len(lines) and not lines[-1].endswith("\n"):
        lines[-1] += ending
    return "".join(lines[:after]) + added + "".join(lines[after:])


def _lines(text: str) -> list[str]:
    """Lines as YAML and editors count them, with their ends."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [last for last in text.split("\n")[-1:] if last]


def _last_line(text: str, places: Places, at: Path) -> int:
    """The last line (1-based) that anything below a path takes."""
    last = 1
    for path, place in places.items():
        if path[: len(at)] == at:
            end = place.line
            if place.end > place.start >= 0:
                end += text[place.start : place.end].rstrip().count("\n")
            last = max(last, end, place.key_line)
    return last


def _remove(text: str, places: Places, path: Path, value: object) -> str | None:
    """The lines of a key or entry that has them to itself."""
    place = places.get(path)
    if value is not DELETE or place is None:
        return None
    lines = _lines(text)
    before = lines[place.key_line - 1][: place.key_column - 1]
    entry = isinstance(path[-1], int)
    if before.strip() != ("-" if entry else ""):
        return None
    return "".join(lines[: place.key_line - 1]) + "".join(lines[_last_line(text, places, path) :])


def key_text(key: str) -> str:
    """A key as YAML writes it."""
    return scalar_text(key) if key.lower() != "on" else key


def flow_text(value: object) -> str | None:
    """A value on one line; None for DELETE."""
    if value is DELETE:
        return None
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(str(key))}: {flow_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(flow_text(each)) for each in value) + "]"
    return scalar_text(value)


def scalar_text(value: object) -> str:
    """A scalar as YAML writes it so that it is read back as it is."""
    if value is None or isinstance(value, bool):
        return repr_plain(value)
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    plain = text and text.isascii() and all(c.isalnum() or c in "._/-+" for c in text) and text[0] not in "-"
    return text if plain and resolve(text) == (text, None) else json.dumps(text, ensure_ascii=False)


def _round_trip(text: str, places: Places, path: Path, value: object) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString
    from ruamel.yaml.util import load_yaml_guess_indent

    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML(pure=True)
    yaml.preserve_quotes = True
    yaml.width = 2**16
    offset = offset if isinstance(offset, int) and offset >= 0 else 2
    yaml.indent(mapping=_map_indent(text), sequence=max(indent or 0, offset + 2), offset=offset)
    data = yaml.load(text)
    _edit_node(data, path, _quoted(value, DoubleQuotedScalarString))
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
