"""Hundreds of broken specs: each is refused with a position and a path, and none brings another exception."""

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from jobgen.spec import fields
from jobgen.spec.document import SpecError, load_text
from jobgen.spec.source import decode

FULL = (Path(__file__).parent / "full.yaml").read_text()
LINES = FULL.splitlines()
STRANGE = ["yes", "0123", "1:30:00", "[]", "{}", "null", "-1", "1e400", ".nan", "'x'", "!!set {}", "*x", "&x", "[[[]]]", "@", '"\\0"', "9" * 50,
           "{a: {b: c}}", "x: y", "- z", "\t", "é", "|", "%", "`", "'", '"', "}", "]", "{", "[", ", ,", "? a", "<<: 1", "-0.5", "0x10"]  # fmt: skip
WRONG = ["@@@", [["x"]], {"zzz": {"y": 1}}, 1.25, {"zzz": 1}, [{"zzz": [1]}]]


def _check(text):
    """Load; say whether it was refused, and make sure that the refusal is a good one."""
    try:
        load_text(text, "s.yaml")
    except SpecError as error:
        _well_said(error, text)
        return True
    return False


def _well_said(error, text):
    """Positions inside the text, a path as the user writes it, plain words."""
    assert error.problems
    for p in error.problems:
        assert 1 <= p.line <= text.count("\n") + 2 and p.column >= 1 and p.file in ("s.yaml", "<string>"), p
        assert p.code in ("JG001", "JG002", "JG003") and p.message and p.fix, p
        assert not any(word in p.path for word in ("function-", "literal[", "list[", "dict[", "Code", "[key]")), p
        for word in ("Input should", "pydantic", "Value error", "NoneType", "Traceback"):
            assert word not in p.message + p.fix, p


TREE = YAML(typ="safe", pure=True).load(FULL)
"""JSON is YAML, so that a changed tree is soon written."""


def _plain():
    return {key: copy.deepcopy(value) for key, value in TREE.items() if key != "sweep"}


def _places(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _replaced(path, value):
    tree = _plain()
    node = tree
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return tree


FREE = ("options", "versions", "env", "extra", "node_selector", "labels", "annotations", "tolerations", "security_context",
        "extra_resources", "grid", "vary")  # fmt: skip


def test_a_wrong_value_at_every_place_is_refused_there():
    refused = 0
    for path in list(_places(_plain()))[1:]:
        if any(part in FREE for part in path):
            continue
        for value in WRONG:
            text = json.dumps(_replaced(path, value))
            kind = fields.kind_at(tuple(path))
            taken = {branch.annotation for branch in fields.options(kind)} if kind else set()
            if (type(value) in taken and value in ("@@@", 1.25)) or (path == ("resources", "gpu") and value == "@@@"):
                continue
            with pytest.raises(SpecError) as caught:
                load_text(text)
            _well_said(caught.value, text)
            name = ".".join(map(str, path))
            assert any(p.path.startswith(name) or name.startswith(p.path) for p in caught.value.problems), (path, value)
            refused += 1
    assert refused > 300


def test_an_unknown_key_at_every_map_is_refused_there():
    refused = 0
    for path in _places(_plain()):
        if any(part in FREE for part in path):
            continue
        tree = _plain()
        node = tree
        for part in path:
            node = node[part]
        if isinstance(node, dict):
            node["zzz"] = 1
            with pytest.raises(SpecError) as caught:
                load_text(json.dumps(tree))
            assert [p.path for p in caught.value.problems] == [".".join(map(str, (*path, "zzz")))]
            refused += 1
    assert refused > 25


def test_every_mangled_line_is_refused_or_read():
    generator = random.Random(7)
    refused = 0
    for _ in range(500):
        lines = list(LINES)
        i = generator.randrange(len(lines))
        strange = generator.choice(STRANGE)
        line = lines[i]
        at = generator.randrange(len(line) + 1)
        lines[i] = generator.choice([line[:at] + strange + line[at:], line[:at], line[at:], strange, "\t" + line, " " + line,
                                     line.partition(":")[0] + ": " + strange, line + "\n" + line])  # fmt: skip
        if generator.random() < 0.2:
            del lines[generator.randrange(len(lines))]
        refused += _check("\n".join(lines))
    assert refused > 300


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_position(data):
    try:
        text = decode(data, "s.yaml")
    except SpecError as error:
        assert error.problems[0].line >= 1 and error.problems[0].column >= 1
        return
    assert _check(text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab: -[]{}#&*!|>'\"%@`,?<\n\t01.~yesno\\", max_size=80))
def test_any_text_after_a_valid_spec_is_read_or_refused(text):
    _check(FULL + text)
    _check(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(fields.all_paths()), st.text(alphabet="ab:-[]{}#&*!'\"019.~e, ", max_size=12)), max_size=3))
def test_any_set_is_read_or_refused(pairs):
    sets = [f"{path.replace('-.', '0.')}={value}" for path, value in pairs]
    try:
        load_text(FULL, "s.yaml", sets=sets)
    except SpecError as error:
        assert all(p.line >= 1 and p.column >= 1 and p.message for p in error.problems)
