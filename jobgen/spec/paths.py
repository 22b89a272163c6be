"""Paths as the user writes them: ``volumes.0.mount``. Reads the digest of the models only; ``fields`` knows the words."""

from __future__ import annotations

from jobgen.spec.problem import Path
from jobgen.spec.sections import Kind, shapes

_ROOT: Kind = ("section", "Spec", None)


def _branches(kind: Kind) -> tuple[Kind, ...]:
    return kind[1] if kind[0] == "union" else (kind,)


def _step(kind: Kind, part: str | int) -> Kind | None:
    """What is below a key or index; None where nothing can be."""
    for branch in _branches(kind):
        if branch[0] == "section":
            for _, key, inner, _, _ in shapes[branch[1]]:
                if key == part:
                    return inner
        elif branch[0] == "map" or (branch[0] == "list" and (isinstance(part, int) or part.isdecimal())):
            return branch[1]  # type: ignore[no-any-return]
        elif branch[0] == "any":
            return branch
    return None


def split(path: str) -> Path | None:
    """``volumes.0.mount`` as keys and indexes; keys of free maps may hold dots. None for an unknown path."""
    kind, parts = _ROOT, path.split(".")
    result: list[str | int] = []
    for i, part in enumerate(parts):
        branches = _branches(kind)
        if any(branch[0] == "list" for branch in branches) and part.isdecimal():
            result.append(int(part))
        elif any(_closed(branch) for branch in branches):
            return (*result, ".".join(parts[i:]))
        else:
            result.append(part)
        below = _step(kind, result[-1])
        if below is None or part == "":
            return None
        kind = below
    return tuple(result)


def _closed(branch: Kind) -> bool:
    """A map whose values are no maps, so that the rest of a path is one key."""
    return branch[0] == "map" and not any(value[0] in ("any", "map") for value in _branches(branch[1]))
