"""Environment markers of requirements (PEP 508) for a Linux machine whose Python release is not known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

TOKEN = re.compile(r'\s*("[^"]*"|\(|\)|==|!=|>=|<=|~=|<|>|[A-Za-z_.]+)')
LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


def holds(marker: str, extras: Collection[str] = ()) -> bool | None:
    """True, False, or None where it depends on the Python release. ``extras``: those that were asked for."""
    if not marker:
        return True
    tokens = [match[1] for match in TOKEN.finditer(marker)]
    return _either(iter([*tokens, ""]), extras)[0]


def _either(tokens: Iterator[str], extras: Collection[str]) -> tuple[bool | None, str]:
    value, token = _both(tokens, extras)
    while token == "or":
        other, token = _both(tokens, extras)
        value = True if value is True or other is True else None if value is None or other is None else False
    return value, token


def _both(tokens: Iterator[str], extras: Collection[str]) -> tuple[bool | None, str]:
    value = _one(tokens, extras)
    token = next(tokens, "")
    while token == "and":
        other = _one(tokens, extras)
        value = False if value is False or other is False else None if value is None or other is None else True
        token = next(tokens, "")
    return value, token


def _one(tokens: Iterator[str], extras: Collection[str]) -> bool | None:
    left = next(tokens, "")
    if left == "(":
        return _either(tokens, extras)[0]
    operator = next(tokens, "")
    if operator == "not":
        operator += next(tokens, "")
    right = next(tokens, "")
    name, text = (right, left) if left.startswith('"') else (left, right)
    text = text.strip('"')
    if name == "extra":
        return (text in extras) == (operator == "==")
    if name not in LINUX:
        return None
    fact = LINUX[name]
    if operator == "in":
        return text in fact if left.startswith('"') else fact in text
    if operator == "notin":
        return not (text in fact if left.startswith('"') else fact in text)
    return (fact == text) == (operator == "==")
