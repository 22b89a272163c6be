"""Kubernetes as a scheduler of runs: PyTorchJob, TrainJob and JobSet.

The job object is what claims a name: it is applied so that it is made or refused, never changed, and an annotation
says whose it is. What it needs is made before it and belongs to it afterwards, so that it goes when the job goes.
"""

from __future__ import annotations

import contextlib
import difflib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from jobgen.schedulers import kube_config, kube_preview, kube_status, receipts
from jobgen.schedulers import kube_objects as read
from jobgen.schedulers.errors import SchedulerError, Unreachable
from jobgen.schedulers.kube_api import MANAGER, Api
from jobgen.schedulers.kube_config import Place
from jobgen.schedulers.kube_errors import Forbidden, Missing, Occupied, Taken, UnknownKind
from jobgen.schedulers.kube_objects import CLAIM, JOBS, Item, name_of
from jobgen.schedulers.receipts import Lock, Receipt
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Request, Say

MOST_RUNS = 1000
FRESH_SECONDS = 300.0
"""For that long, what a submission from elsewhere has made may still be waiting for its job."""
RUNTIME_SECONDS = 20.0
FEW = 3
"""Jobs that are asked for one by one; more are listed."""


class KubernetesScheduler:
    """The rendered objects by server-side apply."""

    artifact_name = "job.yaml"

    def __init__(self, target: str) -> None:
        self.target, self.kind = target, JOBS[target]
        self._apis: dict[tuple[str | None, str, str], Api] = {}

    def scope(self, details: dict[str, Any]) -> str:
        """API server and namespace."""
        if "server" in details:
            return f"{details['server']} {details['namespace']}"
        return kube_config.resolve(details.get("context"), details.get("namespace")).scope

    def _api(self, details: dict[str, Any]) -> Api:
        """A connection to where a run is: by its context, which must still lead to the same server."""
        place = kube_config.resolve(details.get("context"), details.get("namespace"))
        return self._connected(place)

    def _connected(self, place: Place) -> Api:
        key = (place.context, place.namespace, place.server)
        if key not in self._apis:
            self._apis[key] = Api(place)
        return self._apis[key]

    def _of(self, receipt: Receipt) -> Api:
        details = receipt.details
        context, namespace, server = details.get("context"), details["namespace"], details.get("server")
        reason = ""
        for files in dict.fromkeys((None, details.get("kubeconfig") or None)):
            try:
                place = kube_config.resolve(context, namespace, files)
            except kube_config.NoContext as error:
                reason = reason or str(error)
                continue
            if server in (None, place.server):
                return self._connected(place)
            reason = reason or f"context {context} leads to {place.server} now, and the job is on {server}"
        raise SchedulerError(f"{receipt.handle} cannot be asked for: {reason}")

    def prepare(self, request: Request, say: Say) -> dict[str, Any]:
        """A name that is free: the job's own, else one with a number. What was not submitted from here is in the way."""
        api = self._api(request.details)
        objects = read.parse(request.artifact.text)
        base = name_of(read.job_of(objects, self.kind))
        taken = self._names(api)
        for run in range(1, MOST_RUNS):
            name = base if run == 1 else kube_preview.numbered(base, run, objects, self.kind)
            if name in taken or not self._free(api, request, name, objects, base):
                if not request.new:
                    self._refuse_live(api, request, name, objects)
                continue
            if run > 1:
                request.renamed(name)  # what would refuse it does so before anything is written down
            place = api.place
            return {
                "object": name, "namespace": place.namespace, "run": run, "context": place.context, "server": place.server,
                "kubeconfig": place.files, "expires": "ttlSecondsAfterFinished: " in request.artifact.text,
            }  # fmt: skip
        raise SchedulerError(f"{MOST_RUNS} runs named {base} exist in namespace {api.namespace}: delete old ones")

    def _names(self, api: Api) -> set[str]:
        """Names of all jobs of any kind: a TrainJob makes a JobSet, and pods are found by the name alone."""
        found = set(api.names(self.kind))
        for kind in {*JOBS.values()} - {self.kind}:
            with contextlib.suppress(UnknownKind, Missing, Forbidden):
                found.update(api.names(kind))
        return found

    def _free(self, api: Api, request: Request, name: str, objects: Sequence[Item], base: str) -> bool:
        """Nothing of what would be made is there; what a submission left that never came to its job is removed."""
        for item in objects:
            if item["kind"] in (CLAIM, self.kind):
                continue
            called = name + name_of(item).removeprefix(base)
            found = api.find(item["kind"], called, item["apiVersion"])
            if found is None:
                continue
            words = f"{item['kind']} {called} in namespace {api.namespace}"
            if not read.ours(found) and request.new:
                return False
            if not read.ours(found):
                raise Occupied(f"{words} is there already and is not jobgen's: give the job another name, or pass --new")
            if not _left(api, found):
                raise Occupied(f"{words} was made moments ago by {read.handle_of(found) or 'another submission'}: repeat in a few minutes, or give the job another name")
            api.delete(item["kind"], called, item["apiVersion"], uid=found["metadata"]["uid"])
            if api.find(item["kind"], called, item["apiVersion"]) is not None:
                return False  # held by a finalizer
        return True

    def _refuse_live(self, api: Api, request: Request, name: str, objects: Sequence[Item]) -> None:
        """Refuse to run beside a live job of the name that was submitted from elsewhere."""
        for kind in JOBS.values():
            try:
                found = api.find(kind, name)
            except (UnknownKind, Forbidden):
                continue
            if found is None or found["metadata"].get("ownerReferences") or kube_status.ENDED.keys() & read.conditions(found).keys():
                continue
            handle = read.handle_of(found)
            if handle and handle.rpartition("-")[0] != receipts.slug(request.name):
                continue  # a job of another name, which happens to look like a further run of this one
            who = f"submitted from elsewhere as {handle}" if handle else "not submitted from here"
            raise Occupied(
                f"a {kind} named {name} is live in namespace {api.namespace} and was {who}; delete it, give this job another "
                f"name, or pass --new to run both{_difference(api, found, objects) if kind == self.kind else ''}"
            )

    def send(self, receipt: Receipt, request: Request, lock: Lock, say: Say) -> str:
        """What the job needs, then the job; refused, nothing stays. Called again it goes on where it was interrupted."""
        api = self._of(receipt)
        name = receipt.details["object"]
        text = request.artifact.text if receipt.details["run"] == 1 else request.renamed(name).text
        receipts.write(receipt.folder / self.artifact_name, text)
        objects = [item if item["kind"] == CLAIM else read.marked(item, receipt.handle, receipt.token) for item in read.parse(text)]
        job = read.job_of(objects, self.kind)
        needed = [item for item in objects if item is not job and item["kind"] != CLAIM]
        try:
            for item in needed:
                self._make(api, receipt, item)
            _patiently(lambda: api.apply(job, dry_run=True))  # before anything that stays is made
            kube_preview.claims(api, [item for item in objects if item["kind"] == CLAIM])
            made = _patiently(lambda: self._make(api, receipt, job))
        except Unreachable:
            raise
        except SchedulerError:
            self._remove(api, receipt, needed)
            raise
        self._own(api, receipt, made, needed)
        return f"{api.namespace}/{name}"

    def _make(self, api: Api, receipt: Receipt, item: Item) -> Item:
        """An object that was not there, or that this very submission has made before."""
        try:
            return api.apply(item, new=True)
        except Taken:
            found = api.find(item["kind"], name_of(item), item["apiVersion"])
            if found is not None and read.token_of(found) == receipt.token:
                return found
            raise Occupied(
                f"a {item['kind']} named {name_of(item)} was made in namespace {api.namespace} at the same time by "
                f"{(found and read.handle_of(found)) or 'somebody else'}; repeat, or give this job another name"
            ) from None

    def _remove(self, api: Api, receipt: Receipt, needed: Sequence[Item]) -> None:
        """What a submission made that came to nothing; nobody else's."""
        for item in reversed(needed):
            with contextlib.suppress(SchedulerError):
                found = api.find(item["kind"], name_of(item), item["apiVersion"])
                if found is not None and read.token_of(found) == receipt.token:
                    api.delete(item["kind"], name_of(item), item["apiVersion"], uid=found["metadata"]["uid"])

    def _own(self, api: Api, receipt: Receipt, job: Item, needed: Sequence[Item]) -> None:
        """Let what was made for the job go with it; ``cancel`` deletes it in any case. Not a runtime: were it to go
        before its TrainJob, that could never be deleted."""
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name_of(job), "uid": job["metadata"]["uid"]}
        for item in needed:
            if item["kind"] == "TrainingRuntime":
                continue
            with contextlib.suppress(SchedulerError):
                found = api.find(item["kind"], name_of(item), item["apiVersion"])
                if found is not None and read.token_of(found) == receipt.token and not found["metadata"].get("ownerReferences"):
                    api.merge(found, {"metadata": {"ownerReferences": [owner]}})

    def forget(self, receipt: Receipt) -> None:
        """Remove what an interrupted submission made before it came to its job."""
        with contextlib.suppress(SchedulerError):
            self._remove(self._of(receipt), receipt, self._needed(receipt))

    def _needed(self, receipt: Receipt) -> list[Item]:
        """What was made for the job, but claims."""
        return [item for item in self._objects(receipt) if item["kind"] not in (CLAIM, self.kind)]

    def _objects(self, receipt: Receipt) -> list[Item]:
        with contextlib.suppress(OSError):
            return read.parse((receipt.folder / self.artifact_name).read_text(encoding="utf-8"))
        raise SchedulerError(f"{receipt.folder / self.artifact_name} is gone: what {receipt.handle} is made of is not known any more")

    def lookup(self, receipt: Receipt) -> str | None:
        """The job by its name, if it is this run's."""
        api = self._of(receipt)
        name = receipt.details["object"]
        found = api.find(self.kind, name)
        if found is None or read.token_of(found) != receipt.token:
            return None
        with contextlib.suppress(SchedulerError):
            self._own(api, receipt, found, self._needed(receipt))
        return f"{api.namespace}/{name}"

    def status(self, receipt: Receipt) -> Status:
        """Conditions of the job, its queue, its pods."""
        api = self._of(receipt)
        name = receipt.details["object"]
        found, pods = api.find(self.kind, name), api.items("Pod", labels=read.selector(name))
        if found is None or read.token_of(found) not in (None, receipt.token):
            return self._gone(receipt, found, pods)
        return kube_status.status(api, found, pods)

    def _gone(self, receipt: Receipt, instead: Item | None, pods: Sequence[Item]) -> Status:
        """Of a job that is not there any more; its pods may still be saving."""
        name = f"{self.kind} {receipt.details['object']}"
        ending = [pod for pod in pods if not read.over(pod)]
        if ending and instead is None:
            left = "its last pod is" if len(ending) == 1 else f"{len(ending)} pods are"
            return Status("running", kube_status.TERMINATING, f"{name} was deleted, {left} ending")
        self.forget(receipt)
        other = f"; {read.handle_of(instead)} has its name now" if instead else ""
        if receipt.details.get("expires"):
            return Status("unknown", "DELETED", f"{name} is gone: deleted, or removed after its end by kubernetes.ttl{other}", final=True)
        return Status("cancelled", "DELETED", f"{name} was deleted{other}", final=True)

    def statuses(self, runs: Sequence[Receipt]) -> list[Status]:
        """Of many runs, by two lists a namespace. Of several clusters, one that cannot be asked is said to be so."""
        groups: dict[str, list[Receipt]] = defaultdict(list)
        for receipt in runs:
            groups[self.scope(receipt.details)].append(receipt)
        found: dict[str, Status] = {}
        for group in groups.values():
            try:
                found |= self._group(group)
            except SchedulerError as error:
                if len(groups) == 1:
                    raise
                found |= {receipt.handle: Status("unknown", "UNREACHABLE", str(error)) for receipt in group}
        return [found[receipt.handle] for receipt in runs]

    def _group(self, group: Sequence[Receipt]) -> dict[str, Status]:
        if len(group) <= FEW:
            return {receipt.handle: self.status(receipt) for receipt in group}
        api = self._of(group[0])
        jobs = {name_of(item): {"kind": self.kind, **item} for item in api.items(self.kind, labels=read.MANAGED)}
        pods: dict[str, list[Item]] = defaultdict(list)
        for pod in api.items("Pod", labels=read.MANAGED):
            pods[pod["metadata"]["labels"].get("jobgen/job", "")].append(pod)
        found = {}
        for receipt in group:
            name = receipt.details["object"]
            mine = name in jobs and read.token_of(jobs[name]) in (None, receipt.token)
            found[receipt.handle] = kube_status.status(api, jobs[name], pods[name]) if mine else self._gone(receipt, jobs.get(name), pods[name])
        return found

    def try_out(self, request: Request, say: Say) -> str:
        """Server-side dry run of every object and of the pods."""
        return "\n".join(kube_preview.judged(self._api(request.details), read.parse(request.artifact.text), self.kind))

    def command(self, request: Request) -> str:
        """What kubectl would be called with."""
        place = kube_config.resolve(request.details.get("context"), request.details.get("namespace"))
        where = f"--context={place.context} " if place.context else ""
        return f"kubectl {where}--namespace={place.namespace} apply --server-side --field-manager={MANAGER} --validate=strict -f {self.artifact_name}"

    def cancel(self, receipt: Receipt) -> str:
        """Delete the job and what was made for it, never a claim."""
        api = self._of(receipt)
        objects = self._objects(receipt)
        found = api.find(self.kind, receipt.details["object"])
        if found is not None and read.token_of(found) in (None, receipt.token):
            with contextlib.suppress(Taken):
                api.delete(self.kind, name_of(found), uid=found["metadata"]["uid"])
            found = api.find(self.kind, receipt.details["object"])
        if found is None or read.token_of(found) not in (None, receipt.token):
            self._remove(api, receipt, self._needed(receipt))
        claims = dict.fromkeys(
            volume["persistentVolumeClaim"]["claimName"]
            for volume in read.template(objects, self.kind)["spec"].get("volumes") or [] if "persistentVolumeClaim" in volume
        )  # fmt: skip
        if not claims:
            return "nothing of it stays on the cluster"
        return f"{'claim' if len(claims) == 1 else 'claims'} {', '.join(claims)} and the checkpoints on {'it' if len(claims) == 1 else 'them'} stay"

    def logs(self, receipt: Receipt, rank: int | None, follow: bool, out: Any, say: Say) -> None:
        """Every pod's output, each line marked with who wrote it."""
        from jobgen.schedulers import kube_kept, kube_logs

        api, objects, name = self._of(receipt), self._objects(receipt), receipt.details["object"]
        kept = kube_kept.Kept(api, read.template(objects, self.kind), name, receipt.created, say)
        kube_logs.Logs(api, kube_logs.job(objects, self.kind, name), rank, out, say, kept.lines).copy(follow, lambda: self.status(receipt))


def _patiently(call: Callable[[], Item]) -> Item:
    """Trainer's webhooks, which may be several, learn of a new runtime some time after it was made."""
    deadline = time.monotonic() + RUNTIME_SECONDS
    while True:
        try:
            return call()
        except SchedulerError as error:
            if not kube_preview.unseen_runtime(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _left(api: Api, found: Item) -> bool:
    """No job needs this object any more: its own is gone, or it never got one and its submission was from here (under
    the lock of the name it is known to have ended) or long ago."""
    if owners := found["metadata"].get("ownerReferences"):
        alive = (api.find(row["kind"], row["name"], row["apiVersion"]) for row in owners if row["kind"] in JOBS.values())
        return not any(one is not None and one["metadata"]["uid"] in {row["uid"] for row in owners} for one in alive)
    token = read.token_of(found)
    if token is not None and any(receipt.token == token for receipt in receipts.every()):
        return True
    return read.age(found, datetime.now(UTC)) > FRESH_SECONDS


def _difference(api: Api, live: Item, objects: Sequence[Item]) -> str:
    """How the live job, with what it needs, differs in what is wanted."""
    from jobgen.targets.manifest import dump

    lines: list[str] = []
    for item in objects:
        with contextlib.suppress(Forbidden):
            found = live if item["kind"] == live["kind"] else api.find(item["kind"], name_of(item), item["apiVersion"])
            if item["kind"] == CLAIM or found is None:
                continue
            wanted = {part: item[part] for part in ("spec", "data") if part in item}
            old, new = (dump([tree])[0].splitlines() for tree in (read.projected(found, wanted), wanted))
            lines += difflib.unified_diff(old, new, f"live {item['kind']}", "wanted", lineterm="", n=1)
    return ":\n" + "\n".join(lines[:60]) if lines else " (its content is the same)"
