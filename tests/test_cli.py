"""The command line: exit statuses, streams, files, and what it imports."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobgen import cli

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SPEC = EXAMPLES / "llama-3.1-8b-lora.yaml"
GOOD = SPEC.read_text(encoding="utf-8")


def run(*arguments, stdin=None):
    """(status, stdout, stderr) of one command, in this process."""
    out, err, old = io.StringIO(), io.StringIO(), (sys.stdout, sys.stderr, sys.stdin)
    sys.stdout, sys.stderr = out, err
    if stdin is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        status = cli.main([str(a) for a in arguments])
    except SystemExit as stop:
        status = stop.code
    finally:
        sys.stdout, sys.stderr, sys.stdin = old
    return status, out.getvalue(), err.getvalue()


def test_check_of_a_good_spec_is_done_and_says_so():
    status, out, _ = run("check", SPEC)
    assert status == 0
    assert "0 errors" in out


def test_check_json_is_one_object_a_line():
    status, out, _ = run("check", SPEC, EXAMPLES / "tiny-local.yaml", "--format", "json")
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [record["schema"] for record in records] == ["jobgen.check/1"] * 2
    assert records[0]["spec"] == str(SPEC)


def test_an_error_finding_refuses_check_render_and_submit_with_nothing_on_stdout(tmp_path):
    for command in (["check"], ["render", "--target", "slurm"], ["submit", "--target", "slurm", "--dry-run", "client"]):
        status, out, err = run(command[0], SPEC, *command[1:], "--set", "training.method=full", "--set", "training.lora=null")
        assert status in (1, 2), (command, err)
        if command[0] != "check":
            assert out == ""
            assert "JG" in err


def test_a_sweep_is_checked_point_by_point_and_is_no_single_script():
    sizes = ("--set", 'sweep={grid: {training.micro_batch_size: [1, 2, 512]}}')
    status, out, _ = run("check", SPEC, *sizes)
    assert status == 1
    assert "JG101" in out and "micro-batch-size-512, 1 of 3" in out
    status, out, _ = run("submit", SPEC, "--target", "slurm", "--dry-run", "client", *sizes)
    assert status == 1
    small = ("--set", 'sweep={grid: {training.micro_batch_size: [1, 2]}}')
    status, out, err = run("render", SPEC, "--target", "slurm", *small)
    assert (status, out) == (2, "")
    assert "a sweep is 2 jobs" in err
    status, out, _ = run("render", SPEC, "--target", "k8s", *small)
    assert status == 0
    assert out.count("kind: PyTorchJob") == 2


def test_the_file_of_a_refused_render_stays_as_it_was(tmp_path):
    target = tmp_path / "job.sh"
    target.write_text("mine\n")
    status, out, _ = run("render", SPEC, "--target", "slurm", "-o", target, "--set", "resources.gpu=t4", "--set", "training.method=full", "--set", "training.micro_batch_size=64")
    assert status != 0
    assert out == ""
    assert target.read_text() == "mine\n"
    assert list(tmp_path.iterdir()) == [target]


def test_render_to_a_file_equals_render_to_stdout(tmp_path):
    status, out, _ = run("render", SPEC, "--target", "slurm")
    assert status == 0
    target = tmp_path / "job.sh"
    assert run("render", SPEC, "--target", "slurm", "-o", target)[0] == 0
    assert target.read_text(encoding="utf-8") == out


def test_render_is_the_same_on_every_run():
    for target in ("slurm", "k8s"):
        texts = {
            subprocess.run([sys.executable, "-m", "jobgen.cli", "render", SPEC, "--target", target], capture_output=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}).stdout
            for seed in ("1", "2")
        }
        assert len(texts) == 1


def test_standard_input_is_a_spec():
    status, out, _ = run("estimate", "-", "--format", "json", stdin=GOOD.replace("./configs", str(EXAMPLES / "configs")).encode())
    assert status == 0
    assert json.loads(out)["schema"] == "jobgen.estimate/1"


@pytest.mark.parametrize("format_", ["json", "text"])
def test_a_reader_that_goes_away_does_not_turn_a_refusal_into_success(format_):
    call = f"{sys.executable} -m jobgen.cli check {SPEC} --set training.micro_batch_size=512 --format {format_} | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", call], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("path", ["model.config", "training.config", "launch.code.files.0"])
@pytest.mark.parametrize("kind", ["/dev/zero", "fifo"])
def test_what_a_spec_refers_to_is_a_file_of_bounded_size(path, kind, tmp_path):
    name = kind
    if kind == "fifo":
        name = str(tmp_path / "pipe")
        os.mkfifo(name)
    key, value = ("launch.code", f"{{files: [{name}]}}") if "files" in path else (path, name)
    status, out, err = run("render", SPEC, "--target", "slurm", "--set", f"{key}={value}")
    assert (status in (1, 2), out) == (True, "")
    assert "not a regular file" in err


def test_a_chart_that_cannot_be_drawn_is_said_before_anything_is_printed(tmp_path):
    status, out, err = run("estimate", SPEC, "--plot", tmp_path / "chart.doc")
    assert (status, out) == (2, "")
    assert ".svg, .html or .png" in err


def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    assert run("render", SPEC, "--target", "slurm", "-o", tmp_path / "job.sh")[0] == 130
    assert list(tmp_path.iterdir()) == []


def test_the_estimate_of_a_sweep_is_that_of_its_largest_job():
    status, out, err = run("estimate", SPEC, "--set", "sweep={grid: {training.micro_batch_size: [1, 8, 2]}}", "--format", "json")
    alone = run("estimate", SPEC, "--set", "training.micro_batch_size=8", "--format", "json")[1]
    assert status == 0
    assert json.loads(out)["gpu"] == json.loads(alone)["gpu"]
    assert "a sweep; this is llama-3.1-8b-lora-micro-batch-size-8, which needs most GPU memory" in err


def test_estimate_is_done_whatever_the_verdict():
    status, out, _ = run("estimate", SPEC, "--format", "json", "--set", "training.micro_batch_size=512")
    assert status == 0
    assert json.loads(out)["verdict"] == "does_not_fit"


def test_the_components_add_up_to_the_device():
    _, out, _ = run("estimate", SPEC, "--format", "json")
    gpu = json.loads(out)["gpu"]
    assert sum(gpu["components"].values()) == pytest.approx(gpu["device_gib"], abs=0.01)
    assert gpu["range_gib"][0] <= gpu["device_gib"] <= gpu["range_gib"][1]


def test_no_target_is_said_so():
    status, out, err = run("render", SPEC)
    assert (status, out) == (2, "")
    assert "--target" in err


@pytest.mark.parametrize("arguments", [["nonsense"], [], ["check"], ["render", "x.yaml", "--target", "nowhere"], ["explain"], ["explain", "JG998"], ["models", "no/such-model"]])
def test_a_wrong_call_is_status_2_and_quiet_on_stdout(arguments):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err
    assert "Traceback" not in err


@pytest.mark.parametrize(("arguments", "said"), [
    (["check", SPEC, "--select", "ZZ"], "begins with 'ZZ'"),
    (["render", SPEC, "--target", "slurm", "--node-rank", "0"], "--target hosts"),
    (["render", SPEC, "--target", "hosts", "--set", "resources.hosts=[a]", "--node-rank", "-1"], "from 0 to 0"),
])  # fmt: skip
def test_an_option_without_effect_is_refused(arguments, said):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_models_counts_a_config_by_path(tmp_path):
    status, out, _ = run("models", EXAMPLES / "tiny" / "config.json", "--format", "json")
    record = json.loads(out)
    assert status == 0
    assert record["parameters"] == sum(record["groups"].values())


def test_explain_all_names_every_rule():
    status, out, _ = run("explain", "--all", "--format", "json")
    record = json.loads(out)
    assert status == 0
    assert record["schema"] == "jobgen.rules/1"
    assert {"code", "severity", "title", "why", "fix", "versions", "sources", "facts"} <= set(record["rules"][0])


def test_schema_is_json_schema():
    import jsonschema

    status, out, _ = run("schema")
    assert status == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(out))


def test_importing_the_command_line_imports_nothing_heavy():
    code = "import jobgen.cli, sys; print([m for m in ('kubernetes', 'submitit', 'numpy', 'pydantic', 'jinja2', 'ruamel.yaml') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_check_and_render_import_no_client_of_a_scheduler_and_no_numpy():
    code = f"""
import sys, io
from jobgen import cli
sys.stdout = io.StringIO()
for target in ("slurm", "k8s"):
    assert cli.main(["render", {str(SPEC)!r}, "--target", target]) == 0
print([m for m in ("kubernetes", "submitit", "numpy") if m in sys.modules], file=sys.stderr)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.strip() == "[]"


def mutations():
    """At least 300 broken specs: one wrong line or value each, and hand-written traps."""
    lines = GOOD.splitlines()
    for index, line in enumerate(lines):
        if ":" not in line or line.lstrip().startswith("#"):
            continue
        before, after = lines[:index], lines[index + 1 :]
        yield "\n".join([*before, "\t" + line, *after])
        yield "\n".join([*before, line, line, *after])
        yield "\n".join([*before, line.replace(":", "", 1), *after])
        yield "\n".join([*before, line + " }", *after])
        yield "\n".join([*before, line + " ]", *after])
        yield "\n".join([*before, line + ' "', *after])
        yield "\n".join([*before, line + ": x", *after])
        yield "\n".join([*before, " " * (len(line) - len(line.lstrip())) + "x" + line.lstrip(), *after])
    for value in ("[]", "{}", "true", "-1", "1e400", "&a [*a]", "!!python/name:os.system x", "!tag x", '"\\ud800"', "''"):
        for path in ("name", "training.sequence_length", "training.micro_batch_size", "resources.gpus_per_node", "resources.nodes", "launch.time_limit", "training.method", "checkpoint.every_steps", "resources.memory_per_node", "training.framework", "model.name"):
            key = path.rpartition(".")[2]
            yield re.sub(rf"(?<![\w.]){re.escape(key)}: [^,}}\n]+", lambda _, k=key, v=value: f"{k}: {v}", GOOD, count=1)
    yield ""
    yield "# nothing\n"
    yield "a: 1\n---\nb: 2\n"
    yield "- a\n- b\n"
    yield "just text"
    yield "{" * 5000
    yield "[" * 5000
    yield "a: &x [1,1]\n" + "".join(f"b{i}: &y{i} [{'*x' if i == 0 else f'*y{i - 1}'},{'*x' if i == 0 else f'*y{i - 1}'}]\n" for i in range(40))
    yield GOOD.replace("24h", "1:30:00")
    yield GOOD.replace("time_limit: 24h", "time_limit: 24:00")
    yield GOOD + "\x00"
    yield "name: x\nmodel: {name: nope/nope}\ntraining: {method: full, sequence_length: 1}\nresources: {gpus_per_node: 1, gpu: h100}\n"


def test_three_hundred_broken_specs_end_with_status_2_a_position_and_an_untouched_file(tmp_path):
    spec, target = tmp_path / "broken.yaml", tmp_path / "job.sh"
    target.write_text("mine\n")
    refused = 0
    for text in mutations():
        spec.write_bytes(text.encode("utf-8", "surrogatepass"))
        status, out, err = run("render", spec, "--target", "slurm", "-o", target)
        if status in (0, 1):  # the change left a spec that can be read
            target.write_text("mine\n")
            continue
        assert status == 2, (text, err)
        assert out == ""
        assert "Traceback" not in err
        assert f"{spec}:" in err, err
        line, column = err.split(f"{spec}:", 1)[1].split(":")[:2]
        assert int(line) >= 1
        assert int(column) >= 1
        assert target.read_text() == "mine\n"
        refused += 1
    print(f"{refused} broken specs refused")
    assert refused >= 300


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", "name: é".encode("latin-1"), b"\x80", b"name: x\x1b\n"])
def test_what_is_not_text_is_refused(tmp_path, data):
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(data)
    status, _, err = run("check", spec)
    assert status == 2
    assert f"{spec}:1:" in err
