"""Copies growing files, as ``tail -f`` does, until a job has ended."""

from __future__ import annotations

import codecs
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobgen.schedulers.errors import Unreachable
from jobgen.schedulers.state import Status

POLL_SECONDS = 0.5
FIRST_QUESTION, LAST_QUESTION = 1.5, 20.0
"""Seconds between two questions to the scheduler: rare ones for a job that has run for long."""
PATIENCE_SECONDS = 900.0
"""A scheduler may be away for that long (its controller is being restarted)."""
PIECE = 1 << 20


class Patient:
    """Asks for a status ever more rarely, says when it changes, and outlives a scheduler that is away for a while."""

    def __init__(self, ask: Callable[[], Status], say: Callable[[str], None]) -> None:
        self.ask, self.say = ask, say
        self.interval = FIRST_QUESTION
        self.next = time.monotonic()
        self.away_since: float | None = None
        self.last: Status | None = None
        self.said = ""

    def due(self) -> bool:
        """It is time for another question."""
        return time.monotonic() >= self.next

    def __call__(self) -> Status | None:
        """The status; None while the scheduler does not answer."""
        try:
            found = self.ask()
        except Unreachable as error:
            now = time.monotonic()
            if self.away_since is None:
                self.away_since = now
                self.say(f"{error}; waiting for it")
            if now - self.away_since > PATIENCE_SECONDS:
                raise
            self.next = now + self.interval
            return None
        self.away_since = None
        if self.last is None or found.native != self.last.native:
            self.interval = FIRST_QUESTION
        self.interval = min(self.interval * 1.1, LAST_QUESTION)
        self.next = time.monotonic() + self.interval
        self.last = found
        if found.live and (words := described(found)) != self.said:
            self.said = words
            self.say(words)
        return found


def described(found: Status) -> str:
    """What a job does, on one line."""
    more = found.reason if found.phase != "running" else f"on {found.nodes}" if found.nodes else ""
    return f"{found.phase}: {more}" if more else found.phase


def copy(files: Callable[[], Sequence[Path]], status: Callable[[], Status], follow: bool, out: Any, say: Callable[[str], None]) -> None:
    """Write all that the files hold; with ``follow`` go on until the job is no longer live. Several files are headed by
    their names, as ``tail`` heads them."""
    readers: dict[Path, Reader] = {}
    current: Path | None = None
    patient = Patient(status, say if follow else lambda _: None)
    ended = not follow
    while True:
        found = files()
        for path in found:
            reader = readers.setdefault(path, Reader(path))
            for text in reader.more():
                if current != path and len(found) > 1:
                    out.write(f"==> {path.name} <==\n")
                current = path
                out.write(text)
        out.flush()
        if ended:
            break
        time.sleep(POLL_SECONDS)
        if patient.due():
            now = patient()
            ended = now is not None and not now.live
    if not any(reader.offset for reader in readers.values()):
        say(f"no output yet ({described(status())})" if not follow else "it left no output")


class Reader:
    """One growing file. It is opened anew each time, so that a network file system shows what other machines wrote."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self) -> Iterator[str]:
        """What was written since, in pieces; from the start when the file was cut."""
        with contextlib.suppress(OSError), self.path.open("rb") as source:
            if source.seek(0, 2) < self.offset:
                self.offset = 0
            source.seek(self.offset)
            while data := source.read(PIECE):
                self.offset += len(data)
                yield self.decoder.decode(data)
