"""Samples and tokens per rank and step, and how many steps the data makes."""

from __future__ import annotations

import math

from jobgen.effective.numbers import megatron
from jobgen.effective.setup import Batch, Effective

PAIRED = frozenset({"dpo", "orpo", "reward"})
"""Objectives whose sample is two sequences, chosen and rejected, that go through the model together."""
FIXED_SHAPES = frozenset({"torchtitan", "megatron-deepspeed"})
"""Programs that pack or cut every batch to one shape by default."""


def decide(effective: Effective) -> Batch:
    """Sequences per micro-step, tokens per step, number of steps."""
    training, layout = effective.spec.training, effective.layout
    sequences = 2 if training.objective in PAIRED else 1
    if training.objective == "kto":
        sequences = 2  # completions and the mismatched ones of the KL estimate (TRL kto_trainer.py)
    micro = layout.micro_batch * sequences
    arch, sequence = effective.arch, training.sequence_length
    if arch.learned_positions and arch.max_positions:  # a table of positions: no longer sequence can be looked up in it
        sequence = min(sequence, arch.max_positions)
    tokens = layout.global_batch * sequences * sequence
    return Batch(
        micro=micro,
        sequence=sequence,
        accumulation=layout.accumulation,
        global_samples=layout.global_batch,
        tokens_per_step=tokens,
        steps=steps(effective, tokens),
        padding=varying(effective),
    )


def varying(effective: Effective) -> bool:
    """Shapes differ from step to step: samples are padded to the longest of their batch, or joined without padding."""
    training = effective.spec.training
    if training.packing == "packed" or training.objective == "pretrain" or megatron(effective):
        return False
    return training.framework not in FIXED_SHAPES


def samples(effective: Effective) -> float | None:
    """Samples seen in the whole run."""
    data, training = effective.spec.training.data, effective.spec.training
    if data is None:
        return None if training.max_steps is None else float(training.max_steps * effective.layout.global_batch)
    if training.max_steps is not None:
        return float(training.max_steps * effective.layout.global_batch)
    if data.samples is not None:
        return data.samples * data.epochs
    if data.tokens is not None:
        return data.tokens * data.epochs / (data.tokens_per_sample or training.sequence_length)
    return None


def tokens(effective: Effective) -> float | None:
    """Tokens of data seen in the whole run, without padding."""
    data, training = effective.spec.training.data, effective.spec.training
    if training.max_steps is None and data is not None and data.tokens is not None:
        return data.tokens * data.epochs
    seen = samples(effective)
    if seen is None:
        return None
    per_sample = data.tokens_per_sample if data is not None and data.tokens_per_sample else training.sequence_length
    if training.packing == "packed":
        per_sample = training.sequence_length if training.max_steps is not None else per_sample
    return seen * per_sample


def steps(effective: Effective, tokens_per_step: int) -> int | None:
    """Optimizer steps; packed samples fill whole sequences, others take one each."""
    training = effective.spec.training
    if training.max_steps is not None:
        return training.max_steps
    data = training.data
    if data is None:
        return None
    if training.packing == "packed" or data.tokens is not None:
        total = tokens(effective)
        return None if total is None else max(1, math.ceil(total / tokens_per_step))
    seen = samples(effective)
    return None if seen is None else max(1, math.ceil(seen / effective.layout.global_batch))
