"""Each object fits the CRDs of the operators' releases, and the structures that the kubernetes client knows."""

import copy

import crds
import jobs
import pytest
from k8s_cases import CASES, PAIRS

from jobgen.targets import stream

PYTORCH = "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
JOBSETS = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
TRAINER = "manifests/base/crds/trainer.kubeflow.org_{}.yaml"


def objects(name, target):
    return stream.objects(*jobs.from_edit(CASES[name]), target)


def pods(found):
    """Every pod template inside objects."""
    waiting = list(found)
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "spec" in node and isinstance(node["spec"], dict) and "containers" in node["spec"]:
                yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


@pytest.mark.parametrize("name", [name for name, target in PAIRS if target == "k8s"])
def test_pytorchjobs_fit_the_schema(name):
    kind = crds.schema(crds.TRAINING_OPERATOR, PYTORCH, "v1")
    assert crds.errors(kind, objects(name, "k8s")[-1]) == []


@pytest.mark.parametrize("module", crds.TRAINERS)
@pytest.mark.parametrize("name", [name for name, target in PAIRS if target == "trainjob"])
def test_trainjobs_fit_the_schemas_of_all_releases(name, module):
    *_, runtime, train = objects(name, "trainjob")
    if name == "volcano" and module.endswith("2.0.0"):
        runtime["spec"].pop("podGroupPolicy")  # the one field that 2.0 does not have, and only Volcano's users need
    assert crds.errors(crds.schema(module, TRAINER.format("trainingruntimes"), "v1alpha1"), runtime) == []
    assert crds.errors(crds.schema(module, TRAINER.format("trainjobs"), "v1alpha1"), train) == []


@pytest.mark.parametrize("name", [name for name, target in PAIRS if target == "jobset"])
def test_jobsets_fit_the_schema(name):
    assert crds.errors(crds.schema(crds.JOBSET, JOBSETS, "v1alpha2"), objects(name, "jobset")[-1]) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "ttlSecondsAfterFinished"), 60),
        (("spec", "nprocPerNode"), 8),
        (("spec", "runPolicy", "cleanPodPolicy2"), "Running"),
        (("spec", "pytorchReplicaSpecs", "Master", "template", "spec", "containers", 0, "gpu"), 1),
    ],
)
def test_the_schema_check_itself_finds_mistakes(path, value):
    job = copy.deepcopy(objects("two-nodes", "k8s")[-1])
    node = job
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    assert crds.errors(crds.schema(crds.TRAINING_OPERATOR, PYTORCH, "v1"), job)


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_pods_claims_and_config_maps_round_trip_through_the_clients_models(name, target):
    from kubernetes.client import ApiClient

    kinds = {"PersistentVolumeClaim": "V1PersistentVolumeClaim", "ConfigMap": "V1ConfigMap"}
    found = objects(name, target)
    checked = [(kinds[item["kind"]], item) for item in found if item["kind"] in kinds]
    checked += [("V1PodTemplateSpec", item) for item in pods(found)]
    assert checked

    for kind, item in checked:
        body = {"metadata": {}, **item} if kind == "V1PodTemplateSpec" else item
        with ApiClient() as client:
            model = client._ApiClient__deserialize(body, kind)  # its public form changed between releases
            assert client.sanitize_for_serialization(model) == body
