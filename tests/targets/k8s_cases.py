"""Jobs that together use every part of the Kubernetes targets, as plain data; goldens and cluster tests go through them."""

from __future__ import annotations

from typing import Any

CLAIM = {"target": "/ckpt", "claim": "checkpoints"}
RESUME = {
    "mode": "auto", "path": None, "directory": "/ckpt/run", "pattern": "checkpoint-*", "complete_marker": "done",
    "fingerprint": "0123456789abcdef", "by_framework": False, "arguments": ["--resume"],
}  # fmt: skip
ITSELF = {**RESUME, "by_framework": True, "arguments": []}
"""The framework finds its newest checkpoint."""
HOSTILE = "it's \"quoted\" $HOME $(id) `id` $$ {{x}} %j #SBATCH é 训练 \\ \t end"

CASES: dict[str, dict[str, Any]] = {
    "one-node": {"job": {"nodes": 1, "mounts": [CLAIM], "directories": ["/ckpt/run"]}},
    "two-nodes": {"job": {"mounts": [CLAIM], "directories": ["/ckpt/run"], "resume": RESUME, "restarts": 3, "time_limit_seconds": 86400}},
    "made-claim": {
        "job": {
            "mounts": [
                {**CLAIM, "create_size_bytes": 2 * 2**40, "storage_class": "lustre"},
                {"target": "/data", "claim": "checkpoints", "read_only": True},
                {"target": "/lustre", "source": "/lustre/data", "read_only": True},
                {"target": "/local", "scratch": True},
            ],
            "files": {"ds.json": '{"zero_optimization": {"stage": 3}}\n', "conf/run.yaml": "a: 1\n"},
            "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
            "env": {"WANDB_PROJECT": "sft"},
        },
        "spec": {"kubernetes": {"secret": "hub", "namespace": "ml"}},
    },
    "kueue": {
        "job": {"mounts": [CLAIM], "restarts": 1, "resume": RESUME},
        "spec": {
            "kubernetes": {
                "queue": "team-a", "priority_class": "high", "service_account": "trainer", "image_pull_secrets": ["registry"],
                "node_selector": {"gpu": "h100"}, "labels": {"team": "nlp"}, "tolerations": [{"key": "maintenance", "operator": "Exists"}],
                "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/rack"},
            },
        },
    },
    "volcano": {"job": {"mounts": [CLAIM]}, "spec": {"kubernetes": {"scheduler": "volcano", "queue": "training"}}},
    "coscheduling": {"job": {"mounts": [CLAIM], "nodes": 4}, "spec": {"kubernetes": {"scheduler": "coscheduling"}}},
    "kai": {"job": {"mounts": [CLAIM]}, "spec": {"kubernetes": {"scheduler": "kai", "queue": "team-a"}}},
    "efa": {
        "job": {"nodes": 4, "gpus_per_node": 8, "processes_per_node": 8, "fabric": "efa", "mounts": [CLAIM], "resume": RESUME, "restarts": 5},
        "spec": {"resources": {"node_type": "p5.48xlarge", "gpus_per_node": 8, "fabric": "efa"}},
    },
    "gcp-tcpxo": {
        "job": {"gpus_per_node": 8, "processes_per_node": 8, "fabric": "gcp-tcpxo", "mounts": [CLAIM], "env": {"NCCL_DEBUG": "INFO"}},
        "spec": {"resources": {"node_type": "a3-megagpu-8g", "gpus_per_node": 8, "fabric": "gcp-tcpxo"}},
    },
    "oci-roce": {
        "job": {"gpus_per_node": 8, "processes_per_node": 8, "fabric": "oci-roce", "mounts": [CLAIM]},
        "spec": {"resources": {"gpus_per_node": 8, "fabric": "oci-roce"}, "kubernetes": {"security_context": {"capabilities": {"add": ["SYS_NICE"]}}}},
    },
    "infiniband-amd": {
        "job": {"gpu_name": "mi300x", "gpus_per_node": 8, "processes_per_node": 8, "fabric": "infiniband", "mounts": [CLAIM], "memory_per_node_bytes": 10**12},
        "spec": {
            "resources": {"gpu": "mi300x", "gpus_per_node": 8, "fabric": "infiniband", "memory_per_node": "1TB", "cpus_per_node": 90, "exclusive": True},
            "kubernetes": {"extra_resources": {"rdma/rdma_shared_device_a": 1}, "shm_size": "64GiB"},
        },
    },
    "lifecycle": {
        "job": {
            "mounts": [CLAIM, {"target": "/local", "scratch": True}], "prepare": ["hf download Qwen/Qwen3-0.6B", "cd /tmp"],
            "stage": [["/ckpt/data", "/local/data"]], "finish": ["python eval.py --all"], "python": ["venv", "/ckpt/venv"],
            "working_directory": "/workspace", "resume": RESUME, "restarts": 2,
        },
        "spec": {"kubernetes": {"ttl": None, "restart": "auto"}},
    },
    "hostile": {
        "job": {"mounts": [CLAIM], "env": {"A": HOSTILE, "B": "1", "C": "yes", "D": "line\nline\n", "E": "0x1f", "F": ""}, "args": [HOSTILE, "-x", "", "a\nb"]},
        "spec": {"kubernetes": {"annotations": {"note": "a: {b} # c\n- d"}, "labels": {"on": "no"}}},
    },
    "gang": {"job": {"mounts": [CLAIM], "resume": ITSELF, "restarts": 2}, "spec": {"kubernetes": {"restart": "gang"}}},
    "restart-pods": {"job": {"mounts": [CLAIM], "resume": RESUME, "restarts": 2}, "spec": {"kubernetes": {"restart": "pod"}}},
    "elastic": {
        "job": {"nodes": 3, "mounts": [CLAIM], "resume": ITSELF, "restarts": 4, "rendezvous": "c10d"},
        "spec": {"kubernetes": {"elastic": {"min_nodes": 2, "max_nodes": 4}}},
    },
}  # fmt: skip

ONLY = {"elastic": ("k8s",)}
"""Cases that not every target can do."""
TARGETS = ("k8s", "trainjob", "jobset")
PAIRS = [(name, target) for name in CASES for target in ONLY.get(name, TARGETS)]
