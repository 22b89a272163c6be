"""Numbers as findings print them."""

from __future__ import annotations


def gb(size: float) -> str:
    """Decimal gigabytes: ``123.2 GB``, two digits below ten."""
    value = size / 1e9
    if value < 10:
        return f"{value:.2f} GB"
    return f"{value:.1f} GB"


def gib(size: float) -> str:
    """Binary gigabytes, as torch and nvidia-smi print: ``74.51 GiB``."""
    return f"{size / 2**30:.1f} GiB"


def billions(count: float) -> str:
    """A parameter or token count: ``235.1 B``, ``25.4 M``."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count:.0f}"


def share(part: float, whole: float) -> str:
    """``93 %``."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def hours(seconds: float) -> str:
    """``26 h``, ``1.5 h``, ``12 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 3600 * 72:
        return f"{seconds / 3600:.1f} h".replace(".0 h", " h")
    return f"{seconds / 86400:.1f} days".replace(".0 d", " d")
