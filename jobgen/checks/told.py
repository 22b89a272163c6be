"""Whether the framework is told which model to train."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.rendering import wanted
from jobgen.checks.settings import setting, value
from jobgen.frameworks import megatron_model, torchtitan_models


@rule(
    "JG867", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"model.name": "Qwen/Qwen2.5-7B"}),
    good=Example("pretrain-8b-torchtitan", {}),
    fix="the model's name in the framework's words, in training.options",
    sources=(torchtitan_models.SOURCE, "torchtitan 0.2.0 config/job_config.py (model.flavor: debugmodel)",
             "torchtitan 0.3.0 config/manager.py (--module and --config are required)", megatron_model.SOURCE),
)  # fmt: skip
def untold(case: Case) -> Outcome | None:
    """The framework is not told which model to train

    Most read the architecture beside the weights. torchtitan trains one that it registers, a debug model by default, and
    Megatron-LM takes flags: jobgen writes both where the architecture is one that it knows in their words.
    """
    said = {"torchtitan": _torchtitan, "megatron-lm": _megatron}.get(case.spec.training.framework)
    found = said(case) if said is not None else None
    own = case.spec.launch.command is not None or (case.spec.training.framework == "torchtitan" and bool(case.spec.launch.entrypoint or case.spec.launch.module))
    return found if found is None or found.severity or (wanted(case) and not own) else found._replace(severity="warning")


def _torchtitan(case: Case) -> Outcome | None:
    found = torchtitan_models.find(case.arch)
    if case.v["torchtitan"] >= (0, 3):
        if setting(case, "module") is not None and setting(case, "config") is not None:
            return None
        example = f"module: {found.name}, config: {found.name}_{found.flavor.lower().replace('-', '_').replace('.', '_')}" if found else "module: ..., config: ..."
        return Outcome("training.options", "torchtitan takes the model from a function in Python, and none is named (--module, --config)",
                       f"write training.options: {{{example}}}, a function of the module's config_registry that makes {case.arch.name}")  # fmt: skip
    given = value(case, "model.flavor")
    if given is not None:
        name = value(case, "model.name", default="llama3")
        if found is None or (name, str(given).partition("_")[0]) == (found.name, found.flavor):
            return None
        return Outcome("training.options", f"{name} {given} is trained, but {case.arch.name}, which was checked, is {found.name} {found.flavor}",
                       f"write model.name: {found.name} and model.flavor: {found.flavor}, or remove both", severity="warning")  # fmt: skip
    if found is not None and case.v["torchtitan"] >= found.since:
        return None
    return Outcome("training.options", f"torchtitan registers no model with the architecture of {case.arch.name}: its default, a debug model, would be trained",
                   "write training.options: {model.name: ..., model.flavor: ...} of a model that your program registers, or choose another framework")  # fmt: skip


def _megatron(case: Case) -> Outcome | None:
    if any(setting(case, name) is not None for name in megatron_model.GIVEN):
        return None
    why = megatron_model.reason(case.arch)
    if why:
        return Outcome("training.options", f"{case.arch.name} is not written in Megatron-LM's flags: {why}",
                       "write the architecture's flags in training.options (num-layers, hidden-size ...), or use-checkpoint-args: true")  # fmt: skip
    unknown = [name for name, known in (("rotary-base", case.arch.rotary_base), ("norm-epsilon", case.arch.norm_epsilon)) if not known and setting(case, name) is None]
    if not unknown or case.spec.model.init == "random":
        return None
    return Outcome("training.options", f"{' and '.join(unknown)} of {case.arch.name} are not known: Megatron-LM takes its own (10000, 1e-5)",
                   "write them in training.options as the model's config.json says (rope_theta, rms_norm_eps), or set model.config", severity="warning")  # fmt: skip


@rule(
    "JG868", "warning", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"model.path": None}),
    good=Example("pretrain-8b-torchtitan", {}),
    fix="model.path: the folder that holds the files",
    sources=("torchtitan 0.2.0 components/tokenizer.py (Tokenizer path does not exist), scripts/download_hf_assets.py",),
)  # fmt: skip
def not_a_folder(case: Case) -> Outcome | None:
    """torchtitan reads tokenizer and weights from a folder

    It downloads nothing: a hub id is taken for a path, which does not exist unless somebody made it.
    """
    model = case.spec.model
    name = model.path or model.name or ""
    if case.spec.training.framework != "torchtitan" or name.startswith(("/", ".", "~")) or name.count("/") != 1:
        return None
    if setting(case, "model.hf_assets_path", "model.tokenizer_path", "hf_assets_path") is not None:
        return None
    folder = f"./assets/hf/{name.partition('/')[2]}"
    assets = "tokenizer" if model.init == "random" else "tokenizer config index safetensors"
    return Outcome("model", f"{name} is read as a folder, and torchtitan downloads nothing",
                   f"run python scripts/download_hf_assets.py --repo_id {name} --assets {assets} in torchtitan's folder, and write model.path: {folder}",
                   {"model.path": folder})  # fmt: skip
