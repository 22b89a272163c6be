"""Valid specs for every target, such that each pair of choices meets in some spec; the same ones on every run.

    python tests/cluster/corpus.py [TARGET]    prints how many specs there are, and what check says against them
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from pairwise import Row, Rows

KUBERNETES = ("k8s", "trainjob", "jobset")
TARGETS = ("slurm", *KUBERNETES, "hosts", "local")
FABRICS = (
    None, "none", "tcp", "infiniband", "roce", "efa", "slingshot", "gcp-tcpx", "gcp-tcpxo", "gcp-gib", "azure-ib", "oci-roce",
    "coreweave-ib", "nebius-ib", "omni-path", "nvlink", "./site-fabric.yaml",
)  # fmt: skip
WHOLE = ("gcp-tcpx", "gcp-tcpxo", "gcp-gib")
"""Fabrics that work with whole nodes of eight GPUs only."""
FRAMEWORKS = (
    "custom", "transformers", "trl", "accelerate", "deepspeed", "llama-factory", "axolotl", "unsloth", "torchtune",
    "torchtitan", "megatron-lm", "nemo", "ms-swift", "litgpt",
)  # fmt: skip
SINGLE_NODE = ("litgpt",)
ITSELF = ("llama-factory", "torchtune", "ms-swift", "litgpt")
"""Frameworks whose own command starts the ranks."""
MODULES = ("trl", "axolotl", "torchtitan")
"""Frameworks whose own command is a Python module, which every launcher can start."""
TORCHRUN = ("megatron-lm", "nemo", "torchtune", "torchtitan")
"""Frameworks that torchrun or srun must start."""
ELASTIC = ("custom", "torchtitan", "megatron-lm", "nemo")
"""Frameworks that find their newest checkpoint themselves when elastic agents start ranks anew."""
TEXTS = {
    "plain": ["--flag", "value"],
    "quoted": ["--prompt", "it's \"$HOME\" `id` $(id) \\", "a b", ""],
    "unicode": ["--text=训练 é 🚀", "%j", "#SBATCH --nodes=9", "{{ x }}", "- yes: no"],
}

COMMON: dict[str, tuple[Any, ...]] = {
    "framework": FRAMEWORKS,
    "nodes": (1, 2, 3, 4),
    "launcher": (None, "torchrun", "accelerate", "deepspeed", "python"),
    "program": ("own", "script", "module", "command", "shipped"),
    "gpus": (1, 2, 8),
    "fabric": FABRICS,
    "storage": ("path", "claim", "both", "created", "scratch", "data"),
    "secrets": (0, 1, 3),
    "restarts": (0, 3),
    "limit": (None, "24h", "90m"),
    "python": (None, "venv", "conda", "uv"),
    "steps": ("none", "setup", "prepare", "stage", "finish", "all"),
    "text": tuple(TEXTS),
    "resume": ("auto", "never", "path"),
    "sweep": (False, True),
    "folder": (None, "/workspace", "code"),
}
OF_TARGET: dict[str, dict[str, tuple[Any, ...]]] = {
    "slurm": {
        "launcher": (*COMMON["launcher"], "srun"),
        "container": ("none", "pyxis", "apptainer"),
        "partition": (None, "gpu", "spot", "high"),
        "gpu_option": ("gpus_per_node", "gres"),
        "ask": ("nothing", "memory", "cpus", "both", "exclusive"),
        "extra": ("none", "quoted", "nodelist", "mail", "array", "account"),
        "requeue": ("auto", True, False),
        "after": (False, True),
        "signal": ("default", "60s", "10m"),
        "srun_args": ((), ("--label", "--cpu-bind=none")),
    },
    "k8s": {"elastic": (False, True), "restart": ("auto", "pod", "never")},
    "trainjob": {"elastic": (False,), "restart": ("auto", "gang", "pod", "never")},
    "jobset": {"elastic": (False,), "restart": ("auto", "gang", "pod", "never")},
    "hosts": {"gpus": (1, 2)},
    "local": {"nodes": (1,), "fabric": (None, "none")},
}
CLUSTER: dict[str, tuple[Any, ...]] = {
    "scheduler": (None, "kueue", "volcano", "coscheduling", "kai"),
    "queue": (None, "team-a"),
    "ask": ("nothing", "memory", "cpus", "both", "exclusive"),
    "pods": ("none", "labels", "selector", "tolerations", "class", "account", "pull", "security", "devices", "topology", "all"),
    "shm": ("auto", "8GiB"),
    "ttl": (None, "1h"),
    "namespace": (None, "corpus"),
}


def dimensions(target: str) -> dict[str, tuple[Any, ...]]:
    """What differs between the specs of a target."""
    more = CLUSTER if target in KUBERNETES else {}
    return {**COMMON, **more, **OF_TARGET[target]}


def valid(row: Row, target: str) -> bool:
    """The choices of a row make sense together: what a row breaks here, ``check`` refuses with a reason."""
    framework, launcher, program = row["framework"], row["launcher"], row["program"]
    if program == "own" and framework not in (*ITSELF, *MODULES):
        return False
    if program != "own" and framework == "litgpt":
        return False
    if program == "own" and framework in ITSELF and launcher is not None:
        return False
    if program == "command" and launcher is not None:
        return False
    if framework in SINGLE_NODE and row["nodes"] > 1:
        return False
    if row["fabric"] in WHOLE and row["gpus"] != 8:
        return False
    if row["fabric"] == "none" and row["nodes"] > 1:
        return False
    if framework in TORCHRUN and launcher not in (None, "torchrun", "srun"):
        return False
    if launcher == "python" and framework == "llama-factory" and row["gpus"] > 1:
        return False
    if launcher == "python" and row["nodes"] > 1 and framework != "custom":
        return False
    if row.get("container") == "none" and row["storage"] in ("scratch",) and target == "slurm" and row["folder"] == "/workspace":
        return False
    if row["storage"] in ("claim", "created") and target not in KUBERNETES:
        return False
    if row["storage"] in ("path",) and row["folder"] == "code" and target in KUBERNETES:
        return False
    if target == "slurm":
        return _valid_slurm(row)
    return target not in KUBERNETES or _valid_kubernetes(row, target)


def _valid_slurm(row: Row) -> bool:
    if row["signal"] == "10m" and row["limit"] is None:
        return False
    return not (row["requeue"] is False and row["restarts"])


def _valid_kubernetes(row: Row, target: str) -> bool:
    if row["ttl"] and target == "trainjob":
        return False
    if target == "trainjob" and row["scheduler"] == "volcano" and row["pods"] == "class":
        return False
    if row["elastic"] and (row["launcher"] != "torchrun" or row["restart"] != "auto" or row["framework"] not in ELASTIC):
        return False
    if row["elastic"] and row["program"] == "command":
        return False
    if row["pods"] in ("topology", "all") and row["scheduler"] not in (None, "kueue"):
        return False
    return not (row["scheduler"] == "kai" and row["queue"] is None)


class Entry(NamedTuple):
    """One spec of the corpus."""

    number: int
    target: str
    row: Row
    text: str

    @property
    def id(self) -> str:
        """Its name in a test's messages."""
        return f"{self.target}-{self.number}"


@cache
def rows(target: str) -> Rows:
    """The rows of a target."""
    return Rows(dimensions(target), lambda row: valid(row, target))


@cache
def entries(target: str) -> tuple[Entry, ...]:
    """The specs of a target."""
    return tuple(Entry(n, target, row, text_of(tree(target, n, row))) for n, row in enumerate(rows(target).rows))


def known_targets() -> tuple[str, ...]:
    """Targets that are there."""
    return tuple(name for name in TARGETS if importlib.util.find_spec(f"jobgen.targets.{name}"))


def text_of(spec: Mapping[str, Any]) -> str:
    """The spec as YAML (JSON with the characters escaped that YAML files do not take raw)."""
    escape = lambda found: f"\\u{ord(found.group()):04x}"  # noqa: E731
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", escape, json.dumps(spec, ensure_ascii=False))


def tree(target: str, number: int, row: Row) -> dict[str, Any]:
    """A row as a spec."""
    spec: dict[str, Any] = {
        "name": f"corpus-{number}",
        "target": target,
        "model": {"name": "Qwen/Qwen3-0.6B"},
        "training": {"method": "full", "framework": row["framework"], "sequence_length": 512, "max_steps": 100,
                     "micro_batch_size": 1, "gradient_accumulation_steps": 2},
        "resources": {"nodes": row["nodes"], "gpus_per_node": row["gpus"], "gpu": "h100-80gb"},
        "checkpoint": {"directory": "/ckpt/run", "every_steps": 50, "keep": 2},
        "launch": {"args": TEXTS[row["text"]], "env": {"WANDB_PROJECT": TEXTS[row["text"]][-1]}},
    }  # fmt: skip
    if row["framework"] in ("megatron-lm", "nemo"):
        spec["training"]["objective"] = "pretrain"
        spec["model"]["init"] = "random"
    if row["fabric"] is not None:
        spec["resources"]["fabric"] = row["fabric"]
    if row["fabric"] == "efa":
        spec["resources"]["node_type"] = "p5.48xlarge"
    if row["resume"] != "auto":
        spec["checkpoint"]["resume"] = {"never": "never", "path": "/ckpt/old/checkpoint-50"}[row["resume"]]
    if row["sweep"]:
        spec["sweep"] = {"grid": {"training.micro_batch_size": [1, 2]}, "max_parallel": 1}
    _launch(spec["launch"], row, target)
    _volumes(spec, row)
    if target == "slurm":
        _slurm(spec, row)
    elif target in KUBERNETES:
        _kubernetes(spec, row)
    elif target == "hosts":
        spec["resources"]["hosts"] = [f"10.1.1.{index + 1}" for index in range(row["nodes"])]
    return spec


def _launch(launch: dict[str, Any], row: Row, target: str) -> None:
    if row["launcher"]:
        launch["launcher"] = row["launcher"]
    match row["program"]:
        case "script":
            launch["entrypoint"] = "train.py"
        case "module":
            launch["module"] = "my.training"
        case "command":
            launch["command"] = ["train-it", "--all nodes", "{config}"]
        case "shipped":
            launch["entrypoint"] = "train.py"
            launch["code"] = {"files": ["train.py", "run.sh"]}
    if row["folder"] == "/workspace":
        launch["working_directory"] = "/workspace"
    elif row["folder"] == "code" and row["program"] != "shipped":
        launch["code"] = "/ckpt/code"
    launch["secrets"] = ["HF_TOKEN", "WANDB_API_KEY", "_X9"][: row["secrets"]]
    launch["restarts"] = row["restarts"]
    if row["limit"]:
        launch["time_limit"] = row["limit"]
    if row["python"]:
        launch["python"] = {row["python"]: "/ckpt/env one"}
    steps = row["steps"]
    if steps in ("setup", "all"):
        launch["setup"] = ["module load cuda/12.8", "ulimit -l unlimited || true"]
    if steps in ("prepare", "all"):
        launch["prepare"] = ["hf download 'Qwen/Qwen3-0.6B'", "for x in a b; do", '  echo "$x it\'s"', "done"]
    if steps in ("stage", "all"):
        launch["stage"] = [{"from": "/ckpt/data set", "to": "/ckpt/copy"}]
    if steps in ("finish", "all"):
        launch["finish"] = ['python eval.py --from "$JOBGEN_CHECKPOINT_DIR"']
    if target in KUBERNETES or row.get("container") in ("pyxis", "apptainer"):
        launch["image"] = "nvcr.io/nvidia/pytorch:25.09-py3"


def _volumes(spec: dict[str, Any], row: Row) -> None:
    size = {"size": "2TiB", "access_mode": "ReadWriteMany"}
    volumes: list[dict[str, Any]] = {
        "path": [{"mount": "/ckpt", "path": "/lustre/my ckpt"}],
        "claim": [{"mount": "/ckpt", "claim": "fsx"}],
        "both": [{"mount": "/ckpt", "claim": "fsx.v2", "path": "/lustre/ckpt"}],
        "created": [{"mount": "/ckpt", "claim": "made", "create": {**size, "storage_class": "lustre"}}],
        "scratch": [{"mount": "/ckpt", "claim": "fsx", "path": "/lustre/ckpt"}, {"mount": "/local", "scratch": True}],
        "data": [{"mount": "/ckpt", "claim": "fsx", "path": "/lustre/ckpt"}, {"mount": "/data", "path": "/lustre/data", "read_only": True}],
    }[row["storage"]]
    spec["volumes"] = volumes


def _ask(spec: dict[str, Any], row: Row) -> None:
    resources = spec["resources"]
    if row["ask"] in ("memory", "both"):
        resources["memory_per_node"] = f"{row['gpus'] * 64}GiB"
    if row["ask"] in ("cpus", "both"):
        resources["cpus_per_node"] = row["gpus"] * 8
    if row["ask"] == "exclusive":
        resources["exclusive"] = True


def _slurm(spec: dict[str, Any], row: Row) -> None:
    _ask(spec, row)
    slurm: dict[str, Any] = {"account": "research", "qos": "normal", "container": row["container"], "gpu_option": row["gpu_option"],
                             "requeue": row["requeue"], "srun_args": list(row["srun_args"])}  # fmt: skip
    if row["partition"]:
        slurm["partition"] = row["partition"]
    if row["signal"] != "default":
        slurm["signal_before"] = row["signal"]
    extra: dict[str, dict[str, Any]] = {
        "quoted": {"mail-user": "it's #1 \"of\" many", "begin": "now"}, "nodelist": {"nodelist": f"node[1-{row['nodes']}]", "nice": 100},
        "mail": {"mail_type": "END,FAIL", "mail-user": "a@example.com"}, "array": {"array": "0-3"},
    }  # fmt: skip
    if row["extra"] in extra:
        slurm["extra"] = extra[row["extra"]]
    elif row["extra"] == "account":
        slurm |= {"constraint": "ib&h100", "output": "/var/tmp"}
    if row["extra"] == "array":
        slurm["array_limit"] = 2
    if row["after"]:
        spec["after"] = [{"job": "1", "on": "end"}]
    spec["slurm"] = slurm


def _kubernetes(spec: dict[str, Any], row: Row) -> None:
    _ask(spec, row)
    kube: dict[str, Any] = {"secret": "tokens", "shm_size": row["shm"], "restart": row["restart"]}
    for name in ("scheduler", "queue", "ttl", "namespace"):
        if row[name]:
            kube[name] = row[name]
    if row["elastic"]:
        kube["elastic"] = {"min_nodes": 1, "max_nodes": row["nodes"] + 2}
    for name in POD if row["pods"] == "all" else (row["pods"],):
        kube |= POD.get(name, {})
    spec["kubernetes"] = kube


POD: dict[str, dict[str, Any]] = {
    "labels": {"labels": {"team": "a", "example.com/cost-center": "4711"}, "annotations": {"example.com/why": "it's \"so\": {yes} 训练"}},
    "selector": {"node_selector": {"node.kubernetes.io/instance-type": "p5.48xlarge"}},
    "tolerations": {"tolerations": [{"operator": "Exists"}, {"key": "x/y", "value": "z", "effect": "NoExecute", "tolerationSeconds": 60}]},
    "class": {"priority_class": "jobgen-corpus"},
    "account": {"service_account": "trainer"},
    "pull": {"image_pull_secrets": ["regcred", "other.v2"]},
    "security": {"security_context": {"runAsUser": 1000, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}},
    "devices": {"extra_resources": {"example.com/nic": 2}},
    "topology": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"}},
}

SITE_FABRIC = """\
name: site
title: A fabric of the site
date: 2026-01
rdma: true
slurm: {env: [{name: NCCL_IB_HCA, value: "=mlx5_0,mlx5_1", why: two rails, source: site}]}
kubernetes: {env: [{name: NCCL_IB_HCA, value: "=mlx5_0", why: one rail, source: site}]}
"""


def folder(path: Path) -> Path:
    """The files that the specs name, beside them."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "train.py").write_text("import sys\nprint('END_OF_FILE', sys.argv)\nEND_OF_FILE\n", encoding="utf-8")
    (path / "run.sh").write_text("#!/bin/sh\nexec python train.py \"$@\"", encoding="utf-8")
    (path / "site-fabric.yaml").write_text(SITE_FABRIC, encoding="utf-8")
    return path


class Made(NamedTuple):
    """What became of one spec."""

    entry: Entry
    artifact: str | None
    refusal: str = ""
    """Codes, paths and words of the errors."""


def made(target: str, beside: Path, step: int = 1) -> Iterator[Made]:
    """The artifacts of every ``step``-th spec (of a sweep its first point), by the API that the command line uses."""
    from jobgen import api
    from jobgen.spec.document import load_text

    for entry in entries(target)[::step]:
        try:
            document = api.points(load_text(entry.text, str(beside / "spec.yaml")))[0]
            yield Made(entry, api.render(document, target=target).text)
        except api.Refused as error:
            wrong = [f"{f.code} {f.path}: {f.message}" for f in error.report.findings if f.severity == "error"]
            yield Made(entry, None, "; ".join(wrong))
        except api.SpecError as error:
            yield Made(entry, None, "; ".join(f"{p.code} {p.path}: {p.message}" for p in error.problems))


if __name__ == "__main__":
    import tempfile

    place = folder(Path(tempfile.mkdtemp()))
    for name in sys.argv[1:] or known_targets():
        said: Counter[str] = Counter()
        for one in made(name, place):
            if one.artifact is None:
                said[one.refusal[:160]] += 1
        all_rows = rows(name)
        print(name, len(all_rows.rows), "specs,", len(all_rows.impossible), "of", all_rows.all, "pairs impossible,", said.total(), "refused")
        for words, count in said.most_common(40):
            print("   ", count, words)
