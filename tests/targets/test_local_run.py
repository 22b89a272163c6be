"""Target local, run for real on this machine with a stand-in program: signals, limits, restarts, resume, cancelling."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import shell_jobs

from jobgen.launch.job import Unrenderable


def write(folder: Path, **changes: object) -> Path:
    """The script of a job whose program is the probe, under this Python."""
    venv = folder / "venv" / "bin"
    venv.mkdir(parents=True, exist_ok=True)
    if not (venv / "python").exists():
        (venv / "python").symlink_to(Path(sys.executable).resolve())
    changes = {
        "resources__nodes": 1, "training__framework": "transformers", "training__versions": {"transformers": "4.57.1"},
        "launch__launcher": "python", "launch__entrypoint": str(shell_jobs.PROBE), "launch__python": {"venv": str(venv.parent)},
        "launch__env": {"PROBE_PAUSE": "0.05"}, "checkpoint__directory": str(folder / "ck"),
    } | changes  # fmt: skip
    path = folder / "job.sh"
    path.write_text(shell_jobs.artifact("local", folder, **changes).text)
    return path


def run(path: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(path)], env=os.environ | (env or {}), capture_output=True, text=True, timeout=60, check=False)


def start(path: Path) -> subprocess.Popen[str]:
    """As from a terminal: a shell in the background ignores SIGINT, and so would all that it starts."""
    return subprocess.Popen(
        ["bash", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def probe(folder: Path, attempt: int = 0) -> dict:
    return json.loads((folder / "ck" / f"probe-{attempt}-0.json").read_text())


def wait_for(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_arguments_variables_files_and_steps(tmp_path):
    words = ["two words", "it's", "$HOME `id`", "a\nb", "日本語", "-n", "", '"', "END_OF_HOST", "END_OF_PROGRAM"]
    (tmp_path / "data.txt").write_text("a\n\n$x\n")
    path = write(tmp_path, launch__args=words, launch__env={"MINE": "x'\n$y"}, launch__secrets=["HF_TOKEN"], training__max_steps=2,
                 launch__code={"files": ["data.txt"]}, launch__prepare=['cp "$JOBGEN_CONFIG_DIR/data.txt" copied'],
                 launch__finish=["echo finished > finished"], launch__working_directory=str(tmp_path))  # fmt: skip
    done = run(path, {"HF_TOKEN": "hf_'$x y", "RANK": "7", "MASTER_ADDR": "nowhere"})
    assert done.returncode == 0, done.stderr
    seen = probe(tmp_path)
    assert seen["argv"][-len(words) :] == words
    assert (seen["env"]["MINE"], seen["env"]["HF_TOKEN"]) == ("x'\n$y", "hf_'$x y")
    assert seen["env"]["MASTER_ADDR"] == "127.0.0.1"
    assert seen["cwd"] == str(tmp_path)
    assert (tmp_path / "copied").read_text() == "a\n\n$x\n"
    assert (tmp_path / "finished").exists()
    assert "hf_" not in path.read_text() + done.stdout + done.stderr


def test_the_limit_tells_the_program_which_goes_on_in_the_next_attempt(tmp_path):
    path = write(tmp_path, launch__time_limit="8s", slurm__signal_before="4s", launch__restarts=5, training__max_steps=100)
    done = run(path)
    assert done.returncode == 0, done.stderr
    stopped = [int(step) for step in re.findall(r"told to stop \(\d+\) at step (\d+)", done.stdout)]
    assert stopped
    assert [int(step) for step in re.findall(r"start at step (\d+)", done.stdout)] == [0, *stopped]
    assert "finished at step 100" in done.stdout


def test_a_crash_after_a_checkpoint_is_started_again_and_one_before_is_not(tmp_path):
    path = write(tmp_path, launch__restarts=2, launch__env={"PROBE_PAUSE": "0", "PROBE_DIES_RANK": "0", "PROBE_DIES_AT": "12"})
    done = run(path)
    assert (done.returncode, done.stdout.count("start at step")) == (0, 2), done.stderr
    (tmp_path / "second").mkdir()
    path = write(tmp_path / "second", launch__restarts=2, launch__env={"PROBE_EXIT": "9"}, launch__args=["--max_steps", "0"], training__max_steps=1)
    again = run(path)
    assert again.returncode == 9
    assert again.stdout.count("start at step") <= 2


def test_restarts_end(tmp_path):
    path = write(tmp_path, launch__restarts=1, launch__time_limit="6s", slurm__signal_before="3s", training__max_steps=10_000)
    done = run(path)
    assert done.returncode == 75
    assert done.stdout.count("start at step") == 2
    assert "are used up" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_cancelling_ends_the_program(tmp_path, number):
    job = start(write(tmp_path, launch__restarts=3, training__max_steps=10_000))
    wait_for(lambda: (tmp_path / "ck" / "checkpoint-5" / "trainer_state.json").exists())
    pid = probe(tmp_path)["pid"]
    os.killpg(job.pid, number)
    output = job.communicate(timeout=20)[0]
    assert job.returncode == 143, output
    assert not alive(pid)
    assert "attempt 1" not in output


def test_nothing_outlives_a_killed_script(tmp_path):
    job = start(write(tmp_path, training__max_steps=10_000))
    wait_for(lambda: (tmp_path / "ck" / "probe-0-0.json").exists())
    wait_for(lambda: (tmp_path / "ck" / "checkpoint-5").exists())
    pid = probe(tmp_path)["pid"]
    os.kill(job.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))


def test_a_half_written_checkpoint_is_passed_over_and_another_run_refused(tmp_path):
    for step in (5, 10):
        (tmp_path / "ck" / f"checkpoint-{step}").mkdir(parents=True)
    (tmp_path / "ck" / "checkpoint-5" / "trainer_state.json").write_text('{"global_step": 5}')
    assert "start at step 5" in run(write(tmp_path, training__max_steps=8)).stdout
    other = run(write(tmp_path, training__max_steps=8, training__micro_batch_size=2))
    assert other.returncode == 1
    assert "another model or batch" in other.stderr


def test_frameworks_that_trust_the_highest_number_do_not_see_half_written_ones(tmp_path):
    """LLaMA-Factory resumes from the newest folder, complete or not."""
    folder = tmp_path / "ck" / "checkpoint-10"
    folder.mkdir(parents=True)
    path = write(tmp_path, training__framework="llama-factory", training__versions={}, launch__launcher=None, launch__entrypoint=None,
                 launch__command=[sys.executable, "-c", "import os,sys; print(os.listdir(sys.argv[1]))", str(tmp_path / "ck")],
                 training__options={"dataset": "x", "template": "qwen"})  # fmt: skip
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert "checkpoint-10" not in done.stdout
    assert "half-written: moved" in done.stderr
    assert list((tmp_path / "ck" / ".jobgen" / "incomplete").iterdir())


def test_a_missing_secret_or_python_is_said(tmp_path):
    path = write(tmp_path, launch__secrets=["JOBGEN_TEST_SECRET"])
    done = run(path)
    assert done.returncode != 0
    assert "JOBGEN_TEST_SECRET: is a secret of this job" in done.stderr
    done = run(write(tmp_path, launch__python={"venv": str(tmp_path / "nowhere")}))
    assert "no Python in" in done.stderr


def test_two_nodes_are_not_this_machine(tmp_path):
    with pytest.raises(Unrenderable, match="one node"):
        write(tmp_path, resources__nodes=2)
