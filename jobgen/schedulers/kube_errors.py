"""What the API server says against a request, in jobgen's words. All of them end a command with status 3."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jobgen.schedulers.errors import SchedulerError, Unreachable

NEEDS = {
    "kubeflow.org": "the Kubeflow training operator (1.8 or 1.9)",
    "trainer.kubeflow.org": "Kubeflow Trainer (2.0 or later)",
    "jobset.x-k8s.io": "JobSet",
    "scheduling.volcano.sh": "Volcano",
    "scheduling.x-k8s.io": "coscheduling (scheduler-plugins)",
    "kueue.x-k8s.io": "Kueue",
}
"""What must be installed when the API server does not know a group."""
SAFE = "repeating the command is safe"


class Missing(SchedulerError):
    """No such object."""


class UnknownKind(SchedulerError):
    """The cluster has no such API."""


class Forbidden(SchedulerError):
    """The user's roles do not allow it."""


class Taken(SchedulerError):
    """An object of that name is there already, or is another one than was meant."""


class Occupied(SchedulerError):
    """What was not submitted from here is in the way."""


def refusal(server: str, namespace: str, status: int, data: bytes, method: str, path: str) -> SchedulerError:
    """An answer that is no success."""
    body = _body(data)
    message = str(body.get("message") or data[:300].decode("utf-8", "replace").strip() or "no reason given")
    details = body.get("details") or {}
    causes = details.get("causes") or []
    match status:
        case 401:
            return SchedulerError(f"the cluster at {server} does not accept your credentials (has the token expired?): {message}; log in again and repeat")
        case 403:
            return _forbidden(namespace, message, causes)
        case 404:
            return _missing(server, namespace, message, details, path)
        case 409 if method in ("PATCH", "POST") and not causes:
            return Taken(message)
        case 409:
            return _conflict(message, causes)
        case 400 | 422 if webhook := _WEBHOOK.search(message):
            return SchedulerError(f"the cluster's webhook {webhook.group(1)} refuses the job: {webhook.group(2)}")
        case 400 | 413 | 422:
            return SchedulerError(f"the API server refuses the object: {message}")
        case 500 if webhook := _NO_WEBHOOK.search(message):
            return SchedulerError(f"the cluster's webhook {webhook.group(1)} does not answer, so nothing was taken: {webhook.group(2)}; repeat when its operator runs again")
        case 500 if "request is too large" in message:
            return SchedulerError(f"the object is larger than the cluster's store takes: {message}")
        case 429:
            return Unreachable(f"the API server at {server} is overloaded: {message}; {SAFE}")
        case 500 | 502 | 503 | 504:
            return Unreachable(f"the API server at {server} cannot answer now ({status}): {message}; {SAFE}")
        case _ if 300 <= status < 400:
            return SchedulerError(f"{server} sends elsewhere ({status}) instead of answering: is it an API server, or a login page before it?")
        case _:
            return SchedulerError(f"{method} {path}: {status} {message}")


_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_NO_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _forbidden(namespace: str, message: str, causes: Sequence[dict[str, Any]]) -> SchedulerError:
    if webhook := _WEBHOOK.search(message):
        return SchedulerError(f"the cluster's webhook {webhook.group(1)} refuses the job: {webhook.group(2)}")
    if "system:anonymous" in message:
        return SchedulerError(f"the cluster takes you for nobody (no credentials were sent): {message}; log in and repeat")
    if "exceeded quota" in message or "failed quota" in message:
        return SchedulerError(f"the quota of namespace {namespace} does not allow it: {message}")
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return SchedulerError(f"namespace {namespace} is being deleted: choose another, or wait and make it anew")
    if " cannot " in message:
        return Forbidden(f"you may not do this in namespace {namespace}: {message}; ask its owner for a role that may")
    return SchedulerError(f"the cluster forbids it in namespace {namespace}: {message}")


def _missing(server: str, namespace: str, message: str, details: dict[str, Any], path: str) -> SchedulerError:
    if details.get("kind") == "namespaces":
        return SchedulerError(f"namespace {namespace} does not exist: kubectl create namespace {namespace}, or write another kubernetes.namespace")
    if details.get("name"):
        return Missing(message)
    if path.startswith("/apis/"):
        _, _, group, version, *rest = path.split("/")
        plural = rest[2] if len(rest) > 2 else ""
        needs = NEEDS.get(group, group)
        return UnknownKind(f"the cluster at {server} does not know {plural} ({group}/{version}): {needs} is not installed there")
    return Missing(message)


def _conflict(message: str, causes: Sequence[dict[str, Any]]) -> SchedulerError:
    fields = [f"{cause.get('field')} ({cause.get('message')})" for cause in causes if cause.get("reason") == "FieldManagerConflict"]
    if fields:
        return Taken(f"an object of that name is there already and others own what jobgen would write: {'; '.join(fields)}")
    return Taken(message)
