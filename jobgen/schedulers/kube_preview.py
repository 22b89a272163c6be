"""What a cluster would do with a job: names that are left, claims that are there, and dry runs of every object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.kube_api import Api
from jobgen.schedulers.kube_errors import Missing, UnknownKind
from jobgen.schedulers.kube_objects import CLAIM, Item, name_of
from jobgen.schedulers.submit import Say

TARGETS = {kind: target for target, kind in read.JOBS.items()}
QUANTITIES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_RUNTIME = re.compile(r"(?i)webhook.*runtime.*not found")
"""What Trainer's webhook, which judges last, says before there is a runtime."""


def unseen_runtime(error: SchedulerError) -> bool:
    """All else is fine, but Trainer's webhook knows no such runtime."""
    return _RUNTIME.search(str(error)) is not None


def numbered(base: str, run: int, objects: Sequence[Item], kind: str) -> str:
    """The name of a further run, cut so that what the operators append still fits."""
    from jobgen.targets.admission import budget

    longest = budget(read.pods_wanted(read.job_of(objects, kind)), TARGETS[kind])  # type: ignore[arg-type]
    end = f"-{run}"
    return base[: longest - len(end)].rstrip("-") + end


def claim(api: Api, item: Item, say: Say) -> None:
    """Make a claim that is not there; one that is there is used as it is, and never changed."""
    found = api.find(CLAIM, name_of(item))
    if found is None:
        api.apply(item)
    elif remark := _differing(found, item):
        say(remark)


def _differing(found: Item, wanted: Item) -> str:
    name, said = name_of(found), []
    if found["metadata"].get("deletionTimestamp"):
        raise SchedulerError(f"claim {name} is being deleted, and what is on it will be lost: choose another name in volumes")
    modes = found["spec"].get("accessModes") or []
    if not set(wanted["spec"].get("accessModes") or []) <= set(modes):
        said.append(f"access mode {', '.join(modes)}")
    have, want = (tree["spec"]["resources"]["requests"]["storage"] for tree in (found, wanted))
    if _bytes(have) < _bytes(want):
        said.append(f"size {have}")
    storage = wanted["spec"].get("storageClassName")
    if storage is not None and found["spec"].get("storageClassName") != storage:
        said.append(f"storage class {found['spec'].get('storageClassName')}")
    return f"claim {name} is there already with {' and '.join(said)}; it is used as it is" if said else ""


def _bytes(quantity: str) -> float:
    for unit in sorted(QUANTITIES, key=len, reverse=True):
        if quantity.endswith(unit):
            return float(quantity.removesuffix(unit)) * QUANTITIES[unit]
    return float(quantity)


def judged(api: Api, objects: Sequence[Item], kind: str) -> Iterator[str]:
    """What the server says to every object and to a pod of the job, and what the job would wait for."""
    job = read.job_of(objects, kind)
    for item in objects:
        what = f"{item['kind']} {name_of(item)}"
        if item["kind"] == CLAIM and (found := api.find(CLAIM, name_of(item))) is not None:
            yield _differing(found, item) or f"{what} is there already"
            continue
        if item is job and (live := api.find(kind, name_of(item))) is not None:
            ended = bool({"Succeeded", "Complete", "Completed", "Failed"} & read.conditions(live).keys())
            yield f"{what} is there already{' and has ended: this would be a further run' if ended else ' and is live'}"
            item = {**item, "metadata": {**item["metadata"], "name": numbered(name_of(item), 2, objects, kind)}}
        try:
            api.apply(item, dry_run=True)
        except SchedulerError as error:
            if item["kind"] != "TrainJob" or not unseen_runtime(error):
                raise
            yield f"{what} is accepted but for its runtime, which its webhook looks for and which submit makes first"
            continue
        yield f"{what} is accepted"
    yield from _pod(api, objects, kind)
    yield from _awaited(api, objects, kind)


def _pod(api: Api, objects: Sequence[Item], kind: str) -> Iterator[str]:
    """Controllers make the pods later, when nobody looks: quota, pod security and priority classes are judged there."""
    template = read.template(objects, kind)
    metadata: dict[str, Any] = {**template["metadata"], "name": f"{name_of(read.job_of(objects, kind))}-node-0"}
    try:
        api.try_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    except SchedulerError as error:
        if "cannot create resource" in str(error):
            yield "its pods were not judged: you may not make pods yourself"
            return
        raise SchedulerError(f"the job would be taken, and its pods refused: {error}") from None
    yield "its pods are accepted"


def _awaited(api: Api, objects: Sequence[Item], kind: str) -> Iterator[str]:
    """What is not there, so that the job would wait."""
    spec, job = read.template(objects, kind)["spec"], read.job_of(objects, kind)
    made = {name_of(item) for item in objects if item["kind"] == CLAIM}
    wanted: dict[tuple[str, str], str] = {}
    for volume in spec.get("volumes") or []:
        if (name := (volume.get("persistentVolumeClaim") or {}).get("claimName")) and name not in made:
            wanted[CLAIM, name] = "its pods would wait for it"
    for variable in spec["containers"][0].get("env") or []:
        if reference := (variable.get("valueFrom") or {}).get("secretKeyRef"):
            wanted["Secret", reference["name"]] = "its pods would wait for it"
    if queue := (job["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name"):
        wanted["LocalQueue", queue] = "the job would wait for it"
    for (what, name), words in wanted.items():
        try:
            if api.find(what, name) is None:
                yield f"there is no {what} {name} in namespace {api.namespace}: {words}"
        except Missing:
            continue
        except UnknownKind:
            yield f"there is no Kueue on this cluster, so the queue {name} is not looked at"
        except SchedulerError:
            continue  # what the user may not read
