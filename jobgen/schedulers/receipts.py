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
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jobgen.schedulers.errors import Busy, NoSuchJob, Unsubmittable, Unwritable
from jobgen.schedulers.state import Status
from jobgen.spec.record import NamedTuple

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
LAST_SECOND = 253402300800
"""The year 10000, after which no date can be shown."""
NOTICE_SECONDS = 1.0
"""Of waiting for another submission, before saying so."""


class Receipt(NamedTuple):
    """One run. ``state``: ``sending`` until the scheduler's answer is written down, then ``sent``, at last ``ended``."""

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
    """What only this scheduler needs: log folder, namespace, context; and how the run ended."""

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return jobs() / self.handle

    @property
    def end(self) -> Status | None:
        """How the run ended, if that is remembered."""
        with contextlib.suppress(KeyError, TypeError):
            return Status(**self.details["end"]) if self.state == "ended" else None
        return None

    @property
    def attempted(self) -> float:
        """When it was last sent."""
        return float(self.details.get("attempted", self.created))


def root() -> Path:
    """The folder of all state."""
    if given := os.environ.get("JOBGEN_STATE"):
        return Path(given).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".local" / "state") / "jobgen"


def jobs() -> Path:
    """The folder of all runs."""
    return root() / "jobs"


def digest(*parts: str) -> str:
    """A digest of what is sent."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return total.hexdigest()


def slug(name: str) -> str:
    """A name as it begins handles."""
    return _UNSAFE.sub("-", name).strip("-.")[:80] or "job"


def create(name: str, target: str, content_digest: str, files: dict[str, str], details: dict[str, Any]) -> Receipt:
    """A new run's folder, on disk with everything in it before anything is sent."""
    while True:
        token = secrets.token_hex(8)
        handle = f"{slug(name)}-{token[:6]}"
        folder = jobs() / handle
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError as error:
            if not jobs().is_dir():
                raise _unwritable(jobs(), error) from None
        except OSError as error:
            raise _unwritable(jobs(), error) from None
    receipt = Receipt(handle, name, target, content_digest, token, "sending", time.time(), None, details)
    try:
        for file, content in files.items():
            write(folder / file, content)
        return save(receipt)
    except Unwritable:
        remove(receipt)
        raise


def save(receipt: Receipt) -> Receipt:
    """Write a receipt down; on return it is on disk."""
    write(receipt.folder / "receipt.json", json.dumps(receipt._asdict(), indent=1))
    return receipt


def close(receipt: Receipt, end: Status) -> Receipt:
    """Remember how a run ended, beside its receipt: what is lost of that is asked for again the next time."""
    with contextlib.suppress(Unwritable):
        write(receipt.folder / "end.json", json.dumps(end._asdict()), durable=False)
    return receipt._replace(state="ended", details=receipt.details | {"end": end._asdict()})


def remove(receipt: Receipt) -> None:
    """Forget a run that was never taken."""
    shutil.rmtree(receipt.folder, ignore_errors=True)


def write(path: Path, content: str, *, durable: bool = True) -> None:
    """Replace a file at once; Unwritable when the disk is full or the folder read-only."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".jobgen-")
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as sink:
            sink.write(content)
            sink.flush()
            if durable:
                os.fsync(sink.fileno())
        os.replace(temporary, path)
        if not durable:
            return
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> Unwritable:
    return Unwritable(f"cannot write {path}: {error.strerror}; receipts are kept in {root()}, and JOBGEN_STATE names another folder for them")


def load(folder: Path) -> Receipt:
    """A run's receipt; OSError or ValueError when there is none that can be read. Unknown fields are another version's."""
    try:
        record = json.loads((folder / "receipt.json").read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("a receipt is not nested") from None
    if not isinstance(record, dict):
        raise ValueError("a receipt is an object")
    known = {name: record[name] for name in Receipt._fields if name in record}
    texts = ("name", "target", "digest", "token", "state")
    created = known.get("created")
    if any(not isinstance(known.get(name), str) for name in texts) or not isinstance(created, int | float) or not 0 <= created < LAST_SECOND:
        raise ValueError("a receipt lacks its fields")
    if not isinstance(known.setdefault("job_id", None), str | None) or not isinstance(known.setdefault("details", {}), dict):
        raise ValueError("a receipt lacks its fields")
    receipt = Receipt(**(known | {"handle": folder.name}))
    with contextlib.suppress(OSError, ValueError, TypeError):
        end = json.loads((folder / "end.json").read_text(encoding="utf-8"))
        return receipt._replace(state="ended", details=receipt.details | {"end": Status(**end)._asdict()})
    return receipt


def _loaded(folders: Iterable[Path]) -> list[Receipt]:
    found = []
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            found.append(load(folder))
    return sorted(found, key=lambda receipt: receipt.created, reverse=True)


def _folders() -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(jobs()) as entries:
        yield from (Path(entry.path) for entry in entries)


def every() -> list[Receipt]:
    """All receipts, newest first. A folder without a receipt was never sent and is left out."""
    return _loaded(_folders())


def of(name: str) -> list[Receipt]:
    """The receipts of a name, newest first, without opening the others; Unsubmittable when one cannot be read, because
    its job may be live."""
    pattern = re.compile(re.escape(slug(name)) + "-[0-9a-f]{6}")
    folders = [folder for folder in _folders() if pattern.fullmatch(folder.name)]
    for folder in folders:
        if (reason := _broken(folder)) is not None:
            raise Unsubmittable(f"{reason}; its job may be live: look for it in the queue, then remove the folder")
    return [receipt for receipt in _loaded(folders) if receipt.name == name]


def broken() -> list[str]:
    """Receipts that cannot be read, in words."""
    return [reason for reason in map(_broken, _folders()) if reason is not None]


def _broken(folder: Path) -> str | None:
    try:
        load(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"the receipt {folder}/receipt.json cannot be read: {error.strerror}"
    except ValueError:
        return f"the receipt {folder}/receipt.json cannot be read: it is damaged"
    return None


def find(handle: str | None) -> Receipt:
    """The run a user means: by handle, by job name (the newest of that name), by the scheduler's id; None: the newest."""
    if handle is not None and "/" not in handle and handle not in ("", ".", ".."):
        with contextlib.suppress(OSError, ValueError):
            return load(jobs() / handle)
        if (reason := _broken(jobs() / handle)) is not None:
            raise Unsubmittable(reason)
    known = every()
    if not known:
        raise NoSuchJob(f"nothing was submitted from here yet (receipts are kept in {jobs()})")
    if handle is None:
        return known[0]
    for key in ("job_id", "name"):
        for receipt in known:
            if getattr(receipt, key) == handle:
                return receipt
    raise NoSuchJob(f"no job {handle!r} was submitted from here; jobgen list shows those that were")


class Lock(NamedTuple):
    """A lock held on one name; ``fd`` may be handed to a child, which then holds it too."""

    fd: int


@contextlib.contextmanager
def locked(name: str, say: Callable[[str], None] | None = None) -> Iterator[Lock]:
    """One submission of a name at a time. A killed holder frees it, but not before a child that it handed ``fd`` to.
    ``say``: wait for another holder, after saying so; without it Busy is raised."""
    folder = root() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / digest(name)[:32], os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        _take(fd, folder, say)
        yield Lock(fd)
    finally:
        os.close(fd)


def _take(fd: int, folder: Path, say: Callable[[str], None] | None) -> None:
    deadline = time.monotonic() + NOTICE_SECONDS
    try:
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        if say is None:
            raise Busy("it is being submitted right now")
        say("waiting for another jobgen submit of the same name")
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        raise Unsubmittable(f"{folder} is on a file system without locks ({error.strerror}): set JOBGEN_STATE to a folder that has them") from None
