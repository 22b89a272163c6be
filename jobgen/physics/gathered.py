"""What is whole for a while: gathered units, unsharded gradients, buckets, dequantised weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobgen.effective.numbers import megatron
from jobgen.frameworks import states as table
from jobgen.frameworks import zero
from jobgen.physics.arrays import larger, smaller
from jobgen.physics.inventory import Unit, inventory
from jobgen.physics.ledger import ALWAYS, BACKWARD_END, BACKWARD_START, FORWARD, LOAD, LOSS, STEP, Term
from jobgen.physics.modules import module
from jobgen.physics.sizes import Sizes, Stage
from jobgen.physics.states import held, total

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

BACKWARD = BACKWARD_START | BACKWARD_END
PASS = FORWARD | LOSS | BACKWARD
HALF_STATE = frozenset({"litgpt"})
"""Frameworks that quantise from fp16 whatever they compute in, so that each dequantised matrix is cast once more
(lightning fabric/plugins/precision/bitsandbytes.py _quantize_weight; MatMul4Bit .to(A.dtype))."""
_FSDP2 = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py"
_FSDP1 = "torch/distributed/fsdp/_runtime_utils.py"


def terms(effective: Effective, sizes: Sizes, stage: Stage) -> tuple[Term, ...]:
    """Everything that sharding makes whole for a while, and the workspace of quantised layers."""
    found: list[Term] = []
    kind = effective.sharded.kind
    if kind in ("fsdp1", "fsdp2"):
        found += _fsdp(effective, sizes, stage)
    elif kind == "zero3":
        found += _zero3(effective, sizes, stage)
    elif kind in ("zero1", "zero2") and not megatron(effective):
        found += _zero12(effective, sizes, stage)
    elif kind == "zero2":
        found.append(Term("unsharded_gradients", "communication", "allocated", BACKWARD,
                          effective.numbers.gradients * _largest_trained(effective, sizes, stage),
                          "gradients of one layer before they are reduced", "Megatron-LM core/distributed/fsdp"))  # fmt: skip
    found += _indexed(effective, sizes, stage)
    found += _loading(effective, sizes, stage)
    found += _dequantised(effective, stage, sizes)
    return tuple(found)


def _whole(effective: Effective, unit: Unit, sizes: Sizes) -> Any:
    """Bytes of one gathered unit: 16 bit (or as quantised; adapters in the dtype they are gathered in)."""
    width = effective.numbers.compute if effective.numbers.weights <= 4 else effective.numbers.weights
    return width * unit.plain.local(sizes) + unit.packed.local(sizes) + width * unit.adapters.local(sizes)


def _largest(effective: Effective, stage: Stage, measure: Callable[[Unit], Any]) -> Any:
    """The most that a layer of the stage measures."""
    best: Any = 0.0
    for unit, count in zip(inventory(effective).layers, stage.layers, strict=True):
        if not isinstance(count, int) or count:
            best = larger(best, measure(unit))
    return best


def _largest_whole(effective: Effective, sizes: Sizes, stage: Stage) -> Any:
    """Bytes of the largest gathered layer."""
    return _largest(effective, stage, lambda unit: _whole(effective, unit, sizes))


def _largest_trained(effective: Effective, sizes: Sizes, stage: Stage) -> Any:
    """Trained elements of the layer that has most."""
    return _largest(effective, stage, lambda unit: unit.trained.local(sizes))


def _fsdp(effective: Effective, sizes: Sizes, stage: Stage) -> list[Term]:
    """Units of FSDP: the one at work, the one that is fetched ahead, the root, and gradients on their way."""
    sharded, numbers = effective.sharded, effective.numbers
    if isinstance(sizes.weights_shards, int | float) and sizes.weights_shards == 1:
        return []
    source = _FSDP2 if sharded.kind == "fsdp2" else _FSDP1
    layer = _largest_whole(effective, sizes, stage)
    gradient = _largest_trained(effective, sizes, stage)
    outer = [unit for unit, _ in held(effective, stage)[len(stage.layers) :]]
    whole: Any = 0.0
    outer_trained: Any = 0.0
    for unit in outer:
        whole, outer_trained = whole + _whole(effective, unit, sizes), outer_trained + unit.trained.local(sizes)
    ahead = (sharded.gathered_units - 1) * layer
    found = [
        Term("gathered", "communication", "allocated", PASS, layer, "the gathered layer at work (its buffer outlives it)", source),
        Term("prefetched", "communication", "allocated", FORWARD | BACKWARD, ahead, "the layer gathered ahead", source),
        Term("unsharded_gradients", "communication", "allocated", BACKWARD, numbers.compute * _first_gradients(effective, sizes, stage),
             "whole gradients of a layer's largest matrix, or of its experts, made before the rest of the layer", source),
        Term("reduced_gradients", "communication", "allocated", BACKWARD_END, numbers.reduce * gradient,
             "gradients of the layer before, whole, in the reduction's dtype, on their way", source),
    ]  # fmt: skip
    head = inventory(effective).head if inventory(effective).head.elements.whole else inventory(effective).embedding
    if sharded.root_gathered:
        found.append(Term("root", "communication", "allocated", PASS, whole, "the root unit (embedding, head, norm) stays gathered", source))
        found.append(Term("root_gradients", "communication", "allocated", BACKWARD, numbers.compute * head.trained.local(sizes),
                          "the head's gradient, whole until the root unit's is reduced", source))  # fmt: skip
        temporary = effective.stepped.temporary_bytes * total(held(effective, stage), "trained").sharded(sizes, sizes.optimizer_shards)
        mine = numbers.gradients * outer_trained / sizes.weights_shards  # made after the copy, and among the gradients
        copy = larger(numbers.reduce * outer_trained, (numbers.compute + numbers.reduce) * outer_trained - mine)
        found.append(Term("root_reduced", "communication", "allocated", STEP, larger(copy - temporary, 0.0),
                          "the root unit's gradients and their copy for the reduce-scatter, beyond the step's temporaries", source))  # fmt: skip
    else:
        found.append(Term("head", "communication", "allocated", LOSS | BACKWARD_START, numbers.compute * head.plain.local(sizes),
                          "the head's gathered unit", source))  # fmt: skip
        found.append(Term("head_gradients", "communication", "allocated", BACKWARD_START, (numbers.compute + numbers.reduce) * head.trained.local(sizes),
                          "the head's gradient, whole, and its copy for the reduce-scatter", source))  # fmt: skip
    if sharded.kind == "fsdp1" and effective.spec.training.method != "full" and _reentrant(effective):
        found.append(_kept_gradients(effective, sizes, stage))
    return found


def _indexed(effective: Effective, sizes: Sizes, stage: Stage) -> list[Term]:
    """Each expert that a loop takes out of one parameter gives back a gradient as large as the whole, to be added."""
    if effective.spec.training.method != "full" or effective.spec.training.framework not in table.HF:
        return []
    if not module(effective.arch.model_type, effective.arch.layer_norm).indexed_experts:
        return []
    if effective.versions.interval("transformers").low >= (5, 0):  # unknown: what needs more memory
        return []
    largest = max(m.copies * m.inputs * m.outputs for layer in effective.arch.layers for m in layer.matrices if m.part == "expert")
    size = effective.numbers.compute * largest / (sizes.expert * sizes.expert_tensor)
    return [Term("indexed_experts", "workspace", "allocated", BACKWARD, size, "an expert's gradient, as large as the parameter it was taken from",
                 "transformers 4.55-4.57 modeling_gpt_oss.py GptOssExperts; torch derivatives.yaml select: select_backward_symint")]  # fmt: skip


def _first_gradients(effective: Effective, sizes: Sizes, stage: Stage) -> Any:
    """Trained elements of one layer whose gradients exist while its MLP is in backward: its experts, or one matrix."""
    cut = sizes.expert * sizes.expert_tensor
    return _largest(
        effective, stage, lambda unit: larger((unit.trained.expert - unit.adapters.expert) / cut, unit.matrix / sizes.tensor)
    )


def _reentrant(effective: Effective) -> bool:
    """Layers are recomputed by the reentrant checkpoint, which makes each layer's input a leaf."""
    if effective.activations.checkpointing != "full" or effective.spec.training.framework not in table.HF:
        return False
    options = effective.spec.training.options
    written = options.get("gradient_checkpointing_kwargs")
    if isinstance(written, dict) and "use_reentrant" in written:
        return bool(written["use_reentrant"])
    return not effective.versions.interval("transformers").low >= (5, 0)  # unknown: what needs more memory


def _kept_gradients(effective: Effective, sizes: Sizes, stage: Stage) -> Term:
    """FSDP1 hooks the inputs of units without trained weights; a hook on a leaf keeps it and its gradient to the end."""
    layers = sum(stage.layers) - 1
    size = 2 * layers * sizes.micro * sizes.sequence * effective.arch.hidden * effective.numbers.residual
    return Term(
        "input_gradients", "activations", "allocated", BACKWARD_END, size,
        "inputs of all layers and their gradients, kept until backward ends by FSDP's hooks on frozen units",
        "torch/distributed/fsdp/_runtime_utils.py _register_post_backward_reshard_only_hook: a multi-grad hook holds the"
        " leaf's AccumulateGrad node; its handle is removed when backward ends",
    )  # fmt: skip


def _zero3(effective: Effective, sizes: Sizes, stage: Stage) -> list[Term]:
    """ZeRO-3: parameters that stay live for reuse, the module at work, reduce buckets."""
    buckets, numbers = zero.buckets(3, effective.arch.hidden), effective.numbers
    source = "DeepSpeed runtime/zero/partitioned_param_coordinator.py, stage3.py"
    layer = _largest_whole(effective, sizes, stage)
    units = held(effective, stage)
    everything: Any = 0.0
    largest_outer: Any = 0.0
    for index, (unit, count) in enumerate(units):
        everything = everything + count * _whole(effective, unit, sizes)
        if index >= len(stage.layers):
            largest_outer = larger(largest_outer, _whole(effective, unit, sizes))
    live = smaller(everything, larger(numbers.weights * buckets.stage3_max_live_parameters, larger(layer, largest_outer)))
    found = [Term(
        "live_parameters", "communication", "allocated", PASS, live,
        f"gathered parameters: at most stage3_max_live_parameters ({buckets.stage3_max_live_parameters:.0e}) kept for reuse", source,
    )]  # fmt: skip
    if effective.layout.replicate > 1:
        cut = sizes.gradients_shards
        found.append(Term("primary_weights", "weights", "allocated", ALWAYS, numbers.weights * total(units, "elements").sharded(sizes, cut),
                          "the partition over all ranks, beside the one over each group", "DeepSpeed zero_hpz_partition_size (ZeRO++)"))  # fmt: skip
    bucket = numbers.reduce * buckets.reduce_bucket_size * (2 if buckets.overlap_comm else 1)
    trained = total(units, "trained").local(sizes)
    gradient = _largest_trained(effective, sizes, stage)
    found.append(Term("reduce_bucket", "communication", "allocated", PASS | STEP, smaller(bucket, 2 * numbers.reduce * trained),
                      "buckets of gradients on their way", source))  # fmt: skip
    found.append(Term("unsharded_gradients", "communication", "allocated", BACKWARD_END, numbers.reduce * gradient,
                      "gradients of one layer before they are reduced", source))  # fmt: skip
    return found


def _zero12(effective: Effective, sizes: Sizes, stage: Stage) -> list[Term]:
    """ZeRO-1 and 2: reduce buckets through backward."""
    stage_number = zero.stage(effective.sharded.kind)
    buckets, numbers = zero.buckets(stage_number, effective.arch.hidden), effective.numbers
    source = "DeepSpeed runtime/zero/stage_1_and_2.py (ipg buckets of reduce_bucket_size)"
    trained = total(held(effective, stage), "trained").local(sizes)
    bucket = smaller(1.0 * buckets.reduce_bucket_size, trained) * numbers.reduce * (2 if buckets.overlap_comm else 1)
    found = [Term("reduce_bucket", "communication", "allocated", BACKWARD, bucket, "buckets of gradients on their way", source)]
    if stage_number == 2:
        gradient = _largest_trained(effective, sizes, stage)
        found.append(Term("unsharded_gradients", "communication", "allocated", BACKWARD, numbers.gradients * gradient,
                          "gradients of one layer before they are reduced", source))  # fmt: skip
    return found


def _loading(effective: Effective, sizes: Sizes, stage: Stage) -> list[Term]:
    """A whole model on the GPU before sharding cuts it."""
    if not effective.loading.full_on_gpu or effective.sharded.kind not in ("fsdp1", "fsdp2", "zero3"):
        return []
    units, width = held(effective, stage), effective.numbers.weights
    whole = width * total(units, "plain").local(sizes) + total(units, "packed").local(sizes)
    source = "the loader puts every rank's copy on its own GPU (effective loading)"
    if effective.sharded.kind == "fsdp2" and effective.spec.training.framework in table.HF:
        return [Term("whole_model", "weights", "allocated", LOAD, whole, "the whole model, alive beside its shards until all are cut",
                     source + "; accelerate utils/fsdp_utils.py fsdp2_prepare_model keeps the original state dict")]  # fmt: skip
    cut = width * total(units, "plain").sharded(sizes, sizes.weights_shards) + total(units, "packed").sharded(
        sizes, sizes.weights_shards if effective.quantized.sharded else 1
    )
    return [Term("whole_model", "weights", "allocated", LOAD, larger(whole - cut, 0.0), "the whole model before sharding cuts it", source)]


def _dequantised(effective: Effective, stage: Stage, sizes: Sizes) -> list[Term]:
    """One matrix at a time in 16 bit while it multiplies."""
    if effective.quantized.type is None:
        return []
    largest = max((unit.dequantised for unit in inventory(effective).layers), default=0.0)
    copies = 2.0 if effective.spec.training.framework in HALF_STATE else 1.0
    source = "bitsandbytes autograd/_functions.py MatMul4Bit: dequantize_4bit in forward and backward"
    width = copies * effective.numbers.compute / sizes.tensor
    found = [Term("dequantised", "workspace", "allocated", FORWARD | BACKWARD, width * largest, "the largest quantised tensor in 16 bit while it multiplies", source)]
    if stage.head and inventory(effective).head.dequantised:
        found.append(Term("dequantised_head", "workspace", "allocated", LOSS, width * inventory(effective).head.dequantised, "the quantised head in 16 bit", source))
    return found
