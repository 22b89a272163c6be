"""CPU time of whole commands against the time of importing pydantic, jinja2 and ruamel.yaml alone, in one run.

    python tests/benchmark.py [--rounds N] [--all]

Prints the ratio of each command's median to the imports' median: machines are noisy, so the commands are interleaved.
``--all``: every example for every target of a cluster.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "qwen2.5-coder-32b-sft.yaml"
PYTHON = [sys.executable]
COMMANDS = {
    "imports": [*PYTHON, "-c", "import pydantic, jinja2, ruamel.yaml"],
    "jobgen --help": [*PYTHON, "-m", "jobgen.cli", "--help"],
    "render slurm": [*PYTHON, "-m", "jobgen.cli", "render", str(EXAMPLE), "--target", "slurm"],
    "render k8s": [*PYTHON, "-m", "jobgen.cli", "render", str(EXAMPLE), "--target", "k8s"],
    "check": [*PYTHON, "-m", "jobgen.cli", "check", str(EXAMPLE)],
    "estimate": [*PYTHON, "-m", "jobgen.cli", "estimate", str(EXAMPLE)],
}
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As installed: a wheel is compiled when it is installed, an editable tree by the first round."""
LIMITS = {"jobgen --help": 1.0}
TARGETS = ("slurm", "k8s", "trainjob", "jobset")


def everything():
    """A command for each example and target."""
    return {
        f"render {example.stem} {target}": [*PYTHON, "-m", "jobgen.cli", "render", str(example), "--target", target]
        for example in sorted(EXAMPLE.parent.glob("*.yaml")) for target in TARGETS
    }  # fmt: skip


def cpu_seconds(command):
    """User and system time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=COMPILED, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} failed:\n{done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(commands, rounds):
    """Seconds by command, one figure a round."""
    times = {name: [] for name in commands}
    for command in commands.values():
        cpu_seconds(command)
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(cpu_seconds(command))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    times = measure(COMMANDS | everything() if options.all else COMMANDS, options.rounds)
    base = statistics.median(times["imports"])
    worst = 0
    for name, seconds in times.items():
        ratio = statistics.median(seconds) / base
        limit = 2.0 if name.startswith("render") else LIMITS.get(name)
        verdict = "" if limit is None else f"  (limit {limit:.1f})"
        print(f"{name:44s} {1000 * statistics.median(seconds):7.1f} ms CPU  {ratio:5.2f} x imports{verdict}")
        worst |= limit is not None and ratio > limit
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
