"""The effective spec: each value with its origin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobgen.show.table import table
from jobgen.spec.document import Document
from jobgen.spec.problem import Origin
from jobgen.spec.provenance import values, written

if TYPE_CHECKING:
    from collections.abc import Iterator


def _rows(document: Document) -> Iterator[tuple[str, Any, Any, Origin]]:
    """(path, value as computed with, value as written, origin)."""
    for path, value, origin in values(document):
        plain = written(document, path)
        yield path, value, value if plain is None else plain, origin


def _where(origin: Origin) -> str:
    if origin.layer == "default":
        return "default"
    return f"{origin.layer}, {origin.file}:{origin.line}:{origin.column}"


def text(document: Document) -> str:
    """Every value that is set or has a default, one a line; what is unset is left out."""
    rows = [
        (path, json.dumps(shown, ensure_ascii=False, default=str), _where(origin))
        for path, value, shown, origin in _rows(document)
        if value not in (None, [], {}) or origin.layer != "default"
    ]
    return table(("field", "value", "origin"), rows)


def as_json(document: Document) -> str:
    """The same as a JSON object by path; sizes in bytes and durations in seconds under ``value``."""
    found = {
        path: {"value": value, "written": shown, "layer": origin.layer, "file": origin.file, "line": origin.line, "column": origin.column}
        for path, value, shown, origin in _rows(document)
    }
    return json.dumps({"schema": "jobgen.show/1", "spec": document.file, "values": found}, ensure_ascii=False, default=str)
