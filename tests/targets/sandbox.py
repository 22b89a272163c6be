"""A sandbox that runs what was rendered, with programs that only report how they were called."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hostile import KUBERNETES, ROOT, SHELL, Slot, filled

SHIM = """#!/bin/bash
f=$LOG/${EPOCHREALTIME/[.,]/}.$$
printf '%s\\0' "${0##*/}" "$@" >"$f.argv"
printf '%s\\0' "$PWD" >"$f.env"
cat /proc/self/environ >>"$f.env"
"""
SRUN = SHIM + """while [[ $1 == --* ]]; do shift; done
export SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURMD_NODENAME=node1
exec "$@"
"""
APPTAINER = SHIM + """while [[ "$1 $2" != "bash "*program.sh ]]; do shift; done
for name in "${!APPTAINERENV_@}"; do export "${name#APPTAINERENV_}=${!name}"; unset "$name"; done
exec "$@"
"""
SCONTROL = """#!/bin/bash
if [ "$1 $2" = "show hostnames" ]; then printf 'node1\\nnode2\\n'; fi
"""
CONDA = SHIM + """if [ "$1" = info ]; then printf '%s\\n' "$CONDA_HOME"; fi
if [ "$1 $2" = "shell.bash hook" ]; then echo 'conda() { command conda "$@"; }'; fi
"""
PROGRAMS = ("torchrun", "python", "accelerate", "deepspeed", "llamafactory-cli", "my-program", "uv", "log-line")
SKIPPED = {"_", "SHLVL", "PWD", "OLDPWD", "LOG", "PATH", "JOBGEN_JOB_ID", "MASTER_PORT", "lifeline", "BASH_EXECUTION_STRING"}
SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_NAME": "x", "HF_TOKEN": "t", "CONDA_EXE": "",
}  # fmt: skip


def sandbox(place: Path) -> Path:
    """A folder with the reporting programs and all that specs name."""
    binary = place / "bin"
    binary.mkdir(parents=True)
    (place / "log").mkdir()
    for name in PROGRAMS:
        write(binary / name, SHIM)
    for name, text in {"srun": SRUN, "apptainer": APPTAINER, "scontrol": SCONTROL, "conda": CONDA}.items():
        write(binary / name, text)
    write(place / "conda" / "etc" / "profile.d" / "conda.sh", "conda() { command conda \"$@\"; }\n")
    (place / "ckpt").mkdir()
    (place / "third").mkdir()
    return place


def write(path: Path, text: str) -> None:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def provide(slot: Slot, text: str, place: Path) -> None:
    """The file or folder that a value names."""
    value = filled(slot, text, place)
    config = (ROOT / "examples" / "tiny" / "config.json").read_text(encoding="utf-8")
    match slot.path:
        case "launch.python.venv":
            write(Path(value) / "bin" / "python", SHIM)
        case "launch.python.uv":
            write(Path(value) / ".venv" / "bin" / "python", SHIM)
        case "launch.stage.0.from" | "volumes.2.path" | "volumes.2.mount" | "launch.working_directory" | "launch.code" | "slurm.output":
            Path(value).mkdir(parents=True, exist_ok=True)
            (Path(value) / "content").write_text("x")
        case "model.config":
            write(Path(value), config)
        case "training.config" | "launch.code.files.0":
            write(Path(value), "{}\n")


class Record(NamedTuple):
    """What happened."""

    status: int
    calls: list[list[Any]]
    """[argv, folder, environment] of every program, in their order."""
    files: dict[str, str]
    """The shipped files."""
    said: str


def run(target: str, artifact: str, place: Path, secrets: tuple[str, ...] = ()) -> Record:
    """The artifact run in the sandbox, with these secrets in the environment."""
    for old in (place / "log").iterdir():
        old.unlink()
    shutil.rmtree(place / "to", ignore_errors=True)
    shutil.rmtree(place / "ckpt")
    (place / "ckpt").mkdir()
    work = place / "cwd"
    work.mkdir(exist_ok=True)
    env = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(place), "LOG": str(place / "log"), "CONDA_HOME": str(place / "conda"), "LC_ALL": "C.UTF-8"}
    if target in KUBERNETES:
        command, more, files = container(artifact, place)
        env = more | env
    else:
        command = ["bash", "/dev/stdin", *(["--node-rank", "0"] if target == "hosts" else [])]
        files = {}
        if target == "slurm":
            env |= SLURM
    sent = artifact.encode() if target not in KUBERNETES else b""
    if target in SHELL:  # read whole, as sbatch and people do it
        script = place / "script.sh"
        script.write_bytes(sent)
        command[1] = str(script)
    env |= dict.fromkeys(secrets, "secret")
    done = subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    return Record(done.returncode, list(_calls(place / "log")), files or _shipped(place), done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace"))


def _calls(log: Path) -> Iterator[list[Any]]:
    """What the programs wrote; the run's own number is taken out."""
    for file in sorted(log.glob("*.argv"), key=lambda path: int(path.name.split(".")[0])):
        argv = file.read_bytes().split(b"\0")[:-1]
        folder, *rest = file.with_suffix(".env").read_bytes().split(b"\0")
        environment = dict(os.fsdecode(one).partition("=")[::2] for one in rest if one)
        number, port = environment.get("JOBGEN_JOB_ID") or "\0", environment.get("MASTER_PORT") or "\0"
        clean = {name: value.replace(f"/{number}", "/N") for name, value in environment.items() if name not in SKIPPED}
        words = [os.fsdecode(one).replace(f"/{number}", "/N").replace(f"port={port}", "port=N") for one in argv]
        yield [["N" if word == port else word for word in words], os.fsdecode(folder), clean]


def parsed(files: Mapping[str, str]) -> dict[str, Any]:
    """Configuration files as what they say."""
    import tomllib

    readers = {".json": json.loads, ".toml": tomllib.loads, ".yaml": lambda text: yaml.load(text, yaml.CSafeLoader)}
    return {name: readers.get(Path(name).suffix, str)(text) for name, text in files.items()}


def difference(found: Any, wanted: Any, where: str = "") -> str:
    """The first place in which two trees differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        if found.keys() != wanted.keys():
            return f"{where}: keys {sorted(found.keys() - wanted.keys())} too many, {sorted(wanted.keys() - found.keys())} missing"
        return next(filter(None, (difference(found[key], wanted[key], f"{where}.{key}") for key in found)), "")
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        if len(found) != len(wanted):
            return f"{where}: {len(found)} and not {len(wanted)} entries: {str(found)[:300]} | {str(wanted)[:300]}"
        return next(filter(None, (difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(found, wanted, strict=True)))), "")
    return "" if found == wanted else f"{where}: {str(found)[:400]!r} and not {str(wanted)[:400]!r}"


def _shipped(place: Path) -> dict[str, str]:
    """Files below any .jobgen folder, without jobgen's own."""
    found = {}
    for path in sorted((place / "ckpt").rglob("*")):
        if ".jobgen" in path.parts and path.is_file() and path.name not in ("program.sh", "run", "started", "done"):
            found[path.name] = path.read_text(encoding="utf-8")
    return found


def container(manifest: str, place: Path) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """The container's command, environment and files, as kubelet would make them."""
    objects = documents(manifest)
    one = templates(objects)[0]["spec"]["containers"][0]
    env: dict[str, str] = {}
    for entry in one["env"]:
        env[entry["name"]] = expand(entry["value"], env) if "value" in entry else "from-elsewhere"
    command = [expand(word, env) for word in one["command"]]
    command[2] = command[2].replace("/jobgen/", f"{place}/own/").replace("/dev/shm/", f"{place}/own/shm/")
    config = place / "etc"
    config.mkdir(exist_ok=True)
    files = {name: text for item in objects if item["kind"] == "ConfigMap" for name, text in item["data"].items()}
    for name, text in files.items():
        (config / name).write_text(text, encoding="utf-8")
    own = {"JOBGEN_CONFIG_DIR": str(config), "TRITON_CACHE_DIR": f"{place}/own/triton", "XDG_CACHE_HOME": f"{place}/own/cache",
           "JOBSET_RESTART_ATTEMPT": "0", "HOSTNAME": "pod-0"}  # fmt: skip
    (place / "own").mkdir(exist_ok=True)
    (place / "own" / "attempt").unlink(missing_ok=True)
    return command, env | own, files


def documents(manifest: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return list(yaml.load_all(manifest, yaml.CSafeLoader))


def templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All pod templates: of a PyTorchJob the workers' and the master's."""
    waiting: list[Any] = list(objects)
    found = []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            inner = node.get("spec")
            if isinstance(inner, dict) and "containers" in inner:
                found.append(node)
    return found


def expand(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` as kubelet replaces it (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    found, index = "", 0
    while index < len(text):
        if text[index] == "$" and index + 1 < len(text):
            following = text[index + 1]
            if following == "$":
                found += "$"
            elif following == "(" and (end := text.find(")", index + 2)) >= 0:
                name = text[index + 2 : end]
                found += values.get(name, f"$({name})")
                index = end
                index += 1
                continue
            else:
                found += "$" + following
            index += 2
            continue
        found += text[index]
        index += 1
    return found
