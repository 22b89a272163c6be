"""YAML skeletons with tagged holes: the shape of the objects is a file, values are put in as nodes, never as text.

``key: !hole name`` takes a value; a MISSING one drops the key. ``- !each name`` puts a list's items in its place.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jobgen.targets.manifest import MISSING, Object


@cache
def folder() -> Path:
    """Where the skeletons lie: inside the wheel, else at the top of the repository."""
    package = Path(__file__).parent.parent
    inside = package / "templates"
    return (inside if inside.is_dir() else package.parent / "templates") / "k8s"


@cache
def _composed(name: str) -> tuple[Any, ...]:
    from ruamel.yaml import YAML

    return tuple(YAML(typ="safe", pure=True).compose_all((folder() / f"{name}.yaml").read_text(encoding="utf-8")))


def holes(name: str) -> set[str]:
    """Names of all holes of a skeleton."""
    found: set[str] = set()
    waiting = list(_composed(name))
    while waiting:
        node = waiting.pop()
        if _tag(node) in ("!hole", "!each"):
            found.add(str(node.value))
        elif isinstance(node.value, list):
            for child in node.value:
                waiting.extend(child if isinstance(child, tuple) else (child,))
    return found


def fill(skeleton: str, /, **values: Any) -> list[Object]:
    """The skeleton's documents with every hole filled; each name given must be a hole and each hole must be named."""
    wanted = holes(skeleton)
    if wanted != set(values):
        raise TypeError(
            f"{skeleton}.yaml: holes {sorted(wanted - set(values))} left, no hole {sorted(set(values) - wanted)}"
        )
    return [_build(node, values) for node in _composed(skeleton)]


def _tag(node: Any) -> str:
    tag = node.tag
    return str(getattr(tag, "value", tag) or "")


def _build(node: Any, values: dict[str, Any]) -> Any:
    if _tag(node) == "!hole":
        return values[node.value]
    if type(node.value) is not list:
        return _scalar(node)
    if _tag(node).endswith(":seq"):
        items: list[Any] = []
        for child in node.value:
            if _tag(child) == "!each":
                items.extend(values[child.value])
            else:
                items.append(_build(child, values))
        return [item for item in items if item is not MISSING]
    built = ((key.value, _build(value, values)) for key, value in node.value)
    return {key: value for key, value in built if value is not MISSING}


def _scalar(node: Any) -> Any:
    """A constant of the skeleton: strings, whole numbers and booleans are all there is."""
    kind, text = _tag(node).rsplit(":", 1)[-1], str(node.value)
    if kind == "int":
        return int(text)
    if kind == "bool":
        return text == "true"
    return text
