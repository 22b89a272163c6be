"""Every value in effect with its origin: what `jobgen show` lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from jobgen.spec.document import Document
from jobgen.spec.problem import Origin


def values(document: Document) -> Iterator[tuple[str, Any, Origin]]:
    """Path, value and origin of every scalar, list and free map of the spec, defaults included. Sizes are bytes,
    durations seconds; sections that are unset appear as one ``None``."""
    yield from _values(document, document.spec, "")


def _values(document: Document, model: BaseModel, prefix: str) -> Iterator[tuple[str, Any, Origin]]:
    for name, info in type(model).model_fields.items():
        yield from _value(document, getattr(model, name), prefix + (info.alias or name))


def _value(document: Document, value: Any, path: str) -> Iterator[tuple[str, Any, Origin]]:
    if isinstance(value, BaseModel):
        yield from _values(document, value, path + ".")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        for i, each in enumerate(value):
            yield from _values(document, each, f"{path}.{i}.")
    elif isinstance(value, dict) and value:
        for key, each in value.items():
            yield f"{path}.{key}", each, document.origin(f"{path}.{key}")
    else:
        yield path, value, document.origin(path)


def written(document: Document, path: str) -> Any:
    """A value as the user wrote it (``24h``, not seconds); None where nothing was written."""
    from jobgen.spec.fields import split
    from jobgen.spec.validate import value_at

    return value_at(document.tree, split(path) or ())
