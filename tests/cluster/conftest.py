"""Makes the helpers beside the tests, and those of the targets' tests, importable (pytest imports tests by path), and
prints at the end what the tests counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "targets")]

FIGURE, TRIED, SURVIVED, MARKED = "jobgen.figure", "jobgen.tried", "jobgen.survived", "jobgen.marked"
HEADS = ("target", "fault", "what happened", "steps lost")


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A line of figures for the end of the report, whether the test passes or not; JOBGEN_FIGURES names a file for them."""

    def said(line: str) -> None:
        record_property(FIGURE, line)
        if path := os.environ.get("JOBGEN_FIGURES"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    return said


class Faults:
    """Faults that a job is to survive: what is tried and not survived is in the table too."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self.record = record

    def tried(self, target: str, fault: str) -> None:
        """It is about to happen."""
        self.record(TRIED, (target, fault))

    def survived(self, target: str, fault: str, happened: str, lost: int) -> None:
        """The job ended as it should."""
        self.record(SURVIVED, (target, fault, happened, str(lost)))


@pytest.fixture
def faults(record_property: Callable[[str, object], None]) -> Faults:
    """The table of faults."""
    return Faults(record_property)


@pytest.fixture(autouse=True)
def _marked(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """``@pytest.mark.fault``: the test is a fault of the table, survived if it passes."""
    marker = request.node.get_closest_marker("fault")
    if marker is not None:
        record_property(MARKED, ("slurm", *marker.args))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures, and the table of faults."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, []) if one.when == "call"]
    noted = [pair for one in reports for pair in one.user_properties]
    figures = [value for name, value in noted if name == FIGURE]
    survived = {tuple(value[:2]): tuple(value) for name, value in noted if name == SURVIVED}
    tried = list(dict.fromkeys(tuple(value) for name, value in noted if name == TRIED))
    for one in reports:
        for name, value in one.user_properties:
            if name == MARKED:
                tried.append(tuple(value[:2]))
                if one.passed:
                    survived[tuple(value[:2])] = tuple(value)
    if figures or tried:
        terminalreporter.section("figures")
    for line in figures:
        terminalreporter.write_line(line)
    if tried:
        rows = [HEADS, *(survived.get(one, (*one, "not survived", "-")) for one in tried)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        for row in rows:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        terminalreporter.write_line(f"faults: {len(tried)} tried, {len(survived)} survived")
