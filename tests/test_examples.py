"""Every shipped example: checked, and written for Slurm as bash, shellcheck and the real sbatch take it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobgen import api

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
SHELLCHECK = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")


def script(name):
    return api.render(api.load(str(EXAMPLES / f"{name}.yaml")), target="slurm").text


def test_there_are_at_least_ten():
    assert len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_no_error(name):
    report = api.check(api.load(str(EXAMPLES / f"{name}.yaml")))
    assert not report.refused, [f.message for f in report.findings]


@pytest.mark.parametrize("name", NAMES)
def test_its_script_passes_bash_and_shellcheck(name, tmp_path):
    file = tmp_path / "job.sh"
    file.write_text(script(name), encoding="utf-8")
    assert subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False).stderr == ""
    found = subprocess.run([SHELLCHECK, "-S", "style", file], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.cluster
@pytest.mark.slurm
@pytest.mark.parametrize("name", NAMES)
def test_the_real_sbatch_takes_it(name):
    if shutil.which("sbatch") is None or subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode:
        pytest.skip("no Slurm answers here (tests/cluster/slurm-up.sh starts one)")
    done = subprocess.run(["sbatch", "--test-only"], input=script(name), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
