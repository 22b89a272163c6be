"""Receipts: what was sent where, written before and after the call, so that no answer that is lost loses a job.

One folder per run below ``$JOBGEN_STATE`` (else ``$XDG_STATE_HOME/jobgen``, else ``~/.local/state/jobgen``) holds the
receipt, the artifact and the spec as they were sent. A folder and its handle are enough to follow a job.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobgen.schedulers.errors import NoSuchJob, Unsubmittable

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class Receipt(NamedTuple):
    """One run. ``state``: ``sending`` until the scheduler's answer is written down, then ``sent``."""

    handle: str
    name: str
    target: str
    digest: str
    """Of the artifact: the same content has the same digest."""
    token: str
    """Random; travels with the job, so that it is found when the answer was lost."""
    state: str
    created: float
    """Seconds since the epoch."""
    job_id: str | None = None
    """The scheduler's own name of the job."""
    details: dict[str, Any] = {}  # noqa: RUF012  a NamedTuple default is never written to
    """What only this scheduler needs: log folder, namespace, context."""

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return jobs() / self.handle


def root() -> Path:
    """The folder of all state."""
    if given := os.environ.get("JOBGEN_STATE"):
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "jobgen"


def jobs() -> Path:
    """The folder of all runs."""
    return root() / "jobs"


def digest(*parts: str) -> str:
    """A digest of what is sent."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return total.hexdigest()


def create(name: str, target: str, content_digest: str, files: dict[str, str], details: dict[str, Any]) -> Receipt:
    """A new run's folder, on disk with everything in it before anything is sent."""
    while True:
        token = secrets.token_hex(8)
        handle = f"{_UNSAFE.sub('-', name).strip('-.')[:80] or 'job'}-{token[:6]}"
        folder = jobs() / handle
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise Unsubmittable(f"cannot write receipts in {jobs()}: {error.strerror}; set JOBGEN_STATE to a folder that can be written") from None
    for file, content in files.items():
        write(folder / file, content)
    receipt = Receipt(handle, name, target, content_digest, token, "sending", time.time(), None, details)
    save(receipt)
    return receipt


def save(receipt: Receipt) -> Receipt:
    """Write a receipt down; on return it is on disk."""
    write(receipt.folder / "receipt.json", json.dumps(receipt._asdict(), indent=1))
    return receipt


def write(path: Path, content: str) -> None:
    """Replace a file at once and durably."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".jobgen-")
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(sink.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def every() -> list[Receipt]:
    """All receipts, newest first. A folder without a readable receipt was never sent and is left out."""
    found = []
    for folder in jobs().iterdir() if jobs().is_dir() else ():
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Receipt(**json.loads((folder / "receipt.json").read_text(encoding="utf-8"))))
    return sorted(found, key=lambda receipt: receipt.created, reverse=True)


def find(handle: str | None) -> Receipt:
    """The run a user means: by handle, by job name (the newest of that name), by the scheduler's id; None: the newest."""
    known = every()
    if not known:
        raise NoSuchJob(f"nothing was submitted from here yet (receipts are kept in {jobs()})")
    if handle is None:
        return known[0]
    for key in ("handle", "job_id", "name"):
        for receipt in known:
            if getattr(receipt, key) == handle:
                return receipt
    raise NoSuchJob(f"no job {handle!r} was submitted from here; jobgen list shows those that were")


class Lock(NamedTuple):
    """A lock held on one name; ``fd`` may be handed to a child, which then holds it too."""

    fd: int


@contextlib.contextmanager
def locked(name: str) -> Iterator[Lock]:
    """One submission of a name at a time. A killed holder frees it, but not before a child that it handed ``fd`` to."""
    folder = root() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / digest(name)[:32], os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unsubmittable(f"cannot write locks in {folder}: {error.strerror}; set JOBGEN_STATE to a folder that can be written") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Lock(fd)
    finally:
        os.close(fd)
