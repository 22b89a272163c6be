"""What the API server may say, in jobgen's words; and how it is asked."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jobgen.schedulers import kube_config
from jobgen.schedulers.errors import SchedulerError, Unreachable
from jobgen.schedulers.kube_api import Api, encoded
from jobgen.schedulers.kube_errors import Forbidden, Missing, Taken, UnknownKind

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": {"x": "é🚀\u2028"}}


def helper(name):
    full = f"jobgen_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / f"{name}.py")
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


failure = helper("kube_server").failure


@pytest.fixture
def server():
    one = helper("kube_server").Server()
    yield one
    one.http.shutdown()


@pytest.fixture
def api(server, tmp_path):
    return Api(kube_config.resolve(None, "ml", str(server.config(tmp_path))))


CONFLICT = failure(
    409, 'Apply failed with 1 conflict: conflict with "kubectl-edit" using kubeflow.org/v1: .spec.x', "Conflict",
    causes=[{"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using kubeflow.org/v1', "field": ".spec.x"}],
)  # fmt: skip
SAID = [
    (failure(401, "Unauthorized", "Unauthorized"), SchedulerError, "does not accept your credentials (has the token expired?): Unauthorized; log in again"),
    (failure(403, 'pytorchjobs.kubeflow.org "j" is forbidden: User "a" cannot patch resource "pytorchjobs"', "Forbidden"), Forbidden, "you may not do this in namespace ml"),
    (failure(403, 'pytorchjobs.kubeflow.org "j" is forbidden: User "system:anonymous" cannot get', "Forbidden"), SchedulerError, "takes you for nobody"),
    (failure(403, 'pods "j" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1', "Forbidden"), SchedulerError, "the quota of namespace ml"),
    (failure(403, "is being terminated", "Forbidden", causes=[{"reason": "NamespaceTerminating"}]), SchedulerError, "namespace ml is being deleted"),
    (failure(403, 'admission webhook "gate.example" denied the request: no budget', "Forbidden"), SchedulerError, "webhook gate.example refuses the job: no budget"),
    (failure(403, "violates PodSecurity", "Forbidden"), SchedulerError, "the cluster forbids it in namespace ml: violates PodSecurity"),
    (failure(404, 'namespaces "ml" not found', "NotFound", name="ml", kind="namespaces"), SchedulerError, "namespace ml does not exist: kubectl create namespace ml"),
    (failure(404, 'pytorchjobs.kubeflow.org "j" not found', "NotFound", name="j", kind="pytorchjobs"), Missing, '"j" not found'),
    (failure(404, "the server could not find the requested resource", "NotFound"), UnknownKind, "does not know pytorchjobs (kubeflow.org/v1): the Kubeflow training operator (1.8 or 1.9) is not installed"),
    ((404, b"404 page not found\n"), UnknownKind, "does not know pytorchjobs"),
    (failure(409, "Operation cannot be fulfilled: the object has been modified", "Conflict", name="j"), Taken, "has been modified"),
    (CONFLICT, Taken, 'others own what jobgen would write: .spec.x (conflict with "kubectl-edit"'),
    (failure(400, 'strict decoding error: unknown field "spec.y"', "BadRequest"), SchedulerError, 'refuses the object: strict decoding error: unknown field "spec.y"'),
    (failure(422, "spec.x: Invalid value", "Invalid"), SchedulerError, "refuses the object: spec.x: Invalid value"),
    (failure(422, 'admission webhook "v.example" denied the request: bad\nvery bad', "Invalid"), SchedulerError, "webhook v.example refuses the job: bad\nvery bad"),
    (failure(413, "Request entity too large: limit is 3145728", "RequestEntityTooLarge"), SchedulerError, "refuses the object: Request entity too large"),
    (failure(500, 'Internal error occurred: failed calling webhook "v.example": failed to call webhook: connection refused'), SchedulerError, "webhook v.example does not answer, so nothing was taken"),
    (failure(500, "etcdserver: request is too large"), SchedulerError, "larger than the cluster's store takes"),
    (failure(500, "etcdserver: leader changed"), Unreachable, "cannot answer now (500): etcdserver: leader changed; repeating the command is safe"),
    (failure(503, "apiserver is shutting down"), Unreachable, "cannot answer now (503)"),
    ((504, b"<html>gateway timeout</html>"), Unreachable, "cannot answer now (504): <html>gateway timeout"),
    ((302, b"", {"Location": "https://login.example"}), SchedulerError, "sends elsewhere (302)"),
    ((200, b"<html>please log in</html>"), SchedulerError, "does not answer as an API server does: '<html>please"),
    ((418, b"teapot"), SchedulerError, "418 teapot"),
    ((0, b""), Unreachable, "cannot be reached"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "words"), SAID, ids=[f"{n}-{row[0][0]}" for n, row in enumerate(SAID)])
def test_every_refusal_has_its_own_words_and_status_3(api, server, answer, kind, words):
    server.say("*", "", answer)
    with pytest.raises(SchedulerError) as error:
        api.apply(JOB)
    assert type(error.value) is kind
    assert words in str(error.value)
    assert error.value.exit_status == 3


def test_an_answer_that_breaks_off(api, server):
    server.say("*", "", (200, b'{"kind": ', {"Content-Length": "100", "Connection": "close"}))
    with pytest.raises(Unreachable, match=r"broke off|cannot be reached"):
        api.apply(JOB)


def test_an_overloaded_server_is_asked_again(api, server):
    busy = (429, b'{"message": "too many"}', {"Retry-After": "0"})
    server.say("*", "", busy, busy, JOB)
    assert api.apply(JOB) == JOB
    assert len(server.asked) == 3
    server.say("*", "", busy)
    with pytest.raises(Unreachable, match="is overloaded: too many; repeating"):
        api.apply(JOB)


def test_apply_is_strict_server_side_and_takes_no_fields(api, server):
    server.say("*", "", JOB)
    api.apply(JOB, dry_run=True, new=True)
    method, path, headers, body = server.asked[0]
    assert (method, urlsplit(path).path) == ("PATCH", "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/j")
    assert parse_qs(urlsplit(path).query) == {"fieldManager": ["jobgen"], "fieldValidation": ["Strict"], "force": ["false"], "dryRun": ["All"]}
    assert (headers["Content-Type"], headers["authorization"]) == ("application/apply-patch+yaml", "Bearer t0ken")
    sent = json.loads(body)
    assert sent["spec"] == JOB["spec"]
    assert sent["metadata"] == {"name": "j", "resourceVersion": "1"}
    assert "🚀".encode() in body
    assert b"\\u2028" in body


def test_text_is_sent_so_that_yaml_reads_it_alike():
    from ruamel.yaml import YAML

    text = "a\u0085b\u2028c\ufeffd🚀\x7f\uffff"
    assert YAML(typ="safe", pure=True).load(encoded({"x": text}).decode()) == {"x": text}


def test_lists_are_read_page_by_page(api, server):
    server.say("GET", "continue=next", {"items": [{"metadata": {"name": "b"}}], "metadata": {}})
    server.say("GET", "pods?limit=500&labelSelector=", {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "next"}})
    server.say("GET", "continue=next", {"items": [{"metadata": {"name": "b"}}], "metadata": {}})
    assert [item["metadata"]["name"] for item in api.items("Pod", labels="a=b")] == ["a", "b"]


def test_delete_of_what_is_gone_is_fine_and_names_the_very_object(api, server):
    server.say("DELETE", "", failure(404, "not found", "NotFound", name="j", kind="pytorchjobs"))
    api.delete("PyTorchJob", "j", uid="u-1")
    assert json.loads(server.asked[0][3]) == {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": "u-1"}}
    server.say("DELETE", "", failure(409, "Precondition failed: UID in precondition: u-1, UID in object meta: u-2", "Conflict", name="j"))
    with pytest.raises(Taken, match="Precondition failed"):
        api.delete("PyTorchJob", "j", uid="u-1")


def test_impersonation_is_sent(server, tmp_path):
    path = server.config(tmp_path)
    tree = json.loads(path.read_text())
    tree["users"][0]["user"] |= {"as": "ada", "as-groups": ["team", "all"]}
    path.write_text(json.dumps(tree))
    server.say("*", "", JOB)
    Api(kube_config.resolve(None, None, str(path))).get("PyTorchJob", "j")
    assert server.asked[0][2]["Impersonate-User"] == "ada"


def test_trainers_webhook_is_given_time_to_see_a_new_runtime(api, server):
    from jobgen.schedulers.kubernetes_scheduler import _patiently

    said = 'admission webhook "vtrainjob.kb.io" denied the request: runtime \'j\' not found'
    server.say("PATCH", "", failure(422, said, "Invalid"), failure(422, said, "Invalid"), JOB)
    _patiently(lambda: api.apply(JOB, dry_run=True))
    assert [parse_qs(urlsplit(path).query)["dryRun"] for _, path, _, _ in server.asked] == [["All"]] * 3
    server.say("PATCH", "", failure(422, "spec.x: Invalid value", "Invalid"))
    with pytest.raises(SchedulerError, match="Invalid value"):
        _patiently(lambda: api.apply(JOB, dry_run=True))
