"""Releases: what a model type, a sharding or a framework needs, and what releases took away."""

from __future__ import annotations

from jobgen.catalog import releases
from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.libraries import canonical
from jobgen.effective.options import hugging_face, option
from jobgen.effective.versions import Interval, text, trimmed

REMOVED_IN_5 = frozenset((
    "save_safetensors", "overwrite_output_dir", "no_cuda", "half_precision_backend", "fp16_backend", "fsdp_min_num_params",
    "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "torchdynamo", "fsdp_transformer_layer_cls_to_wrap",
))  # fmt: skip
REMOVED_LATER = {"group_by_length": ((5, 2), "train_sampling_strategy"), "warmup_ratio": ((5, 15), "warmup_steps (a ratio below 1)"),
                 "logging_dir": ((5, 15), "the TENSORBOARD_LOGGING_DIR variable")}  # fmt: skip
RAW_TRAINER = ("transformers", "trl")
"""Frameworks whose options go to TrainingArguments as they are."""


def pins(case: Case) -> dict[str, Interval]:
    """What the framework's own release requires of other libraries."""
    library = case.framework.library
    interval = case.v.interval(library) if library else Interval()
    if not library or not interval.known:
        return {}
    found: dict[str, Interval] = {}
    for name, (low, high) in releases.pins(library, interval.low).items():
        found[canonical(name)] = Interval(trimmed(low), high) if low or high else Interval()
    return found


@rule(
    "JG621", "error", "import", "spec",
    bad=Example("qlora-235b-zero3", {"training.versions": {"llamafactory": "0.9.2", "deepspeed": "0.16.4"}}),
    good=Example("qlora-235b-zero3", {}),
    fix="a transformers release that has the model type",
    sources=("released transformers wheels: qwen3_moe is absent in 4.50.3 and present in 4.51.0",),
    facts=("FV01",),
)  # fmt: skip
def model_type_too_new(case: Case) -> Outcome | None:
    """The transformers release does not know the model type

    An architecture exists from one release on; before it the configuration cannot be read. Frameworks that pin an older
    transformers cannot train it.
    """
    first = case.arch.first_release
    if first is None or not (hugging_face(case.spec) or case.spec.training.framework in ("fsdp-qlora", "verl")):
        return None
    pinned = pins(case).get("transformers", Interval())
    if pinned.high <= first:
        framework = case.framework.library
        return Outcome(
            f"training.versions.{framework}" if case.wrote(f"training.versions.{framework}") else "training.framework",
            f"{case.arch.model_type} needs transformers >= {text(first)}, but this {framework} takes {pinned}",
            f"use a newer {framework}", _newer(case, first),
        )  # fmt: skip
    if case.v["transformers"] >= first:
        return None
    path = "training.versions.transformers"
    fix = "4.57.6" if first <= (4, 57) else text(first)
    return Outcome(
        path if case.wrote(path) else "model.name",
        f"{case.arch.model_type} exists since transformers {text(first)}; an older one stops with an unknown architecture",
        f'write {path}: "{fix}"', {path: fix},
    )  # fmt: skip


def _newer(case: Case, first: tuple[int, ...]) -> dict[str, object] | None:
    """The framework's oldest release whose requirements allow the model type."""
    library = case.framework.library
    for version in releases.versions(library):
        low, high = releases.pins(library, version).get("transformers", (None, None))
        if high is not None and first < high and low is not None:
            edits: dict[str, object] = {f"training.versions.{library}": _full(version)}
            if case.wrote("training.versions.transformers"):
                edits["training.versions.transformers"] = None
            return edits
    return None


def _full(version: tuple[int, ...]) -> str:
    return ".".join(map(str, (*version, 0, 0)[: max(3, len(version))]))


@rule(
    "JG622", "error", "import", "spec",
    bad=Example("lora-8b", {"training.framework": "fsdp-qlora", "training.method": "qlora", "training.versions": {"transformers": "4.48.0"}, "parallelism.sharding": "fsdp1"}),
    good=Example("lora-8b", {}),
    fix="transformers < 4.48, or another framework",
    sources=("AnswerDotAI/fsdp_qlora@05ed9f2a train.py:76-85", "transformers wheels 4.47.1 (present), 4.48.0 (absent)"),
    facts=("FV02",),
    versions="transformers >= 4.48",
)  # fmt: skip
def fsdp_qlora_import(case: Case) -> Outcome | None:
    """fsdp_qlora imports what transformers 4.48 removed

    Its script needs LLAMA_ATTENTION_CLASSES and MISTRAL_ATTENTION_CLASSES. It has not changed since June 2024, so
    models newer than 4.47 cannot be trained by it in any release.
    """
    if case.spec.training.framework != "fsdp-qlora" or not case.v["transformers"] >= (4, 48):
        return None
    first = case.arch.first_release
    never = first is not None and first >= (4, 48)
    path = "training.versions.transformers"
    return Outcome(
        "training.framework" if never or not case.wrote(path) else path,
        "train.py imports LLAMA_ATTENTION_CLASSES, which transformers 4.48 removed"
        + (f"; {case.arch.model_type} needs {text(first)}, so no release satisfies both" if never and first else ""),
        "use another framework" if never else f'write {path}: "4.47.1", or use another framework',
        None if never else {path: "4.47.1"},
    )  # fmt: skip


@rule(
    "JG623", "error", "load", "spec",
    bad=Example("qlora-8b", {"training.versions": {"transformers": "5.0.0", "trl": "1.0.0"}, "training.options": {"model_init_kwargs": {"load_in_4bit": True}}}),
    good=Example("qlora-8b", {}),
    fix="quantization_config=BitsAndBytesConfig(...)",
    sources=("measured on transformers 5.0.0 and 5.24.0",),
    facts=("FV03",),
    versions="transformers >= 5.0",
)  # fmt: skip
def load_in_4bit_argument(case: Case) -> Outcome | None:
    """from_pretrained has no load_in_4bit since transformers 5

    The keyword raises a TypeError; the configuration object is the only way.
    """
    key = next((k for k in ("load_in_4bit", "load_in_8bit") if option(case.spec, f"model_init_kwargs.{k}") is not None), None)
    if key is None or case.spec.training.framework not in ("transformers", "trl", "accelerate", "custom"):
        return None
    if not case.v["transformers"] >= (5, 0):
        return None
    path = f"training.options.model_init_kwargs.{key}"
    return Outcome(path, f"from_pretrained takes no {key} since transformers 5",
                   f"remove {key}; training.quantization says it", {path: None})  # fmt: skip


@rule(
    "JG624", "error", "init", "spec",
    bad=Example("lora-8b", {"training.versions.transformers": "5.2.0", "training.options": {"overwrite_output_dir": True}}),
    good=Example("lora-8b", {"training.options": {"overwrite_output_dir": True}}),
    fix="remove or rename the argument",
    sources=("TrainingArguments of transformers 4.57.6, 5.0.0 and 5.24.0 compared",),
    facts=("FV04", "FV06"),
    versions="transformers >= 5.0",
)  # fmt: skip
def removed_argument(case: Case) -> list[Outcome]:
    """A training argument that the transformers release no longer has

    TrainingArguments raise a TypeError on unknown names. transformers 5 removed about twenty, later minor releases more.
    """
    spec, found = case.spec, list[Outcome]()
    if spec.training.framework not in RAW_TRAINER:
        return found
    for name in spec.training.options:
        path = f"training.options.{name}"
        if name in REMOVED_IN_5 and case.v["transformers"] >= (5, 0):
            found.append(Outcome(path, f"TrainingArguments have no {name} since transformers 5.0", f"remove {name}", {path: None}))
        elif name in REMOVED_LATER and case.v["transformers"] >= REMOVED_LATER[name][0]:
            since, instead = REMOVED_LATER[name]
            found.append(Outcome(path, f"TrainingArguments have no {name} since transformers {text(since)}", f"use {instead}", {path: None}))
        elif name == "evaluation_strategy" and case.v["transformers"] >= (4, 51):
            found.append(Outcome(path, "TrainingArguments call it eval_strategy; the old name is gone", "use eval_strategy", {path: None}))
        elif name == "tokenizer" and case.v["transformers"] >= (5, 0):
            found.append(Outcome(path, "Trainer takes processing_class instead of tokenizer since transformers 5", "use processing_class", {path: None}))
    return found


@rule(
    "JG625", "warning", "init", "spec",
    bad=Example("full-8b-fsdp1", {"training.framework": "custom", "training.versions.transformers": "5.12.0", "training.options": {"fsdp_config": {"reshard_after_forward": "FULL_SHARD"}}}),
    good=Example("full-8b-fsdp1", {"training.framework": "custom", "training.versions.transformers": "5.12.0", "training.options": {"fsdp_config": {"version": 1}}}),
    fix="fsdp_config.version: 1 or 2",
    sources=("transformers 5.24.0 training_args.py _process_fsdp_args",),
    facts=("FV05",),
    versions="transformers >= 5.10",
)  # fmt: skip
def fsdp_default_flipped(case: Case) -> Outcome | None:
    """FSDP without a version means FSDP2 since transformers 5.10

    Before it meant FSDP1. A program whose own fsdp_config has no version runs the other one after an upgrade.
    """
    spec = case.spec
    if spec.training.framework != "custom" or spec.parallelism.sharding != "fsdp1" or option(spec, "fsdp_config") is None:
        return None
    if option(spec, "fsdp_config.version", "fsdp_config.fsdp_version") is not None or not case.v["transformers"] >= (5, 10):
        return None
    return Outcome("training.options.fsdp_config", "fsdp_config has no version, which means FSDP2 in this transformers, not fsdp1",
                   "write fsdp_config.version: 1", {"training.options.fsdp_config.version": 1})  # fmt: skip


@rule(
    "JG627", "error", "import", "spec",
    bad=Example("qlora-235b-zero3", {"training.versions": {"llamafactory": "0.9.4", "transformers": "5.2.0", "deepspeed": "0.16.9"}, "model.name": "Qwen/Qwen3-8B"}),
    good=Example("qlora-235b-zero3", {}),
    fix="releases inside the framework's range",
    sources=("LLaMA-Factory pyproject.toml and its check at start, v0.9.2-v0.9.5", "requirements of the other frameworks' releases"),
    facts=("FV07",),
)  # fmt: skip
def outside_pins(case: Case) -> list[Outcome]:
    """A library outside the range that the framework's release takes

    LLaMA-Factory compares versions when it starts and stops; others fail at an import or later, in ways that nobody
    tested.
    """
    strict, found = case.framework.library == "llamafactory", list[Outcome]()
    for name, interval in pins(case).items():
        path = f"training.versions.{name}"
        given = case.v.interval(name)
        whole = case.v.interval(case.framework.library)
        if not case.wrote(path) or name in ("python", "cuda") or (given.low < interval.high and interval.low < given.high):
            continue
        if not releases.firm(case.framework.library, whole.low, name):
            continue
        found.append(Outcome(
            path, f"{case.framework.library} {whole} takes {name} {interval}, not {given}",
            f"remove {path} (the framework's release implies it)", {path: None}, "error" if strict else "warning",
        ))  # fmt: skip
    return found


@rule(
    "JG629", "warning", "import", "spec",
    bad=Example("full-8b-torchtune", {"model.name": "Qwen/Qwen3.5-9B"}),
    good=Example("full-8b-torchtune", {}),
    fix="torchtitan, TRL or another framework that is maintained",
    sources=("torchtune README.md at bd2a0fc7",),
    facts=("FV09",),
)  # fmt: skip
def torchtune_unmaintained(case: Case) -> Outcome | None:
    """torchtune has no architectures of after mid 2025

    It is no longer developed; what it could train in 2025 it still can.
    """
    first = case.arch.first_release
    if case.spec.training.framework != "torchtune" or first is None or first < (4, 52):
        return None
    return Outcome("training.framework", f"torchtune has been unmaintained since 2025 and has no {case.arch.model_type}",
                   "use torchtitan, TRL or LLaMA-Factory")  # fmt: skip


@rule(
    "JG630", "error", "import", "spec",
    bad=Example("full-8b-fsdp2", {"training.versions.torch": "2.5.1"}),
    good=Example("full-8b-fsdp2", {}),
    fix="torch >= 2.6 (accelerate), >= 2.7 (Axolotl)",
    sources=("accelerate utils/dataclasses.py FSDP2_PYTORCH_VERSION", "Axolotl utils/schemas/config.py:2126"),
    facts=("FV10",),
    versions="torch < 2.6, < 2.7 with Axolotl",
)  # fmt: skip
def fsdp2_needs_torch(case: Case) -> Outcome | None:
    """FSDP2 needs a newer torch

    accelerate refuses FSDP2 below torch 2.6, Axolotl below 2.7.
    """
    if case.spec.parallelism.sharding != "fsdp2" or not hugging_face(case.spec) or case.spec.training.framework == "custom":
        return None
    least = (2, 7) if case.spec.training.framework == "axolotl" else (2, 6)
    if case.v["torch"] >= least:
        return None
    return Outcome("parallelism.sharding", f"FSDP2 through {case.spec.training.framework} needs torch >= {text(least)}",
                   'write training.versions.torch: "2.8.0" and install it', {"training.versions.torch": "2.8.0"})  # fmt: skip


@rule(
    "JG631", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"training.options": {"deepspeed": "ds_z3.json"}}),
    good=Example("full-8b-fsdp1", {}),
    fix="one of the two: parallelism.sharding",
    sources=("transformers 4.57.6 trainer.py:572", "Axolotl validation.py:1228", "ms-swift sft_args.py:293"),
    facts=("FV11",),
)  # fmt: skip
def two_engines(case: Case) -> Outcome | None:
    """DeepSpeed and FSDP are both configured

    The Trainer and the frameworks on it refuse both at once.
    """
    spec = case.spec
    if not hugging_face(spec):
        return None
    engine = spec.parallelism.sharding
    for key, other in (("deepspeed", ("fsdp1", "fsdp2")), ("fsdp", ("zero1", "zero2", "zero3"))):
        path = f"training.options.{key}"
        if engine in other and option(spec, key) not in (None, False, "", []):
            return Outcome(path, f"{key} is configured beside parallelism.sharding: {engine}",
                           f"remove {key}", {path: None})  # fmt: skip
    return None


@rule(
    "JG632", "warning", "init", "spec",
    bad=Example("full-8b-fsdp2", {"training.options": {"fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}}}),
    good=Example("full-8b-fsdp2", {"training.options": {"fsdp_config": {"fsdp_reshard_after_forward": True}}}),
    fix="fsdp_config.reshard_after_forward alone",
    sources=("accelerate utils/dataclasses.py:1818-1960",),
    facts=("FV12",),
)  # fmt: skip
def fsdp1_keys(case: Case) -> Outcome | None:
    """FSDP1 keys are ignored under FSDP2

    sharding_strategy, use_orig_params, sync_module_states and backward_prefetch have no meaning in FSDP2; accelerate
    says so in one combined warning. forward_prefetch raises.
    """
    config = option(case.spec, "fsdp_config")
    if case.spec.parallelism.sharding != "fsdp2" or not isinstance(config, dict) or not hugging_face(case.spec):
        return None
    names = {name: name.removeprefix("fsdp_") for name in config}
    raising = [name for name, plain in names.items() if plain == "forward_prefetch" and config[name]]
    dead = [name for name, plain in names.items() if plain in ("sharding_strategy", "use_orig_params", "sync_module_states", "backward_prefetch")]
    if not raising and not dead:
        return None
    edits: dict[str, object] = {f"training.options.fsdp_config.{name}": None for name in (*raising, *dead)}
    message = f"{', '.join(raising)} raises under FSDP2" if raising else (
        f"{', '.join(dead)} {'is' if len(dead) == 1 else 'are'} ignored: FSDP2 shards everything and has one switch, reshard_after_forward")  # fmt: skip
    return Outcome(next(iter(edits)), message, f"remove {', '.join((*raising, *dead))}", edits, "error" if raising else None)
