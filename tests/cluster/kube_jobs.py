"""jobgen's command line against the test Kubernetes, as a user calls it; namespaces, users and a line that can be cut."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kube
from command_line import CommandLine, Done

HERE = Path(__file__).parent
KINDS = {"k8s": "pytorchjobs.kubeflow.org", "trainjob": "trainjobs.trainer.kubeflow.org", "jobset": "jobsets.jobset.x-k8s.io"}
FAKE = [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}]
"""Tolerated, a pod goes to a fake node and "runs" there."""
NOWHERE = {"jobgen-test/no": "such-node"}


def free_volumes() -> None:
    """The test cluster's few volumes are not provisioned: those whose claims are gone are emptied and given back."""
    for volume in json.loads(kube.kubectl("get", "pv", "-o", "json").stdout)["items"]:
        folder = volume["spec"].get("hostPath", {}).get("path", "")
        if volume["status"].get("phase") == "Released" and Path(folder).is_relative_to(kube.ROOT / "volumes"):
            shutil.rmtree(folder, ignore_errors=True)
            kube.kubectl("patch", "pv", volume["metadata"]["name"], "--type=merge", "-p", '{"spec": {"claimRef": null}}', check=False)


@contextlib.contextmanager
def namespace(prefix: str = "jg-submit") -> Iterator[str]:
    """A namespace of one's own."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    free_volumes()
    kube.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kube.kubectl("delete", "namespace", name, "--wait=false", check=False)


class KubeCommandLine(CommandLine):
    """``jobgen`` in ``folder``, for one namespace."""

    def __init__(self, folder: Path, namespace: str) -> None:
        super().__init__(folder)
        self.namespace = namespace
        self.env |= kube.environment() | {"JOBGEN_STATE": self.env["JOBGEN_STATE"]}

    def job(self, name: str, *, file: str = "spec.yaml", **changes: object) -> Path:
        """A spec of two pods with two ranks each; ``changes`` by path with ``__`` for dots."""
        tree: dict[str, Any] = {
            "name": name,
            "model": {"config": str(HERE.parent.parent / "examples" / "tiny" / "config.json"), "init": "random"},
            "training": {"method": "full", "framework": "custom", "sequence_length": 64, "max_steps": 20, "precision": "fp32",
                         "versions": {"torch": "1.13.1"}},
            "resources": {"nodes": 2, "gpus_per_node": 2, "gpu": {"name": "cpu", "memory": "2GiB"}, "fabric": "tcp"},
            "checkpoint": {"directory": f"/ckpt/{name}", "every_steps": 5, "keep": 5},
            "launch": {"launcher": "torchrun", "entrypoint": "train_gloo.py", "image": "localhost/train:1", "restarts": 2, "time_limit": "10m",
                       "args": [f"/ckpt/{name}", "--steps", "20", "--every", "5"],
                       "code": {"files": [str(HERE / "programs" / "train_gloo.py")]}},
            "volumes": [{"mount": "/ckpt", "claim": "ckpt", "create": {"size": "1GiB", "storage_class": "shared"}}],
            "kubernetes": {"namespace": self.namespace},
        }  # fmt: skip
        for path, value in changes.items():
            node = tree
            *above, last = path.split("__")
            for key in above:
                node = node.setdefault(key, {})
            node[last] = value
        target = self.folder / file
        target.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
        return target

    def idle(self, name: str, **changes: object) -> Path:
        """A job whose pods are never scheduled."""
        return self.job(name, kubernetes__node_selector=NOWHERE, **changes)

    def sent(self, spec: Path, target: str = "jobset", *more: object, env: dict[str, str] | None = None) -> str:
        """The handle of a submission that must succeed."""
        done = self.call("submit", spec, "--target", target, *more, env=env)
        assert done.status == 0, done.err
        assert done.out.count("\n") == 1, done.out
        return done.out.strip()

    def refused(self, spec: Path, target: str = "jobset", *more: object, env: dict[str, str] | None = None, status: int = 3) -> str:
        """The message of a submission that must fail; nothing may be left of it."""
        done: Done = self.call("submit", spec, "--target", target, *more, env=env)
        assert (done.status, done.out) == (status, ""), done
        return done.err

    def live(self, target: str = "jobset") -> dict[str, dict[str, Any]]:
        """The job objects of a target by name."""
        return {item["metadata"]["name"]: item for item in kube.items(KINDS[target], self.namespace)}

    def says(self, handle: str, *words: str, seconds: float = 60) -> dict[str, Any]:
        """Wait until the status holds these words."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.status(handle)
            if all(word in json.dumps(found, ensure_ascii=False) for word in words):
                return found
            assert time.monotonic() < deadline, (words, found)
            time.sleep(0.5)


def config(**changes: Any) -> dict[str, Any]:
    """The test cluster's kubeconfig as a tree, with other entries of the cluster, the user and the context."""
    done = kube.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    tree: dict[str, Any] = json.loads(done.stdout)
    tree["clusters"][0]["cluster"] |= changes.get("cluster", {})
    if "user" in changes:
        tree["users"][0]["user"] = changes["user"]
    tree["contexts"][0]["context"] |= changes.get("context", {})
    if "name" in changes:
        tree["contexts"][0]["name"] = tree["current-context"] = changes["name"]
    return tree


def written(folder: Path, name: str, tree: Any) -> dict[str, str]:
    """The environment in which that kubeconfig is used."""
    path = folder / name
    path.write_text(json.dumps(tree))
    path.chmod(0o600)
    return {"KUBECONFIG": str(path)}


def account(folder: Path, namespace: str, name: str, rules: list[dict[str, Any]]) -> dict[str, str]:
    """The environment of a user who may do only that (a service account with a token)."""
    meta = {"name": name, "namespace": namespace}
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
         "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]},
    ]  # fmt: skip
    kube.kubectl("apply", "-f", "-", text="\n---\n".join(map(json.dumps, objects)))
    token = kube.kubectl("-n", namespace, "create", "token", name).stdout.strip()
    return written(folder, f"{name}.kubeconfig", config(user={"token": token}))


class Line:
    """A TCP line to the API server that can be cut: TLS passes through it unread, the certificate stays the server's."""

    def __init__(self, folder: Path) -> None:
        tree = config()
        found = urlsplit(tree["clusters"][0]["cluster"]["server"])
        self.server = (str(found.hostname), found.port or 443)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = True
        self.delay = 0.0
        self.budget: int | None = None
        """Bytes that still pass in either direction before everything is cut."""
        self.passed = 0
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.lock = threading.Lock()
        cluster = {"server": f"https://127.0.0.1:{self.port}", "tls-server-name": self.server[0]}
        self.env = written(folder, f"line-{self.port}.kubeconfig", config(cluster=cluster))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if not self.open:
                near.close()
                continue
            try:
                far = socket.create_connection(self.server, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                self.pairs.append((near, far))
            threading.Thread(target=self._copy, args=(near, far, far), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near, far), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if self.delay:
                    time.sleep(self.delay)
                with self.lock:
                    if self.budget is not None and self.passed + len(data) > self.budget:
                        data = data[: max(0, self.budget - self.passed)]
                        self.open = False
                    self.passed += len(data)
                sink.sendall(data)
                if not self.open:
                    self.cut()
                    return
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Nothing passes any more, in either direction, on any connection."""
        self.open = False
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def mend(self, budget: int | None = None) -> None:
        """It passes again; with ``budget`` until so many bytes have passed."""
        self.passed, self.budget, self.open = 0, budget, True

    def close(self) -> None:
        """Never again."""
        self.cut()
        self.listener.close()
