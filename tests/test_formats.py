"""GitHub annotations, SARIF and the pre-commit hook."""

import json
from pathlib import Path

import pytest
import yaml

from jobgen import api
from jobgen.show import findings

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "examples" / "qwen3-235b-a22b-qlora.yaml"


@pytest.fixture(scope="module")
def report():
    newer = 'training.versions={transformers: "5.6.0", peft: "0.18.1", llamafactory: "0.9.5"}'
    return api.check(api.load(str(SPEC), sets=[newer, 'ignore=[{code: JG222, reason: "a test: \'quoted\'"}]']))


def test_sarif_is_a_log_of_version_2_1_0(report):
    model = pytest.importorskip("sarif_pydantic", reason="the SARIF object model (pip install sarif-pydantic) is not here")
    text = findings.sarif([report])
    log = model.Sarif.model_validate_json(text)
    results = log.runs[0].results
    assert str(log.version) == "2.1.0"
    assert len(results) == len(report.findings)
    names = {rule.id for rule in log.runs[0].tool.driver.rules}
    assert {result.rule_id for result in results} <= names
    assert json.loads(text)["runs"][0]["results"][0]["level"] == "error"


def test_github_shows_each_finding_on_its_line(report):
    lines = findings.github(report).splitlines()
    shown = [finding for finding in report.findings if finding.ignored is None]
    assert len(lines) == len(shown)
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    assert f"line={shown[0].line},col={shown[0].column}" in lines[0]


def test_a_message_cannot_break_out_of_a_github_command(report):
    broken = report._replace(findings=tuple(f._replace(message="a\n::error::b") for f in report.findings))
    lines = findings.github(broken).splitlines()
    assert len(lines) == len(findings.github(report).splitlines())
    assert not any(line.startswith("::error::") for line in lines)


def test_the_hook_runs_check_on_yaml():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "jobgen check"
    assert hook["types"] == ["yaml"]
