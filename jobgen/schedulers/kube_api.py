"""The Kubernetes API through its client: server-side apply, strictly validated, and errors in words."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any

from jobgen.schedulers import kube_config
from jobgen.schedulers.errors import SchedulerError, Unreachable
from jobgen.schedulers.kube_config import Place
from jobgen.schedulers.kube_errors import SAFE, Missing, refusal

MANAGER = "jobgen"
"""Field manager of every apply."""
PLURALS = {
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "PodGroup": ("scheduling.volcano.sh/v1beta1", "podgroups"),
    "Workload": ("kueue.x-k8s.io/v1beta2", "workloads"),
    "LocalQueue": ("kueue.x-k8s.io/v1beta2", "localqueues"),
}
"""API version, where the object itself does not say it, and the name in paths."""
CREATE_ONLY = "1"
"""A resourceVersion that no object has: an apply with it makes a new object, or is refused because there is one."""
TRIES = 4
"""Of a request that an overloaded API server turns away."""

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML refuses, or folds as line breaks, where they stand as they are."""

Item = dict[str, Any]


def encoded(body: Any) -> bytes:
    """JSON that a YAML parser reads alike: the server parses an applied object as YAML, which knows no surrogate pairs
    (``\\ud83d\\ude80``)."""
    text = json.dumps(body, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class Api:
    """One place, with the user's credentials."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.namespace, self.server = place.namespace, place.server
        self.client = kube_config.client(place)
        self.headers = {"Accept": "application/json", "User-Agent": MANAGER, **kube_config.impersonation(place)}

    def path(self, kind: str, name: str = "", version: str | None = None) -> str:
        """Of a kind's objects, or of one."""
        known, plural = PLURALS[kind]
        version = version or known
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{base}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def call(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """One request; the JSON answer. Errors in jobgen's words."""
        for turn in range(TRIES):
            response = self._send(method, path, query, body, headers or {}, 60)
            data = self._whole(response)
            if response.status != 429 or turn == TRIES - 1:
                break
            with contextlib.suppress(ValueError):
                time.sleep(min(5.0, float(response.headers.get("Retry-After", 1))))
        if response.status >= 300:
            raise refusal(self.server, self.namespace, response.status, data, method, path)
        try:
            return json.loads(data)
        except ValueError:
            raise SchedulerError(f"{self.server} does not answer as an API server does: {data[:80].decode('utf-8', 'replace')!r}") from None

    def _whole(self, response: Any) -> bytes:
        from urllib3.exceptions import HTTPError

        try:
            data: bytes = response.read()
        except (HTTPError, OSError) as error:
            raise Unreachable(f"the answer of the API server at {self.server} broke off ({error}); {SAFE}") from None
        return data

    def _send(self, method: str, path: str, query: dict[str, str] | None, body: Any, headers: dict[str, str], seconds: float) -> Any:
        """The request on the client's own connections and credentials: its own methods change from release to release."""
        from urllib.parse import urlencode

        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError, SSLError

        sent = {"Content-Type": "application/json", **self.headers, **headers}
        for setting in self.client.configuration.auth_settings().values():
            if setting and setting["in"] == "header" and setting["value"]:
                sent[setting["key"]] = setting["value"]
        url = f"{self.client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self.client.rest_client.pool_manager.request(
                method, url, headers=sent, body=None if body is None else encoded(body), preload_content=False,
                timeout=Timeout(connect=10, read=seconds), retries=False,
            )  # fmt: skip
        except SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" not in str(error) and "doesn't match" not in str(error):
                raise Unreachable(f"the API server at {self.server} cannot be reached ({error}); {SAFE}") from None
            raise SchedulerError(f"the certificate of {self.server} is not the one that the kubeconfig vouches for: {error}") from None
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"the API server at {self.server} cannot be reached ({reason}); {SAFE}") from None

    def apply(self, item: Item, *, dry_run: bool = False, new: bool = False) -> Item:
        """Server-side apply as ``jobgen``, strictly validated; never taking fields from another manager. ``new``: only
        if no object has the name (Taken)."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": "false", **({"dryRun": "All"} if dry_run else {})}
        if new:
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": CREATE_ONLY}}
        path = self.path(item["kind"], item["metadata"]["name"], item["apiVersion"])
        made: Item = self.call("PATCH", path, query=query, body=item, headers={"Content-Type": "application/apply-patch+yaml"})
        return made

    def try_pod(self, pod: Item) -> None:
        """Let admission judge a pod that a controller will make."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Ignore", "dryRun": "All"}
        self.call("POST", self.path("Pod"), query=query, body=pod)

    def merge(self, item: Item, change: Item) -> None:
        """Change a few fields of that very object."""
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": item["metadata"]["uid"]}}
        path = self.path(item["kind"], item["metadata"]["name"], item["apiVersion"])
        self.call("PATCH", path, query={"fieldManager": MANAGER}, body=body, headers={"Content-Type": "application/merge-patch+json"})

    def get(self, kind: str, name: str, version: str | None = None) -> Item:
        """An object; Missing."""
        found: Item = self.call("GET", self.path(kind, name, version))
        return found

    def find(self, kind: str, name: str, version: str | None = None) -> Item | None:
        """An object, or None."""
        try:
            return self.get(kind, name, version)
        except Missing:
            return None

    def items(self, kind: str, labels: str = "", fields: str = "", version: str | None = None) -> list[Item]:
        """Objects by labels or fields, page by page."""
        query = {"limit": "500", **({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}
        found: list[Item] = []
        while True:
            page = self.call("GET", self.path(kind, version=version), query=query)
            found += page.get("items") or []
            if not (more := page.get("metadata", {}).get("continue")):
                return found
            query["continue"] = more

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind, without the rest of them."""
        accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"}
        found = self.call("GET", self.path(kind), headers=accept)
        return [row["metadata"]["name"] for row in found.get("items") or []]

    def events(self, name: str) -> list[Item]:
        """Warnings about an object, oldest first."""
        found = self.items("Event", fields=f"involvedObject.name={name},type=Warning")
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")))

    def delete(self, kind: str, name: str, version: str | None = None, *, uid: str | None = None) -> None:
        """Delete an object, and later what it owns; one that is gone already is fine. ``uid``: only that very one (Taken).

        Never in the foreground: a TrainJob whose runtime goes first stays for ever, because Trainer's webhook refuses
        every change of it, the removal of the finalizer too."""
        body: Item = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        with contextlib.suppress(Missing):
            self.call("DELETE", self.path(kind, name, version), body=body)

    def log(self, pod: str, container: str, *, follow: bool = False, previous: bool = False, since: str = "", seconds: float = 600) -> Iterator[bytes]:
        """A container's output in pieces, each line with its time. ``previous``: of the instance before the last restart."""
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower(), "previous": str(previous).lower()}
        path = self.path("Pod", pod) + "/log"
        response = self._send("GET", path, query | ({"sinceTime": since} if since else {}), None, {"Accept": "*/*"}, seconds)
        if response.status >= 300:
            raise refusal(self.server, self.namespace, response.status, self._whole(response), "GET", path)
        from urllib3.exceptions import HTTPError

        try:
            yield from response.stream(1 << 16, decode_content=False)
        except (HTTPError, OSError) as error:
            raise Unreachable(f"the log of {pod} broke off: {error}") from None
        finally:
            response.close()
