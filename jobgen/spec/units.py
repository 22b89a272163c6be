"""Sizes, durations and counts as people write them.

Sizes: ``960GB`` (10^9), ``894GiB`` (2^30). Durations: ``24h``, ``1d 2h``, ``90m``, ``1-00:00:00``, ISO 8601.
Counts: ``1e9``, ``0.96B``, ``200k``.
"""

from __future__ import annotations

import math
import re
from typing import Any

GIB = 2**30
"""Bytes in a GiB."""

SIZE_FORMS = "960GB, 894GiB, 80 GiB, 1.5TB (GB is 10^9 bytes, GiB 2^30)"
DURATION_FORMS = "24h, 1d 2h, 90m, 180s, 1-00:00:00 (days-hours:minutes:seconds) or ISO 8601 such as PT24H"
COUNT_FORMS = "3000, 1e9, 0.96B, 200k, 6.25M"

# Patterns are compiled when first used: most runs need few of them.
_SIZE = r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGTP])(i?)B?|B)\s*"
_POWER = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_PART = r"([0-9]+(?:\.[0-9]+)?)\s*(d|days?|h|hours?|hrs?|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SLURM = r"(?:([0-9]+)-)?([0-9]{1,3}):([0-9]{2}):([0-9]{2})"
_ISO = r"P(?:([0-9.]+)W)?(?:([0-9.]+)D)?(?:T(?:([0-9.]+)H)?(?:([0-9.]+)M)?(?:([0-9.]+)S)?)?"
_COUNT = r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([kKMBT]?)\s*"
_SCALE = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_size(value: Any) -> int:
    """Bytes of a size; raises ValueError with the accepted forms."""
    found = re.fullmatch(_SIZE, value, re.ASCII) if isinstance(value, str) else None
    if found is None:
        unit = " (a number without a unit could be anything)" if isinstance(value, int | float) else ""
        raise ValueError(f"{value!r} is not a size{unit}: write {SIZE_FORMS}")
    number, letter, binary = found.groups()
    power = _POWER[letter] if letter else 0
    size: float = float(number) * (1024 if binary else 1000) ** power
    if not 0 < size < 2**63:
        raise ValueError(f"{value!r} is not a size that a machine can have: write {SIZE_FORMS}")
    return round(size)


def parse_duration(value: Any) -> int:
    """Whole seconds of a duration; raises ValueError with the accepted forms."""
    seconds = _seconds(value.strip()) if isinstance(value, str) else None
    if seconds is None:
        hint = ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            hint = " (a number without a unit could be seconds, minutes or hours)"
        elif isinstance(value, str) and re.fullmatch(r"[0-9]+:[0-9]{2}", value.strip()):
            hint = " (two fields could be hours and minutes or minutes and seconds)"
        raise ValueError(f"{value!r} is not a duration{hint}: write {DURATION_FORMS}")
    if not 0 < seconds < 10 * 366 * 86400:
        raise ValueError(f"{value!r} is not a duration between 1 s and 10 years: write {DURATION_FORMS}")
    return math.ceil(seconds)


def _seconds(text: str) -> float | None:
    if ":" in text and (found := re.fullmatch(_SLURM, text, re.ASCII)):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds if minutes < 60 and seconds < 60 else None
    if text[:1] in ("P", "p") and len(text) > 2 and (found := re.fullmatch(_ISO, text.upper(), re.ASCII)):
        try:
            weeks, days_, hours_, minutes_, seconds_ = (float(part or 0) for part in found.groups())
        except ValueError:
            return None
        return weeks * 604800 + days_ * 86400 + hours_ * 3600 + minutes_ * 60 + seconds_
    if not text or re.sub(_PART, "", text.lower(), flags=re.ASCII).strip():
        return None
    return sum(float(number) * _UNIT_SECONDS[unit[0]] for number, unit in re.findall(_PART, text.lower(), re.ASCII))


def parse_count(value: Any) -> int:
    """A whole number of tokens, samples or steps; raises ValueError with the accepted forms."""
    if isinstance(value, str):
        found = re.fullmatch(_COUNT, value, re.ASCII)
        number = float(found[1]) * _SCALE[found[2]] if found else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.nan
    else:
        number = math.nan
    if not 0 < number < 1e18 or abs(number - round(number)) > 1e-6 * number:
        raise ValueError(f"{value!r} is not a whole positive count: write {COUNT_FORMS}")
    return round(number)
