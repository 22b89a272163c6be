"""The JSON Schema and load() agree on the full example and on each field."""

import jsonschema
import pytest
from ruamel.yaml import YAML

from jobgen.spec import fields
from jobgen.spec.document import load, load_text
from jobgen.spec.provenance import values, written
from jobgen.spec.schema import schema


@pytest.fixture(scope="module")
def validator():
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def _plain(text):
    return YAML(typ="safe", pure=True).load(text)


def test_the_full_example_passes_both(full, validator):
    assert not list(validator.iter_errors(_plain(full.read_text())))
    assert load(full).spec.volumes[1].create.size == 2 * 2**40


def test_short_forms_pass_both(base, validator):
    text = base.replace("  method", "  optimizer: sgd\n  activation_checkpointing: full\n  method") + "ignore: [JG305]\n"
    assert not list(validator.iter_errors(_plain(text)))
    spec = load_text(text).spec
    assert (spec.training.optimizer.name, spec.training.activation_checkpointing.mode, spec.ignore[0].code) == ("sgd", "full", "JG305")


@pytest.mark.parametrize("line", ["foo: 1", "launch: {restarts: x}", "offload: {optimizer: disk}", "volumes: [{path: /x}]"])
def test_what_load_refuses_the_schema_refuses(line, base, validator, refuse):
    assert list(validator.iter_errors(_plain(base + line + "\n"))) and refuse(base + line + "\n")


def test_every_field_is_described_and_the_schema_names_itself():
    made = schema()
    assert made["$id"] and made["title"] and made["$schema"].endswith("2020-12/schema")
    for path in fields.all_paths():
        kind = fields.kind_at(tuple(int(p) if p == "0" else p for p in path.replace("-.", "0.").split(".")))
        assert kind is not None and fields.words(kind), path
    for model in made["$defs"].values():
        for name, field in model.get("properties", {}).items():
            assert field.get("description"), name


def test_the_full_example_writes_every_field(full):
    document = load(full)
    known = {path for path in fields.all_paths() if path.startswith(("model.", "parallelism.", "offload.", "resources."))}
    assert {path for path in known if not document.wrote(path)} == {"parallelism.device_map"}


def test_every_value_in_effect_has_an_origin(base):
    document = load_text(base + "launch: {time_limit: 24h, env: {A: b}}\nvolumes: [{mount: /x, scratch: true}]\n", "s.yaml")
    found = {path: (value, origin.layer, origin.line) for path, value, origin in values(document)}
    assert found["launch.time_limit"] == (86400, "spec", 10) and written(document, "launch.time_limit") == "24h"
    assert found["launch.env.A"] == ("b", "spec", 10) and found["volumes.0.mount"] == ("/x", "spec", 11)
    assert found["checkpoint.async"] == (False, "default", 1) and found["training.optimizer.name"] == ("adamw", "default", 3)
