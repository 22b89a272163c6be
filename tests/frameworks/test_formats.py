"""What is written reads back, in every reader that the frameworks use."""

from __future__ import annotations

import io
import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from jobgen.frameworks import formats
from jobgen.spec.read import read_text

text = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=30) | st.sampled_from(
    ["no", "on", "y", "null", "~", "1e-5", "0x1f", "1_000", "12:30:45", "- a", "a: b", "#x", "'", '"', "a\nb", "\t", "=", "<<", "2020-01-01",
     "*a", "&a", "!t", "%", "@", "`", "{", "[", ".5", "+1", "-", "?", " x ", "é", "日本", "\u2028", "\x85", "😀", ""]
)  # fmt: skip
scalars = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | text
)
keys = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True) | st.sampled_from(["on", "no", "a b", "é", "1"])
trees = st.dictionaries(
    keys,
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
    ),
    max_size=5,
)


@given(trees)
def test_yaml_in_both_versions(tree: dict[str, Any]) -> None:
    written = formats.yaml(tree)
    if not tree:
        assert written == ""
        return
    assert yaml.safe_load(written) == tree
    assert YAML(typ="safe", pure=True).load(io.StringIO(written)) == tree


def _whole(value: Any) -> Any:
    """TOML has no null: keys without a value are left out."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items() if item is not None}
    return [_whole(item) for item in value if item is not None] if isinstance(value, list) else value


@given(trees)
def test_toml(tree: dict[str, Any]) -> None:
    assert tomllib.loads(formats.toml(tree)) == _whole(tree)


@given(trees)
def test_json(tree: dict[str, Any]) -> None:
    assert json.loads(formats.as_json(tree)) == tree


def test_small_numbers_stay_numbers_for_yaml_1_1() -> None:
    assert formats.yaml({"learning_rate": 1e-5}) == "learning_rate: 1.0e-05\n"


def test_flags_and_switches() -> None:
    assert formats.flags({"a": True, "b": [1, "x y"], "c": {"d": 1}, "e": None}) == (
        "--a",
        "True",
        "--b",
        "1",
        "x y",
        "--c",
        '{"d": 1}',
    )
    assert formats.switches({"a": True, "b": False, "c": 0, "d": "x"}) == ("--a", "--c", "0", "--d", "x")


def test_overrides_are_quoted() -> None:
    assert formats.assignments({"a": {"b": "x y", "c": [1, "z"], "d": None, "e": "it's"}}) == (
        "a.b='x y'", "a.c=[1,z]", "a.d=null", "a.e='it\\'s'",
    )  # fmt: skip


def test_later_layers_win_and_dots_open_maps() -> None:
    assert formats.merged({"a": {"b": 1, "c": 2}}, {"a.b": 3}, {"a": {"d": 4}}) == {"a": {"b": 3, "c": 2, "d": 4}}


@pytest.mark.parametrize("value", ["no", "1e-5", "a: b", "12:30:45"])
def test_our_own_reader_takes_it(value: str) -> None:
    assert read_text(formats.yaml({"key": value}), "x.yaml").tree == {"key": value}
