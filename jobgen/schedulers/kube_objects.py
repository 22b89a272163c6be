"""Reading of jobs and pods as the API server shows them; nothing here asks it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Item = dict[str, Any]
JOBS = {"k8s": "PyTorchJob", "trainjob": "TrainJob", "jobset": "JobSet"}
"""The object of a target that is the job."""
CLAIM = "PersistentVolumeClaim"
"""Never deleted: checkpoints live there."""
TOKEN, HANDLE = "jobgen/token", "jobgen/handle"
"""Annotations of what was submitted: whose it is, for certain."""
_PROCESSES = re.compile(r"PET_NPROC_PER_NODE=(\d+)")
_OWNER = ("app.kubernetes.io/managed-by", "jobgen")
OWNED = dict([_OWNER])
"""The label of all that jobgen makes."""
MANAGED = "=".join(_OWNER)


def parse(text: str) -> list[Item]:
    """The objects of a rendered stream."""
    from ruamel.yaml import YAML

    return [item for item in YAML(typ="safe", pure=True).load_all(text) if item]


def name_of(item: Item) -> str:
    """An object's name."""
    return str(item["metadata"]["name"])


def job_of(objects: Iterable[Item], kind: str) -> Item:
    """The object of the stream that is the job."""
    return next(item for item in objects if item["kind"] == kind)


def marked(item: Item, handle: str, token: str) -> Item:
    """The object with whose it is."""
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), HANDLE: handle, TOKEN: token}}}


def token_of(item: Item) -> str | None:
    """Whose an object is; None: nobody said."""
    found: str | None = (item["metadata"].get("annotations") or {}).get(TOKEN)
    return found


def handle_of(item: Item) -> str | None:
    """The handle under which an object was submitted."""
    found: str | None = (item["metadata"].get("annotations") or {}).get(HANDLE)
    return found


def ours(item: Item) -> bool:
    """jobgen made it."""
    return OWNED.items() <= (item["metadata"].get("labels") or {}).items()


def selector(name: str) -> str:
    """Of a job's pods."""
    return f"jobgen/job={name}"


def template(objects: Sequence[Item], kind: str) -> Item:
    """The pod template of the job."""
    job = job_of(objects, kind)
    if kind == "PyTorchJob":
        replicas = job["spec"]["pytorchReplicaSpecs"]
        return dict((replicas.get("Master") or replicas["Worker"])["template"])
    inner = job["spec"] if kind == "JobSet" else job_of(objects, "TrainingRuntime")["spec"]["template"]["spec"]
    return dict(inner["replicatedJobs"][0]["template"]["spec"]["template"])


def pods_wanted(job: Item) -> int:
    """How many pods a job has."""
    spec = job.get("spec", {})
    if job["kind"] == "PyTorchJob":
        return sum(int(replica.get("replicas") or 1) for replica in spec.get("pytorchReplicaSpecs", {}).values())
    if job["kind"] == "TrainJob":
        return int(spec.get("trainer", {}).get("numNodes") or 1)
    return sum(int(row.get("replicas") or 1) * int(row["template"]["spec"].get("parallelism") or 1) for row in spec.get("replicatedJobs", []))


def ranks_a_pod(objects: Sequence[Item], kind: str) -> int:
    """Processes of one pod, 1 when nothing says it."""
    spec = job_of(objects, kind)["spec"]
    if kind == "JobSet":  # only its script knows
        command = " ".join(str(word) for word in template(objects, kind)["spec"]["containers"][0].get("command") or [])
        found = _PROCESSES.search(command)
        return int(found.group(1)) if found else 1
    written = str(spec.get("nprocPerNode") if kind == "PyTorchJob" else spec.get("trainer", {}).get("numProcPerNode"))
    return int(written) if written.isdigit() else 1


def suspended(job: Item) -> bool:
    """It is not to run now."""
    spec = job.get("spec", {})
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def conditions(item: Item, status: str = "True") -> dict[str, Item]:
    """Conditions by type."""
    return {c["type"]: c for c in item.get("status", {}).get("conditions") or [] if c.get("status") == status}


def main_container(pod: Item) -> str:
    """The container that trains."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    return next((name for name in ("pytorch", "node") if name in names), str(names[0]))


def main_status(pod: Item) -> Item:
    """Its status; empty when there is none yet."""
    name = main_container(pod)
    return next((c for c in pod.get("status", {}).get("containerStatuses") or [] if c.get("name") == name), {})


def node_rank(pod: Item) -> int:
    """Which node of the job a pod is."""
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    if kind := labels.get("training.kubeflow.org/replica-type"):
        index = int(labels.get("training.kubeflow.org/replica-index", 0))
        masterless = not any(variable.get("name") == "MASTER_ADDR" for variable in pod["spec"]["containers"][0].get("env") or [])
        return index if kind == "master" or masterless else index + 1
    annotations = pod["metadata"].get("annotations") or {}
    key = "batch.kubernetes.io/job-completion-index"
    return int(labels.get(key, annotations.get(key, 0)))


def attempt(pod: Item) -> int:
    """How often its container was restarted in its place."""
    return int(main_status(pod).get("restartCount") or 0)


def over(pod: Item) -> bool:
    """Nothing runs in it any more, and nothing will."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def time_of(text: str | None) -> datetime | None:
    """A time stamp of the API."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        return None


def age(item: Item, now: datetime) -> float:
    """Seconds since it was made."""
    made = time_of(item["metadata"].get("creationTimestamp"))
    return (now - made).total_seconds() if made else 0.0


def projected(live: Any, wanted: Any) -> Any:
    """Of a live object, what ``wanted`` speaks of; lists of named things are matched by name."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {key: projected(live.get(key), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(live, list):
        if all(isinstance(row, dict) and "name" in row for row in [*wanted, *live]):
            by_name = {row["name"]: row for row in live}
            return [projected(by_name.get(row["name"]), row) for row in wanted]
        return [projected(one, other) for one, other in zip(live, wanted, strict=False)] + live[len(wanted) :]
    return live
