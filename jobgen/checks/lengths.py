"""How long a sequence and the run are, against what the model was made for and what the framework does unasked."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import setting
from jobgen.effective.numbers import megatron

_GPT2 = {"model.name": "openai-community/gpt2-xl", "training.attention": "sdpa", "training.sequence_length": 1024}
_LONG = {"model.name": "meta-llama/Llama-2-7b-hf", "training.sequence_length": 16384}


@rule(
    "JG862", "warning", "loss", "spec",
    bad=Example("lora-8b", _LONG),
    good=Example("lora-8b", {**_LONG, "training.sequence_length": 4096}),
    fix="training.sequence_length within the model's positions, or RoPE scaling in its config.json",
    sources=("the model's config.json: max_position_embeddings, rope_scaling (rope_parameters)",),
)  # fmt: skip
def beyond_the_positions(case: Case) -> Outcome | None:
    """Sequences are longer than the model's positions

    RoPE computes any position, but the model was trained on none beyond its maximum: the loss starts high and quality
    suffers unless the scaling of RoPE says otherwise. A model that starts from random weights learns them.
    """
    most, length = case.arch.max_positions, case.spec.training.sequence_length
    if not most or length <= most or case.arch.learned_positions or case.spec.model.init == "random":
        return None
    factor = length / most
    return Outcome("training.sequence_length", f"{length} tokens, but {case.arch.name} has {most} positions (max_position_embeddings, with RoPE scaling)",
                   f"write sequence_length: {most}, or set rope_scaling with a factor of {factor:.3g} or more in a config.json of your own (model.config)",
                   {"training.sequence_length": most})  # fmt: skip


@rule(
    "JG863", "error", "first_step", "spec",
    bad=Example("lora-8b", {**_GPT2, "training.sequence_length": 2048}),
    good=Example("lora-8b", _GPT2),
    fix="training.sequence_length: the size of the table",
    sources=("transformers models/gpt2/modeling_gpt2.py (wpe), models/opt/modeling_opt.py (OPTLearnedPositionalEmbedding): nn.Embedding",),
)  # fmt: skip
def beyond_the_table(case: Case) -> Outcome | None:
    """Sequences are longer than the model's table of positions

    GPT-2, OPT and their like look positions up in a table of weights: a position beyond it is an index out of range, at the
    first sample that is so long.
    """
    most, length = case.arch.max_positions, case.spec.training.sequence_length
    if not case.arch.learned_positions or not most or length <= most or megatron(case.effective):
        return None
    return Outcome("training.sequence_length", f"{length} tokens, but {case.arch.name} has a table of {most} positions: index out of range",
                   f"write sequence_length: {most}", {"training.sequence_length": most})  # fmt: skip


ENDLESS = frozenset({"megatron-lm", "megatron-deepspeed"})
"""Frameworks that have no length of their own: --train-iters and --train-samples are unset by default."""


@rule(
    "JG864", "info", "end", "spec",
    bad=Example("lora-8b", {"training.data": None}),
    good=Example("lora-8b", {}),
    fix="training.max_steps, or the amount of data in training.data",
    sources=("the framework's own option table (jobgen.frameworks): defaults of its steps and epochs",),
)  # fmt: skip
def no_length(case: Case) -> Outcome | None:
    """Nothing says how long the run is

    Without steps or an amount of data, the framework's own default decides; steps, time, saves and tokens cannot be checked.
    """
    training = case.spec.training
    data = training.data
    if training.max_steps is not None or (data is not None and (data.samples is not None or data.tokens is not None)):
        return None
    rows = [row for row in case.framework.options if row.field in ("training.max_steps", "training.data.epochs", "training.data.tokens")]
    if any(setting(case, row.key) is not None for row in rows):
        return None
    fix = "write training.max_steps, or training.data: {samples: N} (with epochs), or {tokens: N}"
    if training.framework in ENDLESS:
        return Outcome("training.max_steps", f"neither steps nor an amount of data is given, and {training.framework} has no default", fix, severity="warning")
    epochs = data.epochs if data is not None else None
    return Outcome("training.max_steps", f"neither steps nor an amount of data is given: {_unasked(case, epochs)}", fix)


def _unasked(case: Case, epochs: float | None) -> str:
    """What the framework does."""
    name = case.spec.training.framework
    own = {row.field: row.default for row in case.framework.options if isinstance(row.default, int | float) and row.default > 0}
    if epochs is not None and any(row.field == "training.data.epochs" for row in case.framework.options):
        return f"{name} makes {epochs:g} epoch{'s' if epochs != 1 else ''} of its data set"
    if "training.data.epochs" in own:
        return f"{name} makes {own['training.data.epochs']:g} epochs of its data set"
    if "training.max_steps" in own:
        return f"{name} makes {own['training.max_steps']} steps"
    return "the program decides"
