"""Copies growing files, as ``tail -f`` does, until a job has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.5
CHECK_EVERY = 4
"""Polls between two questions to the scheduler."""


def copy(files: Callable[[], Sequence[Path]], live: Callable[[], bool], follow: bool, out: Any) -> None:
    """Write all that the files hold; with ``follow`` go on until the job is no longer live. Several files are headed by
    their names, as ``tail`` heads them."""
    offsets: dict[Path, int] = {}
    current: Path | None = None
    rounds = 0
    ended = not follow
    while True:
        for path in files():
            text, offsets[path] = _more(path, offsets.get(path, 0))
            if text:
                if current != path and len(offsets) > 1:
                    out.write(f"==> {path.name} <==\n")
                current = path
                out.write(text)
        out.flush()
        if ended:
            return
        time.sleep(POLL_SECONDS)
        rounds += 1
        if rounds % CHECK_EVERY == 0:
            ended = not live()


def _more(path: Path, offset: int) -> tuple[str, int]:
    """What a file holds beyond an offset, up to the last whole line while it grows."""
    try:
        with path.open("rb") as source:
            source.seek(offset)
            data = source.read()
    except FileNotFoundError:
        return "", offset
    return data.decode("utf-8", "replace"), offset + len(data)
