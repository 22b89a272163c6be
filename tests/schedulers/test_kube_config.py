"""Context, namespace and server as kubectl chooses them."""

from __future__ import annotations

import json
import os

import pytest

from jobgen.schedulers import kube_config
from jobgen.schedulers.kube_config import NoContext, resolve


def tree(name, server, namespace=None, current=True):
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    return {
        "clusters": [{"name": name, "cluster": {"server": server}}], "users": [{"name": name, "user": {"token": "t"}}],
        "contexts": [{"name": name, "context": context}], **({"current-context": name} if current else {}),
    }  # fmt: skip


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def make(*trees):
        paths = []
        for number, one in enumerate(trees):
            path = tmp_path / f"config-{number}"
            path.write_text(one if isinstance(one, str) else json.dumps(one))
            paths.append(str(path))
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), *paths]))
        return paths

    return make


def test_the_first_file_to_say_something_wins(write):
    paths = write("", tree("a", "https://a", "na"), tree("b", "https://b/"))
    place = resolve(None, None)
    assert (place.context, place.namespace, place.server, place.scope) == ("a", "na", "https://a", "https://a na")
    assert place.files == os.pathsep.join(paths[1:])
    write(tree("a", "https://a", current=False), tree("b", "https://b/"))
    assert resolve(None, None)[:3] == ("b", "default", "https://b")
    assert resolve("a", "mine")[:3] == ("a", "mine", "https://a")
    write(tree("a", "https://first"), tree("a", "https://second"))
    assert resolve(None, None).server == "https://first"


def test_home_is_read_when_nothing_is_set(write, tmp_path, monkeypatch):
    write()
    for value in (None, ""):
        monkeypatch.setenv("KUBECONFIG", "") if value == "" else monkeypatch.delenv("KUBECONFIG")
        (tmp_path / ".kube").mkdir(exist_ok=True)
        (tmp_path / ".kube" / "config").write_text(json.dumps(tree("home", "https://home")))
        assert resolve(None, None).context == "home"


@pytest.mark.parametrize(
    ("trees", "context", "words"),
    [
        ([], None, "no cluster to talk to: there is no kubeconfig at"),
        ([], "a", "context a was asked for and there is no kubeconfig"),
        ([tree("a", "https://a")], "b", "no context named b in .* \\(there are: a\\)"),
        ([tree("a", "https://a", current=False)], None, "no current context in"),
        ([tree("a", "https://a") | {"clusters": []}], None, "names the cluster a, which .* does not describe"),
        (["a: [b"], None, "is no YAML"),
        (["- a"], None, "a map is expected"),
    ],
)
def test_what_is_missing_is_said(write, trees, context, words):
    write(*trees)
    with pytest.raises(NoContext, match=words) as error:
        resolve(context, None)
    assert error.value.exit_status == 3


def test_inside_a_cluster(write, tmp_path, monkeypatch):
    write()
    monkeypatch.setattr(kube_config, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("t")
    assert resolve(None, None)[:3] == (None, "default", "https://10.0.0.1:443")
    (tmp_path / "namespace").write_text("own\n")
    assert resolve(None, None).namespace == "own"
    assert resolve(None, "asked").namespace == "asked"
    monkeypatch.setenv("POD_NAMESPACE", "pods")
    assert resolve(None, None).namespace == "pods"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert resolve(None, None).server == "https://[fd00::1]:443"
    with pytest.raises(NoContext):
        resolve("a", None)
