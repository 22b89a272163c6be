"""Output of a job's pods, which come and go: each line marked with its node, in the order of their times."""

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

MOST_AT_ONCE = 32
"""Pods whose logs are merged by time; of more, one is printed after the other."""
POLL_SECONDS = 1.0
LAST_SECONDS = 15.0
"""For output that is still on its way when the job has ended."""
_LINE = re.compile(rb"(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)) ?(.*)", re.DOTALL)
_RANK = re.compile(rb"\[(rank|default)(\d+)\]")
"""How torch and torchrun mark lines of one process: by rank, or by rank on its node."""

Line = tuple[bytes, int, bytes]
"""Time, node, text."""


class Logs:
    """Of one job. ``rank``: only the node on which that process runs, without lines that say they are another's."""

    def __init__(self, api: Api, job: str, nodes: int, processes: int, rank: int | None, out: Any, say: Say) -> None:
        self.api, self.job, self.nodes, self.processes, self.rank, self.out, self.say = api, job, nodes, processes, rank, out, say
        self.lock = threading.Lock()
        self.threads: dict[tuple[str, int], threading.Thread] = {}
        self.shown: set[int] = set()
        self.over = threading.Event()

    @property
    def node(self) -> int | None:
        """The one node that was asked for."""
        return None if self.rank is None else self.rank // self.processes

    def copy(self, follow: bool, status: Callable[[], Status]) -> None:
        """All that is there; with ``follow`` go on until the job has ended."""
        if self.node is not None and self.node >= self.nodes:
            raise SchedulerError(f"logs --rank {self.rank}: the job has ranks 0 to {self.nodes * self.processes - 1}")
        if follow:
            self._follow(status)
        else:
            self._print()
        missing = [str(node) for node in range(self.nodes) if node not in self.shown and self.node in (None, node)]
        if not self.shown:
            self.say(f"no output yet ({tail.described(found)})" if (found := status()).live else "no pod of it is left, so its output is gone")
        elif missing and not status().live:
            self.say(f"no output of node {', '.join(missing)}: its pod is gone (the operator deletes pods that still run when the job ends)")
        elif missing:
            self.say(f"node {', '.join(missing)} has written nothing yet")

    def _pods(self) -> list[Item]:
        found = [pod for pod in self.api.items("Pod", labels=read.selector(self.job)) if _started(pod)]
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
                if not previous or not isinstance(error, Missing):
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
        mark = _RANK.match(text)
        if mark and self.rank is not None and int(mark[2]) != (self.rank if mark[1] == b"rank" else self.rank % self.processes):
            return
        with self.lock:
            self.out.write(f"[node {node}] {text.decode('utf-8', 'replace')}\n")
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


def nodes_and_processes(objects: Sequence[Item], kind: str) -> tuple[int, int]:
    """Pods of the job, and processes of each."""
    return read.pods_wanted(read.job_of(objects, kind)), read.ranks_a_pod(objects, kind)
