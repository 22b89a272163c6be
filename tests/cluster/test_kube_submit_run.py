"""One spec submitted as PyTorchJob, TrainJob and JobSet trains on two pods of two ranks, survives, checkpoints and ends."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import kube
import pytest
from kube_jobs import KINDS, KubeCommandLine, namespace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"),
]


@pytest.fixture
def cli(tmp_path):
    with namespace() as name:
        yield KubeCommandLine(tmp_path, name)
        for kind in KINDS.values():
            kube.kubectl("-n", name, "delete", kind, "--all", "--wait=false", check=False)


def history(text):
    """The program's story, from the output of rank 0."""
    return [json.loads(row.partition("] ")[2]) for row in text.splitlines() if '"event"' in row]


def checkpoints(place, name):
    """Steps that were saved on the claim, when its volume is a folder of this machine."""
    volume = kube.get("pvc", "ckpt", place)["spec"]["volumeName"]
    folder = Path(kube.get("pv", volume, place)["spec"].get("hostPath", {}).get("path", "/nonexistent")) / name
    return sorted(int(path.name.rsplit("-", 1)[1]) for path in folder.glob("checkpoint-*") if (path / "done").exists()) if folder.is_dir() else None


@pytest.mark.parametrize("target", KINDS)
def test_trains_survives_a_killed_rank_and_ends(cli, target, say):
    """Rank 1 kills itself with SIGKILL at step 12 of the first attempt: the rest is trained from the checkpoint at 10."""
    arguments = ["/ckpt/run", "--steps", "20", "--every", "5", "--kill-at", "12"]
    spec = cli.job("run", launch__args=arguments, checkpoint__directory="/ckpt/run")
    begun = time.monotonic()
    handle = cli.sent(spec, target)
    follower = cli.start("logs", "-f", handle)
    found = cli.until(handle, "succeeded", "failed", "cancelled", seconds=900)
    out, err = follower.communicate(timeout=120)
    assert found["phase"] == "succeeded", (found, out, err)
    assert (found["restarts"], found["exit_code"]) == (1, "0"), found
    told = history(out)
    assert [(row["event"], row["attempt"], row["step"], row["world"]) for row in told] == [("start", 0, 0, 4), ("start", 1, 10, 4), ("end", 1, 20, 4)], out
    assert told[1]["resumed"].endswith("checkpoint-10")
    assert any(row.startswith("[node 1] ") for row in out.splitlines())
    assert checkpoints(cli.namespace, "run") in (None, [5, 10, 15, 20])
    later = cli.call("logs", handle)
    assert history(later.out)[-1]["event"] == "end"
    for rank in range(4):
        one = cli.call("logs", handle, "--rank", str(rank))
        assert f"[rank {rank}] this is rank {rank}" in one.out.splitlines(), (one, later)
        assert all(row.startswith(f"[rank {rank}] ") for row in one.out.splitlines()), one
    none = cli.call("logs", handle, "--rank", "4")
    assert none.status == 3
    assert "the job has ranks 0 to 3" in none.err
    say(f"{target}: killed at step 12, resumed at 10, ended at 20 in {time.monotonic() - begun:.0f} s")


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("target", KINDS)
def test_why_a_failed_job_failed_is_said_after_its_pods_are_gone(cli, target, restarts):
    """An operator deletes pods that still run, and a container that restarts in its place counts as one that runs."""
    spec = cli.job("broken", launch__args=["/ckpt/broken", "--no-such-option"], launch__restarts=restarts)
    handle = cli.sent(spec, target)
    found = cli.until(handle, "failed", "succeeded", "cancelled", seconds=300)
    words = "unrecognized arguments: --no-such-option"
    shown, logs = cli.call("status", handle), cli.call("logs", handle)
    assert (found["phase"], shown.status) == ("failed", 4), found
    assert words in found["output"] or "its pods are gone, and jobgen logs shows the last that they wrote" in shown.out, shown
    for rank in range(4):
        assert any(row.startswith(f"[rank {rank}] ") and words in row for row in logs.out.splitlines()), logs
    cli.call("cancel", handle)
    kube.kubectl("-n", cli.namespace, "delete", KINDS[target], "broken", "--ignore-not-found")
    kube.kubectl("-n", cli.namespace, "wait", "--for=delete", "pod", "-l", "jobgen/job=broken", "--timeout=100s")
    after = cli.call("logs", handle)
    assert all(any(row.startswith(f"[rank {rank}] ") and words in row for row in after.out.splitlines()) for rank in range(4)), after
    assert "from claim ckpt (/ckpt/broken/.jobgen/output)" in after.err


@pytest.mark.parametrize("launcher", ["deepspeed", "accelerate"])
def test_a_rank_that_its_launcher_does_not_mark_is_refused(cli, launcher):
    handle = cli.sent(cli.idle("mixed", launch__launcher=launcher))
    done = cli.call("logs", handle, "--rank", "1")
    assert (done.status, done.out) == (3, "")
    assert "logs --rank 1: its launcher mixes the output of a node's 2 processes" in done.err
    assert cli.call("logs", handle).status == 0


QUEUE = [
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "NAME"}, "spec": {}},
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "NAME"},
     "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [
         {"name": "NAME", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "2"}]}]}]}},
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "team", "namespace": "NAME"}, "spec": {"clusterQueue": "NAME"}},
]  # fmt: skip


@pytest.mark.parametrize("target", KINDS)
def test_kueue_admits_suspends_and_resumes(cli, target, say):
    """It waits for quota, runs when there is some, is put back by Kueue in the middle, and goes on from its checkpoint."""
    place = cli.namespace
    kube.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": QUEUE}).replace("NAME", place))
    try:
        arguments = ["/ckpt/queued", "--steps", "60", "--every", "5", "--pause", "0.5"]
        spec = cli.job("queued", kubernetes__queue="team", launch__args=arguments, checkpoint__directory="/ckpt/queued")
        handle = cli.sent(spec, target)
        found = cli.says(handle, "waits in the queue: ", "nvidia.com/gpu", seconds=120)
        assert (found["phase"], found["native"], found["queue"]) == ("queued", "Suspended", "team"), found
        assert "queue: team" in cli.call("status", handle).out
        patch = [{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": "4"}]
        kube.kubectl("patch", "clusterqueue", place, "--type=json", "-p", json.dumps(patch))
        cli.until(handle, "running", seconds=240)
        assert cli.status(handle)["queue"] == f"team, admitted by {place}"
        deadline = time.monotonic() + 300
        while not kube.items("pvc", place) or (checkpoints(place, "queued") or [0])[-1] < 10:
            assert time.monotonic() < deadline, cli.call("logs", handle)
            time.sleep(1)
        kube.kubectl("patch", "clusterqueue", place, "--type=merge", "-p", '{"spec": {"stopPolicy": "HoldAndDrain"}}')
        found = cli.says(handle, "Suspended", "waits in the queue", seconds=120)
        assert found["phase"] == "queued", found
        kube.kubectl("patch", "clusterqueue", place, "--type=merge", "-p", '{"spec": {"stopPolicy": "None"}}')
        cli.until(handle, "running", seconds=240)
        out, err = cli.start("logs", "-f", handle).communicate(timeout=600)
        found = cli.until(handle, "succeeded", "failed", seconds=300)
        assert found["phase"] == "succeeded", (found, out, err)
        told = history(out)
        assert told[-2]["step"] >= 10, told
        assert (told[-1]["event"], told[-1]["step"], told[-1]["world"]) == ("end", 60, 4)
        assert checkpoints(place, "queued")[-1] == 60
        say(f"{target}: waited for quota, was suspended, resumed at step {told[-2]['step']}, ended at 60")
    finally:
        for kind, name in (("localqueue", "team"), ("clusterqueue", place), ("resourceflavor", place)):
            kube.kubectl("-n", place, "delete", kind, name, "--wait=false", check=False)
