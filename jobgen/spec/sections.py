"""A valid tree as plain objects, without pydantic: importing it and building its validators takes as long as all else.

``models`` stays the contract. ``shape`` is its digest, generated (``python -m jobgen.spec.generate``); ``accept`` takes
what pydantic would take, and answers None where it would complain, so that pydantic does. Type checkers see the models.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from jobgen.spec.units import parse_count, parse_duration, parse_size

__all__ = ["Quantization", "Spec", "Sweep", "Volume", "accept", "shapes"]

Kind = tuple[Any, ...]
"""What a field may hold: ``("int", least, most)``, ``("list", Kind)``, ``("section", name, short key)`` ..."""
Shape = tuple[tuple[str, str, Kind, bool, Any], ...]
"""A section's fields: attribute, key, kind, required, default (a section's name stands for its own defaults)."""

def _shapes() -> dict[str, Shape]:
    """The digest; made afresh, slowly, where the models were changed and it was not (a test says so too)."""
    from jobgen.spec import shape

    try:
        same = zlib.crc32(FilePath(__file__).with_name("models.py").read_bytes()) == shape.MODELS
    except OSError:  # installed without sources
        same = True
    if same:
        return shape.SHAPES
    from jobgen.spec.generate import made

    return made()


shapes: dict[str, Shape] = _shapes()


class Section:
    """Attributes as those of the model of the same name."""

    __slots__ = ("__dict__", "model_fields_set")
    model_fields_set: frozenset[str]
    _shape: Shape
    _defaults: dict[str, Any]

    @classmethod
    def model_construct(cls, **values: Any) -> Any:
        """Unchecked, as pydantic's."""
        made = object.__new__(cls)
        mine = made.__dict__
        mine.update(cls._defaults)
        for name, value in mine.items():
            if type(value) is list or type(value) is dict:
                mine[name] = value.copy()
        mine.update(values)
        object.__setattr__(made, "model_fields_set", frozenset(values))
        return made

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        """A copy with values replaced, as pydantic's."""
        made = self.model_construct(**{**self.__dict__, **update})
        object.__setattr__(made, "model_fields_set", self.model_fields_set | update.keys())
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]  # lists inside

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self).__name__, self.__dict__, self.model_fields_set)


def _again(name: str, values: dict[str, Any], given: frozenset[str]) -> Section:
    """Unpickled."""
    made: Section = _CLASSES[name].model_construct(**values)
    object.__setattr__(made, "model_fields_set", given)
    return made


def _classes() -> dict[str, type[Section]]:
    """A class a model. Inner sections come first in the digest, so defaults are ready."""
    made: dict[str, type[Section]] = {}
    for name, shape in shapes.items():
        defaults = {
            field: made[kind[1]].model_construct() if kind[0] == "section" and default == {} else default
            for field, _, kind, required, default in shape if not required
        }  # fmt: skip
        made[name] = type(name, (Section,), {"__slots__": (), "__module__": __name__, "_shape": shape, "_defaults": defaults})
    return made


_CLASSES = _classes()


class _Refused(Exception):
    """pydantic would complain."""


def accept(tree: Any) -> Spec | None:
    """The Spec of a tree; None where pydantic has to say what is wrong."""
    try:
        made: Spec = _section(("section", "Spec", None), tree)
    except (_Refused, ValueError, OverflowError):
        return None
    return made


def _section(kind: Kind, value: Any) -> Any:
    _, name, short = kind
    if type(value) is str and short is not None:
        value = {short: value}
    if type(value) is not dict:
        raise _Refused
    own, left = _CLASSES[name], len(value)
    given: dict[str, Any] = {}
    for field, key, inner, required, _ in own._shape:
        if key in value:
            given[field] = _TAKE[inner[0]](inner, value[key])
            left -= 1
        elif required:
            raise _Refused
    if left:  # an unknown key
        raise _Refused
    return own.model_construct(**given)


def _string(kind: Kind, value: Any) -> str:
    if type(value) is not str:
        raise _Refused
    if not value.isascii():
        value.encode()  # UnicodeEncodeError, a ValueError, for half of a surrogate pair
    return value


def _text(kind: Kind, value: Any) -> str:
    _, least, most, pattern = kind
    text = _string(kind, value)
    if len(text) < least or (most is not None and len(text) > most) or (pattern and not re.fullmatch(pattern, text)):
        raise _Refused
    return text


def _exactly(wanted: type) -> Any:
    def take(kind: Kind, value: Any) -> Any:
        if type(value) is not wanted:
            raise _Refused
        return value

    return take


def _whole(kind: Kind, value: Any) -> int:
    if type(value) is not int or not kind[1] <= value <= kind[2]:
        raise _Refused
    return value


def _number(kind: Kind, value: Any) -> float:
    _, above, least, below, most = kind
    if type(value) is not int and type(value) is not float:
        raise _Refused
    number = float(value)
    if not (above < number < below and least <= number <= most):
        raise _Refused
    return number


def _word(kind: Kind, value: Any) -> str:
    if type(value) is not str or value not in kind[1]:
        raise _Refused
    return value


def _items(kind: Kind, value: Any) -> list[Any]:
    if type(value) is not list:
        raise _Refused
    inner = kind[1]
    take = _TAKE[inner[0]]
    return [take(inner, each) for each in value]


def _map(kind: Kind, value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _Refused
    inner = kind[1]
    take = _TAKE[inner[0]]
    return {_string(kind, key): take(inner, each) for key, each in value.items()}


def _one_of(kind: Kind, value: Any) -> Any:
    """The branches of a union never take the same value, so the first that takes it is the one."""
    for inner in kind[1]:
        try:
            return _TAKE[inner[0]](inner, value)
        except (_Refused, ValueError):
            continue
    raise _Refused


_TAKE: dict[str, Any] = {
    "section": _section, "str": _string, "text": _text, "bool": _exactly(bool), "int": _whole, "float": _number, "word": _word,
    "list": _items, "map": _map, "any": lambda kind, value: value, "none": _exactly(type(None)), "union": _one_of,
    "size": lambda kind, value: parse_size(value), "duration": lambda kind, value: parse_duration(value),
    "count": lambda kind, value: parse_count(value),
}  # fmt: skip

if TYPE_CHECKING:
    from jobgen.spec.models import Quantization as Quantization
    from jobgen.spec.models import Spec as Spec
    from jobgen.spec.models import Sweep as Sweep
    from jobgen.spec.models import Volume as Volume
else:
    Quantization, Spec, Sweep, Volume = (_CLASSES[name] for name in ("Quantization", "Spec", "Sweep", "Volume"))
