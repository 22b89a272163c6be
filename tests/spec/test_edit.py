"""Edits change what they name and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobgen.spec.document import SpecError, load_text
from jobgen.spec.edit import DELETE, apply_edits, edit_text
from jobgen.spec.rewrite import _tree

TEXT = """\
# my job
name: sft   # the name

model: {name: 'Qwen/Qwen2.5-7B-Instruct'}  # small
training:
    method: full
    optimizer: adamw   # for now
    sequence_length: 4096
resources:
    nodes: 2
    gpus_per_node: 8
    gpu: h100-80gb
volumes:
    - {mount: /a, scratch: true}
    - mount: /b   # data
      path: /lustre
"""


@pytest.mark.parametrize(
    ("edits", "old", "new"),
    [
        ({"training.sequence_length": 2048}, "sequence_length: 4096", "sequence_length: 2048"),
        ({"name": "0123"}, "name: sft ", 'name: "0123" '),
        ({"model.name": "a b"}, "'Qwen/Qwen2.5-7B-Instruct'", '"a b"'),
        ({"training.optimizer.name": "sgd"}, "optimizer: adamw ", "optimizer: sgd "),
        ({"training.optimizer": "lion"}, "optimizer: adamw ", "optimizer: lion "),
        ({"volumes.1.path": "/data"}, "path: /lustre", "path: /data"),
        ({"volumes.0.mount": "/c"}, "{mount: /a,", "{mount: /c,"),
    ],
)
def test_a_scalar_is_replaced_where_it_stands(edits, old, new):
    assert edit_text(TEXT, edits) == TEXT.replace(old, new)


def test_new_keys_and_sections_keep_comments_and_indentation():
    text = edit_text(TEXT, {"parallelism.sharding": "zero3", "training.micro_batch_size": 2, "launch.env": {"A": "yes"}})
    assert text.startswith(TEXT.split("resources")[0][:20])
    for line in ("# my job", "name: sft   # the name", "    method: full", "    micro_batch_size: 2", "parallelism:",
                 "    sharding: zero3", '    env: {A: "yes"}', "    optimizer: adamw   # for now",
                 "    - mount: /b   # data"):  # fmt: skip
        assert line in text.splitlines(), text
    assert load_text(text).spec.launch.env == {"A": "yes"}


def test_a_key_or_an_entry_is_removed():
    text = edit_text(TEXT, {"volumes.0": DELETE, "training.optimizer": DELETE})
    document = load_text(text)
    assert [v.mount for v in document.spec.volumes] == ["/b"] and not document.wrote("training.optimizer")
    assert edit_text(TEXT, {"slurm.account": DELETE}) == TEXT or "slurm" not in edit_text(TEXT, {"slurm.account": DELETE})


def test_a_short_form_grows_where_more_is_said():
    text = edit_text(TEXT, {"training.optimizer.in_backward": True})
    assert load_text(text).spec.training.optimizer.in_backward and load_text(text).spec.training.optimizer.name == "adamw"


def test_plain_trees_are_copied():
    tree = {"training": {"method": "full"}}
    assert apply_edits(tree, {"training.method": "lora", "resources.nodes": 2}) == {
        "training": {"method": "lora"}, "resources": {"nodes": 2}}  # fmt: skip
    assert tree == {"training": {"method": "full"}}


def test_an_unknown_path_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean training\.sequence_length"):
        apply_edits({}, {"training.sequence_len": 1})


def test_what_cannot_be_edited_in_place_is_said():
    text = TEXT.replace("method: full", "method: &m full") + "plan: {fix: [*m]}\n"
    assert load_text(edit_text(text.replace("*m", "training.method"), {"training.method": "lora"})).spec.training.method == "lora"
    with pytest.raises(ValueError, match="by hand"):
        edit_text("a: &a {sharding: zero1}\nparallelism: *a\nb: *a\n", {"parallelism.sharding": "zero3"})


def test_windows_line_ends_stay():
    text = edit_text(TEXT.replace("\n", "\r\n"), {"parallelism.sharding": "zero3"})
    assert "\r\n" in text and "\n" not in text.replace("\r\n", "")


def test_an_edited_document_keeps_positions():
    document = load_text(TEXT, "s.yaml").edited({"training.sequence_length": 8, "volumes.0": DELETE})
    assert document.spec.training.sequence_length == 8 and document.locate("training.sequence_length").line == 8
    assert document.locate("volumes.0.mount").line == 15 and not document.wrote("volumes.1.mount")
    with pytest.raises(SpecError):
        document.edited({"parallelism.tensor": 5})


COMMENTED = """\
training:
  method: full
  sequence_length: 4096  # tokens

# the machine
resources: {nodes: 2, gpus_per_node: 8, gpu: h100-80gb}  # all of it

# where
checkpoint:
  directory: /c

  # thinned
  keep: 3

# the end
"""


@pytest.mark.parametrize(
    ("edits", "old", "new"),
    [
        ({"training.micro_batch_size": 2}, "# tokens\n", "# tokens\n  micro_batch_size: 2\n"),
        ({"training.lora": {"rank": 8}}, "# tokens\n", "# tokens\n  lora: {rank: 8}\n"),
        ({"training.lora.rank": 8}, "# tokens\n", "# tokens\n  lora:\n    rank: 8\n"),
        ({"resources.fabric": "efa"}, "h100-80gb}", "h100-80gb, fabric: efa}"),
        ({"checkpoint.every_steps": 9}, "keep: 3\n", "keep: 3\n  every_steps: 9\n"),
        ({"parallelism.sharding": "zero3"}, "keep: 3\n", "keep: 3\nparallelism:\n  sharding: zero3\n"),
        ({"launch.env": {"A": "b c", "ON": "1"}}, "keep: 3\n", 'keep: 3\nlaunch:\n  env: {A: "b c", ON: "1"}\n'),
        ({"training.sequence_length": DELETE}, "  sequence_length: 4096  # tokens\n", ""),
        ({"checkpoint.keep": DELETE}, "  keep: 3\n", ""),
        ({"checkpoint": DELETE}, "checkpoint:\n  directory: /c\n\n  # thinned\n  keep: 3\n", ""),
    ],
)
def test_lines_come_and_go_between_the_comments(edits, old, new):
    assert edit_text(COMMENTED, edits) == COMMENTED.replace(old, new)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["training.method", "training.lora.rank", "resources.fabric", "resources.gpu.memory", "name",
                                        "resources.gpu", "launch.env.A", "launch.args", "training.options.a", "volumes.0.mount"]),
                       st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.just(DELETE),
                                 st.lists(st.text(max_size=4), max_size=2)), max_size=3),
       st.sampled_from([TEXT, COMMENTED + "volumes:\n- mount: /x\n"]))  # fmt: skip
def test_a_text_is_edited_as_its_tree_is_or_refused(edits, text):
    try:
        wanted = apply_edits(_tree(text), edits)
        made = edit_text(text, edits)
    except (ValueError, SpecError):
        return
    assert _tree(made) == wanted
    assert all(line in made for line in text.splitlines() if line.startswith("# "))
