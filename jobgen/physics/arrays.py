"""Maximum, minimum and rounding that work on numbers and on numpy arrays alike, by operators only."""

from __future__ import annotations

from typing import Any


def larger(left: Any, right: Any) -> Any:
    """Elementwise maximum."""
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left if left > right else right
    return (left + right + abs(left - right)) / 2


def smaller(left: Any, right: Any) -> Any:
    """Elementwise minimum."""
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left if left < right else right
    return (left + right - abs(left - right)) / 2


def largest(*values: Any) -> Any:
    """Maximum of several."""
    best = values[0]
    for value in values[1:]:
        best = larger(best, value)
    return best


def divided_up(value: Any, by: Any) -> Any:
    """The quotient rounded up."""
    return -(-value // by)


def power_of_two(size: float) -> float:
    """The next power of two (torch's caching host allocator rounds pinned buffers so: ATen CachingHostAllocator.h)."""
    whole = int(size)
    return 0.0 if whole <= 0 else float(1 << (whole - 1).bit_length())
