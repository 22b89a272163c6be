"""``decode(encode(x)) == x`` for every row of every table, over the values the spec field allows."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from jobgen.frameworks import NAMES, find
from jobgen.frameworks.table import Nothing, Option
from jobgen.spec.models import Spec

DERIVED: dict[str, Any] = {
    "parallel.world": st.integers(1, 10**5),
    "training.evaluates": st.just(True),
    "training.lora.target_parameters": st.just(["experts.gate_up_proj", "experts.down_proj"]),
    "training.precision.of_method": st.sampled_from(["bf16", "bf16_pure", "fp16", "fp32", "fp8"]),
    "checkpoint.strategy": st.sampled_from(["steps", "epochs"]),
    "checkpoint.resume.mode": st.sampled_from(["auto", "never", "path"]),
}
_ALL = [
    (name, backend, index, option)
    for name in NAMES
    for backend in ((None, "megatron") if name in ("ms-swift", "verl") else (None,))
    for index, option in enumerate(find(name, backend).options)
]
ROWS = list({(row[3].field, id(row[3].codec)): row for row in reversed(_ALL)}.values())
"""One row of each pair of field and codec: many tables share them."""


def annotation(path: str) -> Any:
    """The type of a spec field."""
    model: Any = Spec
    for part in path.split("."):
        field = next(field for name, field in model.model_fields.items() if part in (name, field.alias))
        kind = field.annotation
        model = next((each for each in _flat(kind) if isinstance(each, type) and issubclass(each, BaseModel)), None)
    return kind


def _flat(kind: Any) -> list[Any]:
    origin = get_origin(kind)
    if origin is Annotated:
        return _flat(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [each for part in get_args(kind) for each in _flat(part)]
    return [kind]


def values(path: str) -> Any:
    """A strategy for the field's valid values (None aside: an unset field is not written)."""
    if path in DERIVED:
        return DERIVED[path]
    choices = []
    for kind in _flat(annotation(path)):
        if get_origin(kind) is Literal:
            choices.append(st.sampled_from(get_args(kind)))
        elif kind is bool:
            choices.append(st.booleans())
        elif kind is int:
            choices.append(st.integers(1, 2**40))
        elif kind is float:
            choices.append(st.floats(0.001, 1000, allow_nan=False))
        elif kind is str:
            choices.append(st.from_regex(r"[a-zA-Z/][a-zA-Z0-9_./-]{0,20}", fullmatch=True))
        elif get_origin(kind) is list:
            choices.append(
                st.lists(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), min_size=1, max_size=4, unique=True)
            )
    return st.one_of(choices)


@pytest.mark.parametrize(("name", "backend", "index", "option"), ROWS, ids=[f"{n}-{b}-{i}" for n, b, i, _ in ROWS])
def test_a_row_reads_what_it_writes(name: str, backend: str | None, index: int, option: Option) -> None:
    codec = option.codec
    if codec.values is not None:
        for value in codec.values:
            assert codec.decode(codec.encode(value)) == value, (option.key, value)
        return

    @settings(max_examples=30, deadline=None)
    @given(values(option.field))
    def check(value: Any) -> None:
        assert codec.decode(codec.encode(value)) == value

    check()


@pytest.mark.parametrize(("name", "backend", "index", "option"), ROWS, ids=[f"{n}-{b}-{i}" for n, b, i, _ in ROWS])
def test_a_rows_values_are_the_fields(name: str, backend: str | None, index: int, option: Option) -> None:
    """A value that the spec field does not have would never be written."""
    if option.codec.values is None or option.field in DERIVED or option.field == "training.evaluates":
        return
    kinds = _flat(annotation(option.field))
    allowed = {value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)}
    allowed |= {True, False} if bool in kinds else set()
    if not allowed or any(get_origin(kind) is list for kind in kinds) or str in kinds or int in kinds:
        return
    assert set(option.codec.values) <= allowed | {None}, option


@pytest.mark.parametrize(("name", "backend", "index", "option"), ROWS, ids=[f"{n}-{b}-{i}" for n, b, i, _ in ROWS])
def test_a_value_of_the_field_never_breaks_a_row(name: str, backend: str | None, index: int, option: Option) -> None:
    """Every valid value is written as something, or left out; what is read back is that value or undecided."""

    @settings(max_examples=15, deadline=None)
    @given(values(option.field))
    def check(value: Any) -> None:
        there = option.codec.encode(value)
        if there is not Nothing.ABSENT:
            option.codec.decode(there)

    check()


def test_unset_fields_are_left_out() -> None:
    for *_, option in ROWS:
        if "pipeline_layers" not in option.field and option.codec.values is None:
            assert option.codec.encode(None) is Nothing.ABSENT, option.key
