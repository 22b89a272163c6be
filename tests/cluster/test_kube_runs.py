"""One spec, submitted to the three targets on the real test Kubernetes, and what clusters do to jobs.

Two pods of two ranks each (gloo on the CPU), 20 steps, a checkpoint every 5 on a shared claim. The trainer writes each
start and end of training to history.jsonl on the claim: that is what the tests read.
"""

import json
import os
import subprocess
import time
import uuid
from pathlib import Path

import kube
import pytest
from kube_jobs import KubeCommandLine

SPEC = Path(__file__).parent / "specs" / "gloo.yaml"
TARGETS = ("k8s", "trainjob", "jobset")
KINDS = {"k8s": "pytorchjob", "trainjob": "trainjob", "jobset": "jobset"}
ENDED = {"Succeeded": True, "Complete": True, "Completed": True, "Failed": False}
KILLED, DELETED = "rank killed by SIGKILL", "pod deleted"
KUBELET, SUSPENDED = "kubelet stopped for 15 s", "suspended and resumed by Kueue"
PATIENCE = float(os.environ.get("JG_PATIENCE", "420"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kube,
    pytest.mark.skipif(
        os.environ.get("JOBGEN_CLUSTER") != "1" and not kube.up(), reason="no test Kubernetes: tests/cluster/kube-up.sh starts one"
    ),
]


@pytest.fixture(scope="module")
def namespace():
    name = f"runs-{uuid.uuid4().hex[:6]}"
    kube.kubectl("create", "namespace", name)
    yield name
    if not os.environ.get("JG_KEEP"):
        kube.kubectl("delete", "namespace", name, "--wait=false")


def applied(text):
    """Apply a stream; Trainer's webhook sees a new runtime only after its cache does, so it is asked again."""
    for _ in range(20):
        done = kube.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", text=text, check=False)
        if done.returncode == 0 or "spec.runtimeRef" not in done.stderr:
            break
        time.sleep(1)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def cli(namespace, tmp_path):
    return KubeCommandLine(tmp_path, namespace)


class Run:
    """One job on the cluster, by ``jobgen submit``; ``rendered``: by ``jobgen render`` and ``kubectl apply``."""

    def __init__(self, cli, target, name, *sets, rendered=False):
        self.cli, self.target, self.name, self.namespace = cli, target, name, cli.namespace
        given = [f"name={name}", f"kubernetes.namespace={self.namespace}", f"checkpoint.directory=/ckpt/{name}", *sets]
        if not any(text.startswith("launch.args=") for text in sets):
            given.append(arguments(name))
        words = [word for text in given for word in ("--set", text)]
        self.handle = None
        if rendered:
            done = cli.call("render", SPEC, "--target", target, *words)
            assert done.status == 0, done.err
            applied(done.out)
        else:
            self.handle = cli.sent(SPEC, target, *words)

    def conditions(self):
        """Types of the conditions that hold."""
        found = kube.get(KINDS[self.target], self.name, self.namespace)
        return {row["type"] for row in found.get("status", {}).get("conditions", []) if row["status"] == "True"}

    def end(self):
        """Waits for the end; True when it succeeded."""
        good = until(f"{self.target} {self.name} to end", lambda: next((ENDED[one] for one in self.conditions() if one in ENDED), None))
        if self.handle:
            assert self.cli.status(self.handle)["phase"] == ("succeeded" if good else "failed")
        return good

    def pods(self):
        """The job's pods."""
        return kube.items("pods", self.namespace, "-l", f"jobgen/job={self.name}")

    def restarts(self):
        """Restarts of containers, or of the gang."""
        if self.target == "k8s":
            return max((status.get("restartCount", 0) for pod in self.pods() for status in pod["status"].get("containerStatuses", [])), default=0)
        return kube.get("jobset", self.name, self.namespace).get("status", {}).get("restarts", 0)

    def folder(self):
        """The checkpoint directory, on the machine that is the cluster."""
        volume = kube.get("pvc", "ckpt", self.namespace)["spec"]["volumeName"]
        return kube.ROOT / "volumes" / volume / self.name

    def history(self):
        """What training said of itself."""
        file = self.folder() / "history.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def checkpoint(self, step):
        """Waits for a checkpoint."""
        until(f"{self.name}'s checkpoint {step}", lambda: (self.folder() / f"checkpoint-{step}" / "done").exists() or None)

    def starts(self):
        """Of its attempts, the first at step 0; all with four ranks. Training ended once, at its last step."""
        ends = [row for row in self.history() if row["event"] == "end"]
        starts = [row for row in self.history() if row["event"] == "start"]
        assert [row["step"] for row in ends] == [20]
        assert self.history()[-1] == ends[0] and starts[0]["step"] == 0
        assert all(row["world"] == 4 for row in starts)
        return starts

    def resumed(self):
        """Training went on from a checkpoint, and no more than the steps since it were lost."""
        starts = self.starts()
        assert len(starts) > 1
        assert all(row["step"] > 0 and 0 <= row["reached"] - row["step"] <= 5 for row in starts[1:]), starts
        return starts

    def survived(self, faults, fault):
        """Into the table of faults."""
        starts = self.starts()
        steps = ", ".join(str(row["step"]) for row in starts[1:])
        happened = f"began again {len(starts) - 1} {'time' if len(starts) == 2 else 'times'}, at step {steps}, ended at 20" if steps else "went on, ended at 20"
        faults.survived(self.target, fault, happened, sum(row["reached"] - row["step"] for row in starts[1:]))


def until(what, ask, patience=None):
    """The first answer that is not None."""
    end = time.monotonic() + (patience or PATIENCE)
    while time.monotonic() < end:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(1)
    raise AssertionError(f"timeout: waited for {what}")


def all_of(cli, name, *sets, more=(), **how):
    """The same spec on all three targets; ``more``: arguments of the program."""
    return [Run(cli, target, f"{name}-{target}", *sets, arguments(f"{name}-{target}", *more), **how) for target in TARGETS]


def tried(faults, runs, fault):
    for run in runs:
        faults.tried(run.target, fault)


def arguments(name, *more):
    """--set for the program's arguments."""
    return "launch.args=" + json.dumps([f"/ckpt/{name}", "--steps", "20", "--every", "5", "--pause", "0.4", *more])


def test_one_rendered_spec_trains_on_all_three_targets(cli):
    for run in all_of(cli, "plain", rendered=True):
        assert run.end() is True
        assert [(row["event"], row["step"], row["world"]) for row in run.history()] == [("start", 0, 4), ("end", 20, 4)]
        assert {path.name for path in run.folder().glob("checkpoint-*")} == {f"checkpoint-{step}" for step in (5, 10, 15, 20)}
        assert run.restarts() == 0


def test_a_rank_killed_by_sigkill_costs_one_restart(cli, faults):
    runs = all_of(cli, "kill", more=("--kill-at", "12"))
    tried(faults, runs, KILLED)
    for run in runs:
        assert run.end() is True
        assert [row["step"] for row in run.resumed()] == [0, 10]
        assert run.restarts() == 1
        run.survived(faults, KILLED)


def test_a_deleted_pod_comes_back_and_training_goes_on(cli, faults):
    runs = all_of(cli, "delete")
    tried(faults, runs, DELETED)
    for run in runs:
        run.checkpoint(5)
        victim = sorted(pod["metadata"]["name"] for pod in run.pods())[-1]
        kube.kubectl("-n", run.namespace, "delete", "pod", victim, "--wait=false", "--grace-period=1")
    for run in runs:
        assert run.end() is True
        run.resumed()
        run.survived(faults, DELETED)


def test_the_kubelet_may_stop_for_a_while(cli, faults):
    runs = all_of(cli, "kubelet")
    tried(faults, runs, KUBELET)
    for run in runs:
        run.checkpoint(5)
    stop_and_start_kubelet(15)
    for run in runs:
        assert run.end() is True
        run.survived(faults, KUBELET)


def stop_and_start_kubelet(seconds):
    file = kube.ROOT / "run" / "kubelet.pid"
    pid = int(file.read_text())
    command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    node = kube.get("node", "jgkube-node", "default")["status"]["capacity"]
    os.kill(pid, 15)
    time.sleep(seconds)
    with (kube.ROOT / "log" / "kubelet.log").open("ab") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=kube.environment())
    file.write_text(f"{started.pid}\n")
    until("the node", lambda: kube.kubectl("wait", "--for=condition=Ready", "node/jgkube-node", "--timeout=5s", check=False).returncode == 0 or None)
    devices = {name: value for name, value in node.items() if "/" in name}
    patch = json.dumps({"status": {"capacity": devices, "allocatable": devices}})
    kube.kubectl("patch", "node", "jgkube-node", "--subresource=status", "--type=merge", "-p", patch)


def test_elastic_agents_meet_again_after_a_killed_rank(cli, faults):
    fault = f"{KILLED}, elastic"
    run = Run(cli, "k8s", "elastic", "kubernetes.elastic={min_nodes: 1, max_nodes: 2}", arguments("elastic", "--kill-at", "12"))
    faults.tried("k8s", fault)
    assert run.end() is True
    assert [row["step"] for row in run.resumed()] == [0, 10]
    assert run.restarts() == 0  # of containers: the agents started new ranks by themselves
    run.survived(faults, fault)


QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: jobgen-runs}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: jobgen-runs}}
spec:
  namespaceSelector: {{}}
  stopPolicy: None
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors:
        - name: jobgen-runs
          resources: [{{name: nvidia.com/gpu, nominalQuota: 12}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: team-a, namespace: {namespace}}}
spec: {{clusterQueue: jobgen-runs}}
"""


@pytest.fixture
def queue(namespace):
    kube.kubectl("apply", "-f", "-", text=QUEUES.format(namespace=namespace))
    yield "team-a"
    kube.kubectl("-n", namespace, "delete", "localqueue", "team-a", "--wait=false")
    kube.kubectl("delete", "clusterqueue,resourceflavor", "jobgen-runs", "--wait=false")


def stop_policy(value):
    kube.kubectl("patch", "clusterqueue", "jobgen-runs", "--type=merge", "-p", json.dumps({"spec": {"stopPolicy": value}}))


def test_kueue_suspends_and_resumes_and_training_goes_on(cli, queue, faults):
    runs = all_of(cli, "kueue", f"kubernetes.queue={queue}", "kubernetes.scheduler=kueue")
    tried(faults, runs, SUSPENDED)
    for run in runs:
        run.checkpoint(5)
    stop_policy("HoldAndDrain")
    for run in runs:
        without_running_pods(run)
    stop_policy("None")
    for run in runs:
        assert run.end() is True
        run.resumed()
        run.survived(faults, SUSPENDED)


def without_running_pods(run):
    """Wait until none runs any more."""
    until(f"{run.name} to lose its pods", lambda: True if not [pod for pod in run.pods() if pod["status"]["phase"] == "Running"] else None)


def test_a_program_that_always_fails_ends_after_its_restarts(cli):
    runs = [Run(cli, target, f"broken-{target}", 'launch.args=["/nowhere/at/all", "--no-such-option"]') for target in TARGETS]
    for run in runs:
        assert run.end() is False
        without_running_pods(run)
        if run.target != "k8s":
            assert run.restarts() == 2


def test_without_restarts_the_first_failure_ends_the_job(cli):
    runs = all_of(cli, "once", "launch.restarts=0", "checkpoint.resume=never", more=("--fail-at", "7"))
    for run in runs:
        assert run.end() is False
        without_running_pods(run)
        assert [row["event"] for row in run.history()] == ["start"]
