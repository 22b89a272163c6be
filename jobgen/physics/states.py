"""Weights, gradients and optimizer states of one rank: data types x elements / the ranks that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.effective.numbers import engine, megatron, unquantised_bytes
from jobgen.effective.sharding import MIXED_FLAT
from jobgen.frameworks import states as table
from jobgen.frameworks import zero
from jobgen.physics.arrays import divided_up, larger, smaller
from jobgen.physics.inventory import NOTHING, Bulk, Inventory, Unit, inventory
from jobgen.physics.ledger import (
    ALWAYS,
    BACKWARD_END,
    BACKWARD_START,
    FORWARD,
    LOAD,
    LOSS,
    STEP,
    Term,
)
from jobgen.physics.sizes import Sizes, Stage

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective

RUNNING = ALWAYS & ~LOAD
"""Every phase after loading."""


def held(effective: Effective, stage: Stage) -> tuple[tuple[Unit, Any], ...]:
    """The units of a stage and how many of each. A tied head on a stage of its own is a second embedding."""
    found = inventory(effective)
    units: list[tuple[Unit, Any]] = [(unit, count) for unit, count in zip(found.layers, stage.layers, strict=True)]
    if stage.embedding:
        units.append((found.embedding, 1))
    if stage.head:
        units.append((found.head, 1))
        units.append((found.rest, 1))
        if not found.head.elements.whole and not stage.embedding:
            units.append((found.embedding, 1))
    return tuple(units)


def total(units: tuple[tuple[Unit, Any], ...], field: str) -> Bulk:
    """A field summed over the units of a stage."""
    result = NOTHING
    for unit, count in units:
        result = result + getattr(unit, field).times(count)
    return result


def padded_vocabulary(effective: Effective, sizes: Sizes, stage: Stage) -> Any:
    """Elements that Megatron adds so that the vocabulary divides by 128 x tensor (make_vocab_size_divisible_by)."""
    if not megatron(effective):
        return 0
    arch = effective.arch
    multiple = 128 * sizes.tensor
    rows = divided_up(arch.vocab, multiple) * multiple - arch.vocab
    tables = int(stage.embedding) + int(stage.head and not arch.tied)
    return rows * arch.hidden * tables


def terms(effective: Effective, sizes: Sizes, stage: Stage) -> tuple[Term, ...]:
    """All model states of one rank of a stage."""
    units, numbers = held(effective, stage), effective.numbers
    padding = padded_vocabulary(effective, sizes, stage)
    found: list[Term] = [*_weights(effective, sizes, units, padding)]
    trained = total(units, "trained")
    if effective.spec.training.method == "full":
        trained = trained._replace(vocabulary=trained.vocabulary + padding)
    if numbers.gradients:
        found.extend(_gradients(effective, sizes, stage, units, trained))
    found.extend(_optimizer(effective, sizes, units, trained, inventory(effective)))
    return tuple(term for term in found if not isinstance(term.bytes, int | float) or term.bytes > 0)


def _weights(effective: Effective, sizes: Sizes, units: tuple[tuple[Unit, Any], ...], padding: Any) -> list[Term]:
    numbers, _sharded, quantized = effective.numbers, effective.sharded, effective.quantized
    away = effective.offloaded.parameters != "gpu"
    full = effective.spec.training.method == "full"
    shards = sizes.weights_shards
    plain, trained = total(units, "plain"), total(units, "trained")
    plain = plain._replace(vocabulary=plain.vocabulary + padding)
    trained = trained._replace(vocabulary=trained.vocabulary + padding) if full else trained
    found = []
    if not away:
        if full:
            frozen = plain + trained.times(-1)
            own = numbers.trainable * trained.sharded(sizes, shards) + numbers.weights * frozen.sharded(sizes, shards)
            words = f"weights x {numbers.trainable:g} B" + _over(shards)
            found.append(Term("weights", "weights", "allocated", ALWAYS, own, words, numbers.source))
        else:
            width = unquantised_bytes(effective)
            frozen_bytes = width * plain.sharded(sizes, shards)
            if engine(effective) == "fsdp":  # frozen weights are stored as those that are trained (states.RULES)
                frozen_bytes = frozen_bytes * numbers.trainable / width
            words = f"frozen weights x {width:g} B" + _over(shards)
            found.append(Term("weights", "weights", "allocated", ALWAYS, frozen_bytes, words, numbers.source))
            found.append(Term(
                "adapters", "weights", "allocated", ALWAYS, numbers.trainable * trained.sharded(sizes, shards),
                f"adapters and saved modules x {numbers.trainable:g} B" + _over(shards), numbers.source,
            ))  # fmt: skip
    if quantized.type is not None:
        cut = shards if quantized.sharded else 1
        if not (away and quantized.sharded):
            found.append(Term(
                "packed", "weights", "allocated", ALWAYS, total(units, "packed").sharded(sizes, cut),
                f"{quantized.type} values of the quantised linear layers" + _over(cut),
                "bitsandbytes functional.quantize_4bit: two values a byte; GPTQ and int8 by their formats",
            ))  # fmt: skip
        found.append(Term(
            "quant_state", "weights", "allocated", ALWAYS, total(units, "state").local(sizes),
            "scales and tables of the quantised layers, whole on every rank",
            "seed case C5: quant_state is no parameter, so no sharding cuts it",
        ))  # fmt: skip
    return found


def _over(shards: Any) -> str:
    return f" / {shards} ranks" if isinstance(shards, int) and shards > 1 else ""


def _gradients(effective: Effective, sizes: Sizes, stage: Stage, units: tuple[tuple[Unit, Any], ...], trained: Bulk) -> list[Term]:
    numbers, stepped, sharded = effective.numbers, effective.stepped, effective.sharded
    if stepped.in_backward:
        largest = max(unit.matrix for unit, _ in units)
        return [Term(
            "gradients", "gradients", "allocated", BACKWARD_START | BACKWARD_END, numbers.gradients * largest / sizes.tensor,
            f"gradient of one tensor at a time x {numbers.gradients:g} B", "optimizer in backward: the step frees each gradient",
        )]  # fmt: skip
    name = engine(effective)
    offloaded = effective.offloaded.optimizer != "gpu"
    shards = sizes.gradients_shards
    if sharded.kind in ("fsdp1", "fsdp2") and offloaded:
        return []
    if offloaded and sharded.kind in ("zero2", "zero3"):
        return []
    width, source = numbers.gradients, table.STATES[name].source
    if sharded.kind in ("fsdp1", "fsdp2"):
        if effective.spec.training.framework in MIXED_FLAT:
            trained = _flat(effective, units)
        if sharded.gradients == 1 and sharded.weights > 1:  # no_sync: unsharded, in the dtype that backward makes
            width = numbers.compute if sharded.kind == "fsdp1" else numbers.reduce
            source = "torch/distributed/fsdp no_sync: gradients accumulate whole, in the type in which backward makes them"
    kept = width * trained.sharded(sizes, shards)
    words = f"gradients x {width:g} B" + _over(shards)
    if name == "megatron":
        return [Term("gradients", "gradients", "allocated", ALWAYS & ~LOAD, kept, words + ", one buffer that stays",
                     "Megatron-LM core/distributed/param_and_grad_buffer.py")]  # fmt: skip
    several = 1 * (sizes.accumulation > 1)
    missing = width * (1 - several) * _last(effective, stage).sharded(sizes, shards)
    found = [
        Term("gradients", "gradients", "allocated", STEP, kept, words, source),
        Term("gradients_so_far", "gradients", "allocated", BACKWARD_END, larger(kept - missing, 0.0),
             words + (", all but those that backward makes last" if not isinstance(several, int) or not several else ""), source),
    ]  # fmt: skip
    if not isinstance(several, int) or several:
        found.append(Term("gradients_accumulated", "gradients", "allocated", FORWARD | LOSS | BACKWARD_START, several * kept,
                          words + ", kept from the micro-steps before", source))  # fmt: skip
    if sharded.kind in ("none", "zero1", "zero2") and effective.arch.tied and stage.embedding and stage.head:
        twice = numbers.gradients * inventory(effective).embedding.trained.local(sizes)
        temporary = 0.0 if offloaded else stepped.temporary_bytes * trained.sharded(sizes, sizes.optimizer_shards)
        found.append(Term("tied_gradients", "gradients", "allocated", STEP, larger(twice - temporary, 0.0),
                          "the tied embedding's gradient from the head, and that from the input, until they are added; beyond the step's temporaries",
                          "torch/csrc/autograd/input_buffer.cpp"))  # fmt: skip
    if sharded.kind == "none" and _is_more(sizes.data, 1):
        found.append(Term(
            "ddp_buckets", "communication", "allocated", RUNNING, kept, f"DDP's buckets hold every gradient once more x {numbers.gradients:g} B",
            "torch DistributedDataParallel, gradient_as_bucket_view=False (torch/csrc/distributed/c10d/reducer.cpp)",
        ))  # fmt: skip
    if name == "deepspeed" and not offloaded:
        part = 4.0 * trained.sharded(sizes, sizes.optimizer_shards)
        if sharded.kind == "zero3":
            part = smaller(part, 4.0 * zero.buckets(3, effective.arch.hidden).sub_group_size)
        found.append(Term(
            "fp32_gradients", "gradients", "allocated", STEP, part, "this rank's gradients as fp32 while the optimizer steps",
            "DeepSpeed stage_1_and_2.py step, stage3.py _prepare_sub_group: gradients are copied to the master's dtype",
        ))  # fmt: skip
    return found


def _last(effective: Effective, stage: Stage) -> Bulk:
    """Elements whose gradients do not exist yet when the end of backward is at its fullest.

    That is in the first layer, or, where units are gathered ahead, in the second: there one more is gathered. What FSDP
    keeps in the root unit is reduced after all layers (torch _fully_shard/_fsdp_state.py _root_post_backward_final_callback),
    and so is the embedding everywhere, unless it is the head as well.
    """
    found, sharded = inventory(effective), effective.sharded
    layer = min((unit.trained for unit in found.layers), key=lambda trained: trained.whole)
    layers = layer.times(2 if sharded.gathered_units > 1 else 1)
    if sharded.root_gathered:
        return total(held(effective, stage)[len(found.layers) :], "trained") + layers
    return layers + found.embedding.trained if stage.embedding and found.head.elements.whole else layers


def _flat(effective: Effective, units: tuple[tuple[Unit, Any], ...]) -> Bulk:
    """Elements of flat parameters that hold something trained: the gradient is as large as the whole.

    Every layer does when adapters are trained, whatever their names in this framework.
    """
    layers = inventory(effective).layers if effective.spec.training.method != "full" else ()
    result = NOTHING
    for unit, count in units:
        if unit.trained.whole or any(unit is layer for layer in layers):
            result = result + unit.plain.times(count)
            result = result + unit.adapters.times(count)
    return result


def _is_more(value: Any, than: float) -> bool:
    """A number above a bound; of an array, whether any is (then the term's factor decides)."""
    return bool(value > than) if isinstance(value, int | float) else bool((value > than).any())


def _optimizer(
    effective: Effective, sizes: Sizes, units: tuple[tuple[Unit, Any], ...], trained: Bulk, found: Inventory
) -> list[Term]:
    numbers, stepped = effective.numbers, effective.stepped
    result: list[Term] = []
    shards = sizes.optimizer_shards
    share = trained.sharded(sizes, shards)
    on_gpu = stepped.where == "gpu"
    if numbers.master and effective.offloaded.optimizer == "gpu":
        result.append(Term(
            "master", "optimizer", "allocated", ALWAYS & ~LOAD, numbers.master * share, f"master weights x {numbers.master:g} B" + _over(shards),
            table.STATES[engine(effective)].source,
        ))  # fmt: skip
    known = table.OPTIMIZERS[stepped.name]
    if stepped.moments_bytes and on_gpu:
        moments = stepped.moments_bytes * share
        if stepped.name in table.BNB_EMBEDDINGS_FP32 and effective.spec.training.framework in table.HF:
            moments = moments + (4.0 * known.moments - stepped.moments_bytes) * _embedding(units, found, sizes) / shards
        result.append(Term(
            "moments", "optimizer", "allocated", RUNNING, moments, f"{stepped.name} moments x {stepped.moments_bytes:.3g} B" + _over(shards),
            known.source,
        ))  # fmt: skip
    elif stepped.moments_bytes and stepped.where == "managed":
        result.append(Term(
            "paged_moments", "optimizer", "device", 0, stepped.moments_bytes * share,
            "paged moments: managed memory, which the driver moves to the host where it is needed, counted there", known.source,
        ))  # fmt: skip
    if effective.offloaded.optimizer != "gpu":
        return result
    if stepped.temporary_bytes and not stepped.in_backward:
        part = share
        if effective.sharded.kind == "zero3":
            part = smaller(share, 1.0 * zero.buckets(3, effective.arch.hidden).sub_group_size)
        result.append(Term(
            "foreach", "workspace", "allocated", STEP, stepped.temporary_bytes * part,
            f"square roots of the second moment of all tensors at once x {stepped.temporary_bytes:g} B",
            "torch/optim/adamw.py _multi_tensor_adamw (foreach)",
        ))  # fmt: skip
    if known.largest:
        largest = max(unit.matrix for unit, _ in units)
        phases = BACKWARD_START | BACKWARD_END if stepped.in_backward else STEP
        result.append(Term(
            "update", "workspace", "allocated", phases, 4.0 * known.largest * largest / sizes.tensor,
            "the update of the largest tensor in fp32", known.source,
        ))  # fmt: skip
    return result


def _embedding(units: tuple[tuple[Unit, Any], ...], found: Inventory, sizes: Sizes) -> Any:
    return found.embedding.trained.local(sizes) if any(unit is found.embedding for unit, _ in units) else 0.0

