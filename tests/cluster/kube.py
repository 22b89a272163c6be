"""The test cluster's API server by kubectl, for the tests marked ``kube``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("JG_KUBE_ROOT", "/var/lib/jgkube"))


def environment() -> dict[str, str]:
    """The environment in which kubectl finds the test cluster."""
    config = os.environ.get("JG_KUBECONFIG", str(ROOT / "kubeconfig"))
    return {**os.environ, "KUBECONFIG": config, "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}"}


def kubectl(*args: str, text: str | None = None, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """One call of kubectl."""
    done = subprocess.run(
        ["kubectl", *args], input=text, capture_output=True, text=True, env=environment(), timeout=timeout, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr}")
    return done


def up() -> bool:
    """The test cluster answers."""
    if not (ROOT / "kubeconfig").exists() and "JG_KUBECONFIG" not in os.environ:
        return False
    try:
        return kubectl("get", "--raw", "/readyz", check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def get(kind: str, name: str, namespace: str) -> dict[str, Any]:
    """One object; empty when it is not there."""
    done = kubectl("-n", namespace, "get", kind, name, "-o", "json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def items(kind: str, namespace: str, *selector: str) -> list[dict[str, Any]]:
    """Objects of a kind."""
    done = kubectl("-n", namespace, "get", kind, *selector, "-o", "json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def refusal(objects: list[dict[str, Any]], namespace: str) -> str | None:
    """What the server says against these objects (sent one by one, nothing is kept), None when it takes all."""
    for sent in objects:
        done = dry_run(sent, namespace)
        if done.returncode:
            return done.stderr.strip()
    return None


def dry_run(sent: dict[str, Any], namespace: str) -> subprocess.CompletedProcess[str]:
    """Strict server-side apply of one object that is not kept."""
    own = sent.get("metadata", {}).get("namespace")
    where = [] if own else ["-n", namespace]
    return kubectl(
        *where, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-",
        text=json.dumps(sent), check=False,
    )  # fmt: skip


def with_pods(objects: list[dict[str, Any]], nodes: int) -> list[dict[str, Any]]:
    """The objects, and what their controllers will make of them: a pod and a service."""
    found = list(objects)
    last = objects[-1]
    name = last["metadata"]["name"]
    template, suffix, service = None, "", ""
    if last["kind"] == "PyTorchJob":
        replicas = last["spec"]["pytorchReplicaSpecs"]
        template = (replicas.get("Master") or replicas["Worker"])["template"]
        suffix, service = "-master-0", f"{name}-worker-{max(0, nodes - 2)}" if nodes > 1 else f"{name}-master-0"
    else:
        runtime = last if last["kind"] == "JobSet" else objects[-2]
        holder = runtime["spec"] if last["kind"] == "JobSet" else runtime["spec"]["template"]["spec"]
        template = holder["replicatedJobs"][0]["template"]["spec"]["template"]
        suffix = "-node-0-0-abcde"
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": f"{name}{suffix}"}
    if "namespace" in last["metadata"]:
        pod["metadata"]["namespace"] = last["metadata"]["namespace"]
    found.append(pod)
    if service:
        spec = {"clusterIP": "None", "ports": [{"name": "p", "port": 29500}]}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec})
    return found
