"""The test Slurm (slurm-up.sh) from Python: start it, submit scripts, wait, read logs and accounting."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("JG_ROOT", "/var/lib/jgslurm"))


class Slurm:
    """One cluster. Commands are the wrappers of slurm-up.sh, so that they run on its login node."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.folder = folder, Path()

    def run(self, *command: str, cwd: Path | None = None, env: dict[str, str] | None = None, check: bool = True, stdin: str | None = None) -> str:
        """A client's output."""
        done = subprocess.run([str(self.bin / command[0]), *command[1:]], cwd=cwd, env=env, input=stdin, text=True,
                              capture_output=True, timeout=120, check=False)  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def submit(self, script: str, cwd: Path, env: dict[str, str] | None = None) -> str:
        """``script | sbatch``; the job id."""
        return self.run("sbatch", "--parsable", cwd=cwd, env=env, stdin=script).strip().split(";")[0]

    def state(self, job: str) -> str:
        """The job's state, REQUEUED and the like included."""
        text = self.run("scontrol", "show", "job", job, check=False)
        match = re.search(r"JobState=(\w+)", text)
        return match.group(1) if match else "UNKNOWN"

    def field(self, job: str, name: str) -> str:
        """A field of ``scontrol show job``."""
        match = re.search(rf"\b{name}=(\S+)", self.run("scontrol", "show", "job", job))
        return match.group(1) if match else ""

    def wait(self, job: str, seconds: float = 120) -> str:
        """The state in which the job ended."""
        return self.until(job, lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "UNKNOWN"), seconds, "the end") and self.state(job)

    def until(self, job: str, condition, seconds: float, what: str) -> bool:
        """Wait; on timeout the job is cancelled and the log is the message."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.3)
        state, log = self.state(job), self.log(job)
        self.run("scancel", "--full", job, check=False)
        raise AssertionError(f"job {job} ({state}): no {what} within {seconds} s:\n{log}")

    def log(self, job: str) -> str:
        """The job's log so far."""
        found = re.search(r"StdOut=(.+)", self.run("scontrol", "show", "job", job, check=False))
        path = Path(found.group(1)) if found else None
        return path.read_text(errors="replace") if path is not None and path.exists() else ""


def find() -> Slurm | str:
    """The cluster, started if JOBGEN_CLUSTER=1; else why there is none."""
    folder = ROOT / "bin"
    if os.environ.get("JOBGEN_CLUSTER") == "1":
        if os.geteuid() != 0:
            return "slurm-up.sh needs root"
        done = subprocess.run(["bash", str(HERE / "slurm-up.sh")], text=True, capture_output=True, timeout=600, check=False,
                              env=os.environ | {"JG_FAKE_PYXIS": "1", "JG_ACCT": "1"})  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"slurm-up.sh: {done.stderr[-2000:]}")
    if not (folder / "sinfo").exists():
        return "no test Slurm runs here: set JOBGEN_CLUSTER=1 (as root on Debian) and tests/cluster/slurm-up.sh starts one"
    answer = subprocess.run([str(folder / "sinfo"), "--noheader"], capture_output=True, timeout=30, check=False)
    return Slurm(folder) if answer.returncode == 0 else "the test Slurm does not answer: run tests/cluster/slurm-up.sh"


TORCHRUN = """\
# torch 1.13 on Python 3.11: iterating a Flag leaves out Std.NONE, so torchrun's default --redirects=0 becomes None
import sys

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main

read = Std.from_str.__func__
Std.from_str = classmethod(lambda cls, text: Std.NONE if text == "0" else read(cls, text))
sys.exit(main())
"""


def torch_python(folder: Path) -> Path | str:
    """A virtual environment with torch: $JOBGEN_TORCH, else one around Debian's python3-torch; else why there is none."""
    if given := os.environ.get("JOBGEN_TORCH"):
        return Path(given)
    system = "/usr/bin/python3"
    if not shutil.which(system) or subprocess.run([system, "-c", "import torch"], capture_output=True, check=False).returncode:
        return "no torch: set JOBGEN_TORCH to a virtual environment with it, or apt-get install python3-torch python3-venv"
    subprocess.run([system, "-m", "venv", "--system-site-packages", "--without-pip", str(folder)], check=True)
    torchrun = folder / "bin" / "torchrun"
    torchrun.write_text(f"#!{folder}/bin/python\n{TORCHRUN}")
    torchrun.chmod(0o755)
    return folder
