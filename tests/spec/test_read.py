"""What the reader refuses, where, and what it says to write."""

import io

import pytest

from jobgen.spec.document import SpecError, load, load_text
from jobgen.spec.read import read_text


def test_values_are_those_of_yaml_1_2():
    tree = read_text("a: 1\nb: 1.5\nc: 1e-4\nd: true\ne: ~\nf: text\ng: '1'\nh: 08:00:00\ni: 1-00:00:00\nj: 2024-01-01\n", "x").tree
    assert tree == {"a": 1, "b": 1.5, "c": 1e-4, "d": True, "e": None, "f": "text", "g": "1", "h": "08:00:00",
                    "i": "1-00:00:00", "j": "2024-01-01"}  # fmt: skip


def test_keys_and_values_have_positions():
    places = read_text("a:\n  - x\n  - {b: 3}\n", "x").places
    assert places[("a",)][:4] == (2, 3, 1, 1)
    assert places[("a", 1, "b")][:4] == (3, 9, 3, 6)


@pytest.mark.parametrize(
    ("line", "words", "fix"),
    [
        ("slurm: {account: 0123}", "different number", '"0123"'),
        ("slurm: {account: 0o17}", "different number", '"0o17"'),
        ("slurm: {account: NO}", "boolean", '"NO"'),
        ("training2: yes", "boolean", "true"),
        ("launch: {time_limit: 1:30:00}", "5400", "1h 30m"),
        ("launch: {time_limit: 24:00}", "1440", "24h or 24m"),
        ("launch: {env: {A: 'x', A: 'y'}}", "twice", "one of the two"),
        ("training2: .nan", "finite", "number"),
        ("training2: -.inf", "finite", "number"),
        ("training2: 1e999", "too large", "smaller"),
        ("training2: 1" + "0" * 5000, "5001 digits", "quote"),
        ('launch: {env: {A: "\\0"}}', "U+0000", "remove"),
        ('launch: {env: {A: "\\e"}}', "U+001B", "remove"),
        ("launch: {env: {1: x}}", "not text", '"1"'),
        ("launch: {env: {true: x}}", "not text", '"true"'),
        ("launch: {env: {[a]: x}}", "list or a map", "plain word"),
        ("launch: {env: {: x}}", "empty", "before the colon"),
        ("<<: 3", "takes a map", "<<: *name"),
    ],
)
def test_a_trap_is_explained_at_its_line(line, words, fix, base, refuse):
    found = [p for p in refuse(base + line + "\n") if words in p.message]
    assert found and (found[0].line, found[0].code) == (10, "JG001") and fix in found[0].fix


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("# nothing\n", 1, "empty"),
        ("- a\n", 1, "a list"),
        ("just words\n", 1, "a single value"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("a:\n\t- b\n", 2, "tab"),
        ("a: b: c\n", 1, "second"),
        ("a: [1, 2\n", 1, "not closed"),
        ("a: {b: 1\nc: 2\n", 2, "not closed"),
        ("a: 'x\n", 1, "not closed"),
        ("a: 1\n b: 2\n", 2, "second"),
        ("a:\tx\n", 1, "a tab stands"),
        ("a: @x\n", 1, "cannot start"),
        ('a: "\\q"\n', 1, "backslash"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tag"),
        ("a: !foo x\n", 1, "tag"),
        ("a: *x\n", 1, "stands for nothing"),
        ("a: &x [*x]\n", 1, "stands for nothing"),
        ("%YAML 1.1\n---\na: 1\n", 2, "another YAML version"),
        ("a: \x07\n", 1, "U+0007"),
        ("a: \x00\n", 1, "NUL"),
        ("a: " + "[" * 5000, 1, "deep"),
        ("a: " + "{a: " * 5000, 1, "deep"),
        ("\n".join(" " * i + "a:" for i in range(500)), 33, "deep"),
        ("a: [" + "x, " * 30000 + "x]", 1, "more than"),
    ],
)
def test_a_text_that_is_no_spec_is_refused_at_its_line(text, line, words, refuse):
    (problem,) = refuse(text)
    assert problem.line == line and problem.column >= 1 and words in problem.message and problem.code == "JG001"


def test_an_anchor_bomb_is_refused_quickly(refuse):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "expand" in refuse("\n".join(lines))[-1].message


def test_a_merge_bomb_is_refused_quickly(refuse):
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    assert "expand" in refuse("\n".join(lines))[-1].message


def test_anchors_and_merge_keys_are_expanded():
    tree = read_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\nd: {<<: [{y: 5}, *a]}\n", "x").tree
    assert tree == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}, "d": {"x": 1, "y": 5}}
    tree["c"]["x"] = 9
    assert tree["a"]["x"] == 1


def test_a_word_that_is_a_boolean_elsewhere_may_be_a_key_or_quoted():
    assert read_text("after: [{on: 'yes'}]\nno: x\n", "x").tree == {"after": [{"on": "yes"}], "no": "x"}


def test_windows_line_ends_and_a_byte_order_mark_are_fine(base, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + base.replace("\n", "\r\n").encode())
    document = load(file)
    assert document.locate("resources.gpu")[2:] == (9, 8)


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"name: x\nmodel: \xff\n", 2, "0xff"),
        ("name: x\n".encode("utf-16"), 1, "UTF-16"),
        ("name: x\n".encode("utf-16-le"), 1, "UTF-16"),
        (b"a" * (2**20 + 1), 1, "larger"),
        (b"", 1, "empty"),
    ],
)
def test_bytes_that_are_no_text_are_refused(data, line, words, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_bytes(data)
    for source, stdin in ((file, None), ("-", io.BytesIO(data))):
        with pytest.raises(SpecError) as caught:
            load(source, stdin=stdin)
        assert caught.value.problems[0].line == line and words in caught.value.problems[0].message


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, words in ((tmp_path, "folder"), (tmp_path / "none.yaml", "no such file"), ("a\0b", "cannot be read")):
        with pytest.raises(SpecError, match=words):
            load(path)


def test_a_dash_is_standard_input(base):
    assert load("-", stdin=io.StringIO(base)).file == "<stdin>"


def test_a_syntax_error_says_so_in_a_human_way():
    with pytest.raises(SpecError) as caught:
        load_text("name: x\nmodel:\n   name: y\n  path: z\n", "s.yaml")
    assert str(caught.value) == ("s.yaml:4:3: error JG001: the indentation does not match the lines above; "
                                 "indent it like the keys beside it")  # fmt: skip
