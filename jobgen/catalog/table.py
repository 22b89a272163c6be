"""Reads the catalogue's JSONL tables lazily and finds entries by forgiving names."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import cast

DATA = Path(__file__).parent / "data"
Row = dict[str, object]


@cache
def rows(file: str) -> tuple[Row, ...]:
    """Every entry of a table of the data folder."""
    with (DATA / file).open(encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def key(name: str) -> str:
    """A name without case, spaces, dashes and the like: ``NVIDIA H100_80GB`` and ``nvidia-h100-80gb`` are equal."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")


def text(row: Row, column: str, default: str = "") -> str:
    """A text cell."""
    return str(row.get(column, default))


def number(row: Row, column: str) -> float | None:
    """A numeric cell, None where it is empty or not a number."""
    value = row.get(column)
    return float(value) if isinstance(value, int | float) else None


def whole(row: Row, column: str) -> int | None:
    """A numeric cell as a whole number."""
    value = number(row, column)
    return None if value is None else int(value)


def yes(row: Row, column: str) -> bool:
    """A yes/no cell."""
    return cast(str, row.get(column, "")) == "yes"
