"""Mixtures of experts: gathering, adapters and quantisation of experts."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.quantization import older, quantizes
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.words import billions
from jobgen.effective.adapters import fused, wants_all
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.quantization import bnb4, wants_experts

LEAVES_SINCE = (0, 18)
"""DeepSpeed marks the blocks of KNOWN itself since this release."""
KNOWN = frozenset(("mixtral", "qwen2_moe", "qwen3_moe"))
LLAMA_FACTORY = frozenset((
    "dbrx", "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4v_moe", "gpt_oss", "granitemoe", "jamba", "jetmoe",
    "llama4", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe", "kimi_vl", "internvl", "qwen3_next",
))  # fmt: skip
"""Model types whose blocks LLaMA-Factory marks as leaves (model/model_utils/moe.py)."""
SETS_LEAVES = frozenset(("llama-factory", "ms-swift"))


@rule(
    "JG531", "error", "first_step", "spec",
    bad=Example("full-30b-a3b-zero3", {"training.versions.deepspeed": "0.17.6"}),
    good=Example("full-30b-a3b-zero3", {}),
    fix="DeepSpeed >= 0.18, or deepspeed_moe_layer_cls_names / set_z3_leaf_modules",
    sources=("DeepSpeed runtime/zero/leaf_module_config.py (v0.18.0), issues #4808 and #7461", "accelerate utils/dataclasses.py:1534"),
    facts=("MO01",),
    versions="DeepSpeed < 0.18, transformers < 5",
)  # fmt: skip
def zero3_leaf(case: Case) -> Outcome | None:
    """ZeRO-3 hangs on experts that are not a leaf module

    Ranks visit different experts, so their gathers and reductions do not match: the job waits until NCCL gives up. A MoE
    block marked as a leaf is gathered as one. DeepSpeed knows the common blocks since 0.18; LLaMA-Factory marks them
    itself; transformers 5 has no separate expert modules.
    """
    spec, arch = case.spec, case.arch
    if spec.parallelism.sharding != "zero3" or not arch.moe or not hugging_face(spec) or case.layout.shard == 1:
        return None
    framework = spec.training.framework
    if framework == "ms-swift" or (framework == "llama-factory" and arch.model_type in LLAMA_FACTORY):
        return None
    named = option(spec, "deepspeed_moe_layer_cls_names", "deepspeed_config.deepspeed_moe_layer_cls_names", "zero_optimization.leaf_module",
                   "leaf_module", "moe_layer_cls_names")  # fmt: skip
    if named or fused(case.effective):
        return None
    if arch.model_type in KNOWN and case.v["deepspeed"] >= LEAVES_SINCE:
        return None
    edits: dict[str, object] = {"training.versions.deepspeed": "0.18.2"} if arch.model_type in KNOWN else (
        {"training.options.deepspeed_moe_layer_cls_names": arch.moe_class} if arch.moe_class else {})  # fmt: skip
    name = arch.moe_class or f"the MoE block of {arch.model_type}"
    return Outcome(
        "parallelism.sharding", f"{name} is not a ZeRO-3 leaf: ranks gather different experts and wait for each other",
        'write training.versions.deepspeed: "0.18.2"' if arch.model_type in KNOWN else f"mark it: deepspeed_moe_layer_cls_names: {name}",
        edits or None,
    )  # fmt: skip


@rule(
    "JG533", "error", "init", "spec",
    bad=Example("full-30b-a3b-zero3", {"training.framework": "deepspeed", "parallelism.expert": 4}),
    good=Example("full-30b-a3b-zero3", {"training.framework": "deepspeed"}),
    fix="zero1 or zero2 with expert parallelism",
    sources=("DeepSpeed runtime/engine.py:1890",),
    facts=("MO03",),
)  # fmt: skip
def native_moe_zero3(case: Case) -> Outcome | None:
    """DeepSpeed's own expert parallelism does not work with ZeRO-3

    The engine asserts it.
    """
    spec = case.spec
    if spec.training.framework not in ("deepspeed", "megatron-deepspeed") or spec.parallelism.sharding != "zero3":
        return None
    if spec.parallelism.expert == 1 or not case.arch.moe:
        return None
    return Outcome("parallelism.expert", f"DeepSpeed's MoE layers (expert: {spec.parallelism.expert}) do not work with ZeRO-3",
                   "write parallelism.expert: 1", {"parallelism.expert": 1})  # fmt: skip


@rule(
    "JG534", "warning", "first_step", "effective",
    bad=Example("lora-8b-ddp", {"model.name": "Qwen/Qwen3-Coder-30B-A3B-Instruct", "training.versions": {"transformers": "5.0.0", "peft": "0.18.1"}}),
    good=Example("lora-8b-ddp", {"model.name": "Qwen/Qwen3-Coder-30B-A3B-Instruct"}),
    fix="peft >= 0.19, or target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]",
    sources=("peft commit 5356277d (#3083, v0.19.0)", "LLaMA-Factory pyproject.toml:43-46", "measured on a tiny Qwen3-MoE"),
    facts=("MO04",),
    versions="transformers >= 5.0 with peft < 0.19",
)  # fmt: skip
def adapters_skip_experts(case: Case) -> Outcome | None:
    """LoRA on a mixture lands on attention only

    Since transformers 5 experts are 3-D parameters, which peft below 0.19 does not see: all-linear trains the attention
    alone and says nothing; a list of MLP names alone finds no module and raises.
    """
    if case.spec.training.method == "full" or not case.arch.moe:
        return None
    adapters = case.effective.adapters
    effect = next((e for e in adapters.effects if e.id == "adapters_skip_experts"), None)
    if effect is None:
        return None
    edits: dict[str, object] = {"training.versions.peft": "0.19.0"}
    if case.spec.training.framework == "llama-factory":
        edits = older(case)
    return Outcome(
        effect.path, f"{effect.ignored} is ignored: {effect.instead} ({billions(adapters.parameters)} parameters)",
        ", ".join(f'write {path}: "{value}"' for path, value in edits.items())
        + ", or name the parameters: target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]",
        edits, None if adapters.targets else "error",
    )  # fmt: skip


@rule(
    "JG537", "error", "init", "spec",
    bad=Example("qlora-32b-axolotl", {"training.versions": {"axolotl": "0.15.0"}, "model.name": "Qwen/Qwen3-30B-A3B", "training.quantization.moe_experts": True,
                                       "training.options": {"lora_target_linear": True}}),
    good=Example("qlora-32b-axolotl", {"training.versions": {"axolotl": "0.15.0"}, "model.name": "Qwen/Qwen3-30B-A3B", "training.quantization.moe_experts": True}),
    fix="named target modules and lora_target_parameters",
    sources=("Axolotl utils/schemas/config.py:1879",),
    facts=("MO07",),
    versions="Axolotl >= 0.15",
)  # fmt: skip
def axolotl_target_linear(case: Case) -> Outcome | None:
    """Axolotl's expert quantisation excludes lora_target_linear

    With quantize_moe_experts the targets must be named: it raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or not wants_experts(spec) or not case.v["axolotl"] >= (0, 15):
        return None
    if not flag(spec, "lora_target_linear"):
        return None
    path = "training.options.lora_target_linear"
    return Outcome(path, "quantize_moe_experts does not work with lora_target_linear",
                   "remove it and name the modules: training.lora.target_modules: [q_proj, k_proj, v_proj, o_proj]",
                   {path: None, "training.lora.target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]})  # fmt: skip


@rule(
    "JG538", "warning", "load", "spec",
    bad=Example("qlora-32b-axolotl", {"training.versions": {"axolotl": "0.14.0"}, "model.name": "Qwen/Qwen3-30B-A3B"}),
    good=Example("qlora-32b-axolotl", {"model.name": "Qwen/Qwen3-30B-A3B"}),
    fix="Axolotl 0.13.1, or >= 0.15 with quantize_moe_experts",
    sources=("Axolotl requirements at v0.13.1, v0.14.0, v0.15.0", "commit 945c8aeb (#3439)"),
    facts=("MO08",),
    versions="Axolotl 0.14",
)  # fmt: skip
def axolotl_014(case: Case) -> Outcome | None:
    """Axolotl 0.14 has no way to quantise experts

    It pins transformers 5.0.0, which leaves experts in bf16; quantize_moe_experts came with 0.15.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or not bnb4(spec) or not case.arch.moe or not case.v.between("axolotl", (0, 14), (0, 15)):
        return None
    return Outcome("training.versions.axolotl" if case.wrote("training.versions.axolotl") else "training.framework",
                   "Axolotl 0.14 pins transformers 5.0.0 and cannot quantise its experts",
                   'write training.versions.axolotl: "0.13.1"', {"training.versions": {"axolotl": "0.13.1"}})  # fmt: skip


@rule(
    "JG539", "info", "init", "effective",
    bad=Example("qlora-235b-zero3", {}),
    good=Example("qlora-8b", {}),
    fix="exclude_modules: [mlp.gate] where the router should stay as it is",
    sources=("measured: LoRA and Params4bit on the routers of a tiny Qwen3-MoE, transformers 4.57.6",),
    facts=("MO09",),
    versions="transformers < 5",
)  # fmt: skip
def router_adapted(case: Case) -> Outcome | None:
    """all-linear adapts the router too

    Before transformers 5 the router is an nn.Linear: it gets an adapter, and bitsandbytes quantises it.
    """
    spec, arch = case.spec, case.arch
    if spec.training.method == "full" or not arch.moe or not wants_all(spec) or not hugging_face(spec):
        return None
    routers = {m.name for layer in arch.layers for m in layer.matrices if m.part == "router" and m.linear}
    if fused(case.effective) or not routers & case.effective.adapters.targets or option(spec, "exclude_modules", "lora_exclude_modules"):
        return None
    four = " and is quantised" if quantizes(case) else ""
    return Outcome("training.lora.target_modules", f"all-linear includes the router: {', '.join(sorted(routers))} gets an adapter{four}",
                   "name the modules, or leave it out by the framework's exclude option")  # fmt: skip


@rule(
    "JG540", "error", "init", "spec",
    bad=Example("pretrain-30b-a3b-megatron", {"resources.gpu": "v100-32gb", "training.precision": "fp16", "training.attention": "sdpa",
                                              "training.options": {"moe_grouped_gemm": True}}),
    good=Example("pretrain-30b-a3b-megatron", {"training.options": {"moe_grouped_gemm": True}}),
    fix="Ampere or newer, or no grouped GEMM",
    sources=("Megatron-LM megatron/training/arguments.py:1380",),
    facts=("MO10",),
)  # fmt: skip
def grouped_gemm(case: Case) -> Outcome | None:
    """Megatron's grouped GEMM needs Ampere

    moe_grouped_gemm is refused below compute capability 8.0.
    """
    capability = case.gpu.compute_capability
    if case.spec.training.framework != "megatron-lm" or capability is None or capability >= (8, 0):
        return None
    path = next((f"training.options.{k}" for k in ("moe_grouped_gemm", "moe-grouped-gemm") if flag(case.spec, k)), None)
    if path is None:
        return None
    return Outcome(path, f"moe_grouped_gemm needs compute capability 8.0; {case.gpu.name} has {'.'.join(map(str, capability))}",
                   "remove it", {path: None})  # fmt: skip
