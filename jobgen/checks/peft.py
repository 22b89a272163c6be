"""Adapters: what wrapping, targets and devices allow."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.quantization import map_path
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.adapters import fused, target_parameters
from jobgen.effective.loading import device_map
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.quantization import fused_since, requested
from jobgen.frameworks.view import EXPERTS

TARGET_PARAMETERS = ("lora_target_parameters", "target_parameters")
NAMED = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
MOE_V5 = Example("lora-8b-ddp", {
    "model.name": "Qwen/Qwen3-Coder-30B-A3B-Instruct", "training.framework": "transformers", "launch.entrypoint": "train.py", "resources.gpu": "b200",
    "training.versions": {"transformers": "5.2.0", "peft": "0.19.0"}, "training.options": {"target_parameters": NAMED},
})  # fmt: skip


def adapters(case: Case) -> bool:
    """lora or qlora."""
    return case.spec.training.method != "full"


def path_of(case: Case, *names: str) -> str:
    """The option the user wrote, or the section."""
    return next((f"training.options.{name}" for name in names if case.option(name) is not None), "training.options")


@rule(
    "JG601", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"training.method": "lora", "training.framework": "custom", "training.options": {"fsdp_config": {"use_orig_params": False}}}),
    good=Example("full-8b-fsdp1", {"training.method": "lora", "training.options": {"fsdp_config": {"use_orig_params": False, "activation_checkpointing": True}}}),
    fix="use_orig_params: true, or PEFT's fsdp_auto_wrap_policy",
    sources=("torch 2.13.0 distributed/fsdp/_flat_param.py:817-823", "PEFT docs/source/accelerate/fsdp.md:146"),
    facts=("PE01",),
)  # fmt: skip
def frozen_and_trained(case: Case) -> Outcome | None:
    """FSDP1 cannot flatten frozen and trained weights together

    With use_orig_params: false all weights of a flat parameter must agree on requires_grad. PEFT's wrapping policy puts
    adapters into units of their own; transformers' Trainer sets it, own programs must.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp1" or not adapters(case) or spec.training.framework not in ("custom", "accelerate"):
        return None
    if flag(spec, "fsdp_config.use_orig_params", "fsdp_config.fsdp_use_orig_params", "use_orig_params") is not False:
        return None
    path = path_of(case, "fsdp_config.use_orig_params", "fsdp_config.fsdp_use_orig_params", "use_orig_params")
    return Outcome(path, "use_orig_params: false needs PEFT's wrapping policy, or FSDP1 stops on mixed requires_grad",
                   "write use_orig_params: true, or set fsdp_auto_wrap_policy(model) of PEFT", {path: True})  # fmt: skip


@rule(
    "JG602", "info", "first_step", "spec",
    bad=Example("full-8b-fsdp1", {"training.method": "lora", "training.options": {"fsdp_config": {"use_orig_params": True, "activation_checkpointing": True}}}),
    good=Example("full-8b-fsdp1", {"training.method": "lora", "training.options": {"fsdp_config": {"use_orig_params": False, "activation_checkpointing": True}}}),
    fix="use_orig_params: false with PEFT's wrapping policy, or FSDP2",
    sources=("PEFT docs/source/accelerate/fsdp.md:146,169",),
    facts=("PE02",),
)  # fmt: skip
def orig_params_with_adapters(case: Case) -> Outcome | None:
    """use_orig_params keeps gradients of frozen weights in FSDP1

    It works, but the flat parameter of a layer has one gradient buffer: freezing saves no memory. PEFT's guide asks for
    false with its wrapping policy.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp1" or not adapters(case) or not hugging_face(spec):
        return None
    if flag(spec, "fsdp_config.use_orig_params", "fsdp_config.fsdp_use_orig_params", "use_orig_params") is not True:
        return None
    path = path_of(case, "fsdp_config.use_orig_params", "fsdp_config.fsdp_use_orig_params", "use_orig_params")
    return Outcome(path, "with use_orig_params: true frozen weights keep gradient buffers under FSDP1", "write use_orig_params: false", {path: False})


@rule(
    "JG603", "warning", "loss", "spec",
    bad=Example("lora-8b", {"training.options": {"add_special_tokens": "<a>,<b>"}}),
    good=Example("lora-8b", {"training.options": {"add_special_tokens": "<a>,<b>"}, "training.lora.modules_to_save": ["embed_tokens", "lm_head"]}),
    fix="training.lora.modules_to_save: [embed_tokens, lm_head]",
    sources=("LLaMA-Factory hparams/parser.py:555-563", "TRL trainer/sft_trainer.py:1066"),
    facts=("PE03",),
)  # fmt: skip
def new_tokens_untrained(case: Case) -> Outcome | None:
    """New tokens are never trained by adapters

    Added tokens have random embeddings, and adapters leave the embedding alone unless modules_to_save names it.
    """
    spec = case.spec
    names = ("resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens", "added_tokens_overrides", "special_tokens_to_add")
    key = next((name for name in names if option(spec, name)), None)
    if key is None or not adapters(case) or set(spec.training.lora.modules_to_save) & {"embed_tokens", "wte", "word_embeddings"}:
        return None
    if option(spec, "additional_target", "trainable_token_indices", "lora_fix_vocab_embedding"):
        return None
    saved = [*spec.training.lora.modules_to_save, "embed_tokens", *([] if case.arch.tied else ["lm_head"])]
    return Outcome(path_of(case, key), f"{key} adds tokens whose embeddings the adapters never train",
                   f"write training.lora.modules_to_save: {saved}", {"training.lora.modules_to_save": saved})  # fmt: skip


@rule(
    "JG604", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"resize_vocab": True}, "training.lora.modules_to_save": ["embed_tokens", "lm_head"]}),
    good=Example("qlora-235b-zero3", {}),
    fix="resize the vocabulary of the unquantised model first",
    sources=("LLaMA-Factory hparams/parser.py:243",),
    facts=("PE04",),
)  # fmt: skip
def resize_quantized(case: Case) -> Outcome | None:
    """A quantised model's embeddings cannot be resized

    LLaMA-Factory raises at start.
    """
    spec = case.spec
    if spec.training.framework != "llama-factory" or requested(spec) is None or not flag(spec, "resize_vocab"):
        return None
    path = path_of(case, "resize_vocab")
    return Outcome(path, "resize_vocab does not work with a quantised model", "resize offline and remove resize_vocab", {path: None})


@rule(
    "JG605", "error", "load", "spec",
    bad=Example("qlora-235b-zero3", {"training.options": {"adapter_name_or_path": "saves/a,saves/b"}}),
    good=Example("qlora-235b-zero3", {"training.options": {"adapter_name_or_path": "saves/a"}}),
    fix="merge the adapters first",
    sources=("LLaMA-Factory hparams/parser.py:249", "LLaMA-Factory model/adapter.py:166-171"),
    facts=("PE05",),
)  # fmt: skip
def several_adapters(case: Case) -> Outcome | None:
    """Only one adapter can be loaded onto a quantised or ZeRO-3 model

    LLaMA-Factory merges all but the last, which needs whole unquantised weights.
    """
    spec = case.spec
    written = option(spec, "adapter_name_or_path")
    several = written.count(",") if isinstance(written, str) else len(written) - 1 if isinstance(written, list) else 0
    if spec.training.framework != "llama-factory" or several < 1:
        return None
    if requested(spec) is None and spec.parallelism.sharding != "zero3":
        return None
    path = path_of(case, "adapter_name_or_path")
    first = written.split(",")[0].strip() if isinstance(written, str) else written[0]
    return Outcome(path, f"{several + 1} adapters cannot be joined on a {'quantised' if requested(spec) else 'ZeRO-3'} model",
                   "merge them into the base first and name one", {path: first})  # fmt: skip


@rule(
    "JG606", "warning", "init", "spec",
    bad=Example("lora-8b-ddp", {**MOE_V5.edits, "parallelism.sharding": "zero3"}),
    good=Example("lora-8b-ddp", {**MOE_V5.edits, "parallelism.sharding": "zero3", "training.versions": {"transformers": "5.2.0", "peft": "0.21.2"}}),
    fix="peft >= 0.21",
    sources=("peft commit 5d602fdb (#3576)",),
    facts=("PE06",),
    versions="peft < 0.21",
)  # fmt: skip
def parameters_under_zero3(case: Case) -> Outcome | None:
    """target_parameters reads empty shapes under ZeRO-3

    A partitioned parameter has no elements on the rank; peft below 0.21 makes adapters of that shape.
    """
    if case.spec.parallelism.sharding != "zero3" or not target_parameters(case.spec) or not adapters(case) or case.v["peft"] >= (0, 21):
        return None
    return Outcome(path_of(case, *TARGET_PARAMETERS), "target_parameters under ZeRO-3 needs peft >= 0.21",
                   'write training.versions.peft: "0.21.2"', {"training.versions.peft": "0.21.2"})  # fmt: skip


@rule(
    "JG607", "error", "first_step", "spec",
    bad=Example("qlora-8b-unsloth", {"training.versions.unsloth": "2026.2.1", "resources.gpus_per_node": 4, "parallelism.device_map": "balanced"}),
    good=Example("qlora-8b-unsloth", {"resources.gpus_per_node": 4, "parallelism.device_map": "balanced"}),
    fix="a newer unsloth and unsloth_zoo (after April 2026)",
    sources=("unsloth issue #4137, PR #4059", "unsloth-zoo commit 452a2260 (#586)"),
    facts=("PE07",),
    versions="unsloth < 2026.5",
)  # fmt: skip
def unsloth_labels(case: Case) -> Outcome | None:
    """Unsloth over several GPUs gives Triton a CPU tensor

    With a device map the labels stay on the CPU and the cross-entropy kernel stops at the first step. Fixed in two
    commits of February and April 2026.
    """
    spec = case.spec
    spread = device_map(spec)
    if spec.training.framework != "unsloth" or spread not in ("auto", "balanced", "sequential") or spec.resources.gpus_per_node == 1:
        return None
    if case.v["unsloth"] >= (2026, 5):
        return None
    path = map_path(case)
    return Outcome(path, f"device_map: {spread} over {spec.resources.gpus_per_node} GPUs: the loss kernel gets labels on the CPU",
                   'write training.versions.unsloth: "2026.8.1"', {"training.versions.unsloth": "2026.8.1"})  # fmt: skip


@rule(
    "JG608", "error", "init", "spec",
    bad=Example("lora-8b-ddp", {**MOE_V5.edits, "training.lora.dropout": 0.05}),
    good=MOE_V5,
    fix="training.lora.dropout: 0 and no DoRA",
    sources=("PEFT src/peft/tuners/lora/layer.py:2246-2290",),
    facts=("MO05",),
    versions="peft >= 0.17",
)  # fmt: skip
def parameters_without_dropout(case: Case) -> Outcome | None:
    """Adapters on parameters take no dropout, DoRA or bias

    peft wraps a parameter, not a module: there is no input to drop.
    """
    spec = case.spec
    if not adapters(case) or not target_parameters(spec) or not hugging_face(spec):
        return None
    wrong: dict[str, object] = {}
    if case.effective.adapters.dropout:
        wrong["training.lora.dropout"] = 0.0
    if spec.training.lora.use_dora:
        wrong["training.lora.use_dora"] = False
    if option(spec, "lora_bias") not in (None, "none", False):
        wrong["training.options.lora_bias"] = None
    if not wrong or not case.v["peft"] >= (0, 17):
        return None
    path = next(iter(wrong))
    return Outcome(path, "target_parameters does not work with dropout, DoRA or bias", "write lora.dropout: 0.0 and no DoRA", wrong)


@rule(
    "JG609", "warning", "loss", "effective",
    bad=Example("lora-8b-ddp", {**MOE_V5.edits, "training.versions": {"transformers": "4.57.6", "peft": "0.18.1"}}),
    good=MOE_V5,
    fix="module names in training.lora.target_modules",
    sources=("measured on transformers 4.57.6 with peft 0.18.1",),
    facts=("MO06",),
    versions="transformers < 5",
)  # fmt: skip
def parameters_not_fused(case: Case) -> Outcome | None:
    """target_parameters matches nothing before transformers 5

    The experts are modules there: peft warns that no parameter matched and trains without them.
    """
    spec = case.spec
    if not adapters(case) or not target_parameters(spec) or not hugging_face(spec) or fused_since(case.arch) is None:
        return None
    if fused(case.effective):
        return None
    path = path_of(case, *TARGET_PARAMETERS)
    return Outcome(path, "target_parameters is ignored: before transformers 5 the experts are modules, so no parameter of these names exists",
                   "remove it and use training.lora.target_modules", {path: None})  # fmt: skip


PROGRAMS = frozenset({"custom", "transformers", "accelerate", "deepspeed"})
"""Frameworks whose program makes the adapters itself."""


@rule(
    "JG610", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.lora.target_modules": ["q_proj", "v_proj", "experts"]}),
    good=Example("qlora-235b-zero3", {"training.lora.target_modules": ["q_proj", "v_proj"]}),
    fix="module names, or a framework that hands target_parameters to peft (TRL, Axolotl, ms-swift, Unsloth)",
    sources=("the frameworks' own option tables (jobgen.frameworks): lora_target_parameters, target_parameters", "PEFT 0.17 LoraConfig target_parameters"),
    versions="TRL < 0.21, Axolotl < 0.12, ms-swift < 3.7.3, peft < 0.17",
)  # fmt: skip
def experts_without_a_word(case: Case) -> Outcome | None:
    """The framework cannot be told to adapt the routed experts

    They are 3-D parameters, not modules: peft (0.17 and later) takes them as target_parameters, and the framework must have an
    option for it. As a module of that name they would stop the start.
    """
    written = case.spec.training.lora.target_modules
    if not adapters(case) or not isinstance(written, list) or EXPERTS not in written:
        return None
    rest = [name for name in written if name != EXPERTS]
    edits: dict[str, object] = {"training.lora.target_modules": rest or "all-linear"}
    fix = f"write target_modules: {rest or 'all-linear'}"
    if not case.arch.moe:
        return Outcome("training.lora.target_modules", f"{case.arch.name} has no routed experts", fix, edits)
    name = case.spec.training.framework
    if name in PROGRAMS:
        return None
    rows = [row for row in case.framework.options if row.field == "training.lora.target_parameters"]
    why = f"{name} has no option for adapters on parameters"
    if rows:
        row, library = rows[0], case.framework.library
        if case.v[library] >= row.since:
            if case.v["peft"] >= (0, 17):
                return None
            library, row = "peft", row._replace(since=(0, 17))
        why = f"adapters on parameters need {library} >= {'.'.join(map(str, row.since))}"
    return Outcome("training.lora.target_modules", f"target_modules: experts: {why}", fix, edits)
