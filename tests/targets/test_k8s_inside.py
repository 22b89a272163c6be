"""The in-container script, run by a real bash with stubs for the launcher."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from k8s_cases import CASES, PAIRS

from jobgen.launch.job import Command, Python, Resume, RunTime, word
from jobgen.targets import inside, pod

PROBE = """#!{python}
import json, os, sys
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a job's script as node ``rank``; returns (status, what the launcher saw, stderr)."""
    binary = tmp_path / "bin"
    binary.mkdir()
    launcher = binary / "torchrun"
    launcher.write_text(PROBE.format(python=sys.executable))
    launcher.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()

    def go(job, rank=0, target="k8s", spec=None, **environment):
        plan = pod.plan(job, spec or jobs.spec(), target)
        text = pod.script(plan).text.replace(inside.WORK + "/", f"{work}/").replace("/dev/shm/", f"{work}/shm/")
        sent = {
            "PATH": f"{binary}:{os.environ['PATH']}", "HOME": str(tmp_path), "TRITON_CACHE_DIR": str(work / "triton"),
            "XDG_CACHE_HOME": str(work / "cache"), "PET_NODE_RANK": str(rank), "JOB_COMPLETION_INDEX": str(rank),
            "JOBGEN_CONFIG_DIR": inside.CONFIG_DIR, "JOBGEN_JOB_ID": "tiny", **environment,
        }  # fmt: skip
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=sent, timeout=60, check=False)
        lines = done.stdout.splitlines()
        return done.returncode, json.loads(lines[0]) if lines and lines[0].startswith("{") else None, done.stderr + done.stdout

    return go


def with_checkpoints(folder, **changes):
    resume = Resume("auto", None, str(folder), "checkpoint-*", "done", "abc", False, None, (word("--resume"), word(RunTime.RESUME_FROM)))
    return jobs.job(resume=resume._replace(**changes), directories=(str(folder),))


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_script_is_valid_bash(name, target):
    text = pod.script(pod.plan(*jobs.from_edit(CASES[name]), target)).text
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_the_script_passes_shellcheck(name, target):
    shellcheck = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    if not Path(shellcheck).exists():
        pytest.skip("shellcheck is not installed")
    text = pod.script(pod.plan(*jobs.from_edit(CASES[name]), target)).text
    done = subprocess.run(
        [shellcheck, "--shell=bash", "--severity=warning", "--exclude=SC1090,SC1091", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("target", ["k8s", "trainjob", "jobset"])
def test_the_launcher_is_told_its_node_and_master(run, target):
    status, seen, _ = run(jobs.job(), rank=1, target=target)
    master = "tiny-master-0" if target == "k8s" else "tiny-node-0-0.tiny"
    assert status == 0
    assert seen["argv"] == ["--nproc_per_node=2", "--nnodes=2", "--node_rank=1", f"--master_addr={master}", "--master_port=29500", "train.py"]


HOSTILE = ["", "a b", "it's", '"q"', "$HOME", "$(id)", "`id`", "\\", "a\nb", "é 训练", "-x", "--", "*", "~", "#x", "!1", "{a,b}", "\t\x01\x7f", "$$", "%j"]


def test_arguments_arrive_unchanged(run):
    words = (*jobs.torchrun(), *(word(text, origin="launch.args") for text in HOSTILE))
    status, seen, _ = run(jobs.job(command=Command(words)))
    assert status == 0 and seen["argv"][-len(HOSTILE) :] == HOSTILE


def test_variables_known_only_at_run_time_are_exported(run):
    env = (jobs.variable("WHERE", "tcp://", RunTime.MASTER_ADDR, ":", RunTime.MASTER_PORT, " it's"),)
    assert run(jobs.job(env=env))[1]["env"]["WHERE"] == "tcp://tiny-master-0:29500 it's"


def test_the_newest_complete_checkpoint_is_resumed(run, tmp_path):
    folder = tmp_path / "run"
    for step in (5, 10, 9, 100):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        if step != 100:
            (folder / f"checkpoint-{step}" / "done").touch()
    status, seen, _ = run(with_checkpoints(folder))
    assert status == 0 and seen["argv"][-2:] == ["--resume", str(folder / "checkpoint-10")]
    assert seen["env"]["JOBGEN_RESUME_FROM"] == str(folder / "checkpoint-10")


def test_an_empty_folder_starts_anew(run, tmp_path):
    status, seen, _ = run(with_checkpoints(tmp_path / "run"))
    assert status == 0 and "--resume" not in seen["argv"] and seen["env"]["JOBGEN_RESUME_FROM"] == ""


def test_the_folder_of_another_run_is_refused(run, tmp_path):
    folder = tmp_path / "run"
    assert run(with_checkpoints(folder))[0] == 0
    status, seen, said = run(with_checkpoints(folder, fingerprint="other"))
    assert status != 0 and seen is None and "another model or batch" in said


@pytest.mark.parametrize("prepare", ["echo out; echo err >&2; false", "echo out; echo err >&2"])
def test_the_end_of_the_output_is_kept_however_it_ends(run, tmp_path, prepare):
    folder = tmp_path / "run"
    status, _, said = run(with_checkpoints(folder)._replace(prepare=(prepare,)))
    kept = folder / ".jobgen" / "output"
    assert (status == 0) == ("false" not in prepare)
    assert sorted((kept / "tiny.0.0").read_text().splitlines()) == sorted(said.splitlines())
    assert {"out", "err"} <= set(said.splitlines())
    run(with_checkpoints(folder), rank=1)
    assert {path.name for path in kept.iterdir()} == {"tiny.0.0", "tiny.1.1"}


def test_no_more_than_the_end_of_the_output_is_kept(run, tmp_path):
    run(with_checkpoints(tmp_path)._replace(prepare=("seq 100000",)))
    kept = (tmp_path / ".jobgen" / "output" / "tiny.0.0").read_text()
    assert len(kept) == inside.KEPT_BYTES and "99999\n100000\n" in kept


def test_an_output_that_cannot_be_kept_does_not_change_the_end(run, tmp_path):
    job = with_checkpoints(tmp_path)
    (tmp_path / ".jobgen").mkdir()
    (tmp_path / ".jobgen" / "output").write_text("in the way")
    assert run(job)[0] == 0


def test_attempts_are_counted_where_a_container_restarts_in_place(run):
    assert [run(jobs.job())[1]["env"]["JOBGEN_ATTEMPT"] for _ in range(3)] == ["0", "1", "2"]


def test_a_gang_knows_its_attempt_from_the_jobset(run):
    seen = run(jobs.job(restarts=3), target="jobset", JOBSET_RESTART_ATTEMPT="2")[1]
    assert seen["env"]["JOBGEN_ATTEMPT"] == "2"


def test_only_the_first_node_prepares_and_finishes(run, tmp_path):
    log = tmp_path / "log"
    job = jobs.job(nodes=1, prepare=(f"echo prepared >>{log}", "cd /"), finish=(f"echo finished >>{log}",), single_node=True)
    assert run(job)[0] == 0 and log.read_text() == "prepared\nfinished\n"


def test_a_failing_preparation_stops_the_node(run):
    status, seen, _ = run(jobs.job(nodes=1, prepare=("false", "true")))
    assert status != 0 and seen is None


def test_the_finish_is_left_out_after_a_failure(run, tmp_path):
    log = tmp_path / "log"
    job = jobs.job(nodes=1, command=Command((word("false"),)), launcher="python", finish=(f"touch {log}",))
    assert run(job)[0] == 1 and not log.exists()


def test_preparation_with_an_open_quote_cannot_swallow_the_launcher(run):
    status, seen, _ = run(jobs.job(nodes=1, prepare=("echo 'open",)))
    assert status != 0 and seen is None


def test_copies_take_folders_and_files(run, tmp_path):
    source, target = tmp_path / "a b", tmp_path / "local" / "data"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "x").write_text("1")
    (tmp_path / "one.txt").write_text("2")
    job = jobs.job(stage=((str(source), str(target)), (str(tmp_path / "one.txt"), str(tmp_path / "local" / "two.txt"))))
    assert run(job)[0] == 0
    assert (target / "deep" / "x").read_text() == "1" and (tmp_path / "local" / "two.txt").read_text() == "2"


def test_a_virtual_environment_comes_first(run, tmp_path):
    seen = run(jobs.job(python=Python("venv", str(tmp_path / "my env"))))[1]
    assert seen["env"]["PATH"].startswith(str(tmp_path / "my env" / "bin"))


def test_an_elastic_job_takes_its_nodes_from_the_operator(run):
    spec = jobs.spec(kubernetes={"elastic": {"min_nodes": 1, "max_nodes": 4}})
    seen = run(jobs.job(rendezvous="c10d"), spec=spec, HOSTNAME="tiny-worker-1")[1]
    assert seen["argv"] == ["--nproc_per_node=2", "train.py"]


def test_a_program_without_handlers_is_told_to_end(tmp_path, run):
    job = jobs.job(nodes=1, command=Command((word("bash"), word("-c"), word("kill -TERM $PPID; sleep 20"))), launcher="python")
    status, _, _ = run(job)
    assert status == 143
