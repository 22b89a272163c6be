"""The specs of the reports' tests, and what is read from their findings and artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from jobgen import api
from jobgen.checks import bases
from jobgen.checks.registry import Finding
from jobgen.spec.document import Document

BASE = "full-32b-zero3"
POD: dict[str, Any] = {
    "target": "k8s", "launch.image": "registry/train:1", "volumes": [{"mount": "/lustre", "claim": "lustre", "path": "/lustre"}],
    "kubernetes.extra_resources": {"rdma/hca": 1},
}  # fmt: skip
TRL = {"training.framework": "custom", "launch.entrypoint": "train.py", "launch.launcher": "torchrun"}


def spec(edits: Mapping[str, Any] | None = None, base: str = BASE) -> Document:
    return bases.edited(bases.base(base), edits or {})


def pods(edits: Mapping[str, Any] | None = None) -> Document:
    return spec({**POD, **(edits or {})})


def found(document: Document, target: str | None = None) -> list[Finding]:
    return list(api.check(document, target=target).findings)


def codes(document: Document, target: str | None = None) -> set[str]:
    return {finding.code for finding in found(document, target)}


def refused(document: Document, path: str, target: str | None = None) -> str:
    """The message of the error at that field."""
    errors = [finding for finding in found(document, target) if finding.severity == "error" and finding.path.startswith(path)]
    assert errors, [(f.code, f.path, f.message) for f in found(document, target)]
    with pytest.raises(api.Refused):
        api.render(document, target=target)
    return errors[0].message


@cache
def rendered(edits: tuple[tuple[str, str], ...] = (), target: str = "k8s") -> str:
    return api.render(pods({path: YAML(typ="safe").load(text) for path, text in edits}), target=target).text


def text(target: str = "k8s", **edits: str) -> str:
    """The artifact of the two-node base; ``launch__restarts="3"`` edits ``launch.restarts``."""
    return rendered(tuple((path.replace("__", "."), value) for path, value in edits.items()), target)


def objects(artifact: str) -> list[dict[str, Any]]:
    return [one for one in YAML(typ="safe", pure=True).load_all(artifact) if one]


def kind(artifact: str, name: str) -> dict[str, Any]:
    (one,) = [each for each in objects(artifact) if each["kind"] == name]
    return one


def templates(artifact: str) -> Iterator[dict[str, Any]]:
    """Every pod specification of a stream."""

    def walk(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if "containers" in node:
                yield node
            for value in node.values():
                yield from walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)

    yield from walk(objects(artifact))


def container(artifact: str) -> dict[str, Any]:
    return next(templates(artifact))["containers"][0]  # type: ignore[no-any-return]


def program(artifact: str) -> str:
    """The script of the container."""
    return str(container(artifact)["command"][-1])


def variables(artifact: str) -> dict[str, Any]:
    return {row["name"]: row.get("value") for row in container(artifact)["env"]}


KUBERNETES = ("k8s", "trainjob", "jobset")


def slurm(edits: Mapping[str, Any] | None = None) -> str:
    return api.render(spec(edits), target="slurm").text


def directives(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.startswith("#SBATCH")]
