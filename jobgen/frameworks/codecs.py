"""The few shapes that spec values and framework values are translated by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobgen.frameworks.table import Codec, Nothing

ABSENT = Nothing.ABSENT
UNDECIDED = Nothing.UNDECIDED


def _same(value: Any) -> Any:
    return ABSENT if value is None else value


same = Codec(_same, lambda value: value)
"""The framework writes what the spec writes; an unset field is left out."""


def _whole(value: Any) -> Any:
    if value is None:
        return ABSENT
    return int(value) if isinstance(value, float) and value.is_integer() else value


whole = Codec(_whole, lambda value: value)
"""A number that many programs take as an integer only: 32.0 is written as 32."""


def choice(
    values: Mapping[Any, Any],
    *,
    also: Mapping[Any, Any] | None = None,
    reads: Mapping[Any, Any] | None = None,
    rest: Any = ABSENT,
) -> Codec:
    """Named values. ``also``: further spec values that share a framework value (written, never read back);
    ``reads``: further spellings understood when reading; ``rest``: what any other spec value is written as."""
    forward = {**values, **(also or {})}
    back = {**{_key(there): here for here, there in values.items()}, **{_key(k): v for k, v in (reads or {}).items()}}

    def encode(value: Any) -> Any:
        if value is None:
            return ABSENT
        return rest if isinstance(value, list | dict) else forward.get(value, rest)

    def decode(value: Any) -> Any:
        return back.get(_key(value), UNDECIDED)

    return Codec(encode, decode, tuple(values))


def _key(value: Any) -> Any:
    """Something hashable that keeps 1, 1.0 and True apart."""
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return (type(value).__name__, value)


def flag(on: Any) -> Codec:
    """True for one spec value, False for all others, which this key alone cannot tell apart."""
    return choice({on: True}, rest=False)


def present(on: Any) -> Codec:
    """A switch without a value: there (True) for one spec value, absent for all others."""
    return choice({on: True})


yes_no = choice({True: True, False: False})
"""A plain boolean."""
switch = choice({True: True, False: ABSENT})
"""A switch without a value: true when it is there. ``false`` reads back from its absence."""
inverted = choice({True: False, False: True})
"""The framework asks the opposite question."""


says_nothing = Codec(lambda value: ABSENT, lambda value: UNDECIDED, ())
"""A key that jobgen writes as a whole (a path, another file): owned, but no value of the field by itself."""


def member(part: str) -> Codec:
    """Whether one part is in a list of parts (``freeze``)."""

    def encode(value: Any) -> Any:
        return ABSENT if value is None else part in value

    return Codec(encode, lambda value: [part] if value else [], ([], [part]))


def _join(value: Any) -> Any:
    if value is None or value == []:
        return ABSENT
    return value if isinstance(value, str) else ",".join(value)


def _split(value: Any) -> Any:
    if value is ABSENT or value is None:
        return []
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


joined = Codec(_join, _split)
"""A list of names as one comma-separated text."""


def _some(value: Any) -> Any:
    return ABSENT if value is None or value == [] else value


listed = Codec(_some, lambda value: [] if value in (ABSENT, None) else value)
"""A list; an empty one is left out."""


def targets(all_linear: Any, comma: bool = False) -> Codec:
    """LoRA target modules: ``all-linear`` by the framework's word for it, else the names."""

    def encode(value: Any) -> Any:
        if value == "all-linear":
            return all_linear
        if value is None or value == []:
            return ABSENT
        return _join(value) if comma else value

    def decode(value: Any) -> Any:
        if value == all_linear:
            return "all-linear"
        if comma and isinstance(value, str):
            return value.split(",")
        return value

    return Codec(encode, decode, ("all-linear", ["q_proj"], ["q_proj", "v_proj"]) if comma else None)
