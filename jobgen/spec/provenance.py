"""Every value in effect with its origin: what `jobgen show` lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobgen.spec.document import Document
from jobgen.spec.problem import Origin
from jobgen.spec.sections import shapes


def values(document: Document) -> Iterator[tuple[str, Any, Origin]]:
    """Path, value and origin of every scalar, list and free map of the spec, defaults included. Sizes are bytes,
    durations seconds; sections that are unset appear as one ``None``."""
    yield from _values(document, document.spec, "")


def _values(document: Document, section: Any, prefix: str) -> Iterator[tuple[str, Any, Origin]]:
    for name, key, *_ in shapes[type(section).__name__]:
        yield from _value(document, getattr(section, name), prefix + key)


def _value(document: Document, value: Any, path: str) -> Iterator[tuple[str, Any, Origin]]:
    if type(value).__name__ in shapes:
        yield from _values(document, value, path + ".")
    elif isinstance(value, list) and value and type(value[0]).__name__ in shapes:
        for i, each in enumerate(value):
            yield from _values(document, each, f"{path}.{i}.")
    elif isinstance(value, dict) and value:
        for key, each in value.items():
            yield f"{path}.{key}", each, document.origin(f"{path}.{key}")
    else:
        yield path, value, document.origin(path)


def written(document: Document, path: str) -> Any:
    """A value as the user wrote it (``24h``, not seconds); None where nothing was written."""
    from jobgen.spec.paths import split
    from jobgen.spec.validate import value_at

    return value_at(document.tree, split(path) or ())
