"""Jobs for the tests of the shell targets: a spec by dotted changes, its artifact, and the scripts inside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jobgen.effective.resolve import assume
from jobgen.launch.build import build
from jobgen.launch.job import Job
from jobgen.spec.document import load_text
from jobgen.spec.models import Spec
from jobgen.targets import render
from jobgen.targets.artifact import Artifact

ROOT = Path(__file__).resolve().parent.parent.parent
PROBE = ROOT / "tests" / "cluster" / "programs" / "probe.py"
HERE_DOCUMENT = re.compile(r"^(?:cat >\S+|  cat) <<'(END_OF_\w+)'\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def tree(**changes: Any) -> dict[str, Any]:
    """A small job on two nodes; ``launch__args=[...]`` sets a field, ``...=None`` removes it."""
    spec: dict[str, Any] = {
        "name": "small",
        "model": {"config": str(ROOT / "examples" / "tiny" / "config.json"), "init": "random"},
        "training": {"method": "full", "framework": "custom", "sequence_length": 64, "max_steps": 40, "precision": "fp32"},
        "resources": {
            "nodes": 2, "gpus_per_node": 2, "gpu": {"name": "cpu", "memory": "2GiB"}, "memory_per_node": "4GiB",
            "cpus_per_node": 4, "fabric": "none",
        },
        "checkpoint": {"directory": "/shared/ck", "every_steps": 5, "keep": 5},
        "launch": {"launcher": "torchrun", "entrypoint": "train.py", "time_limit": "1h"},
        "slurm": {"account": "research"},
    }  # fmt: skip
    for path, value in changes.items():
        node = spec
        *above, last = path.split("__")
        for key in above:
            node = node.setdefault(key, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return spec


def spec_text(**changes: Any) -> str:
    """The spec as YAML (JSON, with what YAML wants escaped)."""
    import json

    text = json.dumps(tree(**changes), ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found.group()):04x}", text)


def job(target: str = "slurm", base: Path | None = None, **changes: Any) -> tuple[Job, Spec]:
    """The job of such a spec."""
    document = load_text(spec_text(**changes))
    return build(assume(document).effective, target, base), document.spec


def artifact(target: str = "slurm", base: Path | None = None, **changes: Any) -> Artifact:
    """Its artifact."""
    made, spec = job(target, base, **changes)
    return render(target, made, spec)


def script(target: str = "slurm", **changes: Any) -> str:
    """Its text."""
    return artifact(target, **changes).text


def inner(text: str) -> list[str]:
    """The scripts in here-documents, at any depth."""
    found = []
    for match in HERE_DOCUMENT.finditer(text):
        if match.group(1).startswith(("END_OF_PROGRAM", "END_OF_HOST")):
            found += [match.group(2), *inner(match.group(2))]
    return found


def program(text: str) -> str:
    """What every node runs."""
    return next(one for one in inner(text) if one.startswith("#!/bin/bash"))


def function(text: str, name: str) -> str:
    """The body of a shell function that jobgen wrote."""
    match = re.search(rf"^{name}\(\) {{.*?\n(.*?)^}}$", text, re.MULTILINE | re.DOTALL)
    assert match, f"no function {name} in:\n{text}"
    return match.group(1)
