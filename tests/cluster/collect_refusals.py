"""Asks the test cluster's API server anew for each case of refusals.jsonl and writes its words down.

    python tests/cluster/collect_refusals.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "targets")]

import jobs  # noqa: E402
import kube  # noqa: E402

from jobgen.targets import stream  # noqa: E402

FILE = HERE / "refusals.jsonl"
LONGEST = 400


def rows() -> list[dict[str, Any]]:
    """All cases."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def ask(row: dict[str, Any], namespace: str) -> tuple[str, str] | None:
    """Kind of the object that is refused (a pod or service that a controller would make counts), and the words."""
    job, spec = jobs.from_edit(row["edit"])
    for sent in kube.with_pods(stream.objects(job, spec, row["target"]), job.nodes):
        done = kube.dry_run(sent, namespace)
        if done.returncode and not (sent["kind"] == "TrainJob" and "not found" in done.stderr and "runtime" in done.stderr):
            return sent["kind"], " ".join(done.stderr.split())[:LONGEST]
    return None


def main() -> int:
    """Refresh, or with --check only compare."""
    found, changed = [], 0
    for row in rows():
        said = ask(row, "default")
        if said is None:
            print(f"{row['id']}: the server takes it", file=sys.stderr)
            changed += 1
            continue
        changed += said != (row.get("object"), row.get("server"))
        found.append({**row, "object": said[0], "server": said[1]})
    if "--check" not in sys.argv:
        FILE.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), encoding="utf-8")
    return int("--check" in sys.argv and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
