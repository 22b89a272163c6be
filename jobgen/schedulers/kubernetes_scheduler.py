"""Kubernetes as a scheduler of runs: PyTorchJob, TrainJob and JobSet."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from jobgen.schedulers.errors import Conflict, SchedulerError, Unreachable
from jobgen.schedulers.kube_api import COVERED, JOBS, MANAGER, Api, Missing
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Phase, Status
from jobgen.schedulers.submit import Request, Say

ENDED: dict[str, Phase] = {"Succeeded": "succeeded", "Complete": "succeeded", "Completed": "succeeded", "Failed": "failed"}
MOST_RUNS = 1000


class KubernetesScheduler:
    """The rendered objects by server-side apply."""

    artifact_name = "job.yaml"

    def __init__(self, target: str) -> None:
        self.target, self.kind = target, JOBS[target]

    def scope(self, details: dict[str, Any]) -> str:
        """Context and namespace as asked for."""
        return f"{details.get('context') or ''}/{details.get('namespace') or ''}"

    def _api(self, details: dict[str, Any]) -> Api:
        return Api(details.get("context"), details.get("namespace"))

    def prepare(self, request: Request) -> dict[str, Any]:
        """A name that is free: the job's own, else one with a number. A live job that was not sent from here is in the way."""
        api = self._api(request.details)
        base = _job(_objects(request.artifact.text), self.kind)["metadata"]["name"]
        for run in range(1, MOST_RUNS):
            name = base if run == 1 else f"{base}-{run}"
            try:
                found = api.get(self.kind, name)
            except Missing:
                return {"object": name, "namespace": api.namespace, "run": run}
            if _status(found).phase not in ("succeeded", "failed") and not request.new:
                raise Conflict(
                    f"a {self.kind} named {name} is live in namespace {api.namespace} and was not submitted from here; "
                    f"delete it, give this job another name, or pass --new"
                )
        raise SchedulerError(f"{MOST_RUNS} runs named {base} exist in namespace {api.namespace}: delete old ones")

    def send(self, receipt: Receipt, request: Request, lock: Lock, say: Say) -> str:
        """Apply every object in order, the job last; repeating it changes nothing."""
        api = self._api(receipt.details)
        artifact = request.artifact.text if receipt.details["run"] == 1 else request.renamed(f"-{receipt.details['run']}").text
        (receipt.folder / self.artifact_name).write_text(artifact, encoding="utf-8")
        made: list[tuple[str, str]] = []
        try:
            for item in _objects(artifact):
                if item["kind"] in COVERED and _exists(api, item):
                    continue
                api.apply(item)
                made.append((item["kind"], item["metadata"]["name"]))
        except Unreachable:
            raise
        except SchedulerError:
            for kind, name in reversed(made):
                if kind not in COVERED:
                    api.delete(kind, name)
            raise
        return f"{api.namespace}/{receipt.details['object']}"

    def lookup(self, receipt: Receipt) -> str | None:
        """The job by its name, if it is jobgen's."""
        api = self._api(receipt.details)
        try:
            found = api.get(self.kind, receipt.details["object"])
        except Missing:
            return None
        managers = {entry.get("manager") for entry in found["metadata"].get("managedFields", [])}
        return f"{api.namespace}/{receipt.details['object']}" if MANAGER in managers else None

    def status(self, receipt: Receipt) -> Status:
        """Conditions of the job, then its pods, then the queue."""
        api = self._api(receipt.details)
        name = receipt.details["object"]
        try:
            found = api.get(self.kind, name)
        except Missing:
            return Status("cancelled", "DELETED", f"{self.kind} {name} is gone", final=True)
        status = _status(found)
        if not status.live:
            return status
        pods = api.pods(_selector(name))
        restarts = sum(int(c.get("restartCount", 0)) for pod in pods for c in pod.get("status", {}).get("containerStatuses", []))
        restarts += int(found.get("status", {}).get("restarts", 0) or 0)
        phases = [pod.get("status", {}).get("phase", "Unknown") for pod in pods]
        words = ", ".join(f"{phases.count(phase)} {phase.lower()}" for phase in dict.fromkeys(phases))
        nodes = ",".join(sorted({pod["spec"].get("nodeName", "") for pod in pods} - {""}))
        if pods and all(phase == "Running" for phase in phases):
            return Status("running", status.native, status.reason, restarts, nodes)
        reason = self._waiting(api, found, pods) or status.reason
        return Status("queued" if not nodes else "running", status.native, "; ".join(filter(None, [f"pods: {words}" if words else "", reason])), restarts, nodes)

    def statuses(self, runs: Sequence[Receipt]) -> list[Status]:
        """One after the other."""
        return [self.status(receipt) for receipt in runs]

    def _waiting(self, api: Api, found: dict[str, Any], pods: list[dict[str, Any]]) -> str:
        """Why it does not run, in the cluster's own words."""
        for pod in pods:
            for condition in pod.get("status", {}).get("conditions", []):
                if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                    return f"{pod['metadata']['name']} is not scheduled: {condition.get('message', '')}"
            for container in [*pod.get("status", {}).get("initContainerStatuses", []), *pod.get("status", {}).get("containerStatuses", [])]:
                waiting = container.get("state", {}).get("waiting") or {}
                if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
                    return f"{pod['metadata']['name']}: {waiting['reason']} {waiting.get('message', '')}".strip()
        if _suspended(found):
            try:
                for workload in api.items("Workload"):
                    owners = [owner.get("name") for owner in workload["metadata"].get("ownerReferences", [])]
                    if found["metadata"]["name"] in owners:
                        for condition in workload.get("status", {}).get("conditions", []):
                            if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
                                return f"waits in the queue: {condition.get('message', '')}"
            except (SchedulerError, Missing):
                pass
            return "is suspended"
        if not pods:
            events = [event for event in api.events(found["metadata"]["name"]) if event.get("type") == "Warning"]
            return str(events[-1].get("message", "")) if events else "has no pods yet"
        return ""

    def try_out(self, request: Request) -> str:
        """Server-side dry run of every object."""
        api = self._api(request.details)
        judged = []
        for item in _objects(request.artifact.text):
            if item["kind"] in COVERED and _exists(api, item):
                continue
            if item["kind"] == "TrainJob" and not _exists(api, {"kind": "TrainingRuntime", "metadata": item["metadata"]}):
                judged.append(f"TrainJob {item['metadata']['name']} is judged when its TrainingRuntime exists")
                continue
            api.apply(item, dry_run=True)
            judged.append(f"{item['kind']} {item['metadata']['name']} is accepted")
        return "\n".join(judged)

    def command(self, request: Request) -> str:
        """What kubectl would be called with."""
        return f"kubectl apply --server-side --field-manager={MANAGER} --validate=strict -f {self.artifact_name}"

    def cancel(self, receipt: Receipt) -> str:
        """Delete everything that was made but claims."""
        api = self._api(receipt.details)
        text = (receipt.folder / self.artifact_name).read_text(encoding="utf-8")
        kept = []
        for item in reversed(_objects(text)):
            if item["kind"] in COVERED:
                kept.append(item["metadata"]["name"])
            else:
                api.delete(item["kind"], item["metadata"]["name"])
        return f"claims stay: {', '.join(kept)}" if kept else "claims and what is on them stay"

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """Every pod's output, each line marked with its node rank; ``rank`` picks one."""
        api = self._api(receipt.details)
        Logs(api, _selector(receipt.details["object"]), rank, out).copy(follow, lambda: self.status(receipt).live)


class Logs:
    """Copies the output of pods that come and go."""

    def __init__(self, api: Api, selector: str, rank: int | None, out: Any) -> None:
        self.api, self.selector, self.rank, self.out = api, selector, rank, out
        self.lock = threading.Lock()
        self.seen: set[tuple[str, int]] = set()

    def copy(self, follow: bool, live: Any) -> None:
        """All that is there; with ``follow`` until the job has ended."""
        threads: list[threading.Thread] = []
        while True:
            for pod in self.api.pods(self.selector):
                key = (pod["metadata"]["uid"], _attempt(pod))
                node = _node_rank(pod)
                if key in self.seen or (self.rank is not None and node != self.rank) or not _started(pod):
                    continue
                self.seen.add(key)
                thread = threading.Thread(target=self._one, args=(pod, node, follow), daemon=True)
                thread.start()
                threads.append(thread)
            if not follow or not live():
                break
            time.sleep(1)
        for thread in threads:
            thread.join(timeout=60)

    def _one(self, pod: dict[str, Any], node: int, follow: bool) -> None:
        mark = "" if self.rank is not None else f"[node {node}] "
        rest = b""
        try:
            for piece in self.api.log(pod["metadata"]["name"], _main(pod), follow=follow):
                *lines, rest = (rest + piece).split(b"\n")
                self._write(mark, lines)
        except (SchedulerError, Missing) as error:
            self._write(mark, [f"(no log: {error})".encode()])
        if rest:
            self._write(mark, [rest])

    def _write(self, mark: str, lines: list[bytes]) -> None:
        with self.lock:
            for line in lines:
                self.out.write(f"{mark}{line.decode('utf-8', 'replace')}\n")
            self.out.flush()


def _objects(text: str) -> list[dict[str, Any]]:
    from ruamel.yaml import YAML

    return [item for item in YAML(typ="safe", pure=True).load_all(text) if item]


def _job(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(item for item in objects if item["kind"] == kind)


def _exists(api: Api, item: dict[str, Any]) -> bool:
    try:
        api.get(item["kind"], item["metadata"]["name"])
    except Missing:
        return False
    return True


def _selector(name: str) -> str:
    return f"jobgen/job={name}"


def _suspended(found: dict[str, Any]) -> bool:
    spec = found.get("spec", {})
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def _status(found: dict[str, Any]) -> Status:
    """From the conditions alone."""
    status = found.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", []) if c.get("status") == "True"}
    for native, phase in ENDED.items():
        if native in conditions:
            return Status(phase, native, "" if phase == "succeeded" else str(conditions[native].get("message", "")), final=True)
    if _suspended(found):
        return Status("queued", "Suspended")
    for native in ("Running", "Restarting", "Created", "StartupPolicyInProgress"):
        if native in conditions:
            return Status("running" if native == "Running" else "queued", native, str(conditions[native].get("message", "")) if native == "Restarting" else "")
    return Status("queued", "Pending")


def _started(pod: dict[str, Any]) -> bool:
    name = _main(pod)
    return any(
        c.get("name") == name and ("running" in c.get("state", {}) or "terminated" in c.get("state", {}))
        for c in pod.get("status", {}).get("containerStatuses", [])
    )


def _attempt(pod: dict[str, Any]) -> int:
    return sum(int(c.get("restartCount", 0)) for c in pod.get("status", {}).get("containerStatuses", []) if c.get("name") == _main(pod))


def _main(pod: dict[str, Any]) -> str:
    names = [container["name"] for container in pod["spec"]["containers"]]
    return next((name for name in ("pytorch", "node") if name in names), str(names[0]))


def _node_rank(pod: dict[str, Any]) -> int:
    labels = pod["metadata"].get("labels", {})
    if "training.kubeflow.org/replica-type" in labels:
        index = int(labels.get("training.kubeflow.org/replica-index", 0))
        return index if labels["training.kubeflow.org/replica-type"] == "master" else index + 1
    return int(labels.get("batch.kubernetes.io/job-completion-index", pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", 0)))


