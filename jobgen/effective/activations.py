"""What is kept for backward: the attention kernel, checkpointing and loss that really run."""

from __future__ import annotations

from typing import Literal

from jobgen.effective.numbers import megatron
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.setup import Activations, Effect, Effective

Kernel = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex", "efficient", "math"]
Loss = Literal["standard", "liger", "chunked", "vocab_parallel"]
Policy = Literal["ops", "layers", "core_attention"]

NO_SDPA = frozenset({"gpt_oss", "bloom", "gemma2", "deepseek_v4"})
"""Model types whose transformers classes have no sdpa path (``_supports_sdpa = False``): eager runs instead."""
FLASH_WIDTH = 256
"""Widest head of the flash kernels (torch sdp_utils.cpp check_head_dim_size_flash; flash-attn README)."""
_LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy", "use_liger_loss")
_CUT = ("cut_cross_entropy",)


def decide(effective: Effective) -> Activations:
    """Kernel, checkpointing, loss and sequence parallelism, after silent changes."""
    spec = effective.spec
    kernel, effects = attention(effective)
    mode = spec.training.activation_checkpointing.mode
    policy, every = selective(effective)
    return Activations(
        checkpointing=mode,
        policy=policy,
        every=every,
        attention=kernel,
        loss=loss(effective),
        sequence_parallel=sequence_parallel(effective),
        logits_upcast=spec.training.framework != "unsloth",
        effects=effects,
    )


def attention(effective: Effective) -> tuple[Kernel, tuple[Effect, ...]]:
    """The kernel: asked for or the framework's default; sdpa is resolved to the kernel that torch picks."""
    training, arch = effective.spec.training, effective.arch
    asked = training.attention
    kernel: Kernel = asked or _default(effective)
    if kernel != "sdpa" or megatron(effective):
        return kernel, ()
    if effective.spec.training.framework == "litgpt" and arch.model_type == "gemma2":
        return "eager", ()  # the capped scores are written out (litgpt model.py, scaled_dot_product_attention)
    if hugging_face(effective.spec) and arch.model_type in NO_SDPA:
        effects = (
            (
                Effect(
                    "sdpa_is_eager", "training.attention", "attention: sdpa",
                    f"eager attention runs: {arch.model_type} has no sdpa path in transformers", (),
                    "transformers modeling_utils.py get_correct_attn_implementation",
                ),
            )
            if asked
            else ()
        )  # fmt: skip
        return "eager", effects
    return _sdpa(effective), ()


def _default(effective: Effective) -> Kernel:
    if megatron(effective):
        return "flash_attention_2"
    default = effective.framework.attention
    known: dict[str, Kernel] = {
        "eager": "eager", "flash_attention_2": "flash_attention_2", "flash_attention_3": "flash_attention_3", "flex": "flex",
        "flash": "flash_attention_2",
    }  # fmt: skip
    return known.get(default, "sdpa")


def _sdpa(effective: Effective) -> Kernel:
    """What ``F.scaled_dot_product_attention`` picks (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, PyTorch 2.5-2.13).

    Flash takes 16-bit inputs without a mask, heads of at most 256 and one width for keys and values, on sm_80 and
    later; else the memory-efficient kernel. A padded batch of several sequences has a mask in transformers.
    """
    capability = effective.gpu.compute_capability
    layers = effective.arch.layers
    mixed = any(layer.head_dim > FLASH_WIDTH or layer.value_dim not in (0, layer.head_dim) for layer in layers)
    old = effective.gpu.vendor == "nvidia" and capability is not None and capability < (8, 0)
    if effective.spec.training.precision == "fp32" or mixed or old or masked(effective):
        return "efficient"
    return "sdpa"


def masked(effective: Effective) -> bool:
    """A padding mask reaches the kernel: several samples of one padded batch, through transformers' modules.

    One sample, or equal lengths, need none (masking_utils.py _ignore_causal_mask_sdpa, transformers 4.53 and later).
    """
    batch = effective.batch
    return hugging_face(effective.spec) and batch.padding and batch.micro > 1 and effective.spec.training.packing == "none"


def loss(effective: Effective) -> Loss:
    """The loss, from the spec or the framework's own switches; vocabulary-parallel where the head is cut."""
    training = effective.spec.training
    if training.loss != "standard":
        return training.loss
    if flag(effective.spec, *_LIGER):
        return "liger"
    if flag(effective.spec, *_CUT):
        return "chunked"
    if megatron(effective) or training.framework == "megatron-deepspeed":
        return "vocab_parallel"
    if training.framework == "torchtitan" and effective.spec.parallelism.tensor > 1:
        switched_off = flag(effective.spec, "parallelism.disable_loss_parallel")
        return "standard" if switched_off else "vocab_parallel"
    return "standard"


def selective(effective: Effective) -> tuple[Policy, int]:
    """What selective checkpointing means: policy and, for layers, which every n-th one is checkpointed."""
    asked, framework = effective.spec.training.activation_checkpointing, effective.spec.training.framework
    every = asked.every or 1
    if asked.policy is not None:
        return asked.policy, every
    if asked.every is not None:
        return "layers", every
    if megatron(effective) or framework == "megatron-deepspeed":
        return "core_attention", 1
    if framework == "torchtitan":
        written = option(effective.spec, "activation_checkpoint.selective_ac_option", default="op")
        return ("layers", int(written)) if str(written).isdigit() else ("ops", 1)
    return "layers", 2


def sequence_parallel(effective: Effective) -> bool:
    """Norms and residual stream are cut along the sequence over the tensor group."""
    parallel = effective.spec.parallelism
    if parallel.tensor == 1:
        return False
    if parallel.sequence_parallel != "auto":
        return bool(parallel.sequence_parallel)
    if megatron(effective) or effective.spec.training.framework == "torchtitan":
        return True  # the switch that jobgen writes (frameworks/megatron_lm.py), torchtitan's own default
    return effective.framework.sequence_parallel_default
