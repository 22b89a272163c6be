"""Findings as text, JSON lines, GitHub annotations and SARIF."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobgen import __version__
from jobgen.api import Report
from jobgen.checks.registry import Finding, rules

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}
_SARIF_LEVEL = {"error": "error", "warning": "warning", "info": "note"}
HOME = "https://github.com/jobgen/jobgen"


def text(report: Report, width: int = 0) -> str:
    """One line a finding as linters print it, the user's line below it, and what to write."""
    lines: list[str] = []
    for finding in report.findings:
        lines.append(headline(report.file, finding))
        lines.extend(quoted(report.sources.get(finding.file or report.file), finding.line, finding.column))
        lines.extend(f"    fix: {line}" if index == 0 else f"         {line}" for index, line in enumerate(finding.fix.splitlines()))
        if finding.ignored is not None:
            lines.append(f"    ignored: {finding.ignored or 'no reason given'}")
    errors = sum(1 for f in report.findings if f.severity == "error" and f.ignored is None)
    warnings = sum(1 for f in report.findings if f.severity == "warning" and f.ignored is None)
    lines.append(f"{report.file}: {report.verdict}: {_many(errors, 'error')}, {_many(warnings, 'warning')}")
    return "\n".join(textwrap.shorten(line, width) if width else line for line in lines)


def headline(file: str, finding: Finding) -> str:
    """``SPEC:14:5: error JG102: ...``."""
    where = f"{finding.path}: " if finding.path else ""
    return f"{finding.file or file}:{finding.line}:{finding.column}: {finding.severity} {finding.code}: {where}{finding.message}"


def quoted(text: str | None, line: int, column: int) -> list[str]:
    """The user's line with a caret below it; nothing when the text is not at hand."""
    if text is None:
        return []
    lines = text.splitlines()
    if not 1 <= line <= len(lines) or not lines[line - 1].strip():
        return []
    shown = lines[line - 1].expandtabs(1)
    start = max(0, column - 100)
    caret = min(column - 1 - start, len(shown))
    return [f"    {line:4} | {shown[start : start + 160]}", f"         | {' ' * caret}^"]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def as_json(report: Report) -> str:
    """The ``jobgen.check/1`` object on one line."""
    return json.dumps({"schema": "jobgen.check/1", "spec": report.file, "verdict": report.verdict, "findings": [_record(f) for f in report.findings]}, ensure_ascii=False)


def _record(finding: Finding) -> Mapping[str, Any]:
    record: dict[str, Any] = {
        "code": finding.code, "severity": finding.severity, "path": finding.path, "line": finding.line,
        "column": finding.column, "message": finding.message, "fix": finding.fix, "source": finding.source,
    }  # fmt: skip
    if finding.ignored is not None:
        record["ignored"] = finding.ignored
    return record


def github(report: Report) -> str:
    """Workflow commands that GitHub shows beside the line."""
    lines = []
    for finding in report.findings:
        if finding.ignored is not None:
            continue
        place = f"file={_property(finding.file or report.file)},line={finding.line},col={finding.column},title={_property(finding.code)}"
        lines.append(f"::{_LEVEL[finding.severity]} {place}::{_message(f'{finding.message}. Fix: {finding.fix}')}")
    return "\n".join(lines)


def _message(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")


def sarif(reports: Sequence[Report]) -> str:
    """One SARIF 2.1.0 log over all specs."""
    used = sorted({finding.code for report in reports for finding in report.findings})
    known = rules()
    described: list[dict[str, Any]] = []
    for code in used:
        entry: dict[str, Any] = {"id": code}
        if code in known:
            page = known[code]
            entry |= {
                "shortDescription": {"text": page.title or code},
                "fullDescription": {"text": page.why or page.title or code},
                "help": {"text": page.fix or page.title or code},
                "defaultConfiguration": {"level": _SARIF_LEVEL[page.severity]},
            }
        described.append(entry)
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "jobgen", "version": __version__, "informationUri": HOME, "rules": described}},
                "results": [_result(finding.file or report.file, finding, used) for report in reports for finding in report.findings],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False)


def _result(file: str, finding: Finding, codes: Sequence[str]) -> Mapping[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _SARIF_LEVEL[finding.severity],
        "message": {"text": f"{finding.message}. Fix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(file)},
                    "region": {"startLine": finding.line, "startColumn": finding.column},
                }
            }
        ],
    }
    if finding.ignored is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.ignored or "named by the spec's ignore list"}]
    return result


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote("stdin" if file == "-" else file.replace("\\", "/"))


def problems(report: Iterable[Any], sources: Mapping[str, str]) -> str:
    """Problems of a spec that cannot be read, each with the user's line."""
    lines: list[str] = []
    for problem in report:
        where = f"{problem.path}: " if problem.path else ""
        lines.append(f"{problem.file}:{problem.line}:{problem.column}: error {problem.code}: {where}{problem.message}")
        lines.extend(quoted(sources.get(problem.file), problem.line, problem.column))
        lines.append(f"    fix: {problem.fix}")
    return "\n".join(lines)
