"""The grammar of Kubernetes' names, labels and quantities, and what is wrong with a text that does not fit."""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS_1123_LABEL = re.compile(_LABEL, re.ASCII)
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([EPTGMk]i?|Ki|m|u|n|[eE][+-]?[0-9]+)?", re.ASCII)
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)


def dns_label(text: str, longest: int = 63) -> str | None:
    """A name that starts with a letter (services, PyTorchJob, JobSet, TrainJob)."""
    if len(text) > longest:
        return f"has {len(text)} characters, {longest} fit"
    if not _DNS_1035.fullmatch(text):
        return "must be lower-case letters, digits and dashes, and begin with a letter"
    return None


def namespace(text: str) -> str | None:
    """A DNS label that may start with a digit."""
    if len(text) > 63:
        return f"has {len(text)} characters, 63 fit"
    return None if _DNS_1123_LABEL.fullmatch(text) else "must be lower-case letters, digits and dashes"


def subdomain(text: str) -> str | None:
    """Names of most objects."""
    if len(text) > 253:
        return f"has {len(text)} characters, 253 fit"
    if not _SUBDOMAIN.fullmatch(text):
        return "must be lower-case letters, digits, dashes and dots, and begin and end with a letter or digit"
    return None


def qualified(text: str) -> str | None:
    """A key of labels and annotations, and an extended resource: [prefix/]name."""
    prefix, slash, name = text.rpartition("/")
    if slash:
        if not prefix or "/" in prefix:
            return "must be a name or a DNS name, a slash and a name"
        wrong = subdomain(prefix)
        if wrong:
            return f"has a prefix that {wrong}"
    if not name:
        return "has no name"
    if len(name) > 63:
        return f"has a name of {len(name)} characters, 63 fit"
    if not _NAME.fullmatch(name):
        return "must be letters, digits, dashes, underscores and dots, and begin and end with a letter or digit"
    return None


def label_value(text: str) -> str | None:
    """The value of a label."""
    if len(text) > 63:
        return f"has {len(text)} characters, a label's value holds 63"
    if text and not _NAME.fullmatch(text):
        return "must be letters, digits, dashes, underscores and dots, and begin and end with a letter or digit"
    return None


def quantity(text: str) -> float | None:
    """The number behind a quantity, None when it is none."""
    if not _QUANTITY.fullmatch(text):
        return None
    found = re.match(r"[+-]?[0-9.]+", text)
    number, suffix = float(found[0] if found else "nan"), text[found.end() if found else 0 :]
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1] in "+-0123456789":
        return float(text)
    powers = "kMGTPE"
    if suffix.endswith("i"):
        return number * 1024.0 ** ("KMGTPE".index(suffix[0]) + 1)
    if suffix in ("m", "u", "n"):
        return number * 1000.0 ** -("mun".index(suffix) + 1)
    return number * 1000.0 ** (powers.index(suffix) + 1) if suffix else number


def config_key(text: str) -> str | None:
    """A key of a ConfigMap or Secret."""
    if len(text) > 253:
        return f"has {len(text)} characters, 253 fit"
    if not _CONFIG_KEY.fullmatch(text) or text in (".", "..") or text.startswith(".."):
        return "must be letters, digits, dashes, underscores and dots, and not begin with .."
    return None
