"""Every shipped example as each Kubernetes target writes it. ``JOBGEN_UPDATE_GOLDEN=1`` writes the files anew."""

import os
from pathlib import Path

import crds
import pytest
import yaml
from k8s_cases import TARGETS

from jobgen import api

EXAMPLES = Path(__file__).parents[2] / "examples"
GOLDEN = Path(__file__).parent / "golden" / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml") if "\n  image:" in path.read_text())
"""Those with an image: an example for bare machines has none, and a pod cannot run without."""
PAIRS = [(name, target) for name in NAMES for target in TARGETS]
SCHEMAS = {
    "PyTorchJob": (crds.TRAINING_OPERATOR, "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "v1"),
    "JobSet": (crds.JOBSET, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", "v1alpha2"),
    "TrainJob": (crds.TRAINERS[-1], "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml", "v1alpha1"),
    "TrainingRuntime": (crds.TRAINERS[-1], "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml", "v1alpha1"),
}


def rendered(name, target):
    return api.render(api.load(str(EXAMPLES / f"{name}.yaml")), target=target).text


def test_there_are_ten_examples():
    assert len(NAMES) >= 10


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_example_is_the_golden_file(name, target):
    text, file = rendered(name, target), GOLDEN / f"{name}.{target}.yaml"
    if os.environ.get("JOBGEN_UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_example_fits_the_operators_schemas(name, target):
    for found in yaml.safe_load_all((GOLDEN / f"{name}.{target}.yaml").read_text()):
        if found["kind"] in SCHEMAS:
            assert crds.errors(crds.schema(*SCHEMAS[found["kind"]]), found) == []


def test_no_golden_file_is_left_over():
    assert {file.name for file in GOLDEN.glob("*.yaml")} == {f"{name}.{target}.yaml" for name, target in PAIRS}
