"""The models seen from outside: what a path may hold, in words, and which known field is near a name."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal, Union

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobgen.spec.models import Spec
from jobgen.spec.problem import Path, repr_plain
from jobgen.spec.record import NamedTuple
from jobgen.spec.units import COUNT_FORMS, DURATION_FORMS, SIZE_FORMS, parse_count, parse_duration, parse_size

_FORMS = {
    parse_size: ("a size", SIZE_FORMS),
    parse_duration: ("a duration", DURATION_FORMS),
    parse_count: ("a whole number", COUNT_FORMS),
}


class Kind(NamedTuple):
    """What a field may hold: its type and the type's metadata."""

    annotation: Any
    metadata: tuple[Any, ...] = ()


def options(kind: Kind) -> list[Kind]:
    """The branches of a union, with Annotated taken apart."""
    annotation, metadata = kind
    while typing.get_origin(annotation) is typing.Annotated:
        annotation, *more = typing.get_args(annotation)
        metadata = (*metadata, *more)
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [branch for part in typing.get_args(annotation) for branch in options(Kind(part, metadata))]
    flat: list[Any] = []
    for item in metadata:
        flat += item.metadata if isinstance(item, FieldInfo) else [item]
    return [Kind(annotation, tuple(flat))]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


@cache
def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the name the user writes."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def keys(kind: Kind) -> list[str]:
    """Names of the fields below, when they are fixed."""
    return [name for branch in options(kind) if _is_model(branch.annotation) for name in fields(branch.annotation)]


def step(kind: Kind, part: str | int) -> Kind | None:
    """What is below a key or index; None where nothing can be."""
    for branch in options(kind):
        annotation, origin = branch.annotation, typing.get_origin(branch.annotation)
        if _is_model(annotation):
            if isinstance(part, str) and (info := fields(annotation).get(part)) is not None:
                return Kind(info.annotation, tuple(info.metadata))
        elif origin is list and (isinstance(part, int) or part.isdecimal()):
            return Kind(typing.get_args(annotation)[0])
        elif origin is dict and isinstance(part, str):
            return Kind(typing.get_args(annotation)[1])
        elif annotation is Any:
            return Kind(Any)
    return None


ROOT = Kind(Spec)


def kind_at(path: Path) -> Kind | None:
    """What a path may hold; None for an unknown path."""
    kind: Kind | None = ROOT
    for part in path:
        if kind is None:
            return None
        kind = step(kind, part)
    return kind


def words(kind: Kind) -> str:
    """What a field may hold, in plain words."""
    branches = [branch for branch in options(kind) if branch.annotation is not type(None)]
    literals = [repr_plain(v) for b in branches if typing.get_origin(b.annotation) is Literal
                for v in typing.get_args(b.annotation)]  # fmt: skip
    parts = [", ".join(literals)] if literals else []
    parts += [_words(branch) for branch in branches if typing.get_origin(branch.annotation) is not Literal]
    if len(parts) == 1 and len(literals) > 1:
        return f"one of {parts[0]}"
    return either(parts)


def either(parts: list[str]) -> str:
    """``a, b or c``, where the last may be such a choice itself."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + (", " if " or " in parts[-1] else " or ") + parts[-1]


def _words(branch: Kind) -> str:
    annotation = branch.annotation
    for item in branch.metadata:
        key = getattr(getattr(item, "func", None), "key", None)  # a bare word is short for the map with this key
        if key is not None and _is_model(annotation):
            short = fields(annotation)[key]
            return f"{words(Kind(short.annotation, tuple(short.metadata)))}, or a map of {', '.join(fields(annotation))}"
        if (form := _FORMS.get(getattr(item, "func", None))) is not None:  # type: ignore[arg-type]
            return f"{form[0]} ({form[1]})"
    origin = typing.get_origin(annotation)
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return _range("a whole number" if annotation is int else "a number", branch.metadata)
    if annotation is str:
        return "text"
    if origin is list:
        return f"a list of {_plural(words(Kind(typing.get_args(annotation)[0])))}"
    if origin is dict:
        return f"a map of names to {words(Kind(typing.get_args(annotation)[1]))}"
    if _is_model(annotation):
        return "a map of " + ", ".join(fields(annotation))
    return "a value"


def _plural(text: str) -> str:
    return {"text": "texts", "a value": "values"}.get(text, f"entries, each {text}")


def _range(text: str, metadata: Iterable[Any]) -> str:
    parts = []
    for item in metadata:
        for name, sign in (("ge", "of at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
            bound = getattr(item, name, None)
            if bound is not None and abs(bound) < 2**40:
                parts.append(f"{sign} {bound:g}")
    return f"{text} {' and '.join(parts)}" if parts else text


def choices(kind: Kind) -> list[str]:
    """The fixed words of a field."""
    return [str(v) for b in options(kind) if typing.get_origin(b.annotation) is Literal for v in typing.get_args(b.annotation)]


@cache
def all_paths() -> tuple[str, ...]:
    """Every field with a fixed name, by its dotted path; ``-`` stands for a list index."""
    return tuple(_paths(ROOT, ""))


def _paths(kind: Kind, prefix: str) -> Iterator[str]:
    for branch in options(kind):
        if _is_model(branch.annotation):
            for name, info in fields(branch.annotation).items():
                yield prefix + name
                yield from _paths(Kind(info.annotation), f"{prefix}{name}.")
        elif typing.get_origin(branch.annotation) is list:
            yield from _paths(Kind(typing.get_args(branch.annotation)[0]), prefix + "-.")


def near(name: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known name closest to what was written, if any is close."""
    from difflib import get_close_matches

    by_form = {each.lower().replace("-", "_"): each for each in known}
    found = get_close_matches(name.lower().replace("-", "_"), by_form, 1, cutoff)
    return by_form[found[0]] if found else None


def elsewhere(name: str) -> list[str]:
    """Paths of fields of that very name; those in maps before those in lists."""
    found = [path for path in all_paths() if path.rpartition(".")[2] == name]
    return sorted(found, key=lambda path: ("-" in path.split("."), path.count(".")))


def near_path(path: str) -> str | None:
    """The known path closest to an unknown one: the same name elsewhere, else a like name in the same place."""
    head, _, name = path.rpartition(".")
    if found := elsewhere(name):
        return found[0]
    whole = near(path, all_paths())
    if whole is not None:
        return whole
    prefix = head + "." if head else ""
    inside = near(name, [each[len(prefix):] for each in all_paths() if each.startswith(prefix)])
    return prefix + inside if inside else None
