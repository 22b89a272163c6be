"""The operators' CRD schemas, from their Go modules (downloaded by go, never kept here), as strict JSON Schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

TRAINING_OPERATOR = "github.com/kubeflow/training-operator@v1.9.4"
JOBSET = "sigs.k8s.io/jobset@v0.12.0"
TRAINERS = tuple(f"github.com/kubeflow/trainer/v2@v{version}" for version in ("2.0.0", "2.1.0", "2.2.0", "2.3.0"))


@cache
def module(name: str) -> Path:
    """The folder of a Go module; the test is skipped, with the reason, where it can't be had."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed: the CRDs come from the operators' Go modules")
    done = subprocess.run(["go", "mod", "download", "-json", name], capture_output=True, text=True, cwd="/", check=False)
    facts = json.loads(done.stdout) if done.stdout.strip() else {"Error": done.stderr}
    if facts.get("Error"):
        pytest.skip(f"{name}: {facts['Error']}")
    return Path(facts["Dir"])


@cache
def validator(name: str, file: str, version: str) -> jsonschema.Draft202012Validator:
    """A validator of one kind that also refuses unknown fields, as strict apply does."""
    crd = yaml.load((module(name) / file).read_text(), yaml.CSafeLoader)
    schema = next(row["schema"]["openAPIV3Schema"] for row in crd["spec"]["versions"] if row["name"] == version)
    return jsonschema.Draft202012Validator(_strict(schema, top=True))


def _strict(node: Any, top: bool = False) -> Any:
    if isinstance(node, list):
        return [_strict(value) for value in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items() if key not in ("default", "format", "description")}
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    properties = node.get("properties")
    if isinstance(properties, dict) and not node.get("x-kubernetes-preserve-unknown-fields"):
        made["properties"] = {key: _strict(value) for key, value in properties.items()}
        if top:
            made["properties"]["metadata"] = {"type": "object"}
        made["additionalProperties"] = False
    return made


def errors(checked: jsonschema.Draft202012Validator, sent: dict[str, Any]) -> list[str]:
    """What the schema says against an object."""
    return [f"{error.json_path}: {error.message[:200]}" for error in checked.iter_errors(sent)]
