"""Hostile values on the real clusters: a process in the job says its arguments and environment; they are the spec's."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile
import kube
import pytest
import slurm_cluster

from jobgen.spec.scalars import text_trap

HERE = Path(__file__).parent
PATIENCE = float(os.environ.get("JG_PATIENCE", "420"))
TEXTS = [*(text for text in hostile.TEXTS if text_trap(text) is None), hostile.LONG]
"""Control characters but tabs and line breaks are refused when the spec is read."""


def spec(name: str, directory: str, **more: Any) -> dict[str, Any]:
    """A job of one process with every text as an argument and as a variable."""
    made: dict[str, Any] = {
        "name": name,
        "model": {"config": str(HERE.parent.parent / "examples" / "tiny" / "config.json"), "init": "random"},
        "training": {"method": "full", "framework": "custom", "sequence_length": 64, "max_steps": 1},
        "resources": {"nodes": 1, "gpus_per_node": 1, "gpu": {"name": "h100-80gb"}, "fabric": "none"},
        "checkpoint": {"directory": directory, "every_steps": 1, "keep": 1},
        "launch": {
            "launcher": "python", "entrypoint": "say.py", "code": {"files": [str(HERE / "programs" / "say.py")]}, "time_limit": "10m",
            "args": TEXTS, "env": {f"HOSTILE_{number}": text for number, text in enumerate(TEXTS)},
        },
    }  # fmt: skip
    made["launch"] |= more.pop("launch", {})
    return made | more


def judge(output: str, more: list[str]) -> None:
    """What the process said is what the spec says."""
    line = next(line for line in output.splitlines() if line.startswith("SAID "))
    said = json.loads(line.removeprefix("SAID "))
    assert said["argv"][-len(TEXTS) :] == TEXTS
    assert {name: said["env"].get(name) for name in said["env"] if name.startswith("HOSTILE_")} == {
        f"HOSTILE_{number}": text for number, text in enumerate(TEXTS)
    }
    assert said["cwd"] in more or not more


@pytest.mark.cluster
@pytest.mark.slurm
def test_a_process_on_slurm_gets_every_value(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Folders with hostile names too: of the checkpoints, of the program's start, of the Python environment."""
    slurm = slurm_cluster.find()
    if isinstance(slurm, str):
        pytest.skip(slurm)
    tmp_path.chmod(0o755)
    odd = "it's a \"$HOME\" `id` {{x}} %j; touch pwned # 训练 \\ *"
    start, venv = tmp_path / f"start {odd}", tmp_path / f"venv {odd}"
    start.mkdir()
    (venv / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to("/usr/bin/python3")
    tree = spec(
        "hostile", f"{tmp_path}/ck {odd}", launch={"python": {"venv": str(venv)}, "working_directory": str(start)},
        slurm={"partition": "gpu", "account": "research", "extra": {"mail-user": odd.replace("$", "").replace("`", "").replace("\\", "")}},
    )  # fmt: skip
    script = hostile.render(tree, "slurm", tmp_path)
    assert isinstance(script, str), script
    job = slurm.submit(script, tmp_path)
    assert slurm.wait(job, PATIENCE) == "COMPLETED", slurm.log(job)
    judge(slurm.log(job), [str(start)])
    assert list(tmp_path.rglob("pwned")) == []
    say(f"hostile values on Slurm: {2 * len(TEXTS)} tried in one job, all equal byte for byte")


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    if not kube.up():
        pytest.skip("no test Kubernetes answers here: tests/cluster/kube-up.sh starts one")
    name = f"hostile-{uuid.uuid4().hex[:6]}"
    kube.kubectl("create", "namespace", name)
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.mark.cluster
@pytest.mark.kube
@pytest.mark.parametrize("target", hostile.KUBERNETES)
def test_a_process_on_kubernetes_gets_every_value(target: str, namespace: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    tree = spec(
        f"hostile-{target}", "/ckpt/hostile", launch={"image": "localhost/train:1"}, volumes=[{"mount": "/ckpt", "path": "/var/tmp"}],
        kubernetes={"namespace": namespace, "annotations": {"example.com/odd": "".join(TEXTS[:-1])}},
    )  # fmt: skip
    manifest = hostile.render(tree, target, tmp_path)
    assert isinstance(manifest, str), manifest
    apply(manifest)
    pod = ended(namespace, f"hostile-{target}")
    judge(kube.kubectl("-n", namespace, "logs", pod).stdout, [])
    found = kube.get("pod", pod, namespace)["metadata"]["annotations"]
    assert found["example.com/odd"] == "".join(TEXTS[:-1])
    say(f"hostile values on Kubernetes, {target}: {2 * len(TEXTS) + 1} tried in one pod, all equal byte for byte")


def apply(manifest: str) -> None:
    """Server-side apply; Trainer's webhook may not have seen yet the runtime that was made a moment before."""
    for attempt in range(10):
        done = kube.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", text=manifest, check=attempt == 9)
        if done.returncode == 0:
            return
        assert "must be created before the TrainJob" in done.stderr or "deadline exceeded" in done.stderr, done.stderr
        time.sleep(3)


def ended(namespace: str, name: str) -> str:
    """The pod of a job, once it has succeeded."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for pod in kube.items("pods", namespace, "-l", f"jobgen/job={name}"):
            phase, label = pod["status"].get("phase"), pod["metadata"]["name"]
            if phase == "Succeeded":
                return str(label)
            assert phase != "Failed", kube.kubectl("-n", namespace, "logs", label).stdout
        time.sleep(1)
    raise AssertionError(kube.kubectl("-n", namespace, "describe", "pods").stdout)
