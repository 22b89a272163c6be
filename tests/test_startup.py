"""What a command may import: start-up is most of its time (tests/benchmark.py measures it)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "qwen2.5-coder-32b-sft.yaml"
SLOW = {"pydantic", "jinja2", "numpy", "kubernetes", "submitit", "inspect", "dataclasses", "ruamel.yaml.cyaml", "asyncio"}
PROGRAM = """
import io, json, sys
from jobgen.cli import main
out, sys.stdout = sys.stdout, io.StringIO()
status = main(sys.argv[1:])
json.dump([status, list(sys.modules)], out)
"""


@pytest.mark.parametrize("command", ["check", "estimate", "show", "render --target slurm", "render --target k8s", "render --target jobset"])
def test_a_valid_spec_costs_no_slow_import(command):
    name, *options = command.split()
    done = subprocess.run([sys.executable, "-c", PROGRAM, name, str(EXAMPLE), *options], capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stdout)
    assert status == 0, done.stderr
    assert not SLOW & set(modules)
