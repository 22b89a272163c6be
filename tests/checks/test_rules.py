"""Every rule's own examples: the failing spec yields the finding once, the passing one does not, the fix removes it."""

from __future__ import annotations

import pkgutil

import pytest

import jobgen.checks
from jobgen.checks import bases
from jobgen.checks.registry import STAGES, SUBJECTS, Example, Finding, Rule, rules
from jobgen.checks.run import findings
from jobgen.effective.resolve import facts, known
from jobgen.spec.document import Document

ALL = list(rules().values())
NOT_RULES = {"settings", "registry", "case", "forks", "run", "bases", "words", "weights", "table"}


def check(document: Document) -> tuple[Finding, ...]:
    return findings(document, facts(document), known(document))


def of(code: str, found: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def test_every_module_of_rules_is_listed() -> None:
    modules = {module.name for module in pkgutil.iter_modules(jobgen.checks.__path__)} - NOT_RULES
    assert modules == set(SUBJECTS)


@pytest.mark.parametrize("name", bases.names())
def test_bases_have_no_errors_and_no_failed_rule(name: str) -> None:
    found = check(bases.base(name))
    assert [f for f in found if f.severity == "error" or f.code == "JG999"] == []


@pytest.mark.parametrize("rule", ALL, ids=[rule.code for rule in ALL])
def test_the_failing_example_is_found_once_and_the_passing_one_is_not(rule: Rule) -> None:
    bad = check(bases.document(rule.bad))
    assert len(of(rule.code, bad)) == 1, [(f.code, f.message) for f in bad]
    assert [f for f in bad if f.code == "JG999"] == []
    good = check(bases.document(rule.good))
    assert of(rule.code, good) == []
    assert [f for f in good if f.severity == "error"] == []


@pytest.mark.parametrize("rule", ALL, ids=[rule.code for rule in ALL])
def test_the_fix_removes_the_finding(rule: Rule) -> None:
    document = bases.document(rule.bad)
    (finding,) = of(rule.code, check(document))
    if finding.edits is None:
        assert finding.fix
        return
    mended = bases.edited(document, finding.edits)
    left = check(mended)
    assert of(rule.code, left) == []
    if finding.severity == "error":
        assert [f for f in left if f.severity == "error"] == [], "an error's fix is one that passes"


@pytest.mark.parametrize("rule", ALL, ids=[rule.code for rule in ALL])
def test_the_page_is_whole(rule: Rule) -> None:
    assert rule.title and rule.why and rule.fix and rule.sources
    assert not rule.title.endswith(".") and rule.stage in STAGES
    assert len(rule.title) <= 100
    (finding,) = of(rule.code, check(bases.document(rule.bad)))
    assert finding.line >= 1 and finding.message and finding.fix and not finding.message.endswith(".")


def test_examples_name_bases() -> None:
    for rule in ALL:
        for example in (rule.bad, rule.good):
            assert isinstance(example, Example) and example.base in bases.names()
