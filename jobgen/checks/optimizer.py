"""Optimizers: which sharding, offload and framework they work with."""

from __future__ import annotations

from collections.abc import Mapping

from jobgen.checks.case import Case
from jobgen.checks.offload import ZERO
from jobgen.checks.peft import path_of
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.rendering import wanted
from jobgen.checks.settings import config_of, setting
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.quantization import bnb4

ADAMW: dict[str, object] = {"training.optimizer": "adamw"}


@rule(
    "JG321", "error", "first_step", "spec",
    bad=Example("full-8b-fsdp2", {"training.optimizer": "adamw_8bit"}),
    good=Example("full-8b-fsdp2", {}),
    fix="torchao's 8-bit AdamW (adamw_torch_8bit), or adamw",
    sources=("Axolotl utils/schemas/validation.py:1139-1153",),
    facts=("OP01",),
)  # fmt: skip
def bitsandbytes_dtensor(case: Case) -> Outcome | None:
    """bitsandbytes' 8-bit optimizers do not know DTensor

    Under FSDP2 parameters are DTensors; the 8-bit state and its CUDA kernels are not, and the first step fails.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp2" or spec.training.optimizer.name not in ("adamw_8bit", "lion_8bit") or not hugging_face(spec):
        return None
    return Outcome("training.optimizer", f"{spec.training.optimizer.name} of bitsandbytes cannot step FSDP2's DTensors",
                   "write training.optimizer: adamw (or torchao's 8-bit AdamW through the framework's options)", ADAMW)  # fmt: skip


@rule(
    "JG322", "warning", "checkpoint", "spec",
    bad=Example("qlora-235b-fsdp", {"model.name": "Qwen/Qwen2.5-Coder-32B-Instruct", "training.optimizer": "paged_adamw_8bit", "offload": None}),
    good=Example("qlora-235b-fsdp", {"model.name": "Qwen/Qwen2.5-Coder-32B-Instruct", "offload": None}),
    fix="training.optimizer: adamw",
    sources=("PEFT docs/source/accelerate/fsdp.md, caveat 4",),
    facts=("OP02",),
)  # fmt: skip
def paged_8bit_save(case: Case) -> Outcome | None:
    """The paged 8-bit optimizer cannot be saved under FSDP

    PEFT documents an error at the first checkpoint of FSDP with QLoRA.
    """
    spec = case.spec
    if spec.parallelism.sharding not in ("fsdp1", "fsdp2") or not bnb4(spec) or spec.training.optimizer.name != "paged_adamw_8bit":
        return None
    return Outcome("training.optimizer", "paged_adamw_8bit fails at the first checkpoint under FSDP with QLoRA", "write training.optimizer: adamw", ADAMW)


@rule(
    "JG323", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"parallelism.tensor": 2, "training.optimizer": "paged_adamw_8bit"}),
    good=Example("full-8b-axolotl", {"parallelism.tensor": 2}),
    fix="training.optimizer: adamw",
    sources=("Axolotl utils/schemas/validation.py:1779",),
    facts=("OP03",),
)  # fmt: skip
def axolotl_tensor_8bit(case: Case) -> Outcome | None:
    """Axolotl refuses 8-bit optimizers with tensor parallelism

    It raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.parallelism.tensor == 1 or spec.training.optimizer.name not in ("adamw_8bit", "paged_adamw_8bit"):
        return None
    if spec.parallelism.sharding == "fsdp2" and spec.training.optimizer.name == "adamw_8bit":
        return None  # FSDP2 refuses it already
    return Outcome("training.optimizer", f"{spec.training.optimizer.name} does not work with tensor parallelism", "write training.optimizer: adamw", ADAMW)


@rule(
    "JG324", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"parallelism.sharding": "zero3", "training.optimizer": "muon"}),
    good=Example("full-8b-axolotl", {"training.optimizer": "muon"}),
    fix="parallelism.sharding: fsdp2",
    sources=("Axolotl utils/schemas/validation.py:894-900",),
    facts=("OP04",),
)  # fmt: skip
def axolotl_muon(case: Case) -> Outcome | None:
    """Axolotl's Muon works with FSDP2 only among the shardings

    DeepSpeed and FSDP1 raise at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.training.optimizer.name != "muon" or spec.parallelism.sharding not in (*ZERO, "fsdp1"):
        return None
    return Outcome("training.optimizer", f"Muon does not work with {spec.parallelism.sharding} in Axolotl", "write parallelism.sharding: fsdp2",
                   {"parallelism.sharding": "fsdp2"})  # fmt: skip


@rule(
    "JG325", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"parallelism.sharding": "none", "training.framework": "llama-factory", "training.options": {"use_galore": True, "galore_layerwise": True},
                                  "model.name": "Qwen/Qwen3-0.6B", "training.versions": {"transformers": "4.57.1"}, "training.optimizer": "galore_adamw"}),
    good=Example("full-8b-zero2", {"training.framework": "llama-factory", "training.options": {"use_galore": True}, "parallelism.sharding": "none",
                                   "model.name": "Qwen/Qwen3-0.6B", "training.versions": {"transformers": "4.57.1"}, "training.optimizer": "galore_adamw"}),
    fix="the variant without layerwise",
    sources=("transformers 4.57.6 trainer.py:1422", "LLaMA-Factory hparams/parser.py:507-519"),
    facts=("OP05",),
)  # fmt: skip
def layerwise_world(case: Case) -> Outcome | None:
    """Layer-wise GaLore and APOLLO train on one GPU only

    They step during backward, which no data parallelism supports.
    """
    spec = case.spec
    keys = ("galore_layerwise", "apollo_layerwise")
    key = next((name for name in keys if flag(spec, name)), None)
    if key is None or case.layout.world == 1:
        return None
    path = path_of(case, key)
    return Outcome(path, f"{key} does not work with {case.layout.world} ranks", f"write {key}: false", {path: False})


@rule(
    "JG326", "error", "init", "spec",
    bad=Example("full-8b-deepspeed", {"offload": None, "training.options": {"optimizer": {"type": "OneBitAdam"}}}),
    good=Example("full-8b-deepspeed", {"offload": None}),
    fix="Adam or AdamW, or no ZeRO",
    sources=("DeepSpeed runtime/engine.py:2152-2166",),
    facts=("OP06",),
)  # fmt: skip
def one_bit_zero(case: Case) -> Outcome | None:
    """1-bit optimizers do not work with ZeRO

    DeepSpeed asserts it.
    """
    kind = option(case.spec, "optimizer.type")
    if kind not in ("OneBitAdam", "ZeroOneAdam", "OneBitLamb") or case.spec.parallelism.sharding not in ZERO:
        return None
    path = path_of(case, "optimizer.type")
    return Outcome(path, f"{kind} is not compatible with {case.spec.parallelism.sharding}", "write AdamW", {path: "AdamW"})


@rule(
    "JG327", "error", "init", "spec",
    bad=Example("full-8b-deepspeed", {"offload": None, "training.options": {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}}),
    good=Example("full-8b-deepspeed", {"offload": None, "training.options": {"gradient_clipping": 1.0}}),
    fix="gradient_clipping: X at the top level",
    sources=("DeepSpeed runtime/engine.py:2091",),
    facts=("OP07",),
)  # fmt: skip
def clipping_in_params(case: Case) -> Outcome | None:
    """DeepSpeed takes gradient clipping at the top level only

    max_grad_norm among the optimizer's parameters raises.
    """
    value = option(case.spec, "optimizer.params.max_grad_norm")
    if value is None or case.spec.parallelism.sharding not in ZERO:
        return None
    path = path_of(case, "optimizer.params.max_grad_norm")
    return Outcome(path, "DeepSpeed refuses max_grad_norm in the optimizer's parameters", f"write gradient_clipping: {value}",
                   {path: None, "training.options.gradient_clipping": value})  # fmt: skip


@rule(
    "JG329", "error", "init", "spec",
    bad=Example("full-8b-torchtune", {"training.optimizer": {"name": "adamw", "in_backward": True}, "training.gradient_accumulation_steps": 2}),
    good=Example("full-8b-torchtune", {"training.optimizer": {"name": "adamw", "in_backward": True}}),
    fix="one accumulation step, no clip_grad_norm, no compiled optimizer step",
    sources=("torchtune recipes/full_finetune_distributed.py:224-231,401",),
    facts=("OP09",),
)  # fmt: skip
def torchtune_in_backward(case: Case) -> Outcome | None:
    """torchtune's optimizer in backward excludes accumulation and clipping

    There is never a whole gradient to accumulate or measure: it raises.
    """
    spec = case.spec
    if spec.training.framework != "torchtune" or not spec.training.optimizer.in_backward:
        return None
    edits: dict[str, object] = {}
    if case.layout.accumulation > 1:
        edits["training.gradient_accumulation_steps"] = 1
    for key in ("clip_grad_norm", "compile_optimizer_step"):
        if option(spec, key):
            edits[f"training.options.{key}"] = None
    if not edits:
        return None
    return Outcome("training.optimizer.in_backward", f"in_backward does not work with {', '.join(path.rpartition('.')[2] for path in edits)}",
                   "; ".join(f"remove {path}" if value is None else f"write {path}: {value}" for path, value in edits.items()), edits)  # fmt: skip


@rule(
    "JG330", "error", "init", "spec",
    bad=Example("full-8b-deepspeed", {"parallelism.sharding": "zero3", "training.options": {"gradient_allreduce_op": "sum"}}),
    good=Example("full-8b-deepspeed", {"parallelism.sharding": "zero3"}),
    fix="the default, mean",
    sources=("DeepSpeed runtime/config.py _do_error_check",),
    facts=("OP10",),
)  # fmt: skip
def summed_gradients(case: Case) -> Outcome | None:
    """ZeRO-3 cannot sum gradients

    gradient_allreduce_op: sum raises.
    """
    if option(case.spec, "gradient_allreduce_op") != "sum" or case.spec.parallelism.sharding != "zero3":
        return None
    path = path_of(case, "gradient_allreduce_op")
    return Outcome(path, "gradient_allreduce_op: sum is refused under ZeRO-3", "remove it", {path: None})


RATES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "transformers": (("learning_rate",), "5e-5"),
    "llama-factory": (("learning_rate",), "5e-5"),
    "trl": (("learning_rate",), "its trainer's own (2e-5 for sft)"),
    "ms-swift": (("learning_rate", "lr"), "its own for the method"),
    "axolotl": (("learning_rate",), ""),
    "deepspeed": (("learning_rate", "lr", "optimizer.params.lr", "scheduler.params.warmup_max_lr"), "1e-3"),
    "megatron-lm": (("lr",), ""),
    "megatron-deepspeed": (("lr",), ""),
    "torchtitan": (("optimizer.lr",), "its own"),
    "litgpt": (("optimizer.init_args.lr", "optimizer.lr"), "torch's (1e-3 for AdamW)"),
    "fsdp-qlora": (("lr",), "1e-5"),
    "verl": (("actor_rollout_ref.actor.optim.lr",), "its own"),
}
"""The keys of the learning rate, and what it is where none is written; '' where the framework has no default. The spec
does not own it. torchtune's and NeMo's are the recipe's, other programs have their own."""


@rule(
    "JG331", "info", "init", "spec",
    bad=Example("full-8b-deepspeed", {}),
    good=Example("full-8b-deepspeed", {"training.options": {"learning_rate": 1e-5}}),
    fix="training.options.learning_rate, by the framework's own name",
    sources=("transformers training_args.py", "TRL trainer/sft_config.py", "Axolotl utils/schemas/training.py: learning_rate has no default",
             "DeepSpeed ops/adam (FusedAdam, DeepSpeedCPUAdam)", "Megatron-LM training/arguments.py: --lr is None", "fsdp_qlora train.py",
             "LitGPT utils.py instantiate_torch_optimizer"),
)  # fmt: skip
def no_learning_rate(case: Case) -> Outcome | None:
    """The learning rate is not written

    The framework's default is used, which may be far from what the method needs; a framework without one stops at start.
    A job whose own configuration is there, and lacks it, is refused.
    """
    training = case.spec.training
    keys, default = RATES.get(training.framework, ((), ""))
    if not keys or setting(case, *keys) is not None or (training.config is not None and not config_of(case).values):
        return None
    if training.framework in ("trl", "transformers", "llama-factory") and setting(case, "deepspeed.optimizer.params.lr") is not None:
        return None
    path, key = "training.options", keys[0]
    fix = f"write training.options: {{{key}: 1.0e-5}}, or the rate that the method needs"
    if default:
        return Outcome(path, f"no learning rate is written: {training.framework} takes {default}", fix)
    message = f"no learning rate is written, and {training.framework} has no default ({key})"
    if not wanted(case) or _own_program(case):  # check alone does not need all of a job
        return Outcome(path, message, fix)
    return Outcome(path, message, fix, severity="error" if training.config is not None else "warning")


def _own_program(case: Case) -> bool:
    """A command of the user's own, or a script in the place of the framework's: the rate may be written there."""
    launch = case.spec.launch
    return launch.command is not None or (bool(case.framework.command) and bool(launch.entrypoint or launch.module))
