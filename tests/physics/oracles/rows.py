"""One row a case, each measured in a process of its own: what the scripts of simulated totals share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def main(script: str, cases: Sequence[dict[str, Any]], measure: Callable[..., dict[str, int]]) -> int:
    """Rewrites the table beside the script, or prints the row of the case that ``--case`` gives as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case")
    options = parser.parse_args()
    if options.case:
        from jobgen.catalog import models

        case = json.loads(options.case)
        arguments = {name: value for name, value in case.items() if name != "model"}
        sys.stdout.write(json.dumps({"case": case, **measure(models.find(case["model"]), **arguments)}) + "\n")
        return 0
    rows = []
    for case in cases:
        command = [sys.executable, "-W", "ignore", script, "--case", json.dumps(case)]
        rows.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1] + "\n")
    Path(script).with_suffix(".jsonl").write_text("".join(rows))
    return 0
