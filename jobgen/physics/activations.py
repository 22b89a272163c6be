"""What autograd keeps for backward, layer by layer, and what a layer needs while it runs (terms of the ledger).

Structure comes from tapes (``tape.py``): each layer is written down operation by operation. Here its coefficients are
multiplied by the sizes of one rank, by pipeline stages and microbatches in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.physics import checkpointing, cost, layers, logits, modules
from jobgen.physics.arrays import larger
from jobgen.physics.blocks import Build
from jobgen.physics.cost import Products, bytes_of
from jobgen.physics.ledger import BACKWARD_END, BACKWARD_START, EVALUATE, FORWARD, LOSS, Term
from jobgen.physics.sizes import Number, Sizes, Stage

if TYPE_CHECKING:
    from jobgen.catalog.arch import Layer
    from jobgen.effective.setup import Effective

AUTOGRAD = "torch.autograd saved tensors of the modules, operation by operation (physics/tape.py, tests/physics/oracles)"
AUTOCAST = "torch aten/src/ATen/autocast_mode.cpp cached_cast"
SHARDED = frozenset({"zero1", "zero2", "zero3"})
_KERNELS = {
    "eager": "eager", "math": "math", "efficient": "efficient", "sdpa": "flash", "flash_attention_2": "flash",
    "flash_attention_3": "flash", "flex": "flash",
}  # fmt: skip
TRAINER_FRAMEWORKS = frozenset({"transformers", "trl", "accelerate", "llama-factory", "axolotl", "ms-swift"})


def build_of(effective: Effective) -> Build:
    """The categories of an effective set-up that decide the structure of its layers."""
    spec, numbers, adapters, quantized = effective.spec, effective.numbers, effective.adapters, effective.quantized
    training = spec.training
    now = effective.activations
    from jobgen.effective.activations import masked
    from jobgen.effective.numbers import megatron

    mixed = training.precision in ("bf16", "fp16")
    trainer = training.framework in TRAINER_FRAMEWORKS and training.backend != "megatron"
    autocast = numbers.autocast_copies or (trainer and mixed and spec.parallelism.sharding not in SHARDED)
    full = training.method == "full"
    arch = effective.arch
    return Build(
        compute=numbers.compute,
        residual=numbers.residual,
        weights=numbers.weights if full else numbers.residual,
        trained=full,
        autocast=autocast,
        kernel=_KERNELS[now.attention],
        masked=now.attention == "efficient" and masked(effective),
        rank=adapters.rank,
        targets=adapters.targets,
        adapters=numbers.adapters,
        adapter_dropout=adapters.dropout > 0,
        expert_adapters=adapters.fused_experts,
        quantized=quantized.type is not None,
        quantized_experts=quantized.experts,
        quantized_keeps_input=quantized.type in ("nf4", "fp4") and keeps_input(effective),
        module=modules.module(arch.model_type, arch.layer_norm),
        style=modules.style(training.framework, megatron(effective), now.loss == "liger"),
        compiled=training.compile,
        gathers=now.sequence_parallel and not megatron(effective),
    )


def keeps_input(effective: Effective) -> bool:
    """bitsandbytes kept the input of every frozen 4-bit matmul until 0.43.2 (pull request 1270); LitGPT pins 0.42."""
    if effective.spec.training.framework == "litgpt" and not effective.versions.interval("bitsandbytes").low:
        return True
    return not effective.versions["bitsandbytes"] >= (0, 43, 2)


def windowed(effective: Effective, build: Build, layer: Layer) -> Build:
    """transformers gives sdpa a mask for a window shorter than the sequence, which its flash kernel refuses."""
    if layer.window is None or effective.activations.attention != "sdpa" or layer.window >= effective.batch.sequence:
        return build
    return build._replace(kernel="efficient", masked=True) if build.style is modules.HF else build


def terms(effective: Effective, sizes: Sizes, stage: Stage) -> tuple[Term, ...]:
    """The ledger's terms for one pipeline stage: kept tensors, the working layer, tables, inputs, the final norm."""
    build, now, arch = build_of(effective), effective.activations, effective.arch
    by = cost.products(sizes, now.sequence_parallel)
    kept: Any = 0
    one: Any = 0
    working: Any = 0
    forward: Any = 0
    casts: Any = 0
    for index, layer in enumerate(arch.layers):
        count = stage.layers[index]
        if isinstance(count, int | float) and count == 0:
            continue
        part = checkpointing.part(layer, arch.hidden, windowed(effective, build, layer), now)
        mine = _weighted(part.kept, by)
        kept = kept + count * mine
        one = larger(one, mine)
        working = larger(working, cost.largest(part.working, by))
        forward = larger(forward, cost.largest(part.forward, by))
        casts = casts + count * bytes_of(part.casts, by)
    words = {
        "none": "saved tensors of every layer", "full": "inputs of every layer",
        "selective": "tensors that the selective policy keeps",
    }[now.checkpointing]  # fmt: skip
    in_flight = stage.in_flight
    result = []
    if offloads(effective):
        result.append(Term("activations_transfer", "activations", "allocated", FORWARD | LOSS | BACKWARD_START | BACKWARD_END, 2 * one, f"{words}: two layers on the GPU while the rest is on the host", AUTOGRAD))
    else:
        result.append(Term("activations_kept", "activations", "allocated", FORWARD | LOSS | BACKWARD_START, kept * in_flight, f"{words} x microbatches in flight", AUTOGRAD))
        left = 2 if effective.sharded.gathered_units > 1 else 1  # where units are gathered ahead the second layer is the fullest moment
        result.append(Term("activations_kept_end", "activations", "allocated", BACKWARD_END, kept * (in_flight - 1) + left * one, f"{'two layers' if left == 2 else 'one layer'}, and the other microbatches in flight", AUTOGRAD))
    result.append(Term("activations_working", "activations", "allocated", BACKWARD_START | BACKWARD_END, working, "the layer in backward: what is recomputed, and gradients", AUTOGRAD))
    result.append(Term("activations_forward", "activations", "allocated", FORWARD | EVALUATE, forward, "temporaries of one layer's forward pass", AUTOGRAD))
    if not (isinstance(casts, int | float) and casts == 0):
        copies = "16-bit copies of the weights that autocast caches until the forward pass ends"
        result.append(Term("autocast_copies", "weights", "allocated", FORWARD, casts, copies, AUTOCAST))
        beyond = larger(casts - logits.backward_beyond_forward(effective, sizes, stage), 0.0)
        result.append(Term("autocast_copies_loss", "weights", "allocated", LOSS, beyond, copies + ", beyond what the loss's backward needs more", AUTOCAST))
    result.extend(_outside(effective, build, sizes, by, stage))
    return tuple(result)


def _weighted(parts: tuple[tuple[Number, cost.Cost], ...], by: Products) -> Any:
    total: Any = 0
    for weight, each in parts:
        total = total + weight * bytes_of(each, by)
    return total


def _outside(effective: Effective, build: Build, sizes: Sizes, by: Products, stage: Stage) -> list[Term]:
    """What is kept outside of the layers."""
    tokens = by.token
    phases = FORWARD | LOSS | BACKWARD_START | BACKWARD_END
    width = max((layer.head_dim for layer in effective.arch.layers), default=0)
    result = [
        Term("inputs", "activations", "allocated", phases, 24 * tokens * stage.in_flight, "token ids, labels and mask or positions: 8 bytes each per token", "torch int64 tensors of the data collator"),
        Term("rotary_tables", "activations", "allocated", phases, 2 * width * build.residual * tokens, "cosine and sine of the positions", "transformers modeling_llama.py LlamaRotaryEmbedding"),
    ]
    if build.kernel in ("eager", "math"):
        result.append(Term("causal_mask", "activations", "allocated", phases, build.compute * by.mask, "one mask of tokens x tokens per sequence", "transformers masking_utils.py eager_mask"))
    if stage.head and build.trained and build.autocast and build.weights != build.compute and logits.pieces(effective) is not None:
        head = build.compute * effective.arch.vocab * effective.arch.hidden / sizes.tensor
        result.append(Term("head_copy", "weights", "allocated", LOSS, head, "the head in 16 bit, as autocast multiplied with it", AUTOCAST))
    if stage.head:
        outside = layers.final_norm_profile(effective.arch.hidden, build)
        result.append(Term("final_norm", "activations", "allocated", FORWARD | LOSS, bytes_of(outside.saved, by), "the final norm's and the head's saved inputs", AUTOGRAD))
    return result


def offloads(effective: Effective) -> bool:
    """Saved activations go to the host (Unsloth's checkpointing always sends them there)."""
    now = effective.activations
    return effective.offloaded.activations == "cpu" or (
        effective.spec.training.framework == "unsloth" and now.checkpointing == "full"
    )


def host_bytes(effective: Effective, sizes: Sizes, stage: Stage) -> Number:
    """Bytes of offloaded activations on the host, per rank."""
    if not offloads(effective):
        return 0
    build, now, arch = build_of(effective), effective.activations, effective.arch
    by = cost.products(sizes, now.sequence_parallel)
    total: Any = 0
    for index, layer in enumerate(arch.layers):
        part = checkpointing.part(layer, arch.hidden, windowed(effective, build, layer), now)
        total = total + stage.layers[index] * _weighted(part.kept, by)
    return total * stage.in_flight

