"""The quick way to a Spec takes nothing that the models refuse, and makes the same of what it takes."""

import copy
import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobgen.checks.bases import names, text
from jobgen.spec import fields, generate, models, sections, shape
from jobgen.spec.paths import split
from jobgen.spec.problem import SpecError
from jobgen.spec.read import read_text

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("tests/**/*.yaml")])
HOSTILE = [
    None, True, False, 0, 1, -1, 2**40, 2**40 + 1, 2**70, 0.5, 1.0, 1e308, float("nan"), float("inf"), "", "a", "auto", "none", "1e9",
    "80GiB", "24h", "\ud800", "é" * 300, "JG305", "JG305\n", [], ["a"], [1], [None], {}, {"a": 1}, {"name": "adamw"}, {1: 2}, {"files": ["a"]},
    {"\udc80": "x"},
]  # fmt: skip


def plain(value):
    """A section as nested maps that remember which fields were given."""
    if hasattr(type(value), "model_fields_set"):
        names = [name for name, *_ in sections.shapes[type(value).__name__]]
        return type(value).__name__, {name: plain(getattr(value, name)) for name in names}, sorted(value.model_fields_set)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else (type(value), value)


def agrees(written):
    """Whether the quick way takes it; what it takes the models take alike."""
    quick = sections.accept(copy.deepcopy(written))
    if quick is None:
        return False
    assert plain(quick) == plain(models.Spec.model_validate(written))
    return True


def test_the_digest_is_that_of_the_models():
    assert generate.FILE.read_text(encoding="utf-8") == generate.text(), "run python -m jobgen.spec.generate"
    assert generate.made() == shape.SHAPES == sections.shapes


def specs():
    for file in FILES:
        try:
            made = read_text(file.read_text(encoding="utf-8"), str(file)).tree
        except SpecError:  # a golden manifest of several documents
            continue
        if isinstance(made, dict) and {"name", "model", "training", "resources"} <= made.keys():
            yield file.stem, made
    for name in names():
        yield name, read_text(text(name), name).tree


SPECS = dict(specs())


@pytest.mark.parametrize("name", SPECS)
def test_shipped_specs_take_the_quick_way(name):
    try:
        models.Spec.model_validate(SPECS[name])
    except ValueError:
        assert not agrees(SPECS[name])
    else:
        assert agrees(SPECS[name])


def put(node, path, value):
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if isinstance(node, list) and node:
            node = node[0]
        if not isinstance(node, dict):
            return
    node[path[-1]] = value


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(SPECS)), st.lists(st.tuples(st.sampled_from(fields.all_paths()), st.sampled_from(HOSTILE)), min_size=1, max_size=3))
def test_never_takes_what_the_models_refuse(name, changes):
    written = copy.deepcopy(SPECS[name])
    for path, value in changes:
        put(written, [part for part in path.split(".") if part != "-"], copy.deepcopy(value))
    agrees(written)


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_every_field_with_hostile_values(value):
    base = {"name": "a", "model": {"name": "m"}, "training": {"method": "full", "sequence_length": 1}, "resources": {"gpus_per_node": 1, "gpu": {"name": "g"}}}
    for path in fields.all_paths():
        written = copy.deepcopy(base)
        put(written, [part for part in path.split(".") if part != "-"], copy.deepcopy(value))
        agrees(written)
        in_list = copy.deepcopy(base)
        put(in_list, [part for part in path.split(".-")[0].split(".") if part], [copy.deepcopy(value)])
        agrees(in_list)


def test_paths_are_those_of_the_models():
    for path in fields.all_paths():
        parts = split(path.replace("-", "0") if ".-" in path else path)
        assert parts is not None and fields.kind_at(parts) is not None, path
    assert split("launch.env.A.B") == ("launch", "env", "A.B")
    assert split("training.options.a.b") == ("training", "options", "a", "b")
    assert split("volumes.0.mount") == ("volumes", 0, "mount")
    assert split("nowhere") is split("training.lora.nothing") is split("") is None


def test_sections_behave_as_models():
    made = sections.accept(SPECS["tiny-local"])
    assert made is not None
    other = made.model_copy(update={"name": "other"})
    assert other.name == "other" and made.name != "other" and other.model is made.model and other != made
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert made.model_fields_set == set(SPECS["tiny-local"])
    with pytest.raises(AttributeError):
        made.name = "x"
    first, second = sections.Quantization.model_construct(), sections.Quantization.model_construct(type="fp4")
    assert first.type == "nf4" and second.type == "fp4" and first != second
    one, two = sections.accept(SPECS["tiny-local"]), sections.accept(SPECS["tiny-local"])
    assert one.launch.setup is not two.launch.setup or one.launch.setup
