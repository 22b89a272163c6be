"""The operators' CRD schemas, from their Go modules (downloaded by go, never kept here), and a strict check by them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

TRAINING_OPERATOR = "github.com/kubeflow/training-operator@v1.9.4"
JOBSET = "sigs.k8s.io/jobset@v0.12.0"
TRAINERS = tuple(f"github.com/kubeflow/trainer/v2@v{version}" for version in ("2.0.0", "2.1.0", "2.2.0", "2.3.0"))
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float),
}  # fmt: skip


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
def schema(name: str, file: str, version: str) -> dict[str, Any]:
    """The OpenAPI schema of one kind; kept as JSON in the temporary folder, for the YAML takes seconds to read."""
    kept = Path(tempfile.gettempdir()) / f"jobgen-crd-{hashlib.sha256(f'{name} {file}'.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        crd = yaml.load((module(name) / file).read_text(), yaml.CSafeLoader)
        part = kept.with_suffix(f".{id(crd)}")
        part.write_text(json.dumps(crd["spec"]["versions"]))
        part.replace(kept)
    versions = json.loads(kept.read_text())
    found: dict[str, Any] = next(row["schema"]["openAPIV3Schema"] for row in versions if row["name"] == version)
    return found


def errors(kind: dict[str, Any], sent: dict[str, Any]) -> list[str]:
    """What strict server-side apply would say of an object's structure."""
    return list(_check({**kind, "properties": {**kind["properties"], "metadata": {"type": "object"}}}, sent, ""))


def _check(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{path}: {value!r} is neither an integer nor a string"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
        if len(value) > schema.get("maxLength", len(value)) or len(value) < schema.get("minLength", 0):
            yield f"{path}: {value!r} has the wrong length"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"
    if isinstance(value, dict):
        yield from _check_map(schema, value, path)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)) or len(value) < schema.get("minItems", 0):
            yield f"{path}: {len(value)} items"
        for number, item in enumerate(value):
            yield from _check(schema.get("items", {}), item, f"{path}[{number}]")


def _check_map(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{path}: {key} is missing"
    properties, further = schema.get("properties"), schema.get("additionalProperties")
    for key, item in value.items():
        if properties is not None and key in properties:
            yield from _check(properties[key], item, f"{path}.{key}")
        elif isinstance(further, dict):
            yield from _check(further, item, f"{path}.{key}")
        elif properties is not None and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{key}: unknown field"
