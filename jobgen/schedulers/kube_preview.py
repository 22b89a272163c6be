"""What a cluster would do with a job: names that are left, claims that are there, and dry runs of every object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError
from jobgen.schedulers.kube_api import Api
from jobgen.schedulers.kube_errors import Missing, Taken, UnknownKind
from jobgen.schedulers.kube_objects import CLAIM, Item, name_of

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


def claims(api: Api, wanted: Sequence[Item]) -> None:
    """Make the claims that are not there. One that is there is used, never changed, and refused where it is not what the
    job asks for, before any other is made."""
    missing = []
    for item in wanted:
        if (found := api.find(CLAIM, name_of(item))) is None:
            missing.append(item)
        else:
            _same(found, item)
    for item in missing:
        try:
            api.apply(item, new=True)
        except Taken:  # another job made it a moment ago
            _same(api.get(CLAIM, name_of(item)), item)


def _same(found: Item, wanted: Item) -> None:
    """Refuse a claim that cannot serve, or is another than the spec describes: nobody may change its storage any more."""
    name, said = name_of(found), []
    if found["metadata"].get("deletionTimestamp"):
        raise SchedulerError(f"claim {name} is being deleted, and what is on it will be lost: choose another name in volumes")
    have, want = found["spec"], wanted["spec"]
    if not set(want["accessModes"]) <= set(have["accessModes"]):
        said.append(f"access mode {', '.join(have['accessModes'])} instead of {', '.join(want['accessModes'])}")
    sizes = [spec["resources"]["requests"]["storage"] for spec in (have, want)]
    if _bytes(sizes[0]) < _bytes(sizes[1]):
        said.append(f"size {sizes[0]} instead of {sizes[1]}")
    if want.get("storageClassName", have.get("storageClassName")) != have.get("storageClassName"):
        said.append(f"storage class {have.get('storageClassName') or 'none'} instead of {want['storageClassName']}")
    if said:
        raise SchedulerError(
            f"claim {name} is there already, with {' and '.join(said)}: write what is there, leave out volumes' create to use it "
            f"as it is, or choose another name"
        )


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
            _same(found, item)
            yield f"{what} is there already"
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
