"""What a real API server says against a submission: each has its own message and exit status 3, leaves nothing behind,
and the call may be repeated."""

from __future__ import annotations

import json
import os
import socket
import time

import kube
import pytest
from kube_jobs import KINDS, KubeCommandLine, account, config, namespace, written

from jobgen.schedulers import kube_config
from jobgen.schedulers.kube_api import Api
from jobgen.schedulers.kube_errors import UnknownKind

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"),
]
OWN_JOBS = {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "create", "patch", "delete"]}
OWN_REST = {"apiGroups": [""], "resources": ["configmaps", "persistentvolumeclaims"], "verbs": ["get", "create", "patch", "delete"]}
OWN_PODS = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
ENOUGH = [OWN_JOBS, OWN_REST, OWN_PODS]
"""All that target jobset needs."""


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


def nothing_left(cli, name, namespace=None):
    """No receipt, no object but a claim."""
    assert cli.list() == []
    where = namespace or cli.namespace
    for kind in ("configmap", "jobset", "trainjob", "trainingruntime", "pytorchjob"):
        for found in (name, f"{name}-files"):
            assert not kube.get(kind, found, where), (kind, found)


def test_a_token_that_nobody_knows(cli, tmp_path):
    env = written(tmp_path, "bogus", config(user={"token": "bogus"}))
    said = cli.refused(cli.idle("bogus"), env=env)
    assert "does not accept your credentials (has the token expired?): Unauthorized; log in again and repeat" in said
    nothing_left(cli, "bogus")
    handle = cli.sent(cli.idle("bogus"))
    assert cli.call("status", handle, env=env).status == 3
    assert "credentials" in cli.call("list", env=env).out


def test_no_credentials_at_all(cli, tmp_path):
    said = cli.refused(cli.idle("nobody"), env=written(tmp_path, "nobody", config(user={})))
    assert "takes you for nobody" in said
    nothing_left(cli, "nobody")


def test_a_login_command_that_fails(cli, tmp_path):
    login = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}}
    said = cli.refused(cli.idle("login"), env=written(tmp_path, "login", config(user=login)))
    assert "the login command of context" in said
    nothing_left(cli, "login")


def test_nobody_listens(cli, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = written(tmp_path, "dead", config(cluster={"server": f"https://127.0.0.1:{port}"}))
    said = cli.refused(cli.idle("dead"), env=env)
    assert f"the API server at https://127.0.0.1:{port} cannot be reached" in said
    assert "repeating the command is safe" in said
    nothing_left(cli, "dead")


def test_a_name_that_does_not_resolve(cli, tmp_path):
    env = written(tmp_path, "name", config(cluster={"server": "https://no-such-host.invalid:6443"}))
    assert "https://no-such-host.invalid:6443 cannot be reached" in cli.refused(cli.idle("name"), env=env)


def test_another_certificate_than_the_kubeconfigs(cli, tmp_path):
    tree = config()
    tree["clusters"][0]["cluster"].pop("certificate-authority-data")
    said = cli.refused(cli.idle("tls"), env=written(tmp_path, "tls", tree))
    assert "the certificate of" in said
    nothing_left(cli, "tls")


def test_a_user_without_rights(cli, place, tmp_path):
    env = account(tmp_path, place, "reader", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}])
    said = cli.refused(cli.idle("reader"), env=env)
    assert f"you may not do this in namespace {place}" in said
    assert "cannot patch resource" in said or "cannot create resource" in said
    nothing_left(cli, "reader")
    none = account(tmp_path, place, "none", [])
    assert "cannot list resource" in cli.refused(cli.idle("none"), env=none)
    handle = cli.sent(cli.idle("reader"))
    assert cli.call("status", handle, env=env).status == 0
    done = cli.call("cancel", handle, env=env)
    assert done.status == 3
    assert 'cannot delete resource "jobsets"' in done.err
    assert cli.status(handle)["phase"] == "queued"


def test_a_user_with_no_more_rights_than_it_takes(cli, place, tmp_path):
    env = account(tmp_path, place, "enough", ENOUGH)
    spec = cli.idle("enough")
    handle = cli.sent(spec, env=env)
    assert cli.sent(spec, env=env) == handle
    assert cli.call("status", handle, env=env).status == 0
    assert kube.get("configmap", "enough-files", place)["metadata"]["ownerReferences"]
    done = cli.call("cancel", handle, env=env)
    assert done.status == 0, done.err
    tried = cli.call("submit", spec, "--target", "jobset", "--dry-run=server", env=env)
    assert tried.status == 0, tried.err
    assert "its pods were not judged: you may not make pods yourself" in tried.err


def test_a_user_who_may_make_all_but_the_job(cli, place, tmp_path):
    """What was made before is removed again."""
    env = account(tmp_path, place, "almost", [{**OWN_JOBS, "verbs": ["get", "list"]}, OWN_REST, OWN_PODS])
    said = cli.refused(cli.idle("almost"), env=env)
    assert 'cannot patch resource "jobsets"' in said
    nothing_left(cli, "almost")


def test_a_namespace_that_does_not_exist(cli):
    said = cli.refused(cli.idle("nowhere"), "jobset", "--set", "kubernetes.namespace=no-such-namespace")
    assert "namespace no-such-namespace does not exist: kubectl create namespace no-such-namespace" in said
    assert cli.list() == []


def test_a_namespace_that_is_being_deleted(cli, place):
    with namespace() as dying:
        held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "namespace": dying, "finalizers": ["jobgen.test/held"]}}
        kube.kubectl("apply", "-f", "-", text=json.dumps(held))
        kube.kubectl("delete", "namespace", dying, "--wait=false")
        said = cli.refused(cli.idle("dying"), "jobset", "--set", f"kubernetes.namespace={dying}")
        assert f"namespace {dying} is being deleted" in said
        kube.kubectl("-n", dying, "patch", "configmap", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def test_an_api_that_the_cluster_does_not_have(place):
    """The real server's answer for a version that is not installed."""
    api = Api(kube_config.resolve(None, place, kube.environment()["KUBECONFIG"]))
    for version in ("kubeflow.org/v9", "no-such.example.org/v1"):
        item = {"apiVersion": version, "kind": "PyTorchJob", "metadata": {"name": "x"}, "spec": {}}
        for call in (lambda item=item: api.apply(item, new=True), lambda item=item: api.find("PyTorchJob", "x", item["apiVersion"])):
            with pytest.raises(UnknownKind, match="does not know pytorchjobs"):
                call()


@pytest.mark.parametrize("target", KINDS)
def test_a_job_of_the_name_that_somebody_else_made(cli, place, target):
    name = f"theirs-{target}"
    theirs = cli.call("render", cli.idle(name, file="theirs.yaml", launch__restarts=1), "--target", target).out
    kube.kubectl("-n", place, "apply", "--server-side", "--force-conflicts", "-f", "-", text=theirs)
    before = cli.live(target)[name]
    spec = cli.idle(name)
    said = cli.refused(spec, target)
    assert f"named {name} is live in namespace {place} and was not submitted from here" in said
    assert "--- live " in said, said
    assert "+++ wanted" in said
    assert cli.list() == []
    assert cli.live(target)[name]["metadata"]["generation"] == before["metadata"]["generation"]
    beside = cli.sent(spec, target, "--new")
    assert cli.status(beside)["job_id"] == f"{place}/{name}-2"
    assert cli.live(target)[name]["metadata"]["generation"] == before["metadata"]["generation"]


def test_the_same_job_from_another_machine(cli, place, tmp_path):
    spec = cli.idle("elsewhere")
    other = {"JOBGEN_STATE": str(tmp_path / "another state")}
    theirs = cli.sent(spec, env=other)
    said = cli.refused(spec)
    assert f"was submitted from elsewhere as {theirs}" in said
    assert "(its content is the same)" in said
    cli.call("cancel", theirs, env=other)
    cli.sent(spec)


def test_a_config_map_of_the_name_that_is_not_jobgens(cli, place):
    kube.kubectl("-n", place, "create", "configmap", "mapped-files", "--from-literal=mine=1")
    said = cli.refused(cli.idle("mapped"))
    assert f"ConfigMap mapped-files in namespace {place} is there already and is not jobgen's" in said
    assert kube.get("configmap", "mapped-files", place)["data"] == {"mine": "1"}
    handle = cli.sent(cli.idle("mapped"), "jobset", "--new")
    assert cli.status(handle)["job_id"] == f"{place}/mapped-2"
    assert kube.get("configmap", "mapped-files", place)["data"] == {"mine": "1"}


def asks(cli, name, claim, size="2GiB", nodes=2, **more):
    """A job that wants that claim."""
    create = {"size": size, "storage_class": "shared", **more}
    return cli.idle(name, resources__nodes=nodes, volumes=[{"mount": "/ckpt", "claim": claim, "create": create}])


@pytest.mark.parametrize("target", KINDS)
def test_two_jobs_may_ask_for_the_same_claim(cli, place, target):
    """Each may be the first; nothing on the claim is of one job, and it stays when both are gone."""
    claim = f"both-{target}"
    first = cli.sent(asks(cli, f"first-{target}", claim), target)
    made = kube.get("pvc", claim, place)
    second = cli.sent(asks(cli, f"second-{target}", claim), target)
    after = kube.get("pvc", claim, place)
    assert after["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "jobgen"}
    assert not {key for key in after["metadata"].get("annotations", {}) if key.startswith("jobgen/")}
    assert after["spec"]["resources"] == made["spec"]["resources"]
    assert {record["handle"]: record["phase"] for record in cli.list()} == {first: "queued", second: "queued"}
    assert f"{first} is cancelled; claim {claim} and the checkpoints on it stay" in cli.call("cancel", first).err
    assert cli.status(second)["phase"] == "queued"
    assert f"claim {claim} and the checkpoints on it stay" in cli.call("cancel", second).err
    assert kube.get("pvc", claim, place)["metadata"]["uid"] == made["metadata"]["uid"]


def test_two_rendered_jobs_apply_the_same_claim_without_a_conflict(cli, place):
    for name in ("rendered-1", "rendered-2"):
        text = cli.call("render", asks(cli, name, "rendered"), "--target", "jobset").out
        kube.kubectl("-n", place, "apply", "--server-side", "--field-manager", name, "-f", "-", text=text)
    assert kube.get("pvc", "rendered", place)


def test_eight_submissions_at_once_ask_for_one_claim(cli, place):
    calls = [cli.start("submit", asks(cli, f"at-once-{n}", "at-once"), "--target", "jobset") for n in range(8)]
    ends = [call.communicate(timeout=300) for call in calls]
    assert [call.returncode for call in calls] == [0] * 8, ends


@pytest.mark.parametrize("target", KINDS)
def test_a_claim_that_is_another_than_the_spec_describes_is_refused(cli, place, target):
    claim = f"other-{target}"
    first = cli.sent(asks(cli, f"maker-{target}", claim), target)
    cases = {
        "size 2Gi instead of 3Gi": {"size": "3GiB"},
        "storage class shared instead of fast": {"storage_class": "fast"},
        "access mode ReadWriteMany instead of ReadWriteOncePod": {"access_mode": "ReadWriteOncePod", "nodes": 1},
    }
    for words, changes in cases.items():
        spec = asks(cli, f"wants-{target}", claim, **changes)
        said = cli.refused(spec, target)
        assert f"claim {claim} is there already, with {words}: write what is there" in said
        assert cli.call("submit", spec, "--target", target, "--dry-run=server").status == 3
        assert not kube.get("configmap", f"wants-{target}-files", place)
    assert {record["handle"] for record in cli.list()} == {first}
    cli.sent(asks(cli, f"wants-{target}", claim, size="1GiB"), target)  # more room than asked for is fine


def test_a_refused_claim_leaves_no_other_behind(cli, place):
    cli.sent(asks(cli, "occupies", "occupied"))
    volumes = [{"mount": f"/{name}", "claim": name, "create": {"size": "9GiB", "storage_class": "shared"}} for name in ("unmade", "occupied")]
    assert "claim occupied is there already" in cli.refused(cli.idle("two-claims", volumes=volumes, checkpoint__directory="/unmade/x"))
    assert not kube.get("pvc", "unmade", place)


def test_claims_are_never_deleted_or_changed(cli, place):
    kube.kubectl("-n", place, "apply", "-f", "-", text=json.dumps({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "shared", "resources": {"requests": {"storage": "5Gi"}}}}))  # fmt: skip
    before = kube.get("pvc", "mine", place)
    spec = asks(cli, "claims", "mine")
    cli.call("cancel", cli.sent(spec))
    after = kube.get("pvc", "mine", place)
    assert (after["metadata"]["uid"], after["spec"]["resources"], after["metadata"].get("labels")) == (before["metadata"]["uid"], before["spec"]["resources"], None)
    kube.kubectl("-n", place, "patch", "pvc", "mine", "--type=merge", "-p", '{"metadata": {"finalizers": ["jobgen.test/held"]}}')
    kube.kubectl("-n", place, "delete", "pvc", "mine", "--wait=false")
    try:
        assert "claim mine is being deleted" in cli.refused(spec)
        assert [record["phase"] for record in cli.list()] == ["cancelled"]
        assert not kube.get("configmap", "claims-files", place)
    finally:
        kube.kubectl("-n", place, "patch", "pvc", "mine", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def test_quota_for_jobs_and_for_pods(cli):
    with namespace() as small:
        cli.namespace = small
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": small}, "spec": {"hard": {"count/jobsets.jobset.x-k8s.io": "0"}}}
        kube.kubectl("apply", "-f", "-", text=json.dumps(quota))
        until(lambda: kube.get("resourcequota", "none", small).get("status", {}).get("hard"))
        said = cli.refused(cli.idle("quota"))
        assert f"the quota of namespace {small} does not allow it" in said
        assert "exceeded quota: none" in said
        nothing_left(cli, "quota", small)
        quota["spec"] = {"hard": {"count/jobsets.jobset.x-k8s.io": "9", "requests.nvidia.com/gpu": "1"}}
        kube.kubectl("replace", "-f", "-", text=json.dumps(quota))
        until(lambda: "requests.nvidia.com/gpu" in kube.get("resourcequota", "none", small)["status"].get("used", {}))
        dry = cli.call("submit", cli.idle("quota"), "--target", "jobset", "--dry-run=server")
        assert dry.status == 3, dry.err
        assert "the job would be taken, and its pods refused" in dry.err
        handle = cli.sent(cli.idle("quota"))
        found = cli.says(handle, "exceeded quota: none", "requests.nvidia.com/gpu", seconds=90)
        assert (found["phase"], found["pods"]) == ("queued", "none of 2")


def test_pod_security_is_found_by_a_dry_run(cli):
    with namespace() as strict:
        cli.namespace = strict
        kube.kubectl("label", "namespace", strict, "pod-security.kubernetes.io/enforce=restricted")
        done = cli.call("submit", cli.idle("secure"), "--target", "jobset", "--dry-run=server")
        assert done.status == 3, done.err
        assert "the job would be taken, and its pods refused" in done.err
        assert "violates PodSecurity" in done.err


def test_a_webhook_that_says_no_and_one_that_is_down(cli, place):
    said = cli.refused(cli.idle("webhook", kubernetes__labels={"kueue.x-k8s.io/queue-name": "Not_A_Name"}))
    assert "refuses the job" in said or "refuses the object" in said
    nothing_left(cli, "webhook")
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": place},
        "webhooks": [{
            "name": "down.jobgen.test", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place}},
            "rules": [{"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobsets"]}],
            "clientConfig": {"service": {"name": "nothing", "namespace": place, "path": "/"}}}],
    }  # fmt: skip
    kube.kubectl("apply", "-f", "-", text=json.dumps(hook))
    try:
        time.sleep(2)
        said = cli.refused(cli.idle("down"))
        assert "the cluster's webhook down.jobgen.test does not answer, so nothing was taken" in said
        assert "repeat when its operator runs again" in said
        nothing_left(cli, "down")
    finally:
        kube.kubectl("delete", "validatingwebhookconfiguration", place)
    cli.sent(cli.idle("down"))


def until(question, seconds=60):
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_context_and_namespace_are_kubectls(cli, place, tmp_path):
    """Several files, of which the first to say something wins; the context's own namespace; the spec's words win."""
    first, second = config(name="first", context={"namespace": place}), config(name="second", context={"namespace": "other"})
    written(tmp_path, "second.config", second)
    written(tmp_path, "first.config", first)
    (tmp_path / "empty.config").write_text("")
    paths = [str(tmp_path / f"{name}.config") for name in ("missing", "empty", "first", "second")]
    env = {"KUBECONFIG": os.pathsep.join(paths)}
    spec = cli.idle("chosen", kubernetes={"node_selector": {"no": "where"}})
    for names in (paths, paths[:2] + paths[:1:-1]):
        joined = {"KUBECONFIG": os.pathsep.join(names)}
        chosen = kubectl_chooses(joined)
        done = cli.call("submit", spec, "--target", "jobset", "--dry-run=client", env=joined)
        assert f"--context={chosen[0]} --namespace={chosen[1]} " in done.err
    handle = cli.sent(spec, env=env)
    assert cli.call("status", handle, "--format", "json", env=env).out.count(f'"{place}/chosen"') == 1
    other = {"KUBECONFIG": paths[-1]}
    assert cli.call("status", handle, env=other).status == 0, "the kubeconfig of the submission is remembered"
    (tmp_path / "first.config").rename(tmp_path / "moved")
    lost = cli.call("status", handle, env=other)
    assert lost.status == 3
    assert f"{handle} cannot be asked for: no context named first" in lost.err
    moved = config(name="first", cluster={"server": "https://127.0.0.1:1"}, context={"namespace": place})
    elsewhere = cli.call("status", handle, env=written(tmp_path, "first.config", moved))
    assert elsewhere.status == 3
    assert "context first leads to https://127.0.0.1:1 now, and the job is on" in elsewhere.err
    unknown = cli.call("submit", spec, "--target", "jobset", "--set", "kubernetes.context=nothing", env=other)
    assert unknown.status == 3
    assert "no context named nothing in" in unknown.err
    assert "(there are: second)" in unknown.err
    none = cli.call("submit", spec, "--target", "jobset", env={"KUBECONFIG": str(tmp_path / "missing")})
    assert none.status == 3
    assert "there is no kubeconfig at" in none.err


def kubectl_chooses(env):
    import subprocess

    def ask(*words):
        return subprocess.run(["kubectl", "config", *words], env=kube.environment() | env, text=True, capture_output=True, check=True).stdout.strip()

    return ask("current-context"), ask("view", "--minify", "-o", "jsonpath={..namespace}")
