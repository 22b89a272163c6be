"""Hostile values in every field that reaches a script: the script runs as it would with harmless ones, or is refused.

The scripts are executed, with stand-ins for Slurm's commands and the program. Each value tries to create a file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import shell_jobs
from test_slurm_pitfalls import directives

from jobgen.launch.job import Unrenderable
from jobgen.spec.problem import SpecError

VALUES = [
    "x'; touch CANARY; '", 'x"; touch CANARY; "', "x$(touch CANARY)", "x`touch CANARY`", "x; touch CANARY", "x & touch CANARY", "x | touch CANARY",
    "x\ntouch CANARY\n", "x\nEND_OF_PROGRAM\ntouch CANARY\n", "x\nEND_OF_HOST\ntouch CANARY\n", "x\nEND_OF_FILE\ntouch CANARY\n", "x\n#SBATCH --wait-all-nodes=1\n",
    "${x:-$(touch CANARY)}", "x\\'; touch CANARY #", "x > CANARY", "-x", "--wrap=touch CANARY", "{{ 7 * 7 }}", "{% raw %}", "x'\"'\"'; touch CANARY; '", "日本語 'x",
]  # fmt: skip

PYXIS = {"slurm__container": "pyxis", "launch__image": "img"}


def fields(value: str, folder: Path) -> dict[str, dict[str, object]]:
    """Every place for a user's text, with the value in it; paths lie in the folder."""
    path = f"{folder}/{value.replace('/', '_')}"
    return {
        "name": {"name": value}, "partition": {"slurm__partition": value}, "qos": {"slurm__qos": value}, "constraint": {"slurm__constraint": value},
        "reservation": {"slurm__reservation": value}, "comment": {"slurm__extra": {"comment": value}}, "output": {"slurm__output": path},
        "args": {"launch__args": [value, f"--x={value}"]}, "env": {"launch__env": {"HOSTILE": value}}, "entrypoint": {"launch__entrypoint": path},
        "directory": {"checkpoint__directory": path}, "resume": {"checkpoint__resume": path}, "working_directory": {"launch__working_directory": path},
        "venv": {"launch__python": {"venv": path}}, "stage": {"launch__stage": [{"from": path, "to": f"{path}2"}]},
        "suffix": {"slurm__master_addr_suffix": value}, "srun_args": {"slurm__srun_args": [value]}, "image": PYXIS | {"launch__image": value, "volumes": [{"mount": str(folder)}]},
        "mount": PYXIS | {"volumes": [{"mount": str(folder)}, {"mount": f"/m{value}", "path": path}]},
        "quoted setup": {"launch__setup": [f"true {json.dumps(value)[:-1]}"]},
    }  # fmt: skip


@pytest.fixture
def tools(tmp_path):
    """Slurm's commands and a torchrun, each doing the least that the script needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "srun": 'while [ $# -gt 0 ] && [ "$1" != bash ] && [ "$1" != rm ] && [ "$1" != mkdir ]; do shift; done\nSLURM_NODEID=0 exec "$@"',
        "scontrol": "echo node1", "torchrun": "exit 0", "python": "exit 0",
    }.items():  # fmt: skip
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def accepted(value: str, folder: Path) -> dict[str, dict[str, object]]:
    """The fields that take this value; the others say why not."""
    found = {}
    for name, changes in fields(value, folder).items():
        base = {"checkpoint__directory": str(folder / "ck")} | changes
        try:
            shell_jobs.script(**base)
        except (Unrenderable, SpecError) as error:
            assert len(str(error)) > 20
        else:
            found[name] = base
    return found


ALONE = ("image", "mount", "working_directory", "venv", "stage")
"""Fields that end the script early, or need the others to be absent."""


def run(text: str, tools: Path, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash"], input=text.encode(), cwd=folder, capture_output=True, timeout=20, check=False,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_CPUS_ON_NODE": "4"},
    )  # fmt: skip


def canaries(folder: Path) -> list[Path]:
    return list(folder.rglob("CANARY"))


def test_the_stand_ins_run_a_harmless_script_and_would_show_a_command(tmp_path, tools):
    done = run(shell_jobs.script(checkpoint__directory=str(tmp_path / "ck")), tools, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(b"jobgen: finished\n")
    run(shell_jobs.script(checkpoint__directory=str(tmp_path / "ck"), launch__setup=["touch CANARY"]), tools, tmp_path)
    assert canaries(tmp_path)


@pytest.mark.parametrize("value", VALUES)
def test_no_value_becomes_a_command_or_a_directive(value, tmp_path, tools):
    folder = tmp_path / "work"
    folder.mkdir()
    allowed = accepted(value, folder)
    assert {"args", "env"} <= set(allowed)
    together: dict[str, object] = {}
    for name, changes in allowed.items():
        if name not in ALONE:
            together |= changes
    harmless = set(directives(shell_jobs.script(checkpoint__directory=str(folder / "ck"))))
    for changes in (together, *(allowed[name] for name in ALONE if name in allowed)):
        text = shell_jobs.script(**changes)
        assert set(directives(text)) - harmless <= {"partition", "qos", "constraint", "reservation", "comment"}
        for one in (text, *shell_jobs.inner(text)):
            done = subprocess.run(["bash", "-n"], input=one.encode(), capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b"")
        run(text, tools, folder)
        assert not canaries(tmp_path)
