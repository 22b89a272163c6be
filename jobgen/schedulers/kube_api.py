"""The Kubernetes API through its client: kubeconfig as kubectl chooses it, server-side apply, and errors in words."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from jobgen.schedulers.errors import SchedulerError, Unreachable
from jobgen.spec.record import NamedTuple

MANAGER = "jobgen"
"""Field manager of every apply."""


class Kind(NamedTuple):
    """Where objects of a kind live."""

    group: str
    version: str
    plural: str
    needs: str
    """What must be installed when the API server does not know the kind."""


KINDS = {
    "PersistentVolumeClaim": Kind("", "v1", "persistentvolumeclaims", ""),
    "ConfigMap": Kind("", "v1", "configmaps", ""),
    "Service": Kind("", "v1", "services", ""),
    "PyTorchJob": Kind("kubeflow.org", "v1", "pytorchjobs", "the Kubeflow training operator (1.8 or 1.9)"),
    "TrainingRuntime": Kind("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "Kubeflow Trainer (2.0 or later)"),
    "TrainJob": Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "Kubeflow Trainer (2.0 or later)"),
    "JobSet": Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    "PodGroup": Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "Volcano"),
    "Workload": Kind("kueue.x-k8s.io", "v1beta2", "workloads", "Kueue"),
}
JOBS = {"k8s": "PyTorchJob", "trainjob": "TrainJob", "jobset": "JobSet"}
"""The object of a target that is the job."""
COVERED = ("PersistentVolumeClaim",)
"""Never deleted: checkpoints live there."""


_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML refuses, or folds as line breaks, where they stand as they are."""


def encoded(body: Any) -> bytes:
    """JSON that a YAML parser reads alike: the server parses an applied object as YAML, which knows no surrogate pairs
    (``\\ud83d\\ude80``)."""
    text = json.dumps(body, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class Missing(Exception):
    """No such object."""


class Api:
    """One context and namespace."""

    def __init__(self, context: str | None, namespace: str | None) -> None:
        from kubernetes import client, config

        try:
            self.client = config.new_client_from_config(context=context)  # type: ignore[no-untyped-call]
            self.namespace = namespace or _context_namespace(context) or "default"
        except config.ConfigException as error:
            try:
                configuration = client.Configuration()
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except config.ConfigException:
                raise SchedulerError(f"no cluster to talk to: {error}; set KUBECONFIG or kubernetes.context") from None
            self.client = client.ApiClient(configuration)
            self.namespace = namespace or _own_namespace() or "default"
        self.server = self.client.configuration.host

    def _path(self, kind: str, name: str = "", version: str | None = None, group: str | None = None) -> str:
        known = KINDS[kind]
        group = known.group if group is None else group
        version = version or known.version
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{base}/namespaces/{self.namespace}/{known.plural}" + (f"/{name}" if name else "")

    def call(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, content: str = "application/json", seconds: float = 60) -> Any:
        """One request; the JSON answer. Errors in jobgen's words."""
        response = self._send(method, path, query, body, content, seconds)
        data = response.read()
        if response.status >= 400:
            raise _refusal(self, response.status, data, f"{method} {path}")
        return json.loads(data)

    def _send(self, method: str, path: str, query: dict[str, str] | None, body: Any, content: str, seconds: float) -> Any:
        """The request on the client's own connections and credentials: its own methods change from release to release."""
        from urllib.parse import urlencode

        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        configuration = self.client.configuration
        headers = {"Accept": "application/json", "Content-Type": content, "User-Agent": MANAGER}
        for setting in configuration.auth_settings().values():
            if setting and setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self.client.rest_client.pool_manager.request(
                method, url, headers=headers, body=None if body is None else encoded(body), preload_content=False,
                timeout=Timeout(connect=10, read=seconds), retries=False,
            )  # fmt: skip
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"the API server at {self.server} cannot be reached ({reason}); repeating the command is safe") from None

    def apply(self, item: dict[str, Any], *, dry_run: bool = False) -> Any:
        """Server-side apply as ``jobgen``, strictly validated; never taking fields from another manager."""
        kind = item["kind"]
        group, _, version = item["apiVersion"].rpartition("/")
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": "false"}
        if dry_run:
            query["dryRun"] = "All"
        path = self._path(kind, item["metadata"]["name"], version, group)
        return self.call("PATCH", path, query=query, body=item, content="application/apply-patch+yaml")

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object; Missing."""
        found: dict[str, Any] = self.call("GET", self._path(kind, name))
        return found

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects by label."""
        items: list[dict[str, Any]] = self.call("GET", self._path(kind), query={"labelSelector": selector} if selector else {})["items"]
        return items

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods by label."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        items: list[dict[str, Any]] = self.call("GET", path, query={"labelSelector": selector})["items"]
        return items

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of one object, oldest first."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        items: list[dict[str, Any]] = self.call("GET", path, query={"fieldSelector": f"involvedObject.name={name}"})["items"]
        return sorted(items, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and what it owns; one that is gone already is fine."""
        with contextlib.suppress(Missing):
            self.call("DELETE", self._path(kind, name), query={"propagationPolicy": "Background"})

    def log(self, pod: str, container: str, *, follow: bool, seconds: float = 3600) -> Iterator[bytes]:
        """A container's output in pieces."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        from urllib3.exceptions import HTTPError

        response = self._send("GET", path, {"container": container, "follow": "true" if follow else "false"}, None, "*/*", seconds)
        if response.status >= 400:
            raise _refusal(self, response.status, response.read(), f"GET {path}")
        try:
            yield from response.stream(4096, decode_content=False)
        except (HTTPError, OSError) as error:
            raise Unreachable(f"the log of {pod} broke off: {error}") from None


def _context_namespace(context: str | None) -> str | None:
    from kubernetes import config

    contexts, active = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    chosen = next((one for one in contexts if one["name"] == context), None) if context else active
    namespace: str | None = chosen["context"].get("namespace") if chosen else None
    return namespace


def _own_namespace() -> str | None:
    from pathlib import Path

    file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _refusal(api: Api, status: int, data: bytes, what: str) -> Exception:
    """A status of the API server in words."""
    try:
        body = json.loads(data)
    except ValueError:
        body = {}
    message = str(body.get("message") or data[:300].decode("utf-8", "replace"))
    if status == 401:
        return SchedulerError(f"the cluster does not accept your credentials (expired token?): {message}; log in again and repeat")
    if status == 403:
        return SchedulerError(f"you may not do this in namespace {api.namespace}: {message}")
    if status == 404:
        if body.get("details", {}).get("name"):
            return Missing(message)
        plural = what.split("/")[-2] if "/namespaces/" in what else ""
        for kind, known in KINDS.items():
            if known.needs and (f"/{known.plural}/" in what + "/" or known.plural == plural):
                return SchedulerError(f"the cluster does not know {kind} ({known.group}/{known.version}): {known.needs} is not installed there")
        return Missing(message)
    if status == 409:
        return SchedulerError(f"somebody else changed what jobgen would write: {message}")
    if status == 422 or status == 400:
        return SchedulerError(f"the API server refuses the object: {message}")
    if status in (429, 500, 502, 503, 504):
        return Unreachable(f"the API server cannot answer now ({status}): {message}; repeating the command is safe")
    return SchedulerError(f"{what}: {status} {message}")
