"""The digest of the models, ``shape.py``:  python -m jobgen.spec.generate"""

from __future__ import annotations

import typing
import zlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from jobgen.spec import models
from jobgen.spec.fields import Kind, options
from jobgen.spec.units import parse_count, parse_duration, parse_size

FILE = Path(__file__).with_name("shape.py")
HUGE = 1e300
_PARSERS: dict[Any, str] = {parse_size: "size", parse_duration: "duration", parse_count: "count"}


def made() -> dict[str, Any]:
    """Every section reachable from Spec, inner ones first."""
    found: dict[str, Any] = {}
    _visit(models.Spec, found)
    return found


def _visit(model: type[BaseModel], found: dict[str, Any]) -> None:
    rows = []
    for name, info in model.model_fields.items():
        kind = _union(Kind(info.annotation, tuple(info.metadata)), found)
        required = info.default is PydanticUndefined
        default = None if required else {} if isinstance(info.default, BaseModel) else info.default
        rows.append((name, info.alias or name, kind, required, default))
    found[model.__name__] = tuple(rows)


def _union(kind: Kind, found: dict[str, Any]) -> tuple[Any, ...]:
    branches = tuple(_kind(branch, found) for branch in options(kind))
    return branches[0] if len(branches) == 1 else ("union", branches)


def _kind(branch: Kind, found: dict[str, Any]) -> tuple[Any, ...]:
    annotation, metadata = branch
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    for item in metadata:
        if (parser := _PARSERS.get(getattr(item, "func", None))) is not None:
            return (parser,)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation.__name__ not in found:
            _visit(annotation, found)
        short = [key for item in metadata if (key := getattr(getattr(item, "func", None), "key", None))]
        return ("section", annotation.__name__, short[0] if short else None)
    if origin is Literal:
        return ("word", arguments)
    if origin in (list, dict):
        return ("list" if origin is list else "map", _union(Kind(arguments[-1]), found))
    bounds = _bounds(metadata)
    if annotation is str:
        return ("text", bounds.get("min_length", 0), bounds.get("max_length"), bounds.get("pattern")) if bounds else ("str",)
    if annotation is int:
        return ("int", bounds.get("ge", -(2**63)), bounds.get("le", 2**63))
    if annotation is float:
        return ("float", bounds.get("gt", -HUGE), bounds.get("ge", -HUGE), bounds.get("lt", HUGE), bounds.get("le", HUGE))
    names = {bool: "bool", Any: "any", type(None): "none"}
    return (names[annotation],)


def _bounds(metadata: tuple[Any, ...]) -> dict[str, Any]:
    result = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern"):
            if getattr(item, name, None) is not None:
                result[name] = getattr(item, name)
    return result


def text() -> str:
    """The module."""
    source = Path(models.__file__).read_bytes()
    shapes = "".join(f'    "{name}": (\n' + "".join(f"        {row!r},\n" for row in rows) + "    ),\n" for name, rows in made().items())
    return (
        '"""Generated from models.py by `python -m jobgen.spec.generate`; do not edit."""\n\n'
        "from typing import Any\n\n"
        f"MODELS = {zlib.crc32(source)}\n"
        '"""Checksum of the source this was made from."""\n\n'
        f"SHAPES: dict[str, Any] = {{\n{shapes}}}  # fmt: skip\n"
    )


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
