"""The amount of data against what the project recommends, and against what the run needs."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.words import billions


@rule(
    "JG920", "info", "end", "estimate",
    bad=Example("full-30b-a3b-zero3", {"training.data.tokens": 2e9}),
    good=Example("full-30b-a3b-zero3", {"training.data.tokens": 2e8}),
    fix="between the two ends, unless an experiment says otherwise",
    sources=("the project's origin, part A: 30-100 M tokens per 10^9 activated parameters for sft, 100-300 M for a domain's pretraining",),
)  # fmt: skip
def amount_of_data(case: Case) -> Outcome | None:
    """The amount of data is outside the recommended range

    It goes by the activated parameters of a mixture of experts, not by all of them. Less teaches little, more costs time
    and forgets more of what the model knew.
    """
    spec, found = case.spec, case.estimate
    training = spec.training
    if training.method != "full" or training.objective not in ("sft", "pretrain") or spec.model.init == "random":
        return None
    low, high = found.recommended_tokens
    tokens = found.data_tokens
    if tokens is None or low * 0.5 <= tokens <= high * 2:
        return None
    path = "training.data" if training.data is not None else "training.max_steps"
    what = "less" if tokens < low else "more"
    return Outcome(path, f"{billions(tokens)} tokens, {what} than the {billions(low)} to {billions(high)} recommended for {billions(found.active_parameters)} "
                   "activated parameters", f"nothing if that is meant; else about {billions(min(high, max(low, tokens)))} tokens")  # fmt: skip


@rule(
    "JG860", "warning", "end", "estimate",
    bad=Example("lora-8b", {"checkpoint.every_steps": 5000}),
    good=Example("lora-8b", {}),
    fix="a smaller checkpoint.every_steps",
    sources=("the estimate's number of steps",),
)  # fmt: skip
def never_saved(case: Case) -> Outcome | None:
    """The run ends before its first save

    Only the end saves it, if the program does so: what fails before is lost.
    """
    found = case.estimate
    every, steps = case.spec.checkpoint.every_steps, found.steps
    total = found.time.total
    if every is None or steps is None or every <= steps or (total is not None and total < 1800 and case.spec.launch.restarts == 0):
        return None
    right = max(1, steps // 4)
    return Outcome("checkpoint.every_steps", f"a save every {every} steps, and the run has {steps}", f"write every_steps: {right}",
                   {"checkpoint.every_steps": right})  # fmt: skip
