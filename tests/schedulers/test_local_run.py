"""The README's first run, and what becomes of it: examples/tiny-local.yaml really trains on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOBGEN = [sys.executable, "-m", "jobgen.cli"]


@pytest.fixture(scope="session")
def torch_settings(tmp_path_factory):
    """``--set`` arguments that choose a python with torch: this one, or Debian's."""
    if importlib.util.find_spec("torch") is not None:
        return ["--set", f"launch.python.venv={Path(sys.executable).parent.parent}"]
    spec = importlib.util.spec_from_file_location("jobgen_tests_slurm_cluster", ROOT / "tests" / "cluster" / "slurm_cluster.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.torch_python(tmp_path_factory.mktemp("torch") / "venv")
    if isinstance(found, str):
        pytest.skip(found)
    version = subprocess.run([found / "bin" / "python", "-c", "import torch; print(torch.__version__.split('a')[0].split('+')[0])"],
                             capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    return ["--set", f"launch.python.venv={found}", "--set", f"training.versions.torch={version}"]


class Here:
    """The example in a folder of its own."""

    def __init__(self, folder, settings):
        shutil.copytree(ROOT / "examples" / "tiny", folder / "tiny")
        shutil.copy(ROOT / "examples" / "tiny-local.yaml", folder)
        self.folder, self.settings = folder, settings
        self.checkpoints = folder / "tiny-run" / "checkpoints"

    def slower(self):
        """Long enough to be disturbed."""
        path = self.folder / "tiny-local.yaml"
        path.write_text(path.read_text().replace("--save-every, \"20\"", '--save-every, "10", --seconds-per-step, "0.1"'))
        return self

    def call(self, *arguments, timeout=180):
        done = subprocess.run([*JOBGEN, *arguments], cwd=self.folder, text=True, capture_output=True, timeout=timeout, check=False)
        assert "Traceback (most recent call last)" not in done.stderr.split("jobgen:")[0]
        return done

    def submit(self, *more):
        return self.call("submit", "tiny-local.yaml", *self.settings, *more)

    def status(self, handle):
        return json.loads(self.call("status", handle, "--format", "json").stdout)

    def until(self, handle, words, seconds=90):
        deadline = time.monotonic() + seconds
        while words not in (log := self.call("logs", handle).stdout):
            assert time.monotonic() < deadline, log
            time.sleep(0.3)
        return log

    def ended(self, handle, seconds=90):
        deadline = time.monotonic() + seconds
        while (found := self.status(handle))["phase"] in ("queued", "running"):
            assert time.monotonic() < deadline, found
            time.sleep(0.3)
        return found


@pytest.fixture
def here(tmp_path, torch_settings):
    one = Here(tmp_path, torch_settings)
    yield one
    for line in one.call("list", "--format", "json").stdout.splitlines():
        if json.loads(line)["phase"] in ("queued", "running"):
            one.call("cancel", json.loads(line)["handle"])


def test_watched_to_its_end(here):
    begun = time.monotonic()
    done = here.submit("--watch")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"tiny-local-[0-9a-f]{6}\n", done.stdout)
    for words in ("started at step 0 on 2 ranks", "step 20 loss", "step 40 loss", "finished at step 60", "succeeded"):
        assert words in done.stderr
    assert sorted(path.name for path in here.checkpoints.glob("step-*")) == ["step-40", "step-60"]
    assert here.status(done.stdout.strip())["exit_code"] == "0"
    assert "finished at step 60" in here.call("logs").stdout
    print(f"trained 60 steps on 2 ranks in {time.monotonic() - begun:.1f} s")


def test_submit_does_not_wait_for_the_job_and_cancel_does(here):
    here.slower()
    begun = time.monotonic()
    handle = here.submit().stdout.strip()
    took = time.monotonic() - begun
    here.until(handle, "step 10 loss")
    assert here.submit().stdout.strip() == handle
    cancelled = here.call("cancel", handle)
    assert f"{handle} is cancelled" in cancelled.stderr
    assert here.call("status", handle).returncode == 4
    assert "told to stop, saved at step" in here.call("logs", handle).stdout
    again = here.submit()
    assert again.stdout.strip() != handle
    assert here.ended(again.stdout.strip())["phase"] == "succeeded"
    log = here.call("logs", again.stdout.strip()).stdout
    assert int(re.search(r"resumed at step (\d+)", log).group(1)) >= 10
    assert "finished at step 60" in log
    print(f"submit returned after {took:.1f} s")


def group_of(here, handle):
    return int((Path(os.environ["JOBGEN_STATE"]) / "jobs" / handle / "group").read_text())


def descendants(pid):
    """A process and all below it."""
    found = [pid]
    for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split():
        found += descendants(int(child))
    return found


def test_after_a_kill_it_goes_on_from_the_last_checkpoint(here):
    here.slower()
    handle = here.submit().stdout.strip()
    here.until(handle, "step 20 loss")
    for pid in descendants(group_of(here, handle)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found = here.ended(handle)
    assert (found["phase"], found["exit_code"]) == ("failed", "137")
    again = here.submit().stdout.strip()
    assert here.ended(again)["phase"] == "succeeded"
    log = here.call("logs", again).stdout
    assert int(re.search(r"resumed at step (\d+)", log).group(1)) in (20, 30)
    assert "finished at step 60" in log


def test_the_job_outlives_a_killed_submitter_and_its_session(here):
    here.slower()
    watcher = subprocess.Popen([*JOBGEN, "submit", "tiny-local.yaml", *here.settings, "--watch"], cwd=here.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    handle = watcher.stdout.readline().strip()
    here.until(handle, "started at step")
    os.killpg(watcher.pid, signal.SIGKILL)
    watcher.wait()
    watcher.stdout.close()
    assert here.status(handle)["phase"] == "running"
    assert here.submit().stdout.strip() == handle
    assert here.ended(handle)["phase"] == "succeeded"
    assert here.call("logs", handle).stdout.count("finished at step 60") == 1
