"""Values as text: YAML that YAML 1.1 and 1.2 readers understand alike, TOML, JSON and command-line flags.

Own writers, because the frameworks read with PyYAML (1.1: ``no`` is false, ``1e-05`` is text) what ruamel.yaml would
write for 1.2, and because neither import is needed for it then. Tests read everything back with three parsers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*", re.ASCII)
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"}
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def quoted(text: str) -> str:
    """A double-quoted string that JSON, YAML and TOML read alike."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def number(value: float) -> str:
    """A float with a point, without which YAML 1.1 takes ``1e-05`` for text."""
    text = repr(value)
    return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text


def _yaml_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """A YAML document of maps, lists and scalars."""
    return "".join(_yaml_map(value, indent))


def _yaml_map(value: Mapping[str, Any], indent: int) -> Sequence[str]:
    lines: list[str] = []
    for key, item in value.items():
        lines.extend(_yaml_item(" " * indent + _yaml_scalar(str(key)) + ":", item, indent))
    return lines


def _yaml_item(head: str, item: Any, indent: int) -> Sequence[str]:
    if isinstance(item, Mapping):
        return [head + "\n", *_yaml_map(item, indent + 2)] if item else [head + " {}\n"]
    if isinstance(item, list | tuple):
        if not item:
            return [head + " []\n"]
        lines = [head + "\n"]
        for entry in item:
            lines.extend(_yaml_entry(entry, indent + 2))
        return lines
    return [f"{head} {_yaml_scalar(item)}\n"]


def _yaml_entry(entry: Any, indent: int) -> Sequence[str]:
    pad = " " * indent
    if isinstance(entry, Mapping) and entry:
        first, *rest = _yaml_map(entry, indent + 2)
        return [f"{pad}- {first[indent + 2 :]}", *rest]
    if isinstance(entry, list | tuple) and entry:
        return [f"{pad}-\n", *(line for each in entry for line in _yaml_entry(each, indent + 2))]
    if isinstance(entry, Mapping | list | tuple):
        return [f"{pad}- {'{}' if isinstance(entry, Mapping) else '[]'}\n"]
    return [f"{pad}- {_yaml_scalar(entry)}\n"]


def toml(value: Mapping[str, Any]) -> str:
    """A TOML document: scalars and lists first, then one section per map. None has no form in TOML: left out."""
    lines: list[str] = []
    _toml_table(value, (), lines)
    return "".join(lines).lstrip("\n")


def _toml_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    maps = {key: item for key, item in table.items() if isinstance(item, Mapping)}
    own = {key: item for key, item in table.items() if key not in maps and item is not None}
    if path and (own or not maps):
        lines.append(f"\n[{'.'.join(map(_toml_key, path))}]\n")
    lines.extend(f"{_toml_key(key)} = {_toml_value(item)}\n" for key, item in own.items())
    for key, item in maps.items():
        _toml_table(item, (*path, key), lines)


def _toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else quoted(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value if item is not None) + "]"
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    return quoted(str(value))


def as_json(value: Mapping[str, Any]) -> str:
    """A JSON document."""
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def dump(name: str, values: Mapping[str, Any]) -> str:
    """A file in the format of its suffix (YAML for any other)."""
    if name.endswith(".json"):
        return as_json(values)
    return toml(values) if name.endswith(".toml") else yaml(values)


def word(value: Any) -> str:
    """A value as one command-line word: ``True``, ``1e-05``, JSON for maps."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def flags(values: Mapping[str, Any], prefix: str = "--") -> tuple[str, ...]:
    """``--key value`` for each; a list becomes several words, None is left out."""
    words: list[str] = []
    for key, value in values.items():
        if value is None:
            continue
        words.append(prefix + key)
        if isinstance(value, list | tuple):
            words.extend(word(item) for item in value)
        else:
            words.append(word(value))
    return tuple(words)


def switches(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags whose booleans have no value: there when true."""
    given = {
        key: value for key, value in values.items() if value not in (None, False) or (value == 0 and value is not False)
    }
    words: list[str] = []
    for key, value in given.items():
        words += [f"--{key}"] if value is True else flags({key: value})
    return tuple(words)


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything below nested maps."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, name)
        else:
            yield name, value


def assignments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """``a.b=value`` for each leaf, as Hydra and OmegaConf read overrides."""
    return tuple(f"{name}={_override(value)}" for name, value in leaves(values))


def _override(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_override(item) for item in value) + "]"
    text = str(value)
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_./@%+-]+", text, re.ASCII):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; two maps at one place are merged."""
    *parents, leaf = key.split(".")
    for parent in parents:
        below = tree.get(parent)
        if not isinstance(below, dict):
            below = tree[parent] = {}
        tree = below
    lay(tree, leaf, value)


def lay(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a key as it is; two maps are merged."""
    held = tree.get(key)
    if isinstance(value, Mapping):
        if not isinstance(held, dict):
            held = tree[key] = {}
        for name, item in value.items():
            lay(held, name, item)
    else:
        tree[key] = value


def merged(base: Mapping[str, Any], *layers: Mapping[str, Any], dotted: bool = True) -> dict[str, Any]:
    """Later layers win, map by map; in ``layers`` a key with dots names a nested value (unless ``dotted`` is false)."""
    result: dict[str, Any] = {}
    for key, value in base.items():
        lay(result, key, value)
    for layer in layers:
        for key, value in layer.items():
            (put if dotted else lay)(result, key, value)
    return result


def at(tree: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, written nested or dotted; None without one."""
    if key in tree:
        return tree[key]
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
