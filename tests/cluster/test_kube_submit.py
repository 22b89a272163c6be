"""jobgen submit, status, logs, cancel and list on a real Kubernetes, through the command line."""

from __future__ import annotations

import json
import os
import re
import time

import kube
import pytest
from kube_jobs import FAKE, KINDS, KubeCommandLine, namespace
from ruamel.yaml import YAML

from jobgen.schedulers.kube_objects import projected

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"),
]
TARGETS = ("k8s", "trainjob", "jobset")


@pytest.fixture(scope="module")
def place():
    with namespace() as name:
        yield name


@pytest.fixture
def cli(place, tmp_path):
    one = KubeCommandLine(tmp_path, place)
    yield one
    for kind in KINDS.values():
        kube.kubectl("-n", place, "delete", kind, "--all", "--wait=false", check=False)


def rendered(cli, spec, target):
    done = cli.call("render", spec, "--target", target)
    assert done.status == 0, done.err
    return list(YAML(typ="safe", pure=True).load_all(done.out))


def owners(item):
    return [(owner["kind"], owner["name"]) for owner in item["metadata"].get("ownerReferences", [])]


def gone(kind, name, place, seconds=60):
    deadline = time.monotonic() + seconds
    while kube.get(kind, name, place):
        assert time.monotonic() < deadline, f"{kind} {name} stays"
        time.sleep(0.5)


@pytest.mark.parametrize("target", TARGETS)
def test_the_rendered_objects_are_applied_as_jobgen_and_go_when_the_job_goes(cli, place, target):
    spec = cli.idle(f"objects-{target}")
    done = cli.call("submit", spec, "--target", target)
    assert done.status == 0, done.err
    assert re.fullmatch(rf"objects-{target}-[0-9a-f]{{6}}\n", done.out)
    handle = done.out.strip()
    wanted = rendered(cli, spec, target)
    assert wanted[0]["kind"] == "PersistentVolumeClaim"
    for item in wanted:
        live = kube.get(f"{item['kind']}.{item['apiVersion'].partition('/')[0]}" if "/" in item["apiVersion"] else item["kind"], item["metadata"]["name"], place)
        if item["kind"] == "PersistentVolumeClaim":
            assert not owners(live)
            continue
        body = {key: value for key, value in item.items() if key in ("spec", "data")}
        assert projected({key: live[key] for key in body}, body) == body
        applied = [m for m in json.loads(kube.kubectl("-n", place, "get", KINDS.get(target) if item["kind"] == wanted[-1]["kind"] else item["kind"],
                                                      item["metadata"]["name"], "--show-managed-fields", "-o", "json").stdout)["metadata"]["managedFields"]
                   if m["operation"] == "Apply"]  # fmt: skip
        assert [m["manager"] for m in applied] == ["jobgen"]
        if item["kind"] == wanted[-1]["kind"]:
            assert live["metadata"]["annotations"]["jobgen/handle"] == handle
        elif item["kind"] == "TrainingRuntime":  # owned, it would go first, and its TrainJob never
            assert not owners(live)
        else:
            assert owners(live) == [(wanted[-1]["kind"], f"objects-{target}")]
    assert cli.status(handle)["job_id"] == f"{place}/objects-{target}"
    assert (cli.folder / "state" / "jobs" / handle / "job.yaml").read_text() == cli.call("render", spec, "--target", target).out
    kube.kubectl("-n", place, "delete", KINDS[target], f"objects-{target}")
    gone("configmap", f"objects-{target}-files", place)
    found = cli.until(handle, "cancelled")
    assert found["native"] == "DELETED"
    assert not kube.get("trainingruntime", f"objects-{target}", place)
    assert kube.get("pvc", "ckpt", place)


@pytest.mark.parametrize("target", TARGETS)
def test_live_again_other_new_cancel(cli, place, target):
    """The same content is the same job, other content is refused with the difference, --new runs beside it."""
    name = f"again-{target}"
    spec = cli.idle(name)
    first = cli.sent(spec, target)
    again = cli.call("submit", spec, "--target", target)
    assert (again.status, again.out.strip()) == (0, first)
    assert "live already" in again.err
    other = cli.idle(name, file="other.yaml", launch__args=[f"/ckpt/{name}", "--steps", "21"])
    said = cli.refused(other, target, status=1)
    assert re.search(r"(?m)^-.*20", said), said
    assert re.search(r"(?m)^\+.*21", said), said
    second = cli.sent(other, target, "--new")
    assert {name, f"{name}-2"} <= set(cli.live(target))
    assert cli.status(second)["job_id"] == f"{place}/{name}-2"
    assert cli.sent(spec, target) == first
    assert kube.get("configmap", f"{name}-2-files", place)
    listed = {record["handle"]: record["phase"] for record in cli.list()}
    assert listed == {first: "queued", second: "queued"}

    begun = time.monotonic()
    done = cli.call("cancel", first)
    assert (done.status, done.out) == (0, "")
    assert f"{first} is cancelled; claim ckpt and the checkpoints on it stay" in done.err
    assert name not in cli.live(target)
    assert not kube.items("pods", place, "-l", f"jobgen/job={name}")
    assert time.monotonic() - begun < 60
    gone("configmap", f"{name}-files", place)
    assert kube.get("pvc", "ckpt", place)
    assert cli.call("status", first).status == 4
    assert "not live" in cli.call("cancel", first).err
    cli.call("cancel", second)
    third = cli.sent(spec, target)
    assert third != first
    assert cli.status(third)["job_id"] == f"{place}/{name}"
    cli.call("cancel", third)
    assert {record["phase"] for record in cli.list()} == {"cancelled"}


@pytest.mark.parametrize("target", TARGETS)
def test_long_names_still_fit_with_a_number(cli, place, target):
    from jobgen.targets.admission import budget

    name = ("long-name-" * 7)[: budget(2, target)].rstrip("-").ljust(budget(2, target), "x")
    first = cli.sent(cli.idle(name), target)
    second = cli.sent(cli.idle(name), target, "--new")
    assert first != second
    found = sorted(cli.live(target), key=len)
    assert len(found) == 2
    assert all(len(one) <= budget(2, target) for one in found)
    assert sum(one.endswith("-2") for one in found) == 1


def test_after_the_end_it_is_a_further_run(cli, place):
    """On fake nodes, whose pods end at once or by our hand."""
    spec = cli.job("ended", kubernetes__tolerations=FAKE, kubernetes__node_selector={"type": "kwok"}, launch__restarts=0)
    first = cli.sent(spec, "jobset")
    cli.until(first, "running", "succeeded", "failed")
    for pod in kube.items("pods", place, "-l", "jobgen/job=ended"):
        kube.kubectl("-n", place, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Succeeded"}}')
    assert cli.until(first, "succeeded", "failed", seconds=60)["phase"] == "succeeded"
    second = cli.sent(spec, "jobset")
    assert second != first
    assert cli.status(second)["job_id"] == f"{place}/ended-2"
    assert (cli.folder / "state" / "jobs" / second / "job.yaml").read_text().count("ended-2") > 3
    kube.kubectl("-n", place, "delete", "jobset", "ended")
    assert cli.status(first)["phase"] == "succeeded"
    assert [record["phase"] in ("queued", "running", "succeeded") for record in cli.list()] == [True, True]
    cli.call("cancel", second)


@pytest.mark.parametrize("target", TARGETS)
def test_a_dry_run_sends_nothing(cli, place, target):
    spec = cli.job(f"dry-{target}", volumes=[{"mount": "/ckpt", "claim": "dry", "create": {"size": "1GiB", "storage_class": "shared"}}])
    client = cli.call("submit", spec, "--target", target, "--dry-run=client")
    assert (client.status, client.out) == (0, cli.call("render", spec, "--target", target).out)
    assert f"--namespace={place} apply --server-side --field-manager=jobgen --validate=strict -f job.yaml" in client.err
    server = cli.call("submit", spec, "--target", target, "--dry-run=server")
    assert (server.status, server.out) == (0, "")
    assert "PersistentVolumeClaim dry is accepted" in server.err
    assert "its pods are accepted" in server.err
    words = "is accepted but for its runtime" if target == "trainjob" else "is accepted"
    assert f"dry-{target} {words}" in server.err
    assert cli.list() == []
    assert not cli.live(target)
    assert not kube.get("configmap", f"dry-{target}-files", place)
    assert not kube.get("pvc", "dry", place)


def test_a_dry_run_says_what_the_job_would_wait_for_and_what_its_pods_would_be_refused_for(cli, place):
    spec = cli.job("waits", launch__secrets=["HF_TOKEN"], kubernetes__secret="no-such-secret", kubernetes__queue="no-such-queue",
                   volumes=[{"mount": "/ckpt", "claim": "no-such-claim"}])  # fmt: skip
    done = cli.call("submit", spec, "--target", "jobset", "--dry-run=server")
    assert done.status == 0, done.err
    for kind, name in (("Secret", "no-such-secret"), ("LocalQueue", "no-such-queue"), ("PersistentVolumeClaim", "no-such-claim")):
        assert f"there is no {kind} {name} in namespace {place}" in done.err
    refused = cli.call("submit", cli.job("refused", kubernetes__priority_class="no-such-class"), "--target", "jobset", "--dry-run=server")
    assert refused.status == 3
    assert "the job would be taken, and its pods refused" in refused.err
    assert "no-such-class" in refused.err


WHY = {
    "node": ({"kubernetes__node_selector": {"jobgen-test/no": "such"}}, "is not scheduled: 0/"),
    "image": ({"launch__image": "no.such.registry.invalid/image:1"}, "ImagePullBackOff", "ErrImagePull"),
    "secret": ({"launch__secrets": ["HF_TOKEN"], "kubernetes__secret": "nothing"}, 'CreateContainerConfigError: secret \\"nothing\\" not found'),
    "claim": ({"volumes": [{"mount": "/ckpt", "claim": "nothing"}]}, 'persistentvolumeclaim \\"nothing\\" not found'),
    "class": ({"kubernetes__priority_class": "nothing"}, "no PriorityClass with name nothing was found"),
    "account": ({"kubernetes__service_account": "nothing"}, 'serviceaccount \\"nothing\\" not found'),
}


@pytest.mark.parametrize("target", ["k8s", "jobset"])
@pytest.mark.parametrize("case", WHY)
def test_why_it_waits_is_said_in_the_clusters_words(cli, target, case):
    changes, *words = WHY[case]
    handle = cli.sent(cli.job(f"why-{case}-{target}", **changes), target)
    deadline = time.monotonic() + 90
    while not any(word in json.dumps(found := cli.status(handle)) for word in words):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    assert found["phase"] == "queued", found
    assert "no output yet (queued: " in cli.call("logs", handle).err
    assert "of 2" in found["pods"], found
    cli.call("cancel", handle)


def test_list_asks_by_two_lists_however_many_jobs_there_are(cli, place):
    handles = [cli.sent(cli.idle(f"many-{number}", resources__nodes=1)) for number in range(6)]
    kube.kubectl("-n", place, "delete", "jobset", "many-0")
    found = {record["handle"]: record["phase"] for record in cli.list()}
    assert found == {handle: "cancelled" if number == 0 else "queued" for number, handle in enumerate(handles)}
    shown = cli.call("list").out
    assert all(handle in shown for handle in handles)
