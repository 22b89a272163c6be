"""One spec, trained by the three targets on the real test Kubernetes, and what clusters do to jobs.

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

from jobgen import api

SPEC = Path(__file__).parent / "specs" / "gloo.yaml"
TARGETS = ("k8s", "trainjob", "jobset")
KINDS = {"k8s": "pytorchjob", "trainjob": "trainjob", "jobset": "jobset"}
ENDED = {"Succeeded": True, "Complete": True, "Completed": True, "Failed": False}
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


class Run:
    """One job on the cluster."""

    def __init__(self, target, name, namespace, *sets):
        self.target, self.name, self.namespace = target, name, namespace
        given = [f"name={name}", f"kubernetes.namespace={namespace}", f"checkpoint.directory=/ckpt/{name}", *sets]
        arguments = next((text for text in sets if text.startswith("launch.args=")), None)
        if arguments is None:
            given.append(f'launch.args=["/ckpt/{name}", "--steps", "20", "--every", "5", "--pause", "0.4"]')
        document = api.load(str(SPEC), sets=given)
        self.text = api.render(document, target=target).text
        applied(self.text)

    def conditions(self):
        """Types of the conditions that hold."""
        found = kube.get(KINDS[self.target], self.name, self.namespace)
        return {row["type"] for row in found.get("status", {}).get("conditions", []) if row["status"] == "True"}

    def end(self):
        """Waits for the end; True when it succeeded."""
        return until(f"{self.target} {self.name} to end", lambda: next((ENDED[one] for one in self.conditions() if one in ENDED), None))

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

    def resumed_and_ended(self):
        """Training went on from a checkpoint, at most one interval was lost, and it ended at its last step."""
        starts = [row for row in self.history() if row["event"] == "start"]
        ends = [row for row in self.history() if row["event"] == "end"]
        assert [row["step"] for row in ends] == [20]
        assert starts[0]["step"] == 0 and starts[-1]["step"] in (5, 10, 15)
        assert all(row["world"] == 4 for row in starts)
        return starts


def until(what, ask, patience=None):
    """The first answer that is not None."""
    end = time.monotonic() + (patience or PATIENCE)
    while time.monotonic() < end:
        answer = ask()
        if answer is not None:
            return answer
        time.sleep(1)
    raise AssertionError(f"timeout: waited for {what}")


def all_of(namespace, name, *sets):
    """The same job on all three targets."""
    return [Run(target, f"{name}-{target}", namespace, *sets) for target in TARGETS]


def arguments(name, *more):
    """--set for the program's arguments."""
    return "launch.args=" + json.dumps([f"/ckpt/{name}", "--steps", "20", "--every", "5", "--pause", "0.4", *more])


def test_one_spec_trains_on_all_three_targets(namespace):
    for run in all_of(namespace, "plain"):
        assert run.end() is True
        assert [(row["event"], row["step"], row["world"]) for row in run.history()] == [("start", 0, 4), ("end", 20, 4)]
        assert {path.name for path in run.folder().glob("checkpoint-*")} == {f"checkpoint-{step}" for step in (5, 10, 15, 20)}
        assert run.restarts() == 0


def test_a_rank_killed_by_sigkill_costs_one_restart(namespace):
    runs = [Run(target, f"kill-{target}", namespace, arguments(f"kill-{target}", "--kill-at", "12")) for target in TARGETS]
    for run in runs:
        assert run.end() is True
        assert [row["step"] for row in run.resumed_and_ended()] == [0, 10]
        assert run.restarts() == 1


def test_a_deleted_pod_comes_back_and_training_goes_on(namespace):
    runs = all_of(namespace, "delete")
    for run in runs:
        run.checkpoint(5)
        victim = sorted(pod["metadata"]["name"] for pod in run.pods())[-1]
        kube.kubectl("-n", namespace, "delete", "pod", victim, "--wait=false", "--grace-period=1")
    for run in runs:
        assert run.end() is True
        run.resumed_and_ended()


def test_the_kubelet_may_stop_for_a_while(namespace):
    runs = all_of(namespace, "kubelet")
    for run in runs:
        run.checkpoint(5)
    stop_and_start_kubelet(15)
    for run in runs:
        assert run.end() is True
        assert [row["event"] for row in run.history()][-1] == "end"
        assert run.history()[-1]["step"] == 20


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


def test_elastic_agents_meet_again_after_a_killed_rank(namespace):
    run = Run("k8s", "elastic", namespace, "kubernetes.elastic={min_nodes: 1, max_nodes: 2}", arguments("elastic", "--kill-at", "12"))
    assert run.end() is True
    assert [row["step"] for row in run.resumed_and_ended()] == [0, 10]
    assert run.restarts() == 0  # of containers: the agents started new ranks by themselves


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


def test_kueue_suspends_and_resumes_and_training_goes_on(namespace, queue):
    runs = all_of(namespace, "kueue", f"kubernetes.queue={queue}", "kubernetes.scheduler=kueue")
    for run in runs:
        run.checkpoint(5)
    stop_policy("HoldAndDrain")
    for run in runs:
        until(f"{run.name} to lose its pods", lambda run=run: True if not [pod for pod in run.pods() if pod["status"]["phase"] == "Running"] else None)
    stop_policy("None")
    for run in runs:
        assert run.end() is True
        run.resumed_and_ended()


def test_a_program_that_always_fails_ends_after_its_restarts(namespace):
    broken = 'launch.args=["/nowhere/at/all", "--no-such-option"]'
    runs = all_of(namespace, "broken", broken)
    for run in runs:
        assert run.end() is False
        until(f"{run.name} to stop its pods", lambda run=run: True if not [pod for pod in run.pods() if pod["status"]["phase"] == "Running"] else None)
        if run.target != "k8s":
            assert run.restarts() == 2


def test_without_restarts_the_first_failure_ends_the_job(namespace):
    sets = ["launch.restarts=0", "checkpoint.resume=never"]
    runs = [Run(target, f"once-{target}", namespace, *sets, arguments(f"once-{target}", "--fail-at", "7")) for target in TARGETS]
    for run in runs:
        assert run.end() is False
        until(f"{run.name} to stop its pods", lambda run=run: True if not [pod for pod in run.pods() if pod["status"]["phase"] == "Running"] else None)
        assert [row["event"] for row in run.history()] == ["start"]
