"""The real API server, with the webhooks of PyTorchJob, TrainJob, JobSet and Kueue, takes what the targets write."""

import json
import os
import uuid
from pathlib import Path

import collect_refusals
import jobs
import kube
import pytest
import yaml
from k8s_cases import CASES, PAIRS

from jobgen.targets import stream

EXAMPLES = Path(__file__).parents[1] / "targets" / "golden" / "examples"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(
        os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"
    ),
]


@pytest.fixture(scope="module")
def namespace():
    name = f"accept-{uuid.uuid4().hex[:8]}"
    kube.kubectl("create", "namespace", name)
    kube.kubectl("apply", "-f", "-", text=PRIORITY)
    kube.kubectl("-n", name, "create", "serviceaccount", "trainer")
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false")


PRIORITY = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_server_takes_every_object(name, target, namespace):
    job, spec = jobs.from_edit({**CASES[name], "spec": without_namespace(CASES[name].get("spec", {}))})
    found = stream.objects(job._replace(name=f"{name}-{target}"), spec, target)
    taken(found, job.nodes, namespace)


def taken(found, nodes, namespace):
    """The server takes the objects, and what their controllers would make of them."""
    for sent in kube.with_pods(found, nodes):
        done = kube.dry_run(sent, namespace)
        assert done.returncode == 0, f"{sent['kind']}: {done.stderr}"
        if sent["kind"] == "TrainingRuntime":  # a TrainJob's webhook looks for it, so it must really be there
            kube.kubectl("-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "-", text=json.dumps(sent))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_server_takes_every_example(file, namespace):
    found = list(yaml.safe_load_all(file.read_text()))
    for item in found:
        item["metadata"].pop("namespace", None)
    taken(found, 4, namespace)


def without_namespace(spec):
    kubernetes = {key: value for key, value in spec.get("kubernetes", {}).items() if key != "namespace"}
    return {**spec, "kubernetes": kubernetes}


@pytest.mark.parametrize("row", collect_refusals.rows(), ids=lambda row: row["id"])
def test_the_server_still_refuses_what_problems_finds(row, namespace):
    said = collect_refusals.ask(row, namespace)
    assert said is not None
    assert said[0] == row["object"]
    assert said[1].replace(namespace, "default")[:60] == row["server"][:60]
