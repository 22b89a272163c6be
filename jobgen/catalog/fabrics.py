"""Networks between nodes: what a job sets, asks for and mounts so that its collectives use them. One file each.

Every value says why it is there and where it was read. What only the site knows is an input, never a guess; what the
provider's own script or plug-in sets is listed under ``unset`` and must be left alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jobgen.catalog.errors import Unknown, nearest
from jobgen.catalog.table import DATA
from jobgen.spec.record import NamedTuple

FOLDER = DATA / "fabrics"
DIGEST = DATA / "fabrics.json"


class UnknownFabric(Unknown):
    """No fabric profile has that name and no file is there."""

    kind = "fabric"

    def __init__(self, name: str, stem: str) -> None:
        super().__init__(name, nearest(stem, [each for each in names() if each != "none"]))  # a word, not a misspelt network

    def _message(self) -> str:
        return super()._message() if self.nearest else f"unknown fabric {self.name!r}; known: {', '.join(names())}"


class BadFabric(ValueError):
    """A profile file that cannot be used; the message names the key."""


class Setting(NamedTuple):
    """An environment variable, annotation, capability ... and the reason for its value."""

    name: str
    value: str
    why: str
    source: str


class Resource(NamedTuple):
    """An extended resource of one pod; ``amount`` is a number or where it comes from."""

    name: str
    amount: str
    """``8``, or ``gpus`` (one per GPU), ``efa_interfaces``, ``nics`` (of the node type, by the share of its GPUs)."""
    why: str
    source: str


class HostPath(NamedTuple):
    """A folder or device of the node that the pod needs."""

    name: str
    path: str
    mount: str
    read_only: bool
    sidecar_only: bool
    """The program does not need it."""
    why: str
    source: str


class Sidecar(NamedTuple):
    """A container that must run beside the program: a native sidecar, so that it ends with it."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    capabilities: tuple[str, ...]
    mounts: tuple[str, ...]
    """Names of host paths, and ``shm``."""
    why: str
    source: str


class Input(NamedTuple):
    """A value that only the site knows."""

    target: Literal["kubernetes", "slurm"]
    field: str
    """Path of the spec field, such as ``kubernetes.extra_resources``."""
    key: str
    """Glob of the key expected there (``rdma/*``)."""
    required: bool
    why: str
    example: str


class Conf(NamedTuple):
    """Lines of /etc/nccl.conf for the GPUs of one shape."""

    gpu: str
    """Prefix of the GPU's catalogue name."""
    lines: tuple[str, ...]
    source: str


class Side(NamedTuple):
    """What one kind of cluster gets."""

    env: tuple[Setting, ...] = ()
    """``{JOB_ID}`` in a value stands for the scheduler's id of the job."""
    library_path: tuple[Setting, ...] = ()
    """Folders put in front of LD_LIBRARY_PATH, which the image has set already."""
    source_script: str = ""
    """Sourced before the launcher; the provider sets its variables there."""
    source_script_why: str = ""
    wait_for: str = ""
    """A file that the provider's installer writes when it is done."""
    mounts: tuple[HostPath, ...] = ()
    resources: tuple[Resource, ...] = ()
    annotations: tuple[Setting, ...] = ()
    capabilities: tuple[Setting, ...] = ()
    privileged: str = ""
    """Why the container must be privileged; empty when it need not."""
    host_network: str = ""
    """Why the pod must share the node's network; empty when it need not."""
    sidecars: tuple[Sidecar, ...] = ()
    tolerations: tuple[Mapping[str, str], ...] = ()
    nccl_conf: tuple[Conf, ...] = ()
    gpus_per_pod: int | None = None
    """The profile needs pods of exactly this many GPUs."""


class Fabric(NamedTuple):
    """A profile."""

    name: str
    title: str
    date: str
    """When the values were read."""
    rdma: bool
    slurm: Side
    kubernetes: Side
    unset: tuple[Setting, ...]
    """Variables (``value`` empty) that the provider sets or that must not be set, and why."""
    inputs: tuple[Input, ...]
    notes: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Names of the shipped profiles."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find(name: str, beside: Path | None = None) -> Fabric:
    """The shipped profile of that name, or the user's file (relative to ``beside``); raises UnknownFabric, BadFabric."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = (beside or Path()) / name
        if not path.is_file():
            raise UnknownFabric(name, path.stem)
        return _load(path)
    path = FOLDER / f"{name.lower().replace('_', '-')}.yaml"
    if not path.is_file():
        raise UnknownFabric(name, name)
    return _load(path)


@cache
def _load(path: Path) -> Fabric:
    written = path.read_bytes()
    try:
        tree = _digested(path, written) or parsed(written)
    except ValueError as error:
        raise BadFabric(f"{path.name}: {error}") from None
    try:
        return _fabric(_Map(tree, path.name))
    except (TypeError, ValueError, AttributeError) as error:
        raise error if isinstance(error, BadFabric) else BadFabric(f"{path.name}: {error}") from None


def parsed(written: bytes) -> Any:
    """A profile's plain tree; raises ValueError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(written.decode("utf-8"))
    except YAMLError as error:
        raise ValueError(error) from None


def _digested(path: Path, written: bytes) -> Any:
    """A shipped profile from ``fabrics.json``, ten times as fast as from its YAML; None where that was changed since."""
    if path.parent != FOLDER or not DIGEST.is_file():
        return None
    checksum, tree = json.loads(DIGEST.read_text(encoding="utf-8")).get(path.stem, (None, None))
    return tree if checksum == zlib.crc32(written) else None


def digest() -> str:
    """All shipped profiles, a line each, with the checksums of their files. Written by ``python -m jobgen.catalog.fabrics``."""
    files = {name: (FOLDER / f"{name}.yaml").read_bytes() for name in names()}
    lines = (f"{json.dumps(name)}: {json.dumps([zlib.crc32(text), parsed(text)], ensure_ascii=False)}" for name, text in files.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


class _Map:
    """A map whose keys are taken one by one, so that an unknown one is found."""

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, dict):
            raise BadFabric(f"{where}: a map is expected, this is {tree!r}")
        self.rest, self.where = dict(tree), where

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self.rest and default is None:
            raise BadFabric(f"{self.where}: `{key}` is missing")
        value = self.rest.pop(key, default)
        if isinstance(value, dict | list) or value is None:
            raise BadFabric(f"{self.where}.{key}: a text is expected, this is {value!r}")
        return " ".join(value.split()) if isinstance(value, str) and "\n" in value else str(value)

    def flag(self, key: str) -> bool:
        value = self.rest.pop(key, False)
        if not isinstance(value, bool):
            raise BadFabric(f"{self.where}.{key}: true or false is expected, this is {value!r}")
        return value

    def number(self, key: str) -> int | None:
        value = self.rest.pop(key, None)
        if value is not None and type(value) is not int:
            raise BadFabric(f"{self.where}.{key}: a whole number is expected, this is {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.rest.pop(key, [])
        if not isinstance(value, list):
            raise BadFabric(f"{self.where}.{key}: a list is expected, this is {value!r}")
        return tuple(str(item) for item in value)

    def strings(self, key: str) -> dict[str, str]:
        inner = _Map(self.rest.pop(key, {}), f"{self.where}.{key}")
        return {name: inner.text(name) for name in list(inner.rest)}

    def maps(self, key: str) -> list[_Map]:
        value = self.rest.pop(key, [])
        if not isinstance(value, list):
            raise BadFabric(f"{self.where}.{key}: a list is expected, this is {value!r}")
        return [_Map(item, f"{self.where}.{key}[{number}]") for number, item in enumerate(value)]

    def inner(self, key: str) -> _Map:
        return _Map(self.rest.pop(key, {}), f"{self.where}.{key}")

    def end(self) -> None:
        if self.rest:
            raise BadFabric(f"{self.where}: unknown key {', '.join(map(repr, sorted(map(str, self.rest))))}")


def _settings(table: _Map, key: str) -> tuple[Setting, ...]:
    found = []
    for row in table.maps(key):
        found.append(Setting(row.text("name"), row.text("value", ""), row.text("why"), row.text("source")))
        row.end()
    return tuple(found)


def _side(table: _Map) -> Side:
    mounts, resources, sidecars, conf = [], [], [], []
    for row in table.maps("mounts"):
        path = row.text("path")
        mounts.append(
            HostPath(
                row.text("name"),
                path,
                row.text("mount", path),
                row.flag("read_only"),
                row.flag("sidecar_only"),
                row.text("why"),
                row.text("source"),
            )
        )
        row.end()
    for row in table.maps("resources"):
        resources.append(Resource(row.text("name"), row.text("amount"), row.text("why"), row.text("source")))
        row.end()
    for row in table.maps("sidecars"):
        sidecars.append(
            Sidecar(row.text("name"), row.text("image"), row.texts("command"), row.texts("args"), row.strings("env"),
                    row.texts("capabilities"), row.texts("mounts"), row.text("why"), row.text("source"))
        )  # fmt: skip
        row.end()
    for row in table.maps("nccl_conf"):
        conf.append(Conf(row.text("gpu"), row.texts("lines"), row.text("source")))
        row.end()
    tolerations = tuple({key: row.text(key) for key in list(row.rest)} for row in table.maps("tolerations"))
    script = table.inner("source_script")
    side = Side(
        _settings(table, "env"), _settings(table, "library_path"), script.text("path", ""), script.text("why", ""), table.text("wait_for", ""), tuple(mounts),
        tuple(resources), _settings(table, "annotations"), _settings(table, "capabilities"), table.text("privileged", ""),
        table.text("host_network", ""), tuple(sidecars), tolerations, tuple(conf), table.number("gpus_per_pod"),
    )  # fmt: skip
    script.end()
    table.end()
    return side


def _fabric(table: _Map) -> Fabric:
    inputs = []
    for row in table.maps("inputs"):
        target = row.text("target")
        if target not in ("kubernetes", "slurm"):
            raise BadFabric(f"{row.where}.target: kubernetes or slurm is expected, this is {target!r}")
        inputs.append(
            Input("kubernetes" if target == "kubernetes" else "slurm", row.text("field"), row.text("key", "*"),
                  row.flag("required"), row.text("why"), row.text("example", ""))
        )  # fmt: skip
        row.end()
    fabric = Fabric(
        table.text("name"), table.text("title"), table.text("date"), table.flag("rdma"), _side(table.inner("slurm")),
        _side(table.inner("kubernetes")), _settings(table, "unset"), tuple(inputs), table.texts("notes"),
    )  # fmt: skip
    table.end()
    return fabric


def explain(name: str, beside: Path | None = None) -> str:
    """Why each value of the profile is what it is, as text."""
    fabric = find(name, beside)
    lines = [f"{fabric.name}: {fabric.title} (read {fabric.date})", *(f"  {note}" for note in fabric.notes)]
    for title, side in (("On Slurm", fabric.slurm), ("On Kubernetes", fabric.kubernetes)):
        lines += ["", f"{title}:", *(_explain_side(side) or ["  nothing is set"])]
    if fabric.unset:
        lines += ["", "Left alone:"]
        for setting in fabric.unset:
            lines += [f"  {setting.name}", f"      {setting.why} [{setting.source}]"]
    if fabric.inputs:
        lines += ["", "Only the site knows:"]
        for entry in fabric.inputs:
            need = "required" if entry.required else "optional"
            example = f", for example {entry.example}" if entry.example else ""
            lines += [f"  {entry.field} ({entry.key}; {entry.target}, {need})", f"      {entry.why}{example}"]
    return "\n".join(lines) + "\n"


def _explain_side(side: Side) -> list[str]:
    lines: list[str] = []

    def add(head: str, why: str, source: str = "") -> None:
        lines.extend([f"  {head}", f"      {why}{f' [{source}]' if source else ''}"])

    for setting in side.library_path:
        add(f"LD_LIBRARY_PATH begins with {setting.name}", setting.why, setting.source)
    for setting in side.env:
        add(f"{setting.name}={setting.value}", setting.why, setting.source)
    if side.source_script:
        add(f"source {side.source_script}", side.source_script_why)
    if side.wait_for:
        add(f"wait for {side.wait_for}", "the provider's installer writes it when it is done")
    for resource in side.resources:
        add(f"resource {resource.name}: {resource.amount}", resource.why, resource.source)
    for kind, settings in (("annotation", side.annotations), ("capability", side.capabilities)):
        for setting in settings:
            add(f"{kind} {setting.name}{f': {setting.value}' if setting.value else ''}", setting.why, setting.source)
    for path in side.mounts:
        add(f"mount {path.path} at {path.mount}", path.why, path.source)
    for sidecar in side.sidecars:
        add(f"sidecar {sidecar.name} ({sidecar.image})", sidecar.why, sidecar.source)
    for conf in side.nccl_conf:
        add(f"/etc/nccl.conf for {conf.gpu}: {' '.join(conf.lines)}", "the shape's values", conf.source)
    if side.privileged:
        add("privileged", side.privileged)
    if side.host_network:
        add("host network", side.host_network)
    if side.gpus_per_pod:
        add(f"{side.gpus_per_pod} GPUs per pod", "the profile works with whole nodes only")
    return lines


if __name__ == "__main__":
    DIGEST.write_text(digest(), encoding="utf-8")
