"""Attention kernels: what GPU, dtype, packing and context parallelism they work with."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.peft import path_of
from jobgen.checks.precision import below, capability
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.options import hugging_face, option

FLASH = ("flash_attention_2", "flash_attention_3")
SDPA: dict[str, object] = {"training.attention": "sdpa"}
FA2: dict[str, object] = {"training.attention": "flash_attention_2"}


def kernel(case: Case) -> str:
    """The attention asked for, else the framework's default."""
    return case.spec.training.attention or case.framework.attention


@rule(
    "JG421", "error", "first_step", "spec",
    bad=Example("lora-8b", {"model.name": "Qwen/Qwen3-0.6B", "resources.gpu": "v100-32gb", "training.precision": "fp16"}),
    good=Example("lora-8b", {"model.name": "Qwen/Qwen3-0.6B", "resources.gpu": "v100-32gb", "training.precision": "fp16", "training.attention": "sdpa"}),
    fix="training.attention: sdpa",
    sources=("flash-attention@0251105a csrc/flash_attn/flash_api.cpp:393",),
    facts=("AT01",),
)  # fmt: skip
def flash_needs_ampere(case: Case) -> Outcome | None:
    """FlashAttention 2 needs Ampere or newer

    The model loads; the first forward pass stops.
    """
    if case.spec.training.attention != "flash_attention_2" or not below(case, (8, 0)):
        return None
    return Outcome("training.attention", f"FlashAttention 2 does not run at {capability(case)}",
                   "write training.attention: sdpa", SDPA)  # fmt: skip


@rule(
    "JG422", "error", "first_step", "spec",
    bad=Example("full-8b-zero2", {"model.name": "Qwen/Qwen3-0.6B", "training.precision": "fp32"}),
    good=Example("full-8b-zero2", {"model.name": "Qwen/Qwen3-0.6B", "training.precision": "fp32", "training.attention": "sdpa"}),
    fix="bf16 or fp16, or training.attention: sdpa",
    sources=("flash-attention@0251105a csrc/flash_attn/flash_api.cpp:397", "transformers 4.57.6 modeling_utils.py:2449"),
    facts=("AT02",),
)  # fmt: skip
def flash_half_only(case: Case) -> Outcome | None:
    """FlashAttention computes in 16 bit only

    In fp32 transformers warns at load and the kernel stops at the first forward pass.
    """
    if case.spec.training.attention not in FLASH or case.spec.training.precision != "fp32":
        return None
    return Outcome("training.attention", f"{kernel(case)} takes fp16 and bf16, not fp32",
                   "write training.attention: sdpa", SDPA)  # fmt: skip


@rule(
    "JG423", "error", "first_step", "spec",
    bad=Example("lora-8b", {"model.name": "google/gemma-4-26B-A4B", "training.versions": {"transformers": "5.10.0", "peft": "0.19.0"}, "resources.gpu": "b200",
                            "training.lora.target_modules": ["q_proj", "v_proj"]}),
    good=Example("lora-8b", {}),
    fix="training.attention: sdpa or flex",
    sources=("flash-attention@0251105a csrc/flash_attn/flash_api.cpp:416,634",),
    facts=("AT03",),
)  # fmt: skip
def flash_head_dim(case: Case) -> Outcome | None:
    """FlashAttention 2 takes heads of at most 256

    Wider heads stop at the first forward pass.
    """
    widest = max((max(layer.head_dim, layer.value_dim) for layer in case.arch.layers), default=0)
    if case.spec.training.attention != "flash_attention_2" or widest <= 256:
        return None
    return Outcome("training.attention", f"the model's heads are {widest} wide; FlashAttention 2 takes at most 256",
                   "write training.attention: sdpa", SDPA)  # fmt: skip


@rule(
    "JG424", "error", "load", "spec",
    bad=Example("lora-8b", {"training.attention": "flash_attention_3"}),
    good=Example("full-8b-zero2", {"training.attention": "flash_attention_3"}),
    fix="training.attention: flash_attention_2",
    sources=("flash-attention@0251105a README.md:31-45",),
    facts=("AT04",),
)  # fmt: skip
def flash3_needs_hopper(case: Case) -> Outcome | None:
    """FlashAttention 3 needs Hopper and CUDA 12.3

    It is written for H100 and H800 (and their relatives).
    """
    if case.spec.training.attention != "flash_attention_3" or case.gpu.compute_capability is None:
        return None
    if case.gpu.flash_attention_3 and case.v["cuda"] >= (12, 3):
        return None
    why = f"does not run at {capability(case)}" if not case.gpu.flash_attention_3 else "needs CUDA 12.3"
    return Outcome("training.attention", f"FlashAttention 3 {why}", "write training.attention: flash_attention_2", FA2)


@rule(
    "JG425", "warning", "loss", "spec",
    bad=Example("lora-8b", {"model.name": "google/gemma-2-9b", "training.versions": {"transformers": "4.50.3", "peft": "0.14.0"}}),
    good=Example("lora-8b", {"model.name": "google/gemma-2-9b", "training.versions": {"transformers": "4.57.6", "peft": "0.18.1"}}),
    fix="training.attention: eager",
    sources=("transformers 4.50.3 models/gemma2/modeling_gemma2.py:878",),
    facts=("AT05",),
    versions="transformers 4.42-4.56",
)  # fmt: skip
def gemma2_softcap(case: Case) -> Outcome | None:
    """Gemma 2 trains worse without eager attention

    Its scores are soft-capped; transformers of 4.42-4.56 recommends eager for training.
    """
    if case.arch.model_type != "gemma2" or kernel(case) == "eager" or not hugging_face(case.spec):
        return None
    if not case.v.between("transformers", (4, 42), (4, 57)):
        return None
    return Outcome("training.attention" if case.wrote("training.attention") else "model.name", f"soft-capped attention with {kernel(case)}: transformers recommends eager for training Gemma 2",
                   "write training.attention: eager", {"training.attention": "eager"})  # fmt: skip


@rule(
    "JG426", "warning", "loss", "spec",
    bad=Example("lora-8b-ddp", {"training.packing": "packed", "training.attention": "sdpa"}),
    good=Example("lora-8b-ddp", {"training.packing": "packed"}),
    fix="training.attention: flash_attention_2",
    sources=("TRL trainer/sft_trainer.py:1212",),
    facts=("AT06",),
)  # fmt: skip
def packing_crosses(case: Case) -> Outcome | None:
    """Packed samples see each other without FlashAttention

    TRL tells samples apart by position ids, which only the flash kernels (variable length) read; with sdpa and eager a
    sample attends to its neighbours.
    """
    spec = case.spec
    if spec.training.framework != "trl" or spec.training.packing == "none" or kernel(case) not in ("sdpa", "eager"):
        return None
    return Outcome("training.packing", f"samples packed into one sequence attend to each other with {kernel(case)}",
                   "write training.attention: flash_attention_2", FA2)  # fmt: skip


@rule(
    "JG427", "error", "init", "spec",
    bad=Example("full-8b-swift", {"training.packing": "packed", "training.attention": "sdpa"}),
    good=Example("full-8b-swift", {"training.packing": "packed"}),
    fix="training.attention: flash_attention_2",
    sources=("ms-swift arguments/sft_args.py:184-196",),
    facts=("AT07",),
)  # fmt: skip
def swift_packing(case: Case) -> Outcome | None:
    """ms-swift packs with FlashAttention only

    Packing and padding_free with another kernel raise at start.
    """
    spec = case.spec
    if spec.training.framework != "ms-swift" or spec.training.backend == "megatron" or spec.training.packing == "none":
        return None
    if kernel(case) in FLASH or kernel(case).startswith("flash"):
        return None
    return Outcome("training.attention" if case.wrote("training.attention") else "training.packing", f"ms-swift refuses packing with {kernel(case)}",
                   "write training.attention: flash_attention_2", FA2)  # fmt: skip


@rule(
    "JG428", "warning", "loss", "spec",
    bad=Example("full-8b-axolotl", {"training.attention": "sdpa", "resources.gpu": "a100-80gb"}),
    good=Example("full-8b-axolotl", {"training.attention": "sdpa"}),
    fix="training.attention: flash_attention_2",
    sources=("Axolotl utils/schemas/config.py:1804",),
    facts=("AT08",),
)  # fmt: skip
def axolotl_zero_loss(case: Case) -> Outcome | None:
    """Packing with sdpa in bf16 may give a loss of zero in Axolotl

    Axolotl warns of it on GPUs before Hopper.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.training.packing != "packed" or kernel(case) != "sdpa":
        return None
    if spec.training.precision not in ("bf16", "bf16_pure") or not below(case, (9, 0)):
        return None
    return Outcome("training.attention" if case.wrote("training.attention") else "training.packing", "packing with sdpa in bf16 may give a loss of 0.0 on this GPU",
                   "write training.attention: flash_attention_2", FA2)  # fmt: skip


@rule(
    "JG429", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"parallelism.context": 2, "training.attention": "sdpa"}),
    good=Example("full-8b-axolotl", {"parallelism.context": 2}),
    fix="training.attention: flash_attention_2, and micro_batch_size 1 with packing",
    sources=("Axolotl utils/schemas/validation.py:1654-1660",),
    facts=("AT09",),
)  # fmt: skip
def axolotl_context(case: Case) -> Outcome | None:
    """Axolotl's context parallelism needs FlashAttention

    With packing the micro batch must be one as well: it raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.parallelism.context == 1:
        return None
    if kernel(case) not in FLASH:
        return Outcome("training.attention" if case.wrote("training.attention") else "parallelism.context", f"context: {spec.parallelism.context} needs FlashAttention, not {kernel(case)}",
                       "write training.attention: flash_attention_2", FA2)  # fmt: skip
    if spec.training.packing == "packed" and spec.training.micro_batch_size > 1:
        return Outcome("training.micro_batch_size", "context parallelism with packing takes one sequence per rank", "write training.micro_batch_size: 1",
                       {"training.micro_batch_size": 1})  # fmt: skip
    return None


@rule(
    "JG430", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"parallelism.context": 2, "training.options": {"attn_backend": "varlen"}}),
    good=Example("pretrain-8b-torchtitan", {"parallelism.context": 2}),
    fix="flex",
    sources=("torchtitan models/qwen3/model.py:94",),
    facts=("AT10",),
)  # fmt: skip
def titan_varlen(case: Case) -> Outcome | None:
    """torchtitan's varlen attention has no context parallelism

    It raises.
    """
    spec = case.spec
    key = next((k for k in ("attn_backend", "model.attn_backend", "attn_type", "model.attn_type") if option(spec, k) == "varlen"), None)
    if spec.training.framework != "torchtitan" or spec.parallelism.context == 1 or key is None:
        return None
    path = path_of(case, key)
    return Outcome(path, f"varlen attention does not work with context: {spec.parallelism.context}", "use flex", {path: "flex"})


@rule(
    "JG431", "error", "init", "spec",
    bad=Example("pretrain-8b-torchtitan", {"training.versions": {"torchtitan": "0.3.0"}, "training.attention": "sdpa"}),
    good=Example("pretrain-8b-torchtitan", {"training.attention": "sdpa"}),
    fix="training.attention: flex",
    sources=("torchtitan models/common/config_utils.py:98", "torchtitan 0.3.0 get_attention_config"),
    facts=("AT11",),
    versions="torchtitan >= 0.3",
)  # fmt: skip
def titan_sdpa(case: Case) -> Outcome | None:
    """torchtitan no longer trains language models with sdpa

    Since 0.3.0 it takes flex, flex_flash or varlen.
    """
    spec = case.spec
    if spec.training.framework != "torchtitan" or spec.training.attention != "sdpa" or not case.v["torchtitan"] >= (0, 3):
        return None
    return Outcome("training.attention", "torchtitan refuses sdpa for language models since 0.3.0", "write training.attention: flex", {"training.attention": "flex"})


@rule(
    "JG432", "error", "init", "spec",
    bad=Example("lora-8b-ddp", {"training.packing": "padding_free", "training.versions": {"trl": "1.12.0", "transformers": "5.10.0", "peft": "0.19.0"}}),
    good=Example("lora-8b-ddp", {"training.packing": "padding_free"}),
    fix="training.packing: packed",
    sources=("TRL trainer/sft_trainer.py:1245 (f2cd5771)",),
    facts=("AT12",),
    versions="TRL >= 1.9",
)  # fmt: skip
def trl_padding_free(case: Case) -> Outcome | None:
    """TRL refuses a length cap with padding_free alone

    max_length (the spec's sequence_length) is not enforced there, so newer releases raise; packing cuts for itself.
    """
    spec = case.spec
    if spec.training.framework != "trl" or spec.training.packing != "padding_free" or spec.training.objective != "sft":
        return None
    if not case.v["trl"] >= (1, 9):
        return None
    return Outcome("training.packing", "padding_free without packing does not enforce the sequence length: TRL raises", "write training.packing: packed", {"training.packing": "packed"})


@rule(
    "JG433", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"training.objective": "dpo"}),
    good=Example("full-8b-axolotl", {"training.objective": "dpo", "training.packing": "none"}),
    fix="training.packing: none",
    sources=("Axolotl utils/schemas/validation.py:690,698", "LLaMA-Factory hparams/parser.py:423"),
    facts=("AT13",),
)  # fmt: skip
def packing_preferences(case: Case) -> Outcome | None:
    """Preference data cannot be packed

    Axolotl refuses packing with DPO, KTO, ORPO and GRPO; LLaMA-Factory packs (neat_packing) for SFT only.
    """
    spec = case.spec
    packed = spec.training.packing != "none" and (spec.training.framework, spec.training.packing) != ("axolotl", "padding_free")
    if spec.training.framework not in ("axolotl", "llama-factory") or not packed or spec.training.objective not in ("dpo", "kto", "orpo", "grpo"):
        return None
    return Outcome("training.packing", f"{spec.training.framework} refuses packing with {spec.training.objective}", "write training.packing: none", {"training.packing": "none"})
