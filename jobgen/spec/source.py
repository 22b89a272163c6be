"""Bytes to text: files and standard input, with a bound and UTF-8 alone."""

from __future__ import annotations

import codecs
import errno
import os
import stat
import sys
from pathlib import Path as FilePath
from typing import IO, Any

from jobgen.spec.problem import Problem, SpecError

MAX_BYTES = 2**20
REFERRED_BYTES = 16 * 2**20
"""Of a file that a spec refers to."""


def _stop(file: str, message: str, fix: str, line: int = 1, column: int = 1) -> SpecError:
    return SpecError([Problem(file, line, column, "", message, fix, "JG001")])


def read_file(path: str | os.PathLike[str], shown: str) -> str:
    """A file's text."""
    try:
        if FilePath(path).is_dir():
            raise _stop(shown, "this is a folder", "name the YAML file itself")
        with FilePath(path).open("rb") as stream:
            return decode(stream.read(MAX_BYTES + 1), shown)
    except FileNotFoundError:
        raise _stop(shown, "there is no such file", "check the path; `-` reads standard input") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise _stop(shown, f"the file cannot be read: {reason}", "check the path and its permissions") from None


def read_regular(path: FilePath, encoding: str = "utf-8") -> str:
    """The text of a file that a spec refers to. OSError where it is no regular file or larger than ``REFERRED_BYTES``;
    UnicodeDecodeError where it is not text."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = stream.read(REFERRED_BYTES + 1)
    if len(data) > REFERRED_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {REFERRED_BYTES // 2**20} MiB")
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_stream(stream: IO[Any] | None, shown: str) -> str:
    """Text of standard input, or of a stream given in its place."""
    source: Any = stream if stream is not None else getattr(sys.stdin, "buffer", sys.stdin)
    if source is None:
        raise _stop(shown, "standard input is closed", "name a file")
    try:
        data = source.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise _stop(shown, f"standard input cannot be read: {error}", "name a file of UTF-8 text") from None
    return decode(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, shown)


def decode(data: bytes, shown: str) -> str:
    """UTF-8, with or without a byte order mark."""
    if len(data) > MAX_BYTES:
        raise _stop(shown, f"the file is larger than {MAX_BYTES // 2**20} MiB", "a spec is a page or two; is this the right file?")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (len(data) > 3 and data[:4].count(0) >= 2):
        raise _stop(shown, "the file is UTF-16 or UTF-32", "save it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise _stop(shown, f"byte 0x{data[error.start]:02x} is not UTF-8 text", "save the file as UTF-8", line, column) from None
