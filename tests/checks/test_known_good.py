"""Public configurations that are known to run, each from the document its first line names: no errors, and no flood."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobgen import api

FILES = sorted((Path(__file__).parent / "known_good").glob("*.yaml"))
OPEN_VERSIONS = "JG600"


def test_there_are_thirty() -> None:
    assert len(FILES) >= 30
    assert all(file.read_text(encoding="utf-8").startswith("# ") for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_no_errors_and_at_most_three_open_versions(file: Path) -> None:
    found = api.check(api.load(file)).findings
    assert [(f.code, f.path, f.message) for f in found if f.severity == "error" or f.code == "JG999"] == []
    assert len([f for f in found if f.code == OPEN_VERSIONS]) <= 3
