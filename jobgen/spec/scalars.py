"""Plain scalars under YAML 1.2, and those that other YAML tools read differently, which are refused."""

from __future__ import annotations

import math
import re
from typing import Any

from jobgen.spec.problem import Problem, SpecError

Trap = tuple[str, str]
"""Message and fix."""

_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_YES = {"yes": "true", "on": "true", "no": "false", "off": "false"}
# Patterns are compiled when first used: most specs need none of them.
_INT = r"[-+]?[0-9]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_PREFIXED = r"[-+]?0(?:[0-9]+|[oO][0-7]+|[xX][0-9a-fA-F]+|[bB][01]+)"
_SEXAGESIMAL = r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)"
_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
_CONTROL_VALUE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
MAX_DIGITS = 18


def resolve(text: str) -> tuple[Any, Trap | None]:
    """The value of a plain scalar, and why it is refused if it is."""
    if text in _WORDS:
        return _WORDS[text], None
    first = text[0]
    if first.isalpha():
        if (meant := _YES.get(text.lower())) is not None and text in (text.lower(), text.title(), text.upper()):
            return text, (
                f"`{text}` is text in YAML 1.2 and a boolean in YAML 1.1, so tools disagree on it",
                f'write {meant}, or quote it if the text is meant: "{text}"',
            )
        return text, text_trap(text)
    if not (first.isdigit() or first in "+-."):
        return text, text_trap(text)
    return _number(text)


def _number(text: str) -> tuple[Any, Trap | None]:
    if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0") and len(text) <= MAX_DIGITS:
        return int(text), None
    if re.fullmatch(_PREFIXED, text, re.ASCII):
        return text, (
            f"`{text}` is a different number to different YAML tools (a leading zero means octal to some)",
            f'quote it if it is a name: "{text}"; write a number without leading zeros or prefix',
        )
    if re.fullmatch(_SEXAGESIMAL, text, re.ASCII):
        return text, (f"`{text}` is the number {_base60(text)} to YAML 1.1 tools", _time_fix(text))
    if re.fullmatch(_INT, text, re.ASCII):
        if len(text.lstrip("+-")) > MAX_DIGITS:
            return text, (f"a number of {len(text)} digits is beyond any count", "quote it if it is text")
        return int(text), None
    if re.fullmatch(_NOT_FINITE, text, re.ASCII):
        return text, (f"`{text}` is not a finite number", f'write a number, or quote it: "{text}"')
    if re.fullmatch(_FLOAT, text, re.ASCII):
        value = float(text)
        if not math.isfinite(value):
            return text, (f"`{text[:40]}` is too large for a number", "write a smaller number, or quote it")
        return value, None
    return text, text_trap(text)


def _base60(text: str) -> str:
    if len(text) > 30:
        return "in base 60"
    total = 0.0
    for part in text.lstrip("+-").replace("_", "").split(":"):
        total = total * 60 + float(part)
    return f"{total:g}" if total % 1 else str(int(total))


def _time_fix(text: str) -> str:
    parts = text.split(":")
    if len(parts) == 3 and all(part.isdigit() for part in parts):
        words = " ".join(f"{int(part)}{unit}" for part, unit in zip(parts, "hms", strict=True) if int(part))
        return f'write {words}, or quote it: "{text}"'
    if len(parts) == 2 and all(part.isdigit() for part in parts):
        return f'write {int(parts[0])}h or {int(parts[0])}m with its unit if it is a duration, else quote it: "{text}"'
    return f'quote it: "{text}"'


def text_trap(text: str) -> Trap | None:
    """Characters that an escape in double quotes can bring in and that no environment, path or script can hold."""
    found = None if text.isprintable() else re.search(_CONTROL_VALUE, text)
    if found is None:
        return None
    return f"the text holds the control character U+{ord(found[0]):04X}", "remove it; only tabs and line breaks pass"


def refuse_characters(text: str, file: str) -> None:
    """Raise for a raw text that no YAML file may hold."""
    if text.translate({9: None, 10: None, 13: None}).isprintable():
        return
    found = re.search(_CONTROL, text)
    if found is None:
        return
    before = text[: found.start()]
    line = before.count("\n") + 1
    column = found.start() - (before.rfind("\n") + 1) + 1
    what = "a NUL byte" if found[0] == "\0" else f"the control character U+{ord(found[0]):04X}"
    raise SpecError([Problem(file, line, column, "", f"the file holds {what}", "save it as plain UTF-8 text", "JG001")])
