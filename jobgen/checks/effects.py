"""Settings that do not have the effect they name, where no rule of their own speaks of it."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.setup import Effect

WARNED = frozenset(("no_offload_without_sharding",))
NOTED = frozenset(("no_sync_keeps_gradients_whole", "sdpa_is_eager", "zero3_fuses_on_every_rank"))
QUOTED = frozenset((
    "adapters_skip_experts", "becomes_cpu_adam", "efficient_loading_ignored", "experts_stay_bf16", "fsdp_offloads_both",
    "packed_weights_not_sharded", "zero3_loads_whole_model_on_gpu", "zero_init_skipped", "zero_parameters_stay",
))  # fmt: skip
"""Effects that other rules quote (or that are refused when the spec is read)."""


def _said(case: Case, wanted: frozenset[str] | None) -> list[Effect]:
    return [e for e in case.effective.effects if (e.id in wanted if wanted is not None else e.id not in WARNED | NOTED | QUOTED)]


@rule(
    "JG391", "warning", "init", "effective",
    bad=Example("lora-8b-ddp", {"offload.optimizer": "cpu"}),
    good=Example("lora-8b-ddp", {}),
    fix="remove the setting, or choose one that the framework has",
    sources=("the source of each is in jobgen/effective",),
)  # fmt: skip
def without_effect(case: Case) -> list[Outcome]:
    """A setting has no effect

    The library takes it and does something else. The estimate is of what happens.
    """
    unknown = _said(case, None)
    return [_outcome(effect) for effect in (*_said(case, WARNED), *unknown)]


@rule(
    "JG392", "info", "init", "effective",
    bad=Example("full-8b-fsdp2", {}),
    good=Example("full-8b-fsdp2", {"training.gradient_accumulation_steps": 1}),
    fix="nothing where memory suffices",
    sources=("the source of each is in jobgen/effective",),
)  # fmt: skip
def costs_unseen(case: Case) -> list[Outcome]:
    """A library does something that costs memory and that no setting shows

    Accumulation under FSDP keeps whole gradients on every rank; ZeRO-3 of transformers 5 merges a mixture's checkpoint in
    the memory of every process. The estimate has it.
    """
    return [_outcome(effect) for effect in _said(case, NOTED)]


def _outcome(effect: Effect) -> Outcome:
    if effect.id == "no_offload_without_sharding":
        return Outcome(effect.path, f"{effect.ignored} is ignored: {effect.instead}", f"remove {effect.path}, or shard: parallelism.sharding: zero2",
                       {effect.path: "none"})  # fmt: skip
    if effect.path.startswith("offload."):
        return Outcome(effect.path, f"{effect.ignored} is ignored: {effect.instead}", f"remove {effect.path}", {effect.path: "none"})
    if effect.id == "sdpa_is_eager":
        return Outcome(effect.path, f"{effect.ignored} is ignored: {effect.instead}", "write training.attention: eager, or flash_attention_2 where the model has it",
                       {effect.path: "eager"})  # fmt: skip
    return Outcome(effect.path, f"there are no {effect.ignored}: {effect.instead}" if effect.id == "no_sync_keeps_gradients_whole" else f"{effect.ignored} is ignored: {effect.instead}",
                   "nothing where memory suffices; the estimate has it")  # fmt: skip
