"""Keys that users write in a framework's own words: in ``launch.args``, ``training.options`` or ``training.config``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jobgen.effective.options import switch
from jobgen.frameworks.config import NONE, Config
from jobgen.spec.record import NamedTuple

if TYPE_CHECKING:
    from jobgen.checks.case import Case

_MISSING = object()


class Setting(NamedTuple):
    """A key as the user wrote it."""

    value: Any
    path: str
    """Where a finding points."""
    words: str
    """``key: value`` with the file's place where it stands in the framework's own file."""
    edit: str | None
    """The path that an edit may change; None where the key is not in the spec."""

    @property
    def on(self) -> bool | None:
        """As a yes or no."""
        return switch(self.value)


def setting(case: Case, *names: str) -> Setting | None:
    """The first of these keys that is written. What a program reads last wins: arguments, options, its file."""
    spec = case.spec
    if spec.launch.args:
        flags = _flags(tuple(spec.launch.args))
        for name in names:
            found = flags.get(_bare(name))
            if found is not None:
                value, index = found
                return Setting(value, f"launch.args.{index}", f"--{name} {value}".strip(), None)
    for name in names:
        value = _at(spec.training.options, name)
        if value is not _MISSING:
            path = f"training.options.{name}"
            literal = "." in name and name in spec.training.options
            return Setting(value, path, f"{name}: {value}", None if literal else path)
    config = config_of(case)
    for name in names:
        value = _at(config.values, name)
        if value is not _MISSING:
            line, _ = config.place(name)
            return Setting(value, "training.config", f"{name}: {value} ({config.file}:{line})", None)
    return None


def value(case: Case, *names: str, default: Any = None) -> Any:
    """The value of a key, or the default."""
    found = setting(case, *names)
    return default if found is None else found.value


def on(case: Case, *names: str) -> bool:
    """A switch that is written and on."""
    found = setting(case, *names)
    return found is not None and found.on is True


def number(case: Case, *names: str) -> float | None:
    """A key as a number; None where it is absent or says no number (``auto``)."""
    given = value(case, *names)
    if isinstance(given, bool) or given is None:
        return None
    try:
        return float(given)
    except (TypeError, ValueError):
        return None


def config_of(case: Case) -> Config:
    """``training.config`` as it is read; empty where there is none or it cannot be read (another rule says so)."""
    if case.spec.training.config is None:
        return NONE
    from jobgen.effective.resolve import framework_file

    return framework_file(case.document)


def flags_of(case: Case) -> dict[str, tuple[Any, int]]:
    """``--key value`` pairs of ``launch.args`` with underscores, and where each stands."""
    return dict(_flags(tuple(case.spec.launch.args)))


@lru_cache(maxsize=64)
def _flags(args: tuple[str, ...]) -> dict[str, tuple[Any, int]]:
    found: dict[str, tuple[Any, int]] = {}
    for index, word in enumerate(args):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, given = word[2:].partition("=")
        after = args[index + 1] if index + 1 < len(args) else None
        if equals:
            found[_bare(name)] = (given, index)
        elif after is not None and (not after.startswith("-") or after[1:2].isdigit()):
            found[_bare(name)] = (after, index)
        else:
            found[_bare(name)] = (True, index)
    return found


def _bare(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _at(tree: Any, name: str) -> Any:
    """A key by its dotted name, literal or nested, with dashes or underscores."""
    if not tree:
        return _MISSING
    for form in (name, name.replace("-", "_"), name.replace("_", "-")):
        if form in tree:
            return tree[form]
    if "." not in name:
        return _MISSING
    node: Any = tree
    for part in name.split("."):
        node = node.get(part, _MISSING) if isinstance(node, dict) else _MISSING
        if node is _MISSING:
            return _MISSING
    return node
