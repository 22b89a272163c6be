"""Rows in which every pair of values of two dimensions occurs, where a valid row can hold both. Deterministic."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[str, int, str, int]
"""Two dimensions with the index of a value each."""

TRIES = 250
"""Random rows tried for a pair before it is taken to be impossible."""
CANDIDATES = 12


class Rows:
    """The rows, and the pairs that no valid row was found for."""

    def __init__(self, dimensions: Mapping[str, Sequence[Any]], valid: Callable[[Row], bool], seed: int = 0) -> None:
        self.dimensions, self.valid = dimensions, valid
        self.random = random.Random(seed)
        self.rows: list[Row] = []
        self.impossible: dict[Pair, None] = {}
        """Pairs that no row was found for."""
        names = list(dimensions)
        self.open: dict[Pair, None] = {
            (a, i, b, j): None for a, b in combinations(names, 2) for i in range(len(dimensions[a])) for j in range(len(dimensions[b]))
        }
        self.all = len(self.open)
        while self.open:
            self._cover(next(iter(self.open)))

    def _cover(self, pair: Pair) -> None:
        best: tuple[int, dict[str, int]] | None = None
        found = 0
        for _ in range(TRIES):
            picked = {name: self.random.randrange(len(values)) for name, values in self.dimensions.items()}
            picked |= {pair[0]: pair[1], pair[2]: pair[3]}
            if not self.valid(self._row(picked)):
                continue
            score = sum(one in self.open for one in self._pairs(picked))
            if best is None or score > best[0]:
                best = (score, picked)
            found += 1
            if found == CANDIDATES:
                break
        if best is None:
            del self.open[pair]
            self.impossible[pair] = None
            return
        for one in self._pairs(best[1]):
            self.open.pop(one, None)
            self.impossible.pop(one, None)
        self.rows.append(self._row(best[1]))

    def _pairs(self, picked: Mapping[str, int]) -> list[Pair]:
        return [(a, picked[a], b, picked[b]) for a, b in combinations(self.dimensions, 2)]

    def _row(self, picked: Mapping[str, int]) -> Row:
        return {name: values[picked[name]] for name, values in self.dimensions.items()}
