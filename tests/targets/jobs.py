"""Jobs and specs for the tests of the Kubernetes targets, made by hand."""

from __future__ import annotations

from typing import Any

from jobgen.launch.job import Command, File, Job, Mount, Python, Resume, RunTime, Variable, Word, word
from jobgen.spec.models import Spec


def torchrun(nodes: int = 2, processes: int = 2, *program: str) -> tuple[Word, ...]:
    """A torchrun command with static rendezvous, in the spelling that all versions of torch take."""
    own = "launch.launcher"
    words = [word("torchrun", origin=own), word(f"--nproc_per_node={processes}", origin=own)]
    if nodes == 1:
        words.append(word("--standalone", origin=own))
    else:
        words += [
            word(f"--nnodes={nodes}", origin="resources.nodes"),
            word("--node_rank=", RunTime.NODE_RANK, origin=own),
            word("--master_addr=", RunTime.MASTER_ADDR, origin=own),
            word("--master_port=", RunTime.MASTER_PORT, origin=own),
        ]
    return (*words, *(word(text, origin="launch.args") for text in program or ("train.py",)))


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


def from_edit(edit: dict[str, Any]) -> tuple[Job, Spec]:
    """A job and spec from plain data; ``{"repeat": [text, count]}`` stands for long texts."""
    edit = _grown(edit)
    changes = dict(edit.get("job", {}))
    if "env" in changes:
        changes["env"] = tuple(variable(name, value) for name, value in changes["env"].items())
    if "files" in changes:
        changes["files"] = tuple(File(name, content, "launch.code") for name, content in changes["files"].items())
    if "mounts" in changes:
        mounts = enumerate(changes["mounts"])
        changes["mounts"] = tuple(Mount(**{"origin": f"volumes.{number}", **given}) for number, given in mounts)
    for name in ("directories", "prepare", "finish"):
        if name in changes:
            changes[name] = tuple(changes[name])
    if "stage" in changes:
        changes["stage"] = tuple((source, target) for source, target in changes["stage"])
    if "python" in changes:
        changes["python"] = Python(*changes["python"])
    if "resume" in changes:
        given = dict(changes["resume"])
        given["arguments"] = tuple(word(text, RunTime.RESUME_FROM) for text in (f"{name}=" for name in given.get("arguments", [])))
        changes["resume"] = Resume(**given)
    if "secrets" in changes:
        changes["secrets"] = tuple(changes["secrets"])
    if "args" in changes:
        nodes, args = changes.get("nodes", 2), changes.pop("args")
        changes["command"] = Command(torchrun(nodes, 2, "train.py", *args))
    return job(**changes), spec(**edit.get("spec", {}))


def _grown(node: Any) -> Any:
    if isinstance(node, dict):
        if set(node) == {"repeat"}:
            text, count = node["repeat"]
            return text * count
        return {key: _grown(value) for key, value in node.items()}
    return [_grown(value) for value in node] if isinstance(node, list) else node
