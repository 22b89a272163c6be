"""Precision: what the GPU and the framework can do."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.peft import path_of
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.quantization import requested
from jobgen.frameworks import states


def capability(case: Case) -> str:
    """``compute capability 7.0 of v100-32gb``."""
    found = case.gpu.compute_capability
    return f"compute capability {'.'.join(map(str, found))} of {case.gpu.name}" if found else case.gpu.name


def below(case: Case, least: tuple[int, int]) -> bool:
    """An NVIDIA GPU of an older generation."""
    found = case.gpu.compute_capability
    return found is not None and found < least


@rule(
    "JG401", "error", "init", "spec",
    bad=Example("lora-8b", {"model.name": "Qwen/Qwen3-0.6B", "resources.gpu": "v100-32gb", "training.attention": "sdpa"}),
    good=Example("lora-8b", {"model.name": "Qwen/Qwen3-0.6B", "resources.gpu": "v100-32gb", "training.attention": "sdpa", "training.precision": "fp16"}),
    fix="training.precision: fp16",
    sources=("transformers 4.57.6 training_args.py:1740-1747", "DeepSpeed runtime/engine.py:1682"),
    facts=("PR01",),
)  # fmt: skip
def bf16_needs_ampere(case: Case) -> Outcome | None:
    """bf16 needs Ampere or newer

    V100 and T4 have no bf16 units; TrainingArguments and DeepSpeed refuse, others are very slow.
    """
    if case.spec.training.precision not in ("bf16", "bf16_pure") or not below(case, (8, 0)):
        return None
    return Outcome("training.precision" if case.wrote("training.precision") else "resources.gpu",
                   f"bf16 is not supported at {capability(case)}", "write training.precision: fp16", {"training.precision": "fp16"})  # fmt: skip


@rule(
    "JG404", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"training.precision": "fp8", "resources.gpu": "a100-80gb"}),
    good=Example("pretrain-8b-torchtitan", {"training.precision": "fp8"}),
    fix="training.precision: bf16",
    sources=("torchtitan components/quantization/float8.py:92", "Axolotl utils/schemas/config.py:1787"),
    facts=("PR04",),
)  # fmt: skip
def fp8_needs_ada(case: Case) -> Outcome | None:
    """fp8 needs compute capability 8.9

    Ada, Hopper and Blackwell have it; Ampere has not.
    """
    if case.spec.training.precision != "fp8" or not below(case, (8, 9)):
        return None
    return Outcome("training.precision", f"fp8 is not supported at {capability(case)}", "write training.precision: bf16", {"training.precision": "bf16"})


@rule(
    "JG405", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"training.options": {"quantize": {"linear": {"mx": {"recipe_name": "mxfp8"}}}}}),
    good=Example("pretrain-8b-torchtitan", {"resources.gpu": "b200", "training.options": {"quantize": {"linear": {"mx": {"recipe_name": "mxfp8"}}}}}),
    fix="float8 on Hopper and Ada",
    sources=("torchtitan components/quantization/mx.py:71, nvfp4.py:292",),
    facts=("PR05",),
)  # fmt: skip
def mx_needs_blackwell(case: Case) -> Outcome | None:
    """mxfp8 and nvfp4 training need Blackwell

    torchtitan refuses them below compute capability 10.0.
    """
    if case.spec.training.framework != "torchtitan" or not below(case, (10, 0)):
        return None
    key = next((key for key, value in case.spec.training.options.items() if any(word in _flat(key, value) for word in ("mxfp8", "nvfp4"))), None)
    if key is None:
        return None
    path = f"training.options.{key}"
    return Outcome(path, f"mxfp8 and nvfp4 are not supported at {capability(case)}", "remove it, or write training.precision: fp8 on Hopper and Ada", {path: None})


def _flat(key: str, value: object) -> str:
    return f"{key} {value}".lower()


@rule(
    "JG406", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"training.precision": "fp8"}),
    good=Example("qlora-235b-zero3", {}),
    fix="one of the two",
    sources=("LLaMA-Factory hparams/parser.py:527",),
    facts=("PR06",),
)  # fmt: skip
def fp8_and_quantized(case: Case) -> Outcome | None:
    """LLaMA-Factory's fp8 training excludes a quantised base

    It raises at start.
    """
    if case.spec.training.framework != "llama-factory" or case.spec.training.precision != "fp8" or requested(case.spec) is None:
        return None
    return Outcome("training.precision", "fp8 does not work with a quantised base", "write training.precision: bf16", {"training.precision": "bf16"})


@rule(
    "JG407", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"training.precision": "fp8", "parallelism.sharding": "fsdp1", "training.options": {"fp8_enable_fsdp_float8_all_gather": True}}),
    good=Example("full-8b-axolotl", {"training.precision": "fp8", "training.options": {"fp8_enable_fsdp_float8_all_gather": True}}),
    fix="parallelism.sharding: fsdp2",
    sources=("Axolotl utils/schemas/validation.py:447",),
    facts=("PR07",),
)  # fmt: skip
def fp8_all_gather(case: Case) -> Outcome | None:
    """Axolotl's fp8 all-gather needs FSDP2

    It raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.training.precision != "fp8" or spec.parallelism.sharding == "fsdp2":
        return None
    if not flag(spec, "fp8_enable_fsdp_float8_all_gather"):
        return None
    return Outcome(path_of(case, "fp8_enable_fsdp_float8_all_gather"), f"fp8 all-gather does not work with {spec.parallelism.sharding}",
                   "write parallelism.sharding: fsdp2", {"parallelism.sharding": "fsdp2"})  # fmt: skip


@rule(
    "JG408", "error", "init", "spec",
    bad=Example("full-8b-torchtune", {"training.precision": "fp16"}),
    good=Example("full-8b-torchtune", {}),
    fix="training.precision: bf16",
    sources=("torchtune recipes/full_finetune_distributed.py:139",),
    facts=("PR08",),
)  # fmt: skip
def torchtune_fp16(case: Case) -> Outcome | None:
    """torchtune does not train in fp16

    Its recipes raise.
    """
    if case.spec.training.framework != "torchtune" or case.spec.training.precision != "fp16":
        return None
    return Outcome("training.precision", "torchtune's recipes refuse fp16", "write training.precision: bf16", {"training.precision": "bf16"})


@rule(
    "JG409", "error", "first_step", "spec",
    bad=Example("full-8b-zero2", {"parallelism.sharding": "none", "model.name": "Qwen/Qwen3-0.6B", "training.precision": "fp16", "training.options": {"torch_dtype": "float16"}}),
    good=Example("full-8b-zero2", {"parallelism.sharding": "none", "model.name": "Qwen/Qwen3-0.6B", "training.precision": "fp16", "training.options": {"torch_dtype": "float32"}}),
    fix="trained weights in fp32 (torch_dtype: float32), or bf16",
    sources=("PEFT docs/source/developer_guides/troubleshooting.md:46", "Axolotl utils/schemas/validation.py:416", "Axolotl utils/config: torch_dtype = float16 where fp16 is set"),
    facts=("PR09",),
)  # fmt: skip
def unscale_fp16(case: Case) -> Outcome | None:
    """Mixed fp16 needs trained weights in fp32

    The gradient scaler refuses fp16 gradients: "Attempting to unscale FP16 gradients". peft casts adapters to fp32 itself.
    """
    spec = case.spec
    if spec.training.framework == "axolotl" and spec.training.precision == "fp16" and spec.training.method == "full" and spec.parallelism.sharding == "none":
        return Outcome("training.precision", "Axolotl loads the weights in fp16, whose gradients the scaler of mixed precision refuses",
                       "write training.precision: bf16", {"training.precision": "bf16"})  # fmt: skip
    key = next((k for k in ("torch_dtype", "dtype") if str(option(spec, k)).removeprefix("torch.") in ("float16", "fp16")), None)
    if key is None or spec.training.precision != "fp16" or not hugging_face(spec) or spec.parallelism.sharding not in ("none", "fsdp1"):
        return None
    if spec.training.method != "full" and flag(spec, "autocast_adapter_dtype") is not False and case.v["peft"] >= (0, 12):
        return None
    path = path_of(case, key)
    return Outcome(path, "the trained weights are fp16, whose gradients the scaler of mixed precision refuses", f"write {key}: float32", {path: "float32"})


@rule(
    "JG412", "error", "init", "spec",
    bad=Example("full-32b-zero3", {"training.precision": "bf16_pure"}),
    good=Example("full-32b-zero3", {}),
    fix="training.precision: bf16",
    sources=("LLaMA-Factory hparams/parser.py:503",),
    facts=("PR12",),
)  # fmt: skip
def pure_bf16_zero3(case: Case) -> Outcome | None:
    """LLaMA-Factory's pure_bf16 excludes ZeRO-3

    It raises at start.
    """
    spec = case.spec
    if spec.training.framework != "llama-factory" or spec.training.precision != "bf16_pure" or spec.parallelism.sharding != "zero3":
        return None
    return Outcome("training.precision", "pure_bf16 does not work with ZeRO-3", "write training.precision: bf16", {"training.precision": "bf16"})


@rule(
    "JG413", "error", "init", "spec",
    bad=Example("lora-8b", {"model.name": "Qwen/Qwen3-0.6B", "resources.gpu": "v100-32gb", "training.attention": "sdpa", "training.precision": "fp16", "training.options": {"tf32": True}}),
    good=Example("lora-8b", {"training.options": {"tf32": True}}),
    fix="tf32: false",
    sources=("transformers 5.24.0 training_args.py:1682",),
    facts=("PR13",),
)  # fmt: skip
def tf32_needs_ampere(case: Case) -> Outcome | None:
    """tf32 needs Ampere or newer

    TrainingArguments refuse it on older GPUs.
    """
    if not flag(case.spec, "tf32") or not below(case, (8, 0)) or not hugging_face(case.spec):
        return None
    path = path_of(case, "tf32")
    return Outcome(path, f"tf32 is not supported at {capability(case)}", "write tf32: false", {path: False})


@rule(
    "JG414", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"training.precision": "bf16_pure"}),
    good=Example("pretrain-70b-megatron", {}),
    fix="training.precision: bf16",
    sources=("the framework's own option table (jobgen.frameworks)", "LLaMA-Factory hparams/parser.py: bf16 beside pure_bf16 is refused",
             "transformers integrations/deepspeed.py: bf16.enabled must be what the arguments say"),
)  # fmt: skip
def precision_without_a_word(case: Case) -> Outcome | None:
    """The framework cannot be told to train in this precision

    It has no option for it, or refuses the one it has: it would run in another precision than the one that was checked.
    """
    training = case.spec.training
    why = states.unsupported(training.framework, training.backend, training.precision) or _combination(case)
    if not why:
        return None
    return Outcome("training.precision", f"{training.framework} cannot train in {training.precision}: {why}", "write training.precision: bf16",
                   {"training.precision": "bf16"})  # fmt: skip


def _combination(case: Case) -> str:
    """Why the sharding or the launcher rules this precision out."""
    training, sharding = case.spec.training, case.spec.parallelism.sharding
    zero = sharding in ("zero1", "zero2", "zero3")
    if training.precision == "bf16_pure":
        if training.framework == "llama-factory" and sharding in ("zero1", "zero2"):
            return "LLaMA-Factory refuses bf16 beside pure_bf16, and DeepSpeed needs it"
        if training.framework in ("deepspeed", "megatron-deepspeed") and not zero:
            return "without ZeRO DeepSpeed's masters are fp32"
    if training.precision == "fp8" and training.framework in ("transformers", "trl", "ms-swift") and training.backend != "megatron":
        if zero:
            return "DeepSpeed's configuration has no fp8"
        if (case.spec.launch.launcher or case.framework.launcher) != "accelerate":
            return "fp8 reaches a Trainer only through accelerate launch"
    return ""
