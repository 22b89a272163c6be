"""What the real server refused (its words are in tests/cluster/refusals.jsonl) is said before anything is sent."""

import json
from pathlib import Path

import jobs
import pytest
from k8s_cases import CLAIM, RESUME

from jobgen.launch.job import Command, word
from jobgen.targets import admission, grammar, pod

REFUSALS = Path(__file__).parents[1] / "cluster" / "refusals.jsonl"
ROWS = [json.loads(line) for line in REFUSALS.read_text(encoding="utf-8").splitlines()]


def paths(edit, target="k8s"):
    job, spec = jobs.from_edit(edit)
    return {trouble.path: trouble for trouble in admission.problems(job, spec, target)}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_what_the_server_refuses_is_found_first(row):
    found = paths(row["edit"], row["target"])
    assert list(found) == [row["path"]], row["server"]
    assert found[row["path"]].message and found[row["path"]].fix


def test_at_least_forty_refusals_of_the_real_server_are_known():
    assert len({row["server"] for row in ROWS}) >= 40


STRICTER = {
    "srun": ({"job": {"command": Command((word("python"),), "rank")}}, "k8s", "launch.launcher"),
    "rwo on two nodes": ({"job": {"mounts": [{**CLAIM, "create_size_bytes": 1, "access_mode": "ReadWriteOnce"}]}}, "k8s", "volumes.0.create.access_mode"),
    "ttl on trainjob": ({"spec": {"kubernetes": {"ttl": "1d"}}}, "trainjob", "kubernetes.ttl"),
    "elastic on jobset": ({"spec": {"kubernetes": {"elastic": {"min_nodes": 1, "max_nodes": 2}}}}, "jobset", "kubernetes.elastic"),
    "elastic with a checkpoint named by words": ({"job": {"mounts": [CLAIM], "resume": RESUME}, "spec": {"kubernetes": {"elastic": {"min_nodes": 1, "max_nodes": 2}}}}, "k8s", "kubernetes.elastic"),
    "elastic without torchrun": ({"job": {"launcher": "deepspeed"}, "spec": {"kubernetes": {"elastic": {"min_nodes": 1, "max_nodes": 2}}}}, "k8s", "kubernetes.elastic"),
    "elastic bounds": ({"spec": {"kubernetes": {"elastic": {"min_nodes": 3, "max_nodes": 4}}}}, "k8s", "kubernetes.elastic"),
    "gang on pytorchjob": ({"job": {"restarts": 1, "launcher": "accelerate"}, "spec": {"kubernetes": {"restart": "gang"}}}, "k8s", "kubernetes.restart"),
    "priority class under volcano": ({"spec": {"kubernetes": {"scheduler": "volcano", "priority_class": "high"}}}, "trainjob", "kubernetes.priority_class"),
    "reserved variable": ({"job": {"env": {"MASTER_ADDR": "x"}}}, "k8s", "launch.env.MASTER_ADDR"),
    "jobgen's variable": ({"job": {"env": {"JOBGEN_ATTEMPT": "x"}}}, "k8s", "launch.env.JOBGEN_ATTEMPT"),
    "variable of 200 KB": ({"job": {"env": {"A": {"repeat": ["x", 200_000]}}}}, "k8s", "launch.env.A"),
    "checkpoints on scratch": (
        {"job": {"mounts": [{"target": "/ckpt", "scratch": True}], "resume": {"mode": "never", "path": None, "directory": "/ckpt/a", "pattern": None, "complete_marker": None, "fingerprint": "", "by_framework": True}}},
        "k8s", "checkpoint.directory",
    ),
    "shm over memory": ({"spec": {"resources": {"memory_per_node": "64GiB"}, "kubernetes": {"shm_size": "64GiB"}}}, "k8s", "kubernetes.shm_size"),
    "more memory than the node": ({"spec": {"resources": {"node_type": "p5.48xlarge", "memory_per_node": "2048GiB"}}}, "k8s", "resources.memory_per_node"),
    "all CPUs of the node": ({"spec": {"resources": {"node_type": "p5.48xlarge", "cpus_per_node": 192}}}, "k8s", "resources.cpus_per_node"),
    "part of a TCPXO node": ({"job": {"fabric": "gcp-tcpxo"}}, "k8s", "resources.gpus_per_node"),
    "other GPUs in extra_resources": ({"spec": {"kubernetes": {"extra_resources": {"nvidia.com/gpu": 4}}}}, "k8s", "kubernetes.extra_resources.nvidia.com/gpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICTER)
def test_what_the_server_takes_and_the_cluster_would_not_run(name):
    edit, target, path = STRICTER[name]
    assert path in paths(edit, target)


@pytest.mark.parametrize(("nodes", "longest"), [(1, 54), (2, 54), (11, 54), (12, 53), (101, 53), (102, 52)])
def test_names_leave_room_for_the_operator(nodes, longest):
    assert admission.budget(nodes, "k8s") == longest


@pytest.mark.parametrize(("nodes", "longest"), [(1, 48), (10, 48), (11, 47), (100, 47), (101, 46)])
def test_names_leave_room_for_the_pods_of_a_jobset(nodes, longest):
    assert admission.budget(nodes, "trainjob") == admission.budget(nodes, "jobset") == longest


@pytest.mark.parametrize(
    ("given", "name"),
    [("qwen2.5-coder-32b-sft", "qwen2-5-coder-32b-sft"), ("My_Job 7", "my-job-7"), ("a--b", "a-b"), ("-x-", "x")],
)
def test_names_are_written_as_kubernetes_writes_them(given, name):
    assert pod.object_name(given) == name == pod.object_name(name)


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("1.5", 1.5), ("2k", 2000), ("1Ki", 1024), ("500m", 0.5), ("1e3", 1000), ("1E", 1e18), ("x", None), ("", None), ("1 Gi", None)])  # fmt: skip
def test_quantities(text, number):
    assert grammar.quantity(text) == number
