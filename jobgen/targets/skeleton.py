"""YAML skeletons with tagged holes: the shape of the objects is a file, values are put in as nodes, never as text.

``key: !hole name`` takes a value; a MISSING one drops the key. ``- !each name`` puts a list's items in its place.
"""

from __future__ import annotations

import zlib
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
    """The skeleton's documents: digested ones, parsed afresh, slowly, where the file was changed since (a test says so too)."""
    from jobgen.targets.skeletons import SKELETONS

    text = (folder() / f"{name}.yaml").read_bytes()
    checksum, documents = SKELETONS.get(name, (None, ()))
    return documents if checksum == zlib.crc32(text) else parsed(text)


def parsed(text: bytes) -> tuple[Any, ...]:
    """Documents as ``("map", ((key, node), ...))``, ``("seq", (node, ...))``, ``("hole", name)``, ``("each", name)`` and
    ``("is", constant)``."""
    from ruamel.yaml import YAML

    return tuple(map(_node, YAML(typ="safe", pure=True).compose_all(text.decode("utf-8"))))


def _node(node: Any) -> tuple[str, Any]:
    tag = str(getattr(node.tag, "value", node.tag) or "")
    if tag in ("!hole", "!each"):
        return tag[1:], str(node.value)
    if tag.endswith(":seq"):
        return "seq", tuple(map(_node, node.value))
    if isinstance(node.value, list):
        return "map", tuple((str(key.value), _node(value)) for key, value in node.value)
    kind, text = tag.rsplit(":", 1)[-1], str(node.value)  # strings, whole numbers and booleans are all there is
    return "is", int(text) if kind == "int" else text == "true" if kind == "bool" else text


def digest() -> str:
    """The module ``skeletons``. Written by ``python -m jobgen.targets.skeleton``."""
    files = {path.stem: path.read_bytes() for path in sorted(folder().glob("*.yaml"))}
    rows = "".join(f"    {name!r}: ({zlib.crc32(text)}, {parsed(text)!r}),\n" for name, text in files.items())
    return (
        '"""Generated from templates/k8s/ by `python -m jobgen.targets.skeleton`; do not edit."""\n\nfrom typing import Any\n\n'
        f"SKELETONS: dict[str, tuple[int, tuple[Any, ...]]] = {{\n{rows}}}  # fmt: skip\n"
    )


def holes(name: str) -> set[str]:
    """Names of all holes of a skeleton."""
    found: set[str] = set()
    waiting = list(_composed(name))
    while waiting:
        kind, value = waiting.pop()
        if kind in ("hole", "each"):
            found.add(value)
        elif kind != "is":
            waiting.extend(value if kind == "seq" else (child for _, child in value))
    return found


def fill(skeleton: str, /, **values: Any) -> list[Object]:
    """The skeleton's documents with every hole filled; each name given must be a hole and each hole must be named."""
    wanted = holes(skeleton)
    if wanted != set(values):
        raise TypeError(
            f"{skeleton}.yaml: holes {sorted(wanted - set(values))} left, no hole {sorted(set(values) - wanted)}"
        )
    return [_build(node, values) for node in _composed(skeleton)]


def _build(node: tuple[str, Any], values: dict[str, Any]) -> Any:
    kind, value = node
    if kind == "hole":
        return values[value]
    if kind == "is":
        return value
    if kind == "seq":
        items: list[Any] = []
        for child in value:
            if child[0] == "each":
                items.extend(values[child[1]])
            else:
                items.append(_build(child, values))
        return [item for item in items if item is not MISSING]
    built = ((key, _build(child, values)) for key, child in value)
    return {key: made for key, made in built if made is not MISSING}


if __name__ == "__main__":
    Path(__file__).with_name("skeletons.py").write_text(digest(), encoding="utf-8")
