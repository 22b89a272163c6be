"""What the Kubernetes targets write, byte for byte. ``JOBGEN_UPDATE_GOLDEN=1`` writes the files anew."""

import os
from pathlib import Path

import jobs
import pytest
from k8s_cases import CASES, PAIRS

from jobgen.targets import admission, render, stream

GOLDEN = Path(__file__).parent / "golden" / "k8s"


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_stream_is_the_golden_file(name, target):
    job, spec = jobs.from_edit(CASES[name])
    text = render(target, job, spec).text
    file = GOLDEN / f"{name}.{target}.yaml"
    if os.environ.get("JOBGEN_UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_nothing_is_wrong_with_the_cases(name, target):
    job, spec = jobs.from_edit(CASES[name])
    assert admission.problems(job, spec, target) == ()


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_twice_the_same_bytes(name, target):
    first, second = (render(target, *jobs.from_edit(CASES[name])).text for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_objects_are_what_the_text_says(name, target):
    import yaml

    job, spec = jobs.from_edit(CASES[name])
    assert list(yaml.safe_load_all(render(target, job, spec).text)) == stream.objects(job, spec, target)


def test_no_golden_file_is_left_over():
    assert {file.name for file in GOLDEN.glob("*.yaml")} == {f"{name}.{target}.yaml" for name, target in PAIRS}
