"""Bytes of activations as coefficients of the sizes they grow with, so that structure is derived once per architecture.

A layer's structure depends on categories (kernel, data types, framework); its bytes are linear in a few products of the
sizes. ``Cost`` holds one coefficient per product; ``bytes_of`` multiplies, by operators only.
"""

from __future__ import annotations

from typing import Any, Literal

from jobgen.physics.arrays import larger
from jobgen.physics.sizes import Sizes
from jobgen.spec.record import NamedTuple

Unit = Literal["token", "sequence", "tensor", "row", "row_tensor", "square", "mask", "fixed", "fixed_tensor", "fixed_expert"]
"""What a coefficient is multiplied by.

token: the rank's tokens; sequence: the same, cut by tensor parallelism when sequence parallel; tensor: cut by tensor
parallelism; row: routed (token, expert) pairs, top_k inside the coefficient; row_tensor: the same cut inside an expert;
square: tokens x keys per sequence, cut by tensor parallelism (attention scores); mask: the same whole; fixed: once per
layer, fixed_tensor and fixed_expert the same cut as the weights are.
"""

UNITS: tuple[Unit, ...] = (
    "token", "sequence", "tensor", "row", "row_tensor", "square", "mask", "fixed", "fixed_tensor", "fixed_expert",
)  # fmt: skip
_INDEX = {unit: index for index, unit in enumerate(UNITS)}

Cost = tuple[float, ...]
"""Bytes per unit, in the order of ``UNITS``."""

ZERO: Cost = (0.0,) * len(UNITS)


def cost(unit: Unit, amount: float) -> Cost:
    """``amount`` bytes per ``unit``."""
    index = _INDEX[unit]
    return (*ZERO[:index], float(amount), *ZERO[index + 1 :])


def add(*costs: Cost) -> Cost:
    """The sum."""
    return tuple(map(sum, zip(*costs, strict=True))) if costs else ZERO


def less(left: Cost, right: Cost) -> Cost:
    """The difference."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


def scale(factor: float, given: Cost) -> Cost:
    """A multiple."""
    return tuple(factor * value for value in given)


def frontier(costs: list[Cost]) -> tuple[Cost, ...]:
    """Those that no other one exceeds in every coefficient: only they can be the maximum for some sizes."""
    best: list[Cost] = []
    for candidate in sorted(set(costs), key=sum, reverse=True):
        if not any(all(a >= b for a, b in zip(other, candidate, strict=True)) for other in best):
            best.append(candidate)
    return tuple(best)


class Products(NamedTuple):
    """The products of one spec (or an array of them), in the order of ``UNITS``."""

    token: Any
    sequence: Any
    tensor: Any
    row: Any
    row_tensor: Any
    square: Any
    mask: Any
    fixed: Any
    fixed_tensor: Any
    fixed_expert: Any


def products(sizes: Sizes, sequence_parallel: bool) -> Products:
    """What the coefficients are multiplied by on one rank.

    Routed rows are those of a balanced router: every rank's experts receive as many rows as its own tokens send out
    (all-to-all over the expert group). Under sequence parallelism a rank routes its share of the sequence only, and an
    expert cut ``expert_tensor`` ways gathers the rows of that many ranks (Megatron-LM, token dispatcher).
    """
    tokens = sizes.micro * sizes.sequence
    cut = tokens / sizes.tensor
    rows = cut * sizes.expert_tensor if sequence_parallel else tokens
    square = tokens * sizes.full_sequence
    return Products(
        token=tokens,
        sequence=cut if sequence_parallel else tokens,
        tensor=cut,
        row=rows,
        row_tensor=rows / sizes.expert_tensor,
        square=square / sizes.tensor,
        mask=square,
        fixed=1,
        fixed_tensor=1 / sizes.tensor,
        fixed_expert=1 / (sizes.expert * sizes.expert_tensor),
    )


def bytes_of(given: Cost, by: Products) -> Any:
    """Bytes on one rank."""
    total: Any = 0
    for coefficient, product in zip(given, by, strict=True):
        if coefficient:
            total = total + coefficient * product
    return total


def largest(costs: tuple[Cost, ...], by: Products) -> Any:
    """Bytes of whichever is largest at these sizes (at least 0)."""
    best: Any = 0
    for each in costs:
        best = larger(best, bytes_of(each, by))
    return best
