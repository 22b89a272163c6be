"""Submission under faults on a real Kubernetes: killed at random moments, a line to the API server that is cut, many at
once.

JOBGEN_KILLS sets how many submissions are killed (50) and, half as many, cut off.
"""

from __future__ import annotations

import os
import random
import signal
import time

import kube
import pytest
from kube_jobs import KINDS, KubeCommandLine, Line, namespace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"),
]
KILLS = int(os.environ.get("JOBGEN_KILLS", "50"))
TARGETS = ("trainjob", "jobset", "k8s")


@pytest.fixture
def cli(tmp_path):
    with namespace() as name:
        yield KubeCommandLine(tmp_path, name)
        for kind in KINDS.values():
            kube.kubectl("-n", name, "delete", kind, "--all", "--wait=false", check=False)


@pytest.fixture
def line(tmp_path):
    one = Line(tmp_path)
    yield one
    one.close()


def made(cli):
    """Handles of all jobs on the cluster, by target and name; a JobSet that a TrainJob made is none."""
    found = {}
    for target in KINDS:
        for name, item in cli.live(target).items():
            if not item["metadata"].get("ownerReferences"):
                found[target, name] = item["metadata"].get("annotations", {}).get("jobgen/handle")
    return found


def agree(cli, handles):
    """What ``list`` says, what submit said and what the cluster has are the same; nothing is left over."""
    listed = cli.list()
    assert {record["handle"] for record in listed if record["phase"] == "queued"} == set(handles.values())
    assert not [record for record in listed if record["phase"] not in ("queued", "cancelled")], listed
    on_cluster = made(cli)
    assert sorted(on_cluster.values()) == sorted(handles.values())
    maps = {item["metadata"]["name"]: item for item in kube.items("configmaps", cli.namespace) if item["metadata"]["name"].endswith("-files")}
    assert set(maps) == {f"{name}-files" for _, name in on_cluster}
    assert all(item["metadata"]["ownerReferences"] for item in maps.values())
    runtimes = {item["metadata"]["name"] for item in kube.items("trainingruntimes", cli.namespace)}
    assert runtimes == {name for target, name in on_cluster if target == "trainjob"}


def test_killed_at_random_moments_a_repeat_neither_loses_nor_doubles(cli, say):
    """Each round kills one submission with SIGKILL, then calls it again."""
    chance = random.Random(7)
    begun = time.monotonic()
    handles = {"warm": cli.sent(cli.idle("warm", resources__nodes=1), "trainjob")}
    usual = time.monotonic() - begun
    stages = {"before its receipt": 0, "sending": 0, "sent": 0, "ended by itself": 0}
    before = dict.fromkeys(("no object", "only what the job needs", "the job"), 0)
    repeats = []
    turn = 0
    while sum(before.values()) < KILLS:
        turn += 1
        assert turn < 3 * KILLS, stages
        name, target = f"kill-{turn}", TARGETS[turn % 3]
        spec = cli.idle(name, resources__nodes=1)
        process = cli.start("submit", spec, "--target", target)
        folder = cli.folder / "state" / "jobs"
        if turn % 4:  # in the middle of the calls themselves
            while not list(folder.glob(f"{name}-*/receipt.json")) and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.2) * usual)
        else:
            time.sleep(chance.uniform(0.1, 0.9) * usual)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        if process.returncode == -signal.SIGKILL:
            receipts = list(folder.glob(f"{name}-*/receipt.json"))
            text = receipts[0].read_text() if receipts else ""
            stages["sent" if '"state": "sent"' in text else "sending" if text else "before its receipt"] += 1
            job, needs = kube.get(KINDS[target], name, cli.namespace), kube.get("configmap", f"{name}-files", cli.namespace)
            before["the job" if job else "only what the job needs" if needs else "no object"] += 1
        else:
            stages["ended by itself"] += 1
        begun = time.monotonic()
        handles[name] = cli.sent(spec, target)
        repeats.append(time.monotonic() - begun)
    agree(cli, handles)
    say(f"{KILLS} submissions killed (one takes {usual:.2f} s): {stages}; on the cluster by then: {before}; lost 0, doubled 0; "
          f"repeat {sum(repeats) / len(repeats):.2f} s on average, {max(repeats):.2f} s at most")  # fmt: skip


def test_a_line_that_is_cut_at_a_random_byte(cli, line, say):
    """The API server goes away in the middle of a submission: it says so, and a repeat neither loses nor doubles."""
    chance = random.Random(11)
    handles = {"warm": cli.sent(cli.idle("warm", resources__nodes=1), "trainjob", env=line.env)}
    whole = line.passed
    said = dict.fromkeys(("got through", "cannot be reached", "broke off"), 0)
    rounds = max(1, KILLS // 2)
    for turn in range(rounds):
        name, target = f"cut-{turn}", TARGETS[turn % 3]
        spec = cli.idle(name, resources__nodes=1)
        line.mend(budget=chance.randrange(0, int(whole * 1.05)))
        done = cli.call("submit", spec, "--target", target, env=line.env)
        if done.status == 0:
            said["got through"] += 1
        else:
            assert (done.status, done.out) == (3, ""), done
            assert "repeating the command is safe" in done.err, done
            said["broke off" if "broke off" in done.err else "cannot be reached"] += 1
        line.mend()
        handles[name] = cli.sent(spec, target, env=line.env)
        assert done.status or done.out.strip() == handles[name]
    agree(cli, handles)
    say(f"{rounds} submissions cut off after a random part of {whole} bytes: {said}; lost 0, doubled 0")


def test_away_for_a_while(cli, line):
    """Every command says so and ends with status 3; what was known is known again afterwards."""
    spec = cli.idle("away")
    handle = cli.sent(spec, env=line.env)
    line.cut()
    for command in (("submit", spec, "--target", "jobset"), ("status", handle), ("logs", handle), ("cancel", handle)):
        done = cli.call(*command, env=line.env)
        assert (done.status, done.out) == (3, ""), done
        assert "cannot be reached" in done.err
    listed = cli.call("list", env=line.env)
    assert listed.status == 0
    assert "cannot be reached" in listed.out
    line.mend()
    assert cli.sent(spec, env=line.env) == handle
    agree(cli, {"away": handle})


def test_eight_at_once_are_one_job(cli, say):
    spec = cli.idle("eight", resources__nodes=1)
    begun = time.monotonic()
    calls = [cli.start("submit", spec, "--target", "jobset") for _ in range(8)]
    ends = [call.communicate(timeout=300) for call in calls]
    assert [call.returncode for call in calls] == [0] * 8, ends
    assert len({out for out, _ in ends}) == 1
    agree(cli, {"eight": ends[0][0].strip()})
    assert sum("live already" in err for _, err in ends) == 7
    say(f"8 submissions at once: 1 job, {time.monotonic() - begun:.1f} s")


def test_four_machines_at_once_are_one_job_or_are_refused(cli, tmp_path):
    """The same name from different state folders: one gets it, the others are told who has it."""
    spec = cli.idle("race", resources__nodes=1)
    calls = [cli.start("submit", spec, "--target", "jobset", env={"JOBGEN_STATE": str(tmp_path / f"machine-{n}")}) for n in range(4)]
    ends = [(call.communicate(timeout=300), call.returncode) for call in calls]
    winners = [out.strip() for (out, _), status in ends if status == 0]
    assert len(winners) == 1, ends
    assert list(made(cli).values()) == winners
    for (_, err), status in ends:
        assert status in (0, 3), err
        assert status == 0 or "submitted from elsewhere" in err or "at the same time" in err or "moments ago" in err, err
    kept = kube.get("configmap", "race-files", cli.namespace)
    assert kept["metadata"]["annotations"]["jobgen/handle"] == winners[0]
    assert kept["metadata"]["ownerReferences"]


def test_logs_are_followed_across_a_broken_line_without_loss_or_repetition(cli, line, say):
    more = {"launch__launcher": "python", "launch__entrypoint": "count.py", "launch__args": ["150", "0.2"], "resources__gpus_per_node": 1}
    code = str(kube.Path(__file__).parent / "programs" / "count.py")
    handle = cli.sent(cli.job("count", resources__nodes=1, launch__code={"files": [code]}, **more), "jobset")
    cli.until(handle, "running", seconds=180)
    follower = cli.start("logs", "-f", handle, env=line.env)
    for _ in range(3):
        time.sleep(6)
        line.cut()
        time.sleep(2)
        line.mend()
    out, err = follower.communicate(timeout=300)
    assert follower.returncode == 0, err
    numbers = [row for row in out.splitlines() if "number" in row]
    assert numbers == [f"[node 0] number {number}" for number in range(150)]
    assert cli.until(handle, "succeeded", "failed")["phase"] == "succeeded"
    say("150 lines followed across 3 cuts: none lost, none repeated")
