"""Output of a job's pods, which come and go: each line marked with its rank, else its node, in the order of their times."""

from __future__ import annotations

import heapq
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobgen.schedulers import kube_objects as read
from jobgen.schedulers import tail
from jobgen.schedulers.errors import SchedulerError, Unreachable
from jobgen.schedulers.kube_api import Api
from jobgen.schedulers.kube_errors import Missing
from jobgen.schedulers.kube_objects import Item
from jobgen.schedulers.state import Status
from jobgen.schedulers.submit import Say
from jobgen.spec.record import NamedTuple

MOST_AT_ONCE = 32
"""Pods whose logs are merged by time; of more, one is printed after the other."""
POLL_SECONDS = 1.0
LAST_SECONDS = 15.0
"""For output that is still on its way when the job has ended."""
_LINE = re.compile(rb"(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)) ?(.*)", re.DOTALL)
_LOCAL = re.compile(rb"\[default(\d+)\]:")
"""How torchrun marks the lines of a process: by its rank on the node."""

Line = tuple[bytes, int, bytes]
"""Time, node, text."""


class Job(NamedTuple):
    """What of a job its output depends on."""

    name: str
    nodes: int
    processes: int
    """Of one pod."""
    marked: bool
    """Each line of a process says which one wrote it."""
    elastic: bool
    """Which ranks a pod has is known to its agents only."""

    @property
    def ranks(self) -> int:
        """Of the whole job."""
        return self.nodes * self.processes


def job(objects: Sequence[Item], kind: str, name: str) -> Job:
    """From what was submitted."""
    env = read.template(objects, kind)["spec"]["containers"][0].get("env") or []
    item = read.job_of(objects, kind)
    return Job(
        name, read.pods_wanted(item), read.ranks_a_pod(objects, kind), any(row["name"] == "PET_TEE" for row in env), "elasticPolicy" in item["spec"],
    )  # fmt: skip


Kept = Callable[[Sequence[int]], dict[int, list[bytes]]]
"""The last lines of nodes whose pods are gone."""


class Logs:
    """Of one job. ``rank``: only the lines of that process."""

    def __init__(self, api: Api, job: Job, rank: int | None, out: Any, say: Say, kept: Kept) -> None:
        self.api, self.job, self.rank, self.out, self.say, self.kept = api, job, rank, out, say, kept
        self.lock = threading.Lock()
        self.threads: dict[tuple[str, int], threading.Thread] = {}
        self.shown: set[int] = set()
        self.written = False
        self.over = threading.Event()

    @property
    def node(self) -> int | None:
        """The one node that was asked for."""
        return None if self.rank is None else self.rank // self.job.processes

    def copy(self, follow: bool, status: Callable[[], Status]) -> None:
        """All that is there; with ``follow`` go on until the job has ended."""
        self._refuse()
        if follow:
            self._follow(status)
        else:
            self._print()
        missing = self._missing()
        if missing and not (found := status()).live:
            for node, lines in self.kept(missing).items():
                for line in lines:
                    self._put(node, line)
            if missing := self._missing():
                self.say(f"nothing is left of what node {', '.join(map(str, missing))} wrote: its pod is gone, and it kept nothing")
        elif missing:
            words = f"no output yet ({tail.described(found)})" if not self.shown else f"node {', '.join(map(str, missing))} has written nothing yet"
            self.say(words)
        if self.rank is not None and self.shown and not self.written:
            self.say(f"node {self.node} wrote something, and no line of it is marked as that of rank {self.rank}: jobgen logs without --rank shows it")

    def _missing(self) -> list[int]:
        return [node for node in range(self.job.nodes) if node not in self.shown and self.node in (None, node)]

    def _refuse(self) -> None:
        """A rank that there is not, or that cannot be told from others."""
        asked = f"logs --rank {self.rank}: "
        if self.rank is None:
            return
        if self.rank >= self.job.ranks:
            raise SchedulerError(f"{asked}the job has ranks 0 to {self.job.ranks - 1}")
        if self.job.elastic:
            raise SchedulerError(f"{asked}the job is elastic, and its agents deal the ranks out anew at each start; leave out --rank")
        if self.job.processes > 1 and not self.job.marked:
            raise SchedulerError(
                f"{asked}its launcher mixes the output of a node's {self.job.processes} processes without saying whose a line is; "
                f"leave out --rank (each line says its node), or use launch.launcher: torchrun, which says it"
            )

    def _pods(self) -> list[Item]:
        found = [pod for pod in self.api.items("Pod", labels=read.selector(self.job.name)) if _started(pod)]
        return sorted((pod for pod in found if self.node in (None, read.node_rank(pod))), key=lambda pod: (read.node_rank(pod), str(pod["metadata"].get("creationTimestamp"))))

    def _print(self) -> None:
        pods = self._pods()
        if len(pods) > MOST_AT_ONCE:
            for pod in pods:
                self._write(self._whole(pod))
        else:
            self._write(heapq.merge(*map(self._whole, pods), key=lambda line: line[0]))

    def _whole(self, pod: Item) -> Iterator[Line]:
        """A pod's output from the instance before the last restart on."""
        if read.attempt(pod) > 1:
            self.say(f"{read.name_of(pod)} was restarted {read.attempt(pod)} times; only the last two attempts' output is kept")
        for previous in [True, False] if read.attempt(pod) else [False]:
            try:
                yield from self._lines(pod, previous=previous)
            except SchedulerError as error:
                if not previous or isinstance(error, Unreachable):  # a kubelet may have dropped the instance before the last
                    self.say(f"{read.name_of(pod)}: {error}")

    def _lines(self, pod: Item, *, follow: bool = False, previous: bool = False, since: bytes = b"") -> Iterator[Line]:
        node, rest = read.node_rank(pod), b""
        seconds = since.decode().partition(".")[0].rstrip("Z") + "Z" if since else ""
        for piece in self.api.log(read.name_of(pod), read.main_container(pod), follow=follow, previous=previous, since=seconds):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield _timed(line, node)
        if rest:
            yield _timed(rest, node)

    def _write(self, lines: Iterator[Line]) -> None:
        for _, node, text in lines:
            self._put(node, text)

    def _put(self, node: int, text: bytes) -> None:
        self.shown.add(node)
        rank, who = (node if self.job.processes == 1 else None), f"node {node}"
        if not self.job.elastic and self.job.processes > 1 and (mark := _LOCAL.match(text)):
            rank = node * self.job.processes + int(mark[1])
            who, text = f"rank {rank}", text[mark.end() :]
        if self.rank not in (None, rank):
            return
        self.written = True
        with self.lock:
            self.out.write(f"[{who}] {text.decode('utf-8', 'replace')}\n")
            self.out.flush()

    def _follow(self, status: Callable[[], Status]) -> None:
        patient = tail.Patient(status, self.say)
        live = True
        while True:
            try:
                for pod in self._pods():
                    self._start(pod)
            except Unreachable:
                pass  # the status below waits for the server, and gives up when it has been away for long
            if not live:
                break
            time.sleep(POLL_SECONDS)
            if patient.due():
                found = patient()
                live = found is None or found.live
        deadline = time.monotonic() + LAST_SECONDS
        for thread in self.threads.values():
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self.over.set()

    def _start(self, pod: Item) -> None:
        uid, attempt = pod["metadata"]["uid"], read.attempt(pod)
        if (uid, attempt) in self.threads:
            return
        unseen = attempt > 0 and (uid, attempt - 1) not in self.threads
        before = self.threads.get((uid, attempt - 1))
        thread = threading.Thread(target=self._stream, args=(pod, unseen, before), daemon=True)
        self.threads[uid, attempt] = thread
        thread.start()

    def _stream(self, pod: Item, unseen: bool, before: threading.Thread | None) -> None:
        """One instance of a container to its end, however often the connection breaks."""
        if before is not None:
            before.join(timeout=LAST_SECONDS)
        last = b""
        while not self.over.is_set():
            try:
                for previous in [True, False] if unseen else [False]:
                    for stamp, node, text in self._lines(pod, follow=not previous, previous=previous, since=last):
                        if stamp and stamp <= last:
                            continue
                        last = stamp or last
                        self._put(node, text)
                return
            except Unreachable:
                unseen = False
                if not self._still(pod):
                    return
                self.over.wait(POLL_SECONDS)
            except Missing:
                return
            except SchedulerError as error:
                self.say(f"{read.name_of(pod)}: {error}")
                return

    def _still(self, pod: Item) -> bool:
        """The same instance of the container is what the log shows."""
        try:
            now = self.api.find("Pod", read.name_of(pod))
        except SchedulerError:
            return True
        return now is not None and now["metadata"]["uid"] == pod["metadata"]["uid"] and read.attempt(now) == read.attempt(pod)


def _timed(line: bytes, node: int) -> Line:
    found = _LINE.fullmatch(line)
    return (found[1], node, found[2]) if found else (b"", node, line)


def _started(pod: Item) -> bool:
    found = read.main_status(pod)
    return bool({"running", "terminated"} & found.get("state", {}).keys() or "terminated" in found.get("lastState", {}))
