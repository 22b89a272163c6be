"""What is judged is what is written: a job is built and rendered once."""

from __future__ import annotations

from typing import Any

import pytest

import jobgen.launch.build
import jobgen.targets
from jobgen import api
from jobgen.checks import bases


@pytest.mark.parametrize("target", ["slurm", "k8s"])
def test_rendering_builds_once(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    calls: list[str] = []

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            calls.append(name)
            return function(*args, **more)

        return call

    monkeypatch.setattr(jobgen.launch.build, "build", counted("build", jobgen.launch.build.build))
    monkeypatch.setattr(jobgen.targets, "render", counted("render", jobgen.targets.render))
    document = bases.base("full-32b-zero3").edited({"launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "lustre"}]})
    assert api.render(document, target=target).text
    assert calls == ["build", "render"]


def test_what_cannot_be_written_is_still_a_finding_and_ignored_it_is_a_problem() -> None:
    document = bases.base("full-32b-zero3").edited({"slurm.partition": "$PARTITION"})
    with pytest.raises(api.Refused) as refused:
        api.render(document, target="slurm")
    assert "JG790" in [f.code for f in refused.value.report.findings]
    with pytest.raises(api.SpecError):
        api.render(document.edited({"ignore": ["JG790"]}), target="slurm")
