"""docs/rules.md is what tests/checks/make_table.py writes, and no fact is missing from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from jobgen.checks.registry import rules


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_table", Path(__file__).parent / "make_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_current() -> None:
    make = maker()
    assert make.TABLE.read_text(encoding="utf-8") == make.table(), "run python tests/checks/make_table.py"


def test_every_fact_is_accounted_for() -> None:
    make = maker()
    carried, known = make.carriers(), {row["id"] for row in make.facts()}
    assert set(carried) <= known, "rules name facts that exist"
    assert not set(carried) & set(make.WHY_NOT), "a carried fact needs no reason"
    assert known == set(carried) | set(make.ELSEWHERE) | set(make.WHY_NOT)
    assert len(set(carried) | set(make.ELSEWHERE)) >= 160
    assert len(rules()) >= 100
