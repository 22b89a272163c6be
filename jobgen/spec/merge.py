"""Layers: a cluster profile under the spec, and ``--set`` over it. Plain trees with a parallel map of origins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from jobgen.spec.problem import Origin, Path, Problem, SpecError, dotted
from jobgen.spec.read import Reading, read_text
from jobgen.spec.record import NamedTuple
from jobgen.spec.source import read_file

SHORT: dict[Path, str] = {
    ("training", "optimizer"): "name",
    ("training", "activation_checkpointing"): "mode",
    ("resources", "gpu"): "name",
}
"""Fields that may be one word, and the key of the long form that the word is."""
SETS = "--set"
"""File name of positions on the command line: line N is the N-th ``--set``."""


class Mark(NamedTuple):
    """Where a value and its key come from; ``short``: the user wrote the parent's short form."""

    value: Origin
    key: Origin
    raw: str | None = None
    short: bool = False


class Layer(NamedTuple):
    """A tree and the marks of everything in it."""

    tree: dict[str, Any]
    marks: dict[Path, Mark]
    problems: tuple[Problem, ...] = ()


def layer_of(reading: Reading, name: str, file: str) -> Layer:
    """A file's reading as a layer, short forms made long."""
    if not isinstance(reading.tree, dict):
        place = reading.places[()]
        what = "a list" if isinstance(reading.tree, list) else "a single value" if reading.tree is not None else "empty"
        raise SpecError([*reading.problems, Problem(file, place.line, place.column, "", f"the file is {what}, not a map",
                        "write `key: value` lines: name, model, training, resources ...", "JG001")])  # fmt: skip
    marks = {
        path: Mark(Origin(name, file, p.line, p.column), Origin(name, file, p.key_line, p.key_column), p.raw)
        for path, p in reading.places.items()
    }
    lengthen(reading.tree, marks)
    return Layer(reading.tree, marks, reading.problems)


def _short_places(tree: Mapping[str, Any]) -> list[tuple[Path, str]]:
    ignore = tree.get("ignore")
    return [*SHORT.items(), *((("ignore", i), "code") for i in range(len(ignore) if isinstance(ignore, list) else 0))]


def lengthen(tree: dict[str, Any], marks: dict[Path, Mark]) -> None:
    """Write short forms out, so that maps merge and every reader sees one shape."""
    for path, key in _short_places(tree):
        parent: Any = tree.get(str(path[0]))
        value = parent.get(path[1]) if isinstance(parent, dict) else parent[path[1]] if path[0] == "ignore" else None
        if isinstance(value, str):
            parent[path[-1]] = {key: value}
            if path in marks:
                marks[(*path, key)] = marks[path]._replace(short=True)


def overlay(low: Layer, high: Layer) -> Layer:
    """Maps merge, anything else replaces."""
    replaced: set[Path] = set()
    tree = _overlay(low.tree, high.tree, (), replaced)
    kept = {p: m for p, m in low.marks.items() if not any(p[:n] in replaced for n in range(1, len(p) + 1))}
    return Layer(tree, kept | high.marks, low.problems + high.problems)


def _overlay(low: dict[str, Any], high: dict[str, Any], path: Path, replaced: set[Path]) -> dict[str, Any]:
    result = dict(low)
    for key, value in high.items():
        below = low.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = _overlay(below, value, (*path, key), replaced)
        else:
            replaced.add((*path, key))
            result[key] = value
    return result


def assign(layer: Layer, path: Path, value: Any, marks: Mapping[Path, Mark]) -> Layer:
    """The layer with one value set; raises ValueError, in words, where the path leads nowhere."""
    head: Any = layer.tree
    tree: dict[str, Any] = dict(layer.tree)
    target: Any = tree
    made: list[Path] = []
    for depth, part in enumerate(path[:-1]):
        head = _child(target, part, path[: depth + 1])
        if head is None:
            if isinstance(path[depth + 1], int):
                raise ValueError(f"`{dotted(path[: depth + 1])}` is empty in this spec: there is no entry {path[depth + 1]}")
            head = {}
            made.append(path[: depth + 1])
        elif not isinstance(head, dict | list):
            raise ValueError(f"`{dotted(path[: depth + 1])}` is {head!r}, which has nothing below it")
        head = list(head) if isinstance(head, list) else dict(head)
        target[part] = head
        target = head
    _child(target, path[-1], path)
    target[path[-1]] = value
    kept = {p: m for p, m in layer.marks.items() if p[: len(path)] != path}
    own = {(*path, *p): m for p, m in marks.items()}
    for each in made:
        kept[each] = own[path]
    result = Layer(tree, kept | own, layer.problems)
    lengthen(result.tree, result.marks)
    return result


def _child(node: Any, part: str | int, path: Path) -> Any:
    if isinstance(node, list):
        where = dotted(path[:-1])
        if not isinstance(part, int):
            raise ValueError(f"`{where}` is a list: write an index such as {where}.0")
        if part >= len(node):
            has = "is empty" if not node else f"has {len(node)} entries, 0 to {len(node) - 1}"
            raise ValueError(f"`{where}` {has}: there is no {part}")
        return node[part]
    if isinstance(part, int):
        raise ValueError(f"`{dotted(path[:-1])}` is not a list in this spec")
    return node.get(part)


def read_sets(sets: Sequence[str]) -> list[tuple[Path, Any, dict[Path, Mark]]]:
    """``path=value`` words as paths, values and marks; every mistake at once."""
    from jobgen.spec.paths import split

    result, problems = [], []
    for number, text in enumerate(sets, 1):
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            problems.append(Problem(SETS, number, 1, "", f"`{text}` is not path=value",
                                    "write for example --set training.micro_batch_size=2", "JG001"))  # fmt: skip
            continue
        path = split(name)
        if path is None:
            from jobgen.spec.fields import near_path

            near = near_path(name)
            fix = f"did you mean {near.replace('.-.', '.0.')}?" if near else "see `jobgen schema` for the fields"
            problems.append(Problem(SETS, number, 1, name, f"there is no field `{name}`", fix, "JG002"))
            continue
        column = text.index("=") + 2
        try:
            reading = read_text(value, SETS) if value.strip() else Reading(None, {}, ())
        except SpecError as error:
            problems += [p._replace(line=number, column=column + p.column - 1, path=name) for p in error.problems]
            continue
        problems += [p._replace(line=number, column=column + p.column - 1, path=name) for p in reading.problems]
        marks = {
            p: Mark(Origin("command line", SETS, number, column + place.column - 1), Origin("command line", SETS, number, 1),
                    place.raw)
            for p, place in reading.places.items()
        } or {(): Mark(Origin("command line", SETS, number, column), Origin("command line", SETS, number, 1))}  # fmt: skip
        result.append((path, reading.tree, marks))
    if problems:
        raise SpecError(problems, {SETS: "\n".join(sets)})
    return result


_PROFILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NOT_IN_PROFILE = ("name", "model", "training", "cluster")


def profile_folders(file: str) -> list[FilePath]:
    """Where cluster profiles are looked for, in this order."""
    beside = [] if file.startswith("<") else [FilePath(file).parent / "clusters"]
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        users = [FilePath(home).expanduser() / "jobgen" / "clusters"]
    except RuntimeError:  # an account without a home
        users = []
    folders = [*beside, FilePath("clusters"), *users]
    return list({folder.absolute(): folder for folder in reversed(folders)}.values())[::-1]


def read_profile(name: str, mark: Origin, file: str) -> tuple[Layer, str, str]:
    """The layer of a cluster profile, its file and text."""
    if not re.fullmatch(_PROFILE_NAME, name):
        raise SpecError([Problem(*mark[1:], "cluster", f"`{name}` is not the name of a profile",
                                 "write the name alone, as in `cluster: alps` for clusters/alps.yaml", "JG002")])  # fmt: skip
    folders = profile_folders(file)
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            text = read_file(path, str(path))
            layer = _profile_layer(text, str(path))
            return layer, str(path), text
    raise SpecError([_missing_profile(name, mark, folders)])


def _profile_layer(text: str, file: str) -> Layer:
    layer = layer_of(read_text(text, file), "profile", file)
    wrong = [
        Problem(*layer.marks[(key,)].key[1:], key, f"a cluster profile cannot hold `{key}`",
                "a profile describes the cluster; write this in the job's spec", "JG002")
        for key in _NOT_IN_PROFILE if key in layer.tree
    ]  # fmt: skip
    if wrong:
        raise SpecError([*layer.problems, *wrong], {file: text})
    return layer


def _missing_profile(name: str, mark: Origin, folders: list[FilePath]) -> Problem:
    from jobgen.spec.fields import near

    known = sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")})
    looked = ", ".join(str(folder / f"{name}.yaml") for folder in folders)
    close = near(name, known)
    fix = f"did you mean {close}?" if close else f"the profiles there are: {', '.join(known)}" if known else (
        "write one there, or remove `cluster`")  # fmt: skip
    return Problem(*mark[1:], "cluster", f"there is no profile `{name}`; looked for {looked}", fix, "JG002")
