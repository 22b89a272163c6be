"""A state folder of the test's own."""

import pytest


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("JOBGEN_STATE", str(folder))
    return folder
