"""Sweeps expand to valid documents with names and directories of their own."""

import re

import pytest

from jobgen.spec.sweep import expand


def _names(document):
    return [(suffix, each.spec.name, each.spec.checkpoint.directory) for suffix, each in expand(document)]


def test_without_a_sweep_there_is_one_job(base, accept):
    document = accept(base)
    assert expand(document) == [("", document)]


def test_a_grid_is_every_combination(base, accept):
    sweep = "sweep={grid: {training.sequence_length: [1024, 2048], training.options.learning_rate: [1e-4, 2e-4]}}"
    document = accept(base, [sweep, "checkpoint.directory=/c/"])
    found = expand(document)
    assert [(e.spec.training.sequence_length, e.spec.training.options["learning_rate"]) for _, e in found] == [
        (1024, 1e-4), (1024, 2e-4), (2048, 1e-4), (2048, 2e-4)]  # fmt: skip
    suffix, first = found[0]
    assert suffix == "sequence-length-1024-learning-rate-0.0001"[:41] or len(suffix) <= 40
    assert first.spec.name == f"sft-{suffix}" and first.spec.checkpoint.directory == f"/c/{suffix}"
    assert first.spec.sweep is None
    assert len({e.spec.checkpoint.directory for _, e in found}) == len({e.spec.name for _, e in found}) == 4


def test_zip_goes_side_by_side_and_list_is_written_out(base, accept):
    zipped = accept(base, ["sweep={zip: {training.sequence_length: [1, 2], training.micro_batch_size: [3, 4]}}"])
    assert [(e.spec.training.sequence_length, e.spec.training.micro_batch_size) for _, e in expand(zipped)] == [(1, 3), (2, 4)]
    listed = accept(base, ["sweep={list: [{training.sequence_length: 8}, {training.optimizer: sgd}]}"])
    assert [e.spec.training.optimizer.name for _, e in expand(listed)] == ["adamw", "sgd"]


@pytest.mark.parametrize(
    "values",
    ["['a b', 'a/b', 'a_b', 'A b']", "[é, è]", "['" + "x" * 90 + "', '" + "x" * 91 + "']", "[a, a]", "['', '-']", "[1.0, 1]"],
)
def test_names_are_valid_and_unique_whatever_the_values(values, base, accept):
    found = _names(accept(base, [f"sweep={{grid: {{training.options.x: {values}}}}}"]))
    assert len({name for _, name, _ in found}) == len(found) > 1
    for suffix, name, _ in found:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", name) and 0 < len(suffix) <= 44


def test_positions_in_a_point_are_those_of_the_spec(base, accept):
    document = accept(base + "sweep: {grid: {training.sequence_length: [1024, 2048]}}\n")
    _, point = expand(document)[1]
    assert point.locate("training.sequence_length").line == 5 and point.locate("resources.gpu").line == 9


def test_a_sweep_of_too_many_points_is_refused(base, refuse):
    values = list(range(1, 40))
    text = base + f"sweep: {{grid: {{training.micro_batch_size: {values}, training.sequence_length: {values}}}}}\n"
    assert "1000 is the most" in refuse(text)[0].message
