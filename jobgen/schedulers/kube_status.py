"""What a job does and why, in words: from its conditions, its pods, its queue and what was warned about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.kube_api import Api
from jobgen.schedulers.kube_objects import Item
from jobgen.schedulers.state import Phase, Status

ENDED: dict[str, Phase] = {"Succeeded": "succeeded", "Complete": "succeeded", "Completed": "succeeded", "Failed": "failed"}
STARTING = (None, "PodInitializing", "ContainerCreating")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TERMINATING = "Terminating"
GONE = "its pods are gone, and jobgen logs shows the last that they wrote"
LAST_LINES = 20
T = TypeVar("T")


def status(api: Api, job: Item, pods: Sequence[Item]) -> Status:
    """Of one job that is there."""
    terminating = bool(job["metadata"].get("deletionTimestamp"))
    pods = [pod for pod in pods if terminating or not pod["metadata"].get("deletionTimestamp")] or list(pods)
    restarts = _restarts(api, job, pods)
    nodes = ",".join(sorted({pod["spec"].get("nodeName") or "" for pod in pods} - {""}))
    running = _running_for(job, pods)
    for native, phase in ENDED.items():
        if (condition := read.conditions(job).get(native)) and not terminating:
            code, words, output = _exit(pods)
            if phase == "succeeded":
                return Status(phase, native, "", restarts, nodes, running, code, final=True)
            reason = "; ".join(filter(None, [words, str(condition.get("message") or "")]))
            return Status(phase, native, reason, restarts, nodes, running, code, output=output, final=True)
    counted = _counted(job, pods)
    queue, waits = _queue(api, job)
    if terminating:
        left = f"{len(pods)} {'pod' if len(pods) == 1 else 'pods'} left" if pods else "the last of it goes"
        return Status("running", TERMINATING, f"is being deleted, {left}", restarts, nodes, running, pods=counted, queue=queue)
    live = [pod for pod in pods if "running" in read.main_status(pod).get("state", {})]
    if read.suspended(job):
        reason = waits or ("is suspended; its pods are ending" if live else "is suspended (spec.suspend) until somebody resumes it")
        return Status("queued", "Suspended", reason, restarts, nodes, "", pods=counted, queue=queue)
    if pods and not live and all(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods):
        return Status("running", "Running", "its pods have ended, and the operator has not yet said how", restarts, nodes, running, pods=counted, queue=queue)
    reason = "" if len(live) >= read.pods_wanted(job) else _why(api, job, pods) or waits or _condition(job)
    state: Phase = "running" if live else "queued"
    output = _exit(pods)[2]  # why it was restarted
    return Status(state, _native(job, state), reason, restarts, nodes, running if live else "", pods=counted, queue=queue, output=output)


def _native(job: Item, phase: Phase) -> str:
    found = read.conditions(job)
    newest = max(found.values(), key=lambda c: str(c.get("lastTransitionTime") or ""), default={"type": "Created"})
    if newest["type"] in ("Restarting", "Evicted"):
        return str(newest["type"])
    return "Running" if phase == "running" else "Pending"


def _condition(job: Item) -> str:
    """The newest condition's own words."""
    found = read.conditions(job)
    newest = max(found.values(), key=lambda c: str(c.get("lastTransitionTime") or ""), default={})
    return str(newest.get("message") or "")


def _restarts(api: Api, job: Item, pods: Sequence[Item]) -> int:
    """How often the job began anew: gangs that were made again, and the container that was restarted most often."""
    gang = int(job.get("status", {}).get("restarts") or 0)
    if job["kind"] == "TrainJob" and not read.suspended(job):
        inner = _asked(partial(api.find, "JobSet", read.name_of(job)))
        gang = int((inner or {}).get("status", {}).get("restarts") or 0)
    return gang + max(map(read.attempt, pods), default=0)


def _running_for(job: Item, pods: Sequence[Item]) -> str:
    """Since the first container of this attempt started, until now or the last one's end."""
    begun, ended = [], []
    for pod in pods:
        state = read.main_status(pod).get("state", {})
        inner = state.get("running") or state.get("terminated") or {}
        begun.append(read.time_of(inner.get("startedAt")))
        ended.append(read.time_of(inner.get("finishedAt")))
    started = min((time for time in begun if time), default=None)
    if started is None:
        return ""
    over = ENDED.keys() & read.conditions(job).keys()
    last = max((time for time in ended if time), default=None) if over else datetime.now(UTC)
    return str(timedelta(seconds=max(0, round((last - started).total_seconds())))) if last else ""


def _counted(job: Item, pods: Sequence[Item]) -> str:
    """Pods in words."""
    wanted = read.pods_wanted(job)
    if not pods:
        return f"none of {wanted}"
    states = [_state(pod) for pod in pods]
    words = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{words} of {wanted}" if len(set(states)) == 1 else f"{words} (of {wanted})"


def _state(pod: Item) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    if "running" in read.main_status(pod).get("state", {}):
        return "running"
    phase = str(pod.get("status", {}).get("phase") or "Unknown").lower()
    return "starting" if phase == "running" else phase


def _exit(pods: Sequence[Item]) -> tuple[str, str, str]:
    """Exit status, words and last output of the container that failed first."""
    failed = []
    for pod in pods:
        found = read.main_status(pod)
        for state in (found.get("state", {}), found.get("lastState", {})):
            ended = state.get("terminated")
            if ended and ended.get("exitCode"):
                failed.append((str(ended.get("finishedAt")), read.node_rank(pod), ended))
    if not failed:
        return ("0", "", "") if pods else ("", GONE, "")
    _, rank, ended = min(failed, key=lambda row: row[:2])
    code = str(ended["exitCode"])
    cause = ": out of memory" if ended.get("reason") == "OOMKilled" else ""
    output = "\n".join(str(ended.get("message") or "").rstrip().splitlines()[-LAST_LINES:])
    return code, f"node {rank} ended with {code}{cause}", output


def _why(api: Api, job: Item, pods: Sequence[Item]) -> str:
    """Why not all pods run, in the cluster's own words."""
    for pod in sorted(pods, key=read.node_rank):
        if said := _pod_waits(pod):
            return f"{read.name_of(pod)} {said}"
    idle = [pod for pod in pods if "running" not in read.main_status(pod).get("state", {})]
    for pod in idle:
        warned = [event for event in _asked(partial(api.events, read.name_of(pod))) or [] if event.get("reason") != "FailedScheduling"]
        if warned and pod.get("status", {}).get("phase") == "Pending":
            return f"{read.name_of(pod)}: {warned[-1].get('message', '')}"
    if len(pods) < read.pods_wanted(job):
        name = read.name_of(job)
        for about in (name, f"{name}-node-0"):  # the Job of a JobSet makes the pods
            if found := _asked(partial(api.events, about)):
                return str(found[-1].get("message", ""))
    if len(idle) == 1:
        return f"{read.name_of(idle[0])} is starting"
    return f"{len(idle)} pods are starting" if idle else "has no pods yet"


def _pod_waits(pod: Item) -> str:
    found = pod.get("status", {})
    for condition in found.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"is not scheduled: {condition.get('message', '')}"
    for container in [*(found.get("initContainerStatuses") or []), *(found.get("containerStatuses") or [])]:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") == "CrashLoopBackOff":
            ended = container.get("lastState", {}).get("terminated") or {}
            return f"is about to be restarted (its last end was {ended.get('exitCode', 'unknown')}; {waiting.get('message', '')})"
        if waiting.get("reason") not in STARTING:
            return f"waits: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _queue(api: Api, job: Item) -> tuple[str, str]:
    """Kueue's queue with what it did, and why the job waits in it."""
    name = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    if not name:
        return "", ""
    work = _workload(api, job)
    if work is None:
        return name, "waits in the queue" if read.suspended(job) else ""
    admitted = work.get("status", {}).get("admission", {}).get("clusterQueue")
    done, undone = read.conditions(work), read.conditions(work, "False")
    if "Admitted" in done:
        return f"{name}, admitted by {admitted}", ""
    for kind, words in (("QuotaReserved", "waits in the queue"), ("Admitted", "waits for its admission checks")):
        if message := str(undone.get(kind, {}).get("message") or ""):
            evicted = str(done.get("Evicted", {}).get("message") or "")
            return name, "; ".join(filter(None, [f"{words}: {message}", evicted and f"it was put back: {evicted}"]))
    checks = [f"{c['name']}: {c.get('message') or c.get('state')}" for c in work.get("status", {}).get("admissionChecks") or [] if c.get("state") != "Ready"]
    return name, f"waits for its admission checks: {'; '.join(checks)}" if checks else "waits in the queue"


def _workload(api: Api, job: Item) -> Item | None:
    """Kueue's record of the job."""
    label = f"kueue.x-k8s.io/job-uid={job['metadata']['uid']}"
    for version in ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"):
        found = _asked(partial(api.items, "Workload", labels=label, version=version))
        if found:
            return found[0]
    return None


def _asked(question: Callable[[], T]) -> T | None:
    """An answer that only explains: what the user may not read is left out."""
    try:
        return question()
    except SchedulerError:
        return None
