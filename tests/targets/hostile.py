"""Hostile values for every text field of a spec, and a sandbox that runs what was rendered with programs that only report.

A *slot* is a text field with the place in its value where the hostile text goes. The same spec with a harmless token in
each slot says what must come out: equal, with the tokens replaced by the hostile texts, and nothing more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
KUBERNETES = ("k8s", "trainjob", "jobset")
TARGETS = ("slurm", *KUBERNETES, "hosts", "local")

TEXTS = [
    "plain", "two words", "  blanks  ", "it's", 'say "hi"', "'", '"', "'\"'\"'", "\\", "back\\slash", "end\\", "\\n", "$", "$$", "$$$",
    "$HOME", "${PATH}", "$1", "$@", "$(touch pwned)", "`touch pwned`", "$((1+1))", "$(HOSTNAME)", "$$(HOSTNAME)", "$(NO", "$(", "${",
    "; touch pwned #", "&& touch pwned", "|| touch pwned", "| touch pwned", "& touch pwned", "> pwned", "'; touch pwned; '",
    '"; touch pwned; "', "')\ntouch pwned\n('", "\ntouch pwned\n", "a\nb", "a\n", "\n", "\n\n", "\t", "tab\there", "a\r\nb", "\r",
    "-", "--", "-n", "-rf", "--help", "--export=NONE", "*", "?", "[a-z]*", "~", "~root", "!!", "!x", "{a,b}", "{1..3}", "#", "#x", " #x",
    "#SBATCH --nodes=9", "\n#SBATCH --nodes=9\n", "##SBATCH", "%j", "%x-%A_%a", "%%", "%s", "{{ x }}", "{% for x in y %}", "{# #}",
    "{config}", "{config", "!hole name", "!!python/object:os.system", "&anchor", "*alias", "<<: *x", "- a", "a: b", "a: {b: c}", "? x",
    "| a", "> a", "---", "...", "--- !x\n...", "%YAML 1.1", "@x", "null", "~", "true", "yes", "no", "on", "1", "1.0", "1e3", "0x10", "010", "1:30:00",
    "2001-01-01", ".inf", "=", "a=b", "A=b c=d", "END_OF_PROGRAM", "\nEND_OF_PROGRAM\ntouch pwned\n", "\nEND_OF_FILE\ntouch pwned\n",
    "\nEND_OF_HOST\ntouch pwned\n", "EOF", "<<EOF", "if", "then", "fi", "done", "}", "{", "(", ")", "((", "))", "[[", "]]", ";;", "esac",
    "naïve — 日本語 🚀", "é" * 40, "\u0301e", "\u202etxet", "\u00a0", "\u2028", "\u2029", "\ufeff", "\ufffd", "\x85", "\x7f", "\x01", "\x1b[31m",
    "\U0010ffff", "\ue000", ":", ",", "a:b", "a,b", "x" * 300, "q'" * 500,
]  # fmt: skip
LONG = "a" * 65_536


class Slot(NamedTuple):
    """A text field and its value around the hostile text."""

    path: str
    """Of the spec field; a key with dots is written in ``[...]``."""
    value: str = "{}"
    """``@`` stands for the sandbox's folder, ``{}`` for the text."""
    targets: tuple[str, ...] = TARGETS
    contexts: tuple[str, ...] = ()
    """Contexts in which the field has an effect; all when empty."""
    key: bool = False
    """The text is the last part of the path: a key."""
    one_name: bool = False
    """The text is one name in a path: no slash, at most 200 bytes."""


SHELL = ("slurm", "hosts", "local")
SLOTS = (
    Slot("name"), Slot("model.path"), Slot("model.revision"), Slot("model.name"), Slot("model.config", "@/{}/config.json", one_name=True),
    Slot("training.config", "@/{}.yaml", one_name=True, contexts=("axolotl", "llama-factory")),
    Slot("training.options.report_to"), Slot("training.options.[{}]", "1", key=True), Slot("training.options.nested", "{}"),
    Slot("training.versions.[{}]", "1.0", key=True), Slot("training.versions.torch"),
    Slot("training.freeze.0"), Slot("training.lora.target_modules", contexts=("lora",)),
    Slot("training.lora.target_modules.0", contexts=("axolotl",)), Slot("training.lora.modules_to_save.0", contexts=("lora", "axolotl")),
    Slot("training.reference.model", contexts=("trl",)), Slot("offload.nvme_path", "@/{}", contexts=("deepspeed",)),
    Slot("resources.gpu.name"), Slot("resources.node_type"), Slot("resources.hosts.0", targets=("hosts",)), Slot("resources.fabric", "./{}.yaml"),
    Slot("checkpoint.directory", "@/ckpt/{}", one_name=True), Slot("checkpoint.resume", "@/ckpt/old {}"),
    Slot("launch.entrypoint", "{}", contexts=("script",)), Slot("launch.module", "{}", contexts=("module",)),
    Slot("launch.command.1", contexts=("command",)), Slot("launch.command.2", "--x={}", contexts=("command",)),
    Slot("launch.args.0"), Slot("launch.args.1", "--flag={}"), Slot("launch.args.2"),
    Slot("launch.env.FIRST"), Slot("launch.env.SECOND", "a {} b"), Slot("launch.env.[{}]", "1", key=True), Slot("launch.secrets.0"),
    Slot("launch.python.venv", "@/venv/{}", contexts=("script", "lora"), one_name=True), Slot("launch.python.conda", "{}", contexts=("module",)),
    Slot("launch.python.uv", "@/uv/{}", contexts=("command",), one_name=True),
    Slot("launch.setup.0", "log-line setup QUOTED"), Slot("launch.prepare.0", "log-line prepare QUOTED"), Slot("launch.finish.0", "log-line finish QUOTED"),
    Slot("launch.stage.0.from", "@/from/{}", one_name=True), Slot("launch.stage.0.to", "@/to/{}", one_name=True),
    Slot("launch.image", "nvcr.io/nvidia/{}"), Slot("launch.working_directory", "@/work/{}", contexts=("script", "module", "command"), one_name=True),
    Slot("launch.code", "@/code/{}", contexts=("lora",), one_name=True), Slot("launch.code.files.0", "@/{}", contexts=("trl",), one_name=True),
    Slot("volumes.0.mount", "@/{}", one_name=True), Slot("volumes.1.claim"), Slot("volumes.1.create.storage_class", targets=KUBERNETES), Slot("volumes.0.path", "@/{}", one_name=True),
    *(Slot(f"slurm.{name}", targets=("slurm",)) for name in ("partition", "account", "qos", "constraint", "reservation", "master_addr_suffix")),
    Slot("slurm.srun_args.0", "--comment={}", targets=("slurm",)), Slot("slurm.extra.mail-user", targets=("slurm",)),
    Slot("slurm.extra.[{}]", "1", targets=("slurm",), key=True), Slot("slurm.output", "@/{}", targets=("slurm",), one_name=True),
    *(Slot(f"kubernetes.{name}", targets=KUBERNETES) for name in ("namespace", "context", "queue", "priority_class", "service_account", "secret", "image_pull_secrets.0",
                                                                  "node_selector.n", "labels.l", "annotations.a", "extra_resources.[example.com/x]",
                                                                  "tolerations.0.key", "tolerations.0.value", "security_context.procMount")),
    *(Slot(f"kubernetes.{name}.[{{}}]", value, targets=KUBERNETES, key=True) for name, value in (
        ("node_selector", "v"), ("labels", "v"), ("annotations", "v"), ("extra_resources", "1"), ("security_context", "1"))),
    Slot("kubernetes.tolerations.0.[{}]", "Exists", targets=KUBERNETES, key=True),
    Slot("sweep.grid.[launch.env.SWEPT].0", contexts=("sweep",)), Slot("sweep.grid.[launch.env.{}].0", "1", contexts=("sweep",), key=True),
    Slot("sweep.zip.[launch.env.SWEPT].0", contexts=("zip",)), Slot("sweep.zip.[launch.env.{}].0", "1", contexts=("zip",), key=True),
    Slot("sweep.list.0.[launch.env.SWEPT]", contexts=("list",)), Slot("sweep.list.0.[launch.env.{}]", "1", contexts=("list",), key=True),
    Slot("after.0.job", targets=("slurm",)), Slot("ignore.0.reason"), Slot("ignore.0.code"), Slot("cluster"),
    Slot("plan.fix.0"), Slot("plan.vary.[{}].0", "1", key=True), Slot("plan.vary.[resources.nodes].0"),
)  # fmt: skip
"""Every text field of the spec (a test holds the list against the models)."""

SWEEPS = ("sweep", "zip", "list")
"""Contexts whose names and folders are made from the values of a sweep's point."""
CONTEXTS: dict[str, dict[str, Any]] = {
    "script": {"framework": "custom", "launcher": "torchrun"},
    "module": {"framework": "transformers", "launcher": "torchrun", "container": "pyxis"},
    "command": {"framework": "custom", "launcher": None, "container": "apptainer"},
    "lora": {"framework": "transformers", "launcher": "accelerate", "method": "lora"},
    "trl": {"framework": "trl", "launcher": "accelerate", "objective": "dpo"},
    "axolotl": {"framework": "axolotl", "launcher": "torchrun", "method": "lora"},
    "llama-factory": {"framework": "llama-factory", "launcher": None},
    "deepspeed": {"framework": "deepspeed", "launcher": "deepspeed"},
    "torchtitan": {"framework": "torchtitan", "launcher": "torchrun"},
    "megatron": {"framework": "megatron-lm", "launcher": "torchrun"},
    **{name: {"framework": "custom", "launcher": "torchrun"} for name in SWEEPS},
}


def token(index: int) -> str:
    """The harmless text of a slot."""
    return f"jgtok{index:03d}x"


def base(target: str, context: str, place: Path) -> dict[str, Any]:
    """A spec without hostile values."""
    chosen = CONTEXTS[context]
    spec: dict[str, Any] = {
        "name": "hostile",
        "target": target,
        "model": {"config": str(ROOT / "examples" / "tiny" / "config.json"), "init": "random"},
        "training": {"method": chosen.get("method", "full"), "framework": chosen["framework"], "sequence_length": 64, "max_steps": 4,
                     "objective": chosen.get("objective", "pretrain"), "options": {}},
        "resources": {"nodes": 1 if target in ("hosts", "local") else 2, "gpus_per_node": 2, "gpu": {"name": "h100-80gb"}, "fabric": "tcp",
                      "memory_per_node": "64GiB", "cpus_per_node": 8},
        "checkpoint": {"directory": f"{place}/ckpt", "every_steps": 2, "keep": 2},
        "launch": {"env": {}, "args": []},
        "volumes": [{"mount": f"{place}/ckpt", "path": f"{place}/ckpt", "claim": "ckpt"}, {"mount": f"{place}", "path": f"{place}", "claim": "all"}],
        "slurm": {"account": "research", "container": chosen.get("container", "none")},
        "kubernetes": {"secret": "tokens"},
    }  # fmt: skip
    if target == "local":
        spec["resources"]["fabric"] = "none"
    if target == "hosts":
        spec["resources"]["hosts"] = ["127.0.0.1"]
    if chosen["launcher"]:
        spec["launch"]["launcher"] = chosen["launcher"]
    if target in KUBERNETES or chosen.get("container"):
        spec["launch"]["image"] = "localhost/train:1"
    match context:
        case "module":
            spec["launch"]["module"] = "my.module"
        case "command":
            spec["launch"]["command"] = ["my-program", "a", "b"]
        case "trl" | "axolotl" | "llama-factory" | "torchtitan":
            pass
        case _:
            spec["launch"]["entrypoint"] = "train.py"
    if context == "deepspeed":
        spec["parallelism"] = {"sharding": "zero3"}
        spec["offload"] = {"optimizer": "nvme", "parameters": "nvme", "nvme_path": f"{place}/nvme"}
    return spec


def parts(path: str) -> list[str]:
    """A slot's path, part by part."""
    return [one[1:-1] if one.startswith("[") else one for one in re.findall(r"\[.*?\](?=\.|$)|[^.]+", path)]


def put(spec: dict[str, Any], slot: Slot, text: str, place: Path) -> None:
    """The slot filled with a text."""
    raw = parts(slot.path)
    _assign(spec, raw, [part.replace("{}", text) if slot.key else part for part in raw], filled(slot, text, place))
    _beside(spec, slot)


def _assign(node: Any, raw: list[str], keys: list[str], value: str) -> None:
    """Set a place, making lists and maps on the way; indexes are digits of the slot, never of a text."""
    if isinstance(node, list):
        key: Any = int(keys[0])
        node.extend("x" for _ in range(key + 1 - len(node)))
    else:
        key = keys[0]
    if len(keys) == 1:
        node[key] = value
        return
    there = node[key] if isinstance(node, list) or key in node else None
    if not isinstance(there, dict | list):
        there = node[key] = [] if raw[1].isdecimal() else {}
    _assign(there, raw[1:], keys[1:], value)


def _beside(spec: dict[str, Any], slot: Slot) -> None:
    """What a field needs beside it to be valid."""
    launch = spec["launch"]
    if slot.path == "volumes.1.create.storage_class":
        spec["volumes"][1]["create"].setdefault("size", "1GiB")
    if slot.path.startswith("launch.stage.0"):
        launch["stage"][0] = {"from": "/etc/hostname", "to": spec["volumes"][1]["mount"] + "/to/x"} | launch["stage"][0]
    if slot.path.startswith("kubernetes.tolerations.0") and slot.path.endswith(("key", "value")):
        spec["kubernetes"]["tolerations"][0].setdefault("key", "k")
    if slot.path == "ignore.0.reason":
        spec["ignore"][0].setdefault("code", "JG305")
    if slot.path == "launch.code":
        launch.pop("working_directory", None)


def filled(slot: Slot, text: str, place: Path) -> str:
    """The value of a slot."""
    import shlex

    if slot.one_name:
        text = one_name(text)
    value = slot.value.replace("@", str(place))
    return value.replace("QUOTED", shlex.quote(text)).replace("{}", text) if not slot.key else value


def one_name(text: str) -> str:
    """The text as the name of a file: no slash, not too long, not ``.``."""
    name = text.replace("/", "∕").encode()[:200].decode(errors="ignore")
    return name if name not in ("", ".", "..") else "dot" + name


def text_of(spec: Mapping[str, Any]) -> str:
    """The spec as YAML."""
    text = json.dumps(spec, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found.group()):04x}", text)


def render(spec: Mapping[str, Any], target: str, place: Path) -> str | list[str]:
    """The artifact, or the reasons of the refusal; anything else that is raised is a bug."""
    from jobgen import api
    from jobgen.spec.document import load_text

    try:
        document = api.points(load_text(text_of(spec), str(place / "spec.yaml")))[0]
        return api.render(document, target=target).text
    except api.SpecError as error:
        return [f"{problem.path}: {problem.message}; {problem.fix}" for problem in error.problems]
    except api.Refused as error:
        return [f"{one.path}: {one.message}; {one.fix}" for one in error.report.findings if one.severity == "error"]


# The sandbox ---------------------------------------------------------------------------------------------------------

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
        case "launch.stage.0.from" | "volumes.0.path" | "volumes.0.mount" | "launch.working_directory" | "launch.code" | "slurm.output":
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
