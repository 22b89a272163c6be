"""A merged tree to a Spec; whatever is wrong with it in plain words, all at once, where the user wrote it."""

from __future__ import annotations

from typing import Any

from jobgen.spec.merge import Layer, Mark
from jobgen.spec.problem import Origin, Path, Problem, dotted
from jobgen.spec.sections import Spec, accept


def validate(layer: Layer, file: str) -> tuple[Spec | None, Layer, list[Problem]]:
    """The Spec, the layer it was made of (words of the command line taken as text where text is needed), problems."""
    spec = accept(layer.tree)
    if spec is None:
        from jobgen.spec.complain import judge

        judged = judge(layer, file)
        if isinstance(judged, Layer):
            return validate(judged, file)
        if isinstance(judged, list):
            trapped = {problem.path for problem in layer.problems}
            return None, layer, [p for p in judged if not _covered(p.path, trapped)]
        spec = judged
    from jobgen.spec.consistency import contradictions

    return spec, layer, list(contradictions(spec, layer, file))


def _covered(path: str, trapped: set[str]) -> bool:
    """Whether a trap at the value or above it has said it already."""
    return any(path == trap or path.startswith(trap + ".") for trap in trapped if trap)


def locate(layer: Layer, path: Path, file: str, *, key: bool = False) -> Origin:
    """The value's position (or its key's); the nearest ancestor's key where nothing was written."""
    mark: Mark | None = layer.marks.get(path)
    if mark is not None and path:
        return mark.key if key else mark.value
    for length in range(len(path) - 1, 0, -1):
        if (mark := layer.marks.get(path[:length])) is not None:
            return mark.key
    return Origin("spec", file, 1, 1)


def problem(layer: Layer, file: str, path: Path, message: str, fix: str, code: str, *, key: bool = False) -> Problem:
    """A problem at a path, named as the user wrote it."""
    where = locate(layer, path, file, key=key)
    mark = layer.marks.get(path)
    shown = path[:-1] if mark is not None and mark.short else path
    return Problem(*where[1:], dotted(shown), message, fix, code)


def value_at(tree: Any, path: Path) -> Any:
    """The value at a path, None where there is none."""
    for part in path:
        if isinstance(tree, dict):
            tree = tree.get(part)
        elif isinstance(tree, list) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
        else:
            return None
    return tree
