"""jobgen's command line against the test Slurm, as a user calls it: in a folder, with a state folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TASK = HERE / "programs" / "task.py"
JOBGEN = [sys.executable, "-m", "jobgen.cli"]


class Done(NamedTuple):
    """What one call came to."""

    status: int
    out: str
    err: str


class CommandLine:
    """``jobgen`` in ``folder``."""

    def __init__(self, folder: Path, bin_folder: Path | None = None) -> None:
        self.folder = folder
        found = [str(bin_folder)] if bin_folder else []
        self.env = os.environ | {"JOBGEN_STATE": str(folder / "state"), "PATH": os.pathsep.join([*found, os.environ["PATH"]])}

    def call(self, *arguments: object, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path | None = None) -> Done:
        """One call to its end."""
        done = subprocess.run(
            [*JOBGEN, *map(str, arguments)], cwd=cwd or self.folder, env=self.env | (env or {}), text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=timeout, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: object, group: bool = False, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """One call in the background; ``group``: in a process group of its own."""
        return subprocess.Popen(
            [*JOBGEN, *map(str, arguments)], cwd=self.folder, env=self.env | (env or {}), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=group,
        )  # fmt: skip

    def submit(self, spec: Path, *more: object, env: dict[str, str] | None = None) -> str:
        """The handle of a submission that must succeed."""
        done = self.call("submit", spec, "--target", "slurm", *more, env=env)
        assert done.status == 0, done.err
        assert done.out.count("\n") == 1, done.out
        return done.out.strip()

    def status(self, handle: str) -> dict[str, object]:
        """``status --format json``."""
        return json.loads(self.call("status", handle, "--format", "json").out)

    def list(self) -> list[dict[str, object]]:
        """``list --format json``."""
        done = self.call("list", "--format", "json")
        assert done.status == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def until(self, handle: str, *phases: str, seconds: float = 60) -> dict[str, object]:
        """Wait for a phase."""
        deadline = time.monotonic() + seconds
        while (found := self.status(handle))["phase"] not in phases:
            assert time.monotonic() < deadline, found
            time.sleep(0.3)
        return found

    def spec(self, name: str, *, file: str = "spec.yaml", **changes: object) -> Path:
        """A spec of one small job of the test Slurm; ``changes`` by path with ``__`` for dots."""
        tree: dict[str, object] = {
            "name": name,
            "model": {"config": str(HERE.parent.parent / "examples" / "tiny" / "config.json"), "init": "random"},
            "training": {"method": "full", "framework": "custom", "sequence_length": 64, "max_steps": 10, "precision": "fp32"},
            "resources": {"nodes": 1, "gpus_per_node": 1, "gpu": {"name": "cpu", "memory": "2GiB"}, "memory_per_node": "16GiB",
                          "cpus_per_node": 1},
            "checkpoint": {"directory": str(self.folder / "ck" / name), "every_steps": 5, "keep": 5},
            "launch": {"launcher": "python", "entrypoint": str(TASK), "time_limit": "10m",
                       "python": {"venv": str(fake_venv(self.folder))}},
            "slurm": {"partition": "gpu", "account": "research"},
            "ignore": [{"code": "JG850", "reason": "the test nodes share one disk"}],
        }  # fmt: skip
        for path, value in changes.items():
            node = tree
            *above, last = path.split("__")
            for key in above:
                node = node.setdefault(key, {})  # type: ignore[assignment]
            node[last] = value
        target = self.folder / file
        target.write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
        return target


def fake_venv(folder: Path) -> Path:
    """A "virtual environment" whose python is the system's, which every node and user can run."""
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        if not (venv / "bin" / name).exists():
            (venv / "bin" / name).symlink_to(shutil.which("python3", path="/usr/bin") or "/usr/bin/python3")
    return venv


def sleep(seconds: float, *more: str) -> list[str]:
    """Arguments of a task that lasts."""
    return ["--seconds", str(seconds), *more]


def user_python(user: str) -> tuple[str, dict[str, str]] | None:
    """A python that another user can run with jobgen in it."""
    import pydantic

    import jobgen

    paths = f"{Path(jobgen.__file__).parent.parent}:{Path(pydantic.__file__).parent.parent}"
    for python in (sys.executable, "/usr/bin/python3"):
        command = ["runuser", "-u", user, "--", "env", f"PYTHONPATH={paths}", python, "-c", "import jobgen, submitit, pydantic_core, sys; print(sys.version)"]
        if subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0:
            return python, {"PYTHONPATH": paths}
    return None
