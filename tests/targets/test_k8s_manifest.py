"""The YAML that is written is read back as the tree that was meant, by whichever reader."""

import io
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from jobgen.targets import pod, skeleton
from jobgen.targets.manifest import MISSING, From, Text, dump, plain, some

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
AWKWARD = st.sampled_from(
    ["no", "on", "~", "null", "1e3", "0x10", "012", "1:30", "2001-01-01", "<<", "=", "- a", "a: b", "#x", "&a", "*a", "!t", "|", ">",
     "%j", "@x", "`x`", "---", "...", " lead", "trail ", "a\n", "\n", "a\n\n", "a\nb", " a\nb", "a\n\tb", "a\n  ", "\ta", "é\u2028", "\x85",
     "\ufeff", "\x7f", "{{x}}", "{a", "[a", "'", '"', "\\", "a\r\nb", ""]
)  # fmt: skip
LEAF = st.one_of(TEXT, AWKWARD, st.integers(-(10**12), 10**12), st.booleans())
TREE = st.recursive(LEAF, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)), max_leaves=12)


@given(st.dictionaries(st.one_of(TEXT, AWKWARD), TREE, min_size=1, max_size=4))
@settings(max_examples=120, deadline=None)
def test_every_tree_is_read_back_as_it_was(tree):
    text, _ = dump([tree, tree])
    assert list(yaml.safe_load_all(text)) == [tree, tree]
    assert list(YAML(typ="safe", pure=True).load_all(io.StringIO(text))) == [tree, tree]


@given(st.one_of(TEXT, AWKWARD))
@settings(max_examples=300, deadline=None)
def test_a_value_cannot_add_a_line_of_its_own(text):
    lines = dump([{"a": {"b": text}, "c": 1}])[0].split("\n")
    assert [line for line in lines if line and not line.startswith(" ")] == ["---", "a:", "c: 1"]


def test_lines_know_what_made_them():
    script = Text("x\ny\n", ("", "launch.args"))
    text, explain = dump([{"a": From("b", "name"), "c": From([From({"d": script}, "volumes")], "x")}])
    assert text == "---\na: b\nc:\n- d: |\n    x\n    y\n"
    assert dict(explain) == {2: "name", 3: "x", 4: "volumes", 6: "launch.args"}


def test_missing_values_leave_no_trace():
    assert plain({"a": MISSING, "b": 1}) == {"b": 1}
    assert some(From({}, "x")) is MISSING and some(From("a", "x")).value == "a"


@pytest.mark.parametrize("name", sorted(path.stem for path in skeleton.folder().glob("*.yaml")))
def test_skeletons_are_filled_completely(name):
    holes = skeleton.holes(name)
    assert holes
    skeleton.fill(name, **dict.fromkeys(holes, "x"))
    with pytest.raises(TypeError, match="left"):
        skeleton.fill(name, **dict.fromkeys(sorted(holes)[1:], "x"))
    with pytest.raises(TypeError, match="no hole"):
        skeleton.fill(name, **dict.fromkeys(holes, "x"), another="x")


def expanded(text, names):
    """Kubernetes' own rule (k8s.io/third_party/forked/golang/expansion): $(NAME) is replaced, $$ is a dollar."""
    result, place = "", 0
    while place < len(text):
        if text[place] != "$" or place + 1 == len(text):
            result += text[place]
            place += 1
        elif text[place + 1] == "$":
            result += "$"
            place += 2
        elif text[place + 1] == "(" and ")" in text[place + 2 :]:
            end = text.index(")", place + 2)
            name = text[place + 2 : end]
            result += names.get(name, f"$({name})")
            place = end + 1
        else:
            result += "$" + text[place + 1]
            place += 2
    return result


@given(st.text(alphabet="$()aA \n", max_size=30))
@settings(max_examples=500, deadline=None)
def test_kubernetes_expands_nothing(text):
    assert expanded(pod.literal(text), {"a": "BAD", "A": "BAD", "": "BAD"}) == text


@pytest.mark.parametrize(
    ("size", "words"),
    [(2**40, "1Ti"), (3 * 2**30, "3Gi"), (960 * 10**9, "960G"), (10**12, "1T"), (1536 * 2**20, "1536Mi"), (7, "7")],
)
def test_sizes_are_exact(size, words):
    assert pod.quantity(size) == words


def test_the_digest_is_that_of_the_skeletons():
    from jobgen.targets import skeletons

    assert Path(skeletons.__file__).read_text(encoding="utf-8") == skeleton.digest(), "run python -m jobgen.targets.skeleton"
    for name in skeletons.SKELETONS:
        assert skeleton._composed(name) == skeleton.parsed((skeleton.folder() / f"{name}.yaml").read_bytes())
