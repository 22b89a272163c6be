"""The small valid specs that the rules' examples edit, one file each in ``bases/``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobgen.checks.registry import Example
    from jobgen.spec.document import Document

FOLDER = Path(__file__).parent / "bases"


def names() -> tuple[str, ...]:
    """All bases."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def text(name: str) -> str:
    """A base as it is written."""
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


@cache
def base(name: str) -> Document:
    """A base as a document."""
    from jobgen.spec.document import load_text

    return load_text(text(name), f"{name}.yaml")


def document(example: Example) -> Document:
    """An example as a document."""
    return edited(base(example.base), example.edits)


def edited(original: Document, edits: Mapping[str, object]) -> Document:
    """A document with edits; None removes a key."""
    from jobgen.spec.edit import DELETE

    if not edits:
        return original
    return original.edited({path: DELETE if value is None else value for path, value in edits.items()})
