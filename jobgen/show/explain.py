"""The pages of the rules: what, why, fix, versions, sources, and a spec that fails beside one that passes."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobgen.checks import bases
from jobgen.checks.registry import Example, Rule, rules

if TYPE_CHECKING:
    from jobgen.targets.artifact import Artifact

WIDTH = 88
SPEC: Mapping[str, tuple[str, str]] = {
    "JG001": ("The file is not YAML as jobgen reads it", "Duplicate keys, tabs, surprising booleans, several documents or endless anchors."),
    "JG002": ("An unknown key or a wrong value", "The finding names the nearest known key, or the forms that are accepted."),
    "JG003": ("Fields that contradict each other", "World, parallel sizes and batch must multiply out; offload, quantisation and launcher must agree."),
    "JG999": ("A rule failed on this spec", "A mistake in jobgen: report it with the spec. The other rules are not affected."),
}  # fmt: skip
"""Codes that are not rules of their own."""


class UnknownCode(LookupError):
    """No rule has this code; ``near`` are those that begin alike."""

    exit_status = 2

    def __init__(self, code: str) -> None:
        self.near = tuple(known for known in rules() if known.startswith(code.upper()[:3]))[:8]
        hint = f"; there are {', '.join(self.near)}" if self.near else "; jobgen explain --all lists them"
        super().__init__(f"no rule {code!r}{hint}")


def page(code: str) -> str:
    """One rule's page as text."""
    code = code.strip().upper()
    if code in SPEC:
        title, why = SPEC[code]
        return f"{code}: {title}\n\n{textwrap.fill(why, WIDTH)}"
    found = rules().get(code)
    if found is None:
        raise UnknownCode(code)
    blocks = [f"{code} ({found.severity}, stops at: {found.stage.replace('_', ' ')})\n{found.title}", textwrap.fill(found.why, WIDTH)]
    blocks.append(_listed("Fix", [found.fix]))
    if found.versions:
        blocks.append(_listed("Versions", [found.versions]))
    blocks.append(_listed("Sources", list(found.sources)))
    if found.facts:
        blocks.append(_listed("Facts", [", ".join(found.facts)]))
    blocks.append("Fails:\n" + textwrap.indent(_shown(found.bad), "    "))
    blocks.append("Passes:\n" + textwrap.indent(_shown(found.good, found.bad), "    "))
    return "\n\n".join(blocks)


def _listed(title: str, lines: list[str]) -> str:
    return f"{title}:\n" + "\n".join(textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="      ") for line in lines)


def _shown(example: Example, beside: Example | None = None) -> str:
    """A spec; the passing one is shown by its difference from the failing one when they share a base."""
    text = _text(example)
    if beside is None or beside.base != example.base:
        return text
    lines = difflib.unified_diff(_text(beside).splitlines(), text.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(changed)


def _text(example: Example) -> str:
    from jobgen.spec.edit import DELETE, edit_text

    edits = {path: DELETE if value is None else value for path, value in example.edits.items()}
    text = bases.text(example.base)
    return (edit_text(text, edits) if edits else text).strip()


def all_rules() -> dict[str, Any]:
    """The ``jobgen.rules/1`` object."""
    return {"schema": "jobgen.rules/1", "rules": [_record(rule) for rule in rules().values()]}


def _record(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code, "severity": rule.severity, "title": rule.title, "why": rule.why, "fix": rule.fix,
        "versions": rule.versions, "sources": list(rule.sources), "facts": list(rule.facts),
    }  # fmt: skip


def index() -> str:
    """All rules, one a line."""
    listed = [(rule.code, rule.severity, rule.title) for rule in rules().values()]
    listed += [(code, "error" if code != "JG999" else "warning", title) for code, (title, _) in SPEC.items()]
    return "\n".join(f"{code}  {severity:7}  {title}" for code, severity, title in sorted(listed))


def artifact(made: Artifact) -> str:
    """An artifact with the spec fields that made each line beside it."""
    fields: dict[int, list[str]] = {}
    for line, path in made.explain:
        if path not in fields.setdefault(line, []):
            fields[line].append(path)
    lines = made.text.splitlines()
    width = min(max((len(line) for line in lines), default=0), 100)
    shown = (
        f"{line:{width}}  | {', '.join(fields[number])}" if number in fields else line
        for number, line in enumerate(lines, 1)
    )
    return "\n".join(line.rstrip() for line in shown)
