"""What a job does, in words, from what the API server shows."""

from __future__ import annotations

from typing import Any

import pytest

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.kube_preview import numbered
from jobgen.schedulers.kube_status import status


class Shown:
    """An API server that shows these objects."""

    def __init__(self, **objects: Any) -> None:
        self.objects = objects

    def find(self, kind: str, name: str, version: str | None = None) -> Any:
        return self.objects.get(kind)

    def items(self, kind: str, **_: Any) -> Any:
        found = self.objects.get(kind, [])
        if isinstance(found, Exception):
            raise found
        return found

    def events(self, name: str) -> Any:
        return [event for event in self.items("Event") if event["about"] == name]


def job(*conditions: str, kind: str = "JobSet", queue: str = "", suspend: bool = False, message: str = "", **status: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"suspend": suspend}
    if kind == "JobSet":
        spec["replicatedJobs"] = [{"replicas": 1, "template": {"spec": {"parallelism": 2}}}]
    elif kind == "TrainJob":
        spec["trainer"] = {"numNodes": 2}
    else:
        spec = {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}
    return {
        "kind": kind, "metadata": {"name": "j", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {}}, "spec": spec,
        "status": {"conditions": [{"type": c, "status": "True", "message": message, "lastTransitionTime": str(n)} for n, c in enumerate(conditions)], **status},
    }  # fmt: skip


def pod(rank: int, state: dict[str, Any] | None = None, phase: str = "Running", *, node: str = "n1", restarts: int = 0, last: Any = None, **more: Any) -> dict[str, Any]:
    containers = [{"name": "node", "state": state or {}, "restartCount": restarts, "lastState": {"terminated": last} if last else {}}]
    return {
        "metadata": {"name": f"j-{rank}", "labels": {"batch.kubernetes.io/job-completion-index": str(rank)}, **more.pop("metadata", {})},
        "spec": {"nodeName": node, "containers": [{"name": "node"}]}, "status": {"phase": phase, "containerStatuses": containers, **more},
    }  # fmt: skip


UP = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
UNSCHEDULED = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available"}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, at: str = "2026-01-01T00:10:00Z", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at, "startedAt": "2026-01-01T00:00:00Z", "reason": reason}}


CASES = [
    (job(), [], ("queued", "Pending", "has no pods yet", "none of 2")),
    (job(), [pod(0, UP), pod(1, UP, node="n2")], ("running", "Running", "", "2 running of 2")),
    (job(), [pod(0, phase="Pending", node="", **UNSCHEDULED)], ("queued", "Pending", "j-0 is not scheduled: 0/9 nodes are available", "1 pending of 2")),
    (job(), [pod(0, UP), pod(1, waiting("ContainerCreating"), "Pending")], ("running", "Running", "j-1 is starting", "1 running, 1 pending (of 2)")),
    (job(), [pod(0, waiting("ImagePullBackOff", "Back-off"), "Pending")], ("queued", "Pending", "j-0 waits: ImagePullBackOff: Back-off", "1 pending of 2")),
    (job(), [pod(0, waiting("CrashLoopBackOff", "back-off 10s"), last={"exitCode": 137})],
     ("queued", "Pending", "j-0 is about to be restarted (its last end was 137; back-off 10s)", "1 starting of 2")),
    (job(), [pod(0, ended(0), "Succeeded"), pod(1, ended(0), "Succeeded")],
     ("running", "Running", "its pods have ended, and the operator has not yet said how", "2 succeeded of 2")),
    (job(suspend=True), [], ("queued", "Suspended", "is suspended (spec.suspend) until somebody resumes it", "none of 2")),
    (job("Restarting", kind="PyTorchJob", message="PyTorchJob j is restarting."), [], ("queued", "Restarting", "has no pods yet", "none of 2")),
    (job("Created", "Running", "Failed", kind="PyTorchJob", message="over the limit"), [pod(0, ended(1, "2026-01-01T00:10:01Z")), pod(1, ended(137, reason="OOMKilled"))],
     ("failed", "Failed", "node 1 ended with 137: out of memory; over the limit", "")),
    (job("Complete", kind="TrainJob"), [pod(0, ended(0), "Succeeded")], ("succeeded", "Complete", "", "")),
    (job(), [pod(0, UP, metadata={"deletionTimestamp": "x"})], ("running", "Running", "", "1 ending of 2")),
]  # fmt: skip


@pytest.mark.parametrize(("found", "pods", "wanted"), CASES, ids=[row[2][2] or row[2][1] for row in CASES])
def test_what_is_said(found, pods, wanted):
    said = status(Shown(), found, pods)
    if "ending" in wanted[3]:
        assert said.pods == wanted[3]
        return
    assert (said.phase, said.native, said.reason, said.pods) == wanted
    assert said.final == (wanted[0] in ("succeeded", "failed"))


def test_a_job_that_is_being_deleted_is_not_gone_before_its_pods():
    found = job("Completed")
    found["metadata"]["deletionTimestamp"] = "x"
    said = status(Shown(), found, [pod(0, UP)])
    assert (said.phase, said.native, said.ending, said.live) == ("running", "Terminating", True, True)
    assert said.reason == "is being deleted, 1 pod left"


def test_exit_and_time_of_what_failed_first():
    said = status(Shown(), job("Failed", message="m"), [pod(0, ended(1, "2026-01-01T00:10:00Z")), pod(1, ended(7, "2026-01-01T00:09:00Z"))])
    assert (said.exit_code, said.reason, said.elapsed) == ("7", "node 1 ended with 7; m", "0:10:00")


def test_restarts_of_the_gang_and_in_place():
    assert status(Shown(), job(restarts=2), [pod(0, UP), pod(1, UP)]).restarts == 2
    assert status(Shown(), job(kind="PyTorchJob"), [pod(0, UP, restarts=1), pod(1, UP, restarts=3)]).restarts == 3
    assert status(Shown(JobSet={"status": {"restarts": 1}}), job(kind="TrainJob"), [pod(0, UP), pod(1, UP)]).restarts == 1


@pytest.mark.parametrize(
    ("conditions", "queue", "reason"),
    [
        ([("QuotaReserved", "False", "insufficient quota for gpu")], "team", "waits in the queue: insufficient quota for gpu"),
        ([("QuotaReserved", "False", "no room"), ("Evicted", "True", "preempted by x")], "team", "waits in the queue: no room; it was put back: preempted by x"),
        ([("QuotaReserved", "True", ""), ("Admitted", "False", "check pending")], "team", "waits for its admission checks: check pending"),
        ([], "team", "waits in the queue"),
        ([("QuotaReserved", "True", ""), ("Admitted", "True", "")], "team, admitted by cluster", "is suspended (spec.suspend) until somebody resumes it"),
    ],
)
def test_kueue(conditions, queue, reason):
    work = {"status": {"conditions": [{"type": t, "status": s, "message": m} for t, s, m in conditions], "admission": {"clusterQueue": "cluster"}}}
    said = status(Shown(Workload=[work]), job(queue="team", suspend=True), [])
    assert (said.phase, said.queue, said.reason) == ("queued", queue, reason)
    unreadable = status(Shown(Workload=SchedulerError("forbidden")), job(queue="team", suspend=True), [])
    assert (unreadable.queue, unreadable.reason) == ("team", "waits in the queue")


def test_warnings_about_a_pod_and_about_the_job():
    mount = {"about": "j-0", "reason": "FailedMount", "message": "configmap not found"}
    old = {"about": "j-0", "reason": "FailedScheduling", "message": "0/9 nodes"}
    said = status(Shown(Event=[mount, old]), job(), [pod(0, waiting("ContainerCreating"), "Pending"), pod(1, waiting("ContainerCreating"), "Pending")])
    assert said.reason == "j-0: configmap not found"
    assert status(Shown(Event=[{"about": "j-node-0", "message": "exceeded quota"}]), job(), []).reason == "exceeded quota"
    assert status(Shown(Event=SchedulerError("forbidden")), job(), []).reason == "has no pods yet"


def test_node_ranks():
    def of(kind, index, *names):
        labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}
        return read.node_rank({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "pytorch", "env": [{"name": name} for name in names]}]}})

    assert (of("master", 0, "MASTER_ADDR"), of("worker", 0, "MASTER_ADDR"), of("worker", 2, "MASTER_ADDR")) == (0, 1, 3)
    assert (of("worker", 0, "PET_NNODES"), of("worker", 2, "PET_NNODES")) == (0, 2)
    assert read.node_rank(pod(3)) == 3


@pytest.mark.parametrize(("nodes", "target", "kind"), [(2, "k8s", "PyTorchJob"), (2, "jobset", "JobSet"), (1000, "trainjob", "TrainJob")])
def test_numbered_names_fit(nodes, target, kind):
    from jobgen.targets.admission import budget

    longest = budget(nodes, target)
    base = "a" * (longest - 2) + "-b"
    found = job(kind=kind)
    found["spec"].get("trainer", {})["numNodes"] = nodes
    for run in (2, 10, 999):
        name = numbered(base, run, [found], kind)
        assert len(name) <= longest
        assert name.endswith(f"-{run}")
        assert "--" not in name
    assert numbered("short", 2, [found], kind) == "short-2"


def test_what_a_live_object_differs_in():
    wanted = {"a": 1, "list": [{"name": "x", "v": 1}, {"name": "y", "v": 2}], "plain": [1, 2]}
    live = {"a": 1, "default": 3, "list": [{"name": "y", "v": 2, "d": 0}, {"name": "x", "v": 9}], "plain": [1, 2, 3]}
    assert read.projected(live, wanted) == {"a": 1, "list": [{"name": "x", "v": 9}, {"name": "y", "v": 2}], "plain": [1, 2, 3]}
