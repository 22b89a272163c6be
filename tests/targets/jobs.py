"""Jobs and specs for the tests of the Kubernetes targets, made by hand."""

from __future__ import annotations

from typing import Any

from jobgen.launch.job import Command, Job, Python, Resume, RunTime, Variable, Word, word
from jobgen.spec.models import Spec


def torchrun(nodes: int = 2, processes: int = 2, *program: str) -> tuple[Word, ...]:
    """A torchrun command with static rendezvous, in the spelling that all versions of torch take."""
    words = [word("torchrun")]
    if nodes == 1:
        words.append(word("--standalone"))
    else:
        words += [
            word(f"--nnodes={nodes}"),
            word("--node_rank=", RunTime.NODE_RANK),
            word("--master_addr=", RunTime.MASTER_ADDR),
            word("--master_port=", RunTime.MASTER_PORT),
        ]
    return (*words, word(f"--nproc_per_node={processes}"), *map(word, program or ("train.py",)))


def job(**changes: Any) -> Job:
    """Two nodes with two GPUs each; ``changes`` are fields of Job."""
    nodes = changes.get("nodes", 2)
    made = Job(
        name="tiny", nodes=2, processes_per_node=2, gpus_per_node=2, gpu_name="h100-80gb", cpus_per_node=None,
        memory_per_node_bytes=None, exclusive=False, command=Command(torchrun(nodes)), env=(), secrets=(), files=(),
        mounts=(), image="localhost/train:1", working_directory=None, python=Python("none"), setup=(), prepare=(), stage=(),
        finish=(), time_limit_seconds=None, restarts=0,
        resume=Resume("auto", None, None, None, None, "", by_framework=True), directories=(), fabric=None,
        checkpoint_seconds=10.0, single_node=nodes == 1, launcher="torchrun", framework="custom",
    )  # fmt: skip
    return made._replace(**changes)


def spec(**sections: Any) -> Spec:
    """The smallest spec with these sections."""
    tree: dict[str, Any] = {
        "name": "tiny",
        "model": {"name": "Qwen/Qwen3-0.6B"},
        "training": {"method": "full", "sequence_length": 512, "max_steps": 10},
        "resources": {"nodes": 2, "gpus_per_node": 2, "gpu": "h100-80gb"},
    }
    for name, value in sections.items():
        tree[name] = {**tree.get(name, {}), **value} if isinstance(value, dict) else value
    return Spec.model_validate(tree)


def variable(name: str, *parts: str | RunTime) -> Variable:
    """A variable that the user set."""
    return Variable(name, word(*parts, origin=f"launch.env.{name}"), "user")
