"""Hostile values for every text field of a spec.

A *slot* is a text field with the place in its value where the hostile text goes. The same spec with a harmless token in
each slot says what must come out: equal, with the tokens replaced by the hostile texts, and nothing more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
    Slot("volumes.2.mount", "@/{}", one_name=True), Slot("volumes.1.claim"), Slot("volumes.1.create.storage_class", targets=KUBERNETES), Slot("volumes.2.path", "@/{}", one_name=True),
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
        "name": "hostile", "ignore": ["JG867"],
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
    if slot.path.startswith("volumes.2."):
        own = spec["volumes"][2]
        own.setdefault("mount", spec["volumes"][1]["mount"] + "/third")
        own.setdefault("path", spec["volumes"][1]["mount"])
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
