"""Checkpoint saving: strategies that must agree, and what a checkpoint can be used for afterwards."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import number, on, setting, value
from jobgen.effective.options import trainer

ZERO = ("zero1", "zero2", "zero3")
FSDP = ("fsdp1", "fsdp2")
BEST = "load_best_model_at_end"
SAVES = "transformers 4.57.6 trainer.py"
"""transformers' Trainer."""


def evaluates(case: Case) -> str:
    """The Trainer's eval_strategy."""
    written = value(case, "eval_strategy", "evaluation_strategy")
    evaluation = case.spec.training.evaluation
    return str(written) if written is not None else "steps" if evaluation is not None and evaluation.every_steps else "no"


def saves(case: Case) -> str:
    """The Trainer's save_strategy."""
    written = value(case, "save_strategy")
    if written is not None:
        return str(written)
    checkpoint = case.spec.checkpoint
    return "epoch" if checkpoint.every_epochs == 1 and checkpoint.every_steps is None else "steps"


def model_only(case: Case) -> bool:
    """No optimizer state is saved."""
    return not case.spec.checkpoint.optimizer_state or on(case, "save_only_model")


def best(case: Case) -> bool:
    """The best checkpoint is loaded at the end of a Trainer's run."""
    return trainer(case.spec) and on(case, BEST)


def sharded(case: Case) -> bool:
    """Model states are sharded by DeepSpeed or FSDP."""
    return case.spec.parallelism.sharding in (*ZERO, *FSDP)


@rule(
    "JG820", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}}),
    good=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 200}}),
    fix="training.evaluation.every_steps as checkpoint.every_steps, or the same strategy for both",
    sources=("transformers 4.57.6 training_args.py:1688",),
    facts=("CK07",),
)  # fmt: skip
def best_needs_evaluation(case: Case) -> Outcome | None:
    """The best model cannot be found: evaluation and saving differ

    load_best_model_at_end compares the checkpoint of an evaluation, so both need one strategy.
    """
    save, evaluate = saves(case), evaluates(case)
    if not best(case) or save in ("best", evaluate):
        return None
    found = setting(case, BEST)
    assert found is not None
    edits = {"training.evaluation": {"every_steps": case.spec.checkpoint.every_steps}} if save == "steps" and case.spec.checkpoint.every_steps else None
    written = setting(case, "eval_strategy", "evaluation_strategy")
    return Outcome(found.path, f"load_best_model_at_end with evaluation by {evaluate} and saving by {save}",
                   "evaluate as often as is saved: training.evaluation: {every_steps: ...}", None if written else edits)  # fmt: skip


@rule(
    "JG821", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 150}}),
    good=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 100}}),
    fix="checkpoint.every_steps as a multiple of training.evaluation.every_steps",
    sources=("transformers 4.57.6 training_args.py:1693-1712",),
    facts=("CK08",),
)  # fmt: skip
def best_needs_multiple(case: Case) -> Outcome | None:
    """The best model cannot be found: saves fall between evaluations

    load_best_model_at_end wants the save interval to be a round multiple of the evaluation interval.
    """
    if not best(case) or saves(case) != "steps" or evaluates(case) != "steps":
        return None
    evaluation, checkpoint = case.spec.training.evaluation, case.spec.checkpoint
    every = number(case, "eval_steps") or (evaluation.every_steps if evaluation else None)
    save = number(case, "save_steps") or checkpoint.every_steps
    if not every or not save or every < 1 or save < 1 or save % every == 0:
        return None
    right = int(max(1, round(save / every)) * every)
    return Outcome("checkpoint.every_steps", f"saves every {save:g} steps, evaluations every {every:g}", f"write checkpoint.every_steps: {right}",
                   {"checkpoint.every_steps": right})  # fmt: skip


@rule(
    "JG822", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 100},
                                  "checkpoint.optimizer_state": False}),
    good=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 100}}),
    fix="checkpoint.optimizer_state: true",
    sources=(f"{SAVES}:5541",),
    facts=("CK09",),
)  # fmt: skip
def best_needs_states(case: Case) -> Outcome | None:
    """The best model cannot be loaded from weights alone under DeepSpeed or FSDP

    A Trainer loads it through the engine's own checkpoint, which save_only_model does not write.
    """
    if not best(case) or not model_only(case) or not sharded(case):
        return None
    written = setting(case, "save_only_model")
    edits: dict[str, object] = {"checkpoint.optimizer_state": True}
    if written is not None and written.on:
        if written.edit is None:
            return Outcome(written.path, "load_best_model_at_end with save_only_model", "remove save_only_model")
        edits[written.edit] = None
    return Outcome("checkpoint.optimizer_state", f"load_best_model_at_end under {case.spec.parallelism.sharding} with weights alone",
                   "write checkpoint.optimizer_state: true", edits)  # fmt: skip


@rule(
    "JG823", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"checkpoint.optimizer_state": False}),
    good=Example("full-8b-fsdp1", {"checkpoint.optimizer_state": False, "checkpoint.content": "full"}),
    fix="checkpoint.content: full",
    sources=(f"{SAVES}:5558", "ms-swift@3602360a swift/arguments/sft_args.py:341"),
    facts=("CK10",),
)  # fmt: skip
def weights_alone_sharded(case: Case) -> Outcome | None:
    """Weights alone cannot be saved as FSDP shards

    A Trainer refuses save_only_model with SHARDED_STATE_DICT, which jobgen writes unless content is full.
    """
    spec = case.spec
    if not trainer(spec) or spec.parallelism.sharding not in FSDP or not model_only(case) or spec.checkpoint.content == "full":
        return None
    return Outcome("checkpoint.content", "a Trainer does not save weights alone as FSDP shards", "write checkpoint.content: full",
                   {"checkpoint.content": "full"})  # fmt: skip


@rule(
    "JG824", "warning", "resume", "spec",
    bad=Example("full-32b-zero3", {"checkpoint.optimizer_state": False}),
    good=Example("full-32b-zero3", {}),
    fix="checkpoint.optimizer_state: true, or restarts: 0",
    sources=(f"{SAVES}:3343", "transformers 4.57.6 integrations/deepspeed.py:485-506"),
    facts=("CK11",),
)  # fmt: skip
def cannot_resume(case: Case) -> Outcome | None:
    """Restarts find no optimizer state

    Without it a restarted run begins with a cold optimizer and schedule; under DeepSpeed a Trainer does not resume at all
    ("Can't find a valid checkpoint").
    """
    spec = case.spec
    if not model_only(case) or spec.checkpoint.resume == "never" or (spec.launch.restarts == 0 and spec.checkpoint.resume == "auto"):
        return None
    what = "a Trainer cannot resume from it" if trainer(spec) and spec.parallelism.sharding in ZERO else "the optimizer starts anew"
    return Outcome("checkpoint.optimizer_state", f"checkpoints hold weights alone, and after a restart {what}",
                   "write checkpoint.optimizer_state: true, or launch.restarts: 0", {"checkpoint.optimizer_state": True})  # fmt: skip


@rule(
    "JG825", "warning", "end", "spec",
    bad=Example("full-8b-fsdp1", {"launch.finish": ["python eval.py --model /checkpoints/full-8b"]}),
    good=Example("full-8b-fsdp1", {"launch.finish": ["python eval.py --model /checkpoints/full-8b"], "checkpoint.content": "full"}),
    fix="checkpoint.content: full, or accelerate merge-weights before the evaluation",
    sources=(f"{SAVES}:4205-4223", "transformers 5.24.0 trainer.py:4105", "DeepSpeed@edaa7221 runtime/zero/config.py:250"),
    facts=("CK12", "CK13"),
)  # fmt: skip
def no_model_at_the_end(case: Case) -> Outcome | None:
    """The run ends without a model that loads

    With FSDP shards a Trainer's save_model() writes nothing loadable, and with ZeRO-3 a sharded checkpoint, unless the
    weights are gathered. What runs after the training would not find a model.
    """
    spec = case.spec
    if not trainer(spec) or spec.training.method != "full" or spec.checkpoint.content == "full" or not spec.launch.finish:
        return None
    if spec.parallelism.sharding not in (*FSDP, "zero3"):
        return None
    merges = ("merge-weights", "merge_fsdp_weights", "zero_to_fp32", "dcp_to_torch", "merge-sharded")
    if any(word in line for line in spec.launch.finish for word in merges):
        return None
    return Outcome("launch.finish", f"checkpoints are sharded ({spec.parallelism.sharding}), and launch.finish does not merge them",
                   "write checkpoint.content: full", {"checkpoint.content": "full"})  # fmt: skip


@rule(
    "JG826", "error", "checkpoint", "spec",
    bad=Example("full-8b-fsdp2", {"training.options": {"fsdp_config": {"fsdp_state_dict_type": "LOCAL_STATE_DICT"}}}),
    good=Example("full-8b-fsdp2", {"checkpoint.content": "full"}),
    fix="checkpoint.content: sharded or full",
    sources=("accelerate@16cb6eb8 utils/dataclasses.py set_state_dict_type",),
    facts=("CK16",),
)  # fmt: skip
def local_state_dict(case: Case) -> Outcome | None:
    """FSDP2 has no local state dict

    accelerate raises.
    """
    if case.spec.parallelism.sharding != "fsdp2":
        return None
    found = setting(case, "fsdp_config.state_dict_type", "fsdp_config.fsdp_state_dict_type", "fsdp_state_dict_type")
    if found is None or str(found.value).upper() != "LOCAL_STATE_DICT":
        return None
    return Outcome(found.path, "LOCAL_STATE_DICT does not exist in FSDP2", "remove it; checkpoint.content says what is saved",
                   {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG827", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"parallelism.sharding": "fsdp2", "parallelism.tensor": 8, "parallelism.pipeline": 1,
                                          "training.options": {"ckpt-format": "torch_dist"}, "launch.env": {}}),
    good=Example("pretrain-70b-megatron", {"parallelism.sharding": "fsdp2", "parallelism.tensor": 8, "parallelism.pipeline": 1, "launch.env": {}}),
    fix="ckpt-format: fsdp_dtensor with Megatron's FSDP, torch_dist or torch_dcp with torch FSDP2",
    sources=("Megatron-LM@d98e8a64 megatron/training/arguments.py:1042,1169",),
    facts=("CK17",),
)  # fmt: skip
def megatron_format(case: Case) -> Outcome | None:
    """Megatron's FSDP has one checkpoint format

    It asserts fsdp_dtensor; torch FSDP2 takes torch_dist or torch_dcp.
    """
    spec = case.spec
    found = setting(case, "ckpt-format")
    if spec.training.framework != "megatron-lm" or spec.parallelism.sharding not in FSDP or found is None:
        return None
    right = ("torch_dist", "torch_dcp") if on(case, "use-torch-fsdp2") else ("fsdp_dtensor",)
    if str(found.value) in right:
        return None
    return Outcome(found.path, f"{found.words}, where {' or '.join(right)} is needed", f"write ckpt-format: {right[0]}",
                   {found.edit: right[0]} if found.edit else None)  # fmt: skip


@rule(
    "JG828", "error", "init", "spec",
    bad=Example("qlora-32b-axolotl", {"training.options": {"relora_steps": 100}}),
    good=Example("qlora-32b-axolotl", {}),
    fix="merge adapters after training",
    sources=("peft@5d602fdb docs/source/accelerate/fsdp.md:281, deepspeed.md:432",),
    facts=("CK18",),
)  # fmt: skip
def merged_in_training(case: Case) -> Outcome | None:
    """Adapters cannot be merged while weights are sharded

    ReLoRA merges them into the base during training; under FSDP and ZeRO-3 no rank holds the weights.
    """
    spec = case.spec
    if spec.training.method == "full" or spec.parallelism.sharding not in (*FSDP, "zero3"):
        return None
    found = setting(case, "relora_steps", "relora", "jagged_restart_steps", "merge_and_unload")
    if found is None or found.value in (None, False, 0):
        return None
    return Outcome(found.path, f"{found.words} merges adapters under {spec.parallelism.sharding}", "remove it",
                   {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG829", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"save_strategy": "best"}, "training.evaluation": {"every_steps": 100},
                                  "checkpoint.every_steps": None}),
    good=Example("full-8b-zero2", {"training.options": {"save_strategy": "best", "metric_for_best_model": "eval_loss"},
                                   "training.evaluation": {"every_steps": 100}, "checkpoint.every_steps": None}),
    fix="metric_for_best_model: eval_loss",
    sources=(f"{SAVES}:443", "axolotl@067b021c utils/schemas/config.py:1726"),
    facts=("CK21",),
)  # fmt: skip
def best_needs_metric(case: Case) -> Outcome | None:
    """Saving the best needs to know by which metric

    save_strategy: best raises without metric_for_best_model (load_best_model_at_end alone takes the loss).
    """
    if not trainer(case.spec) or saves(case) != "best" or value(case, "metric_for_best_model") is not None:
        return None
    found = setting(case, "save_strategy")
    assert found is not None
    return Outcome(found.path, "save_strategy: best without metric_for_best_model", "write training.options.metric_for_best_model: eval_loss",
                   {"training.options.metric_for_best_model": "eval_loss"})  # fmt: skip


@rule(
    "JG903", "info", "checkpoint", "spec",
    bad=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 100}, "checkpoint.keep": 1}),
    good=Example("full-8b-zero2", {"training.options": {"load_best_model_at_end": True}, "training.evaluation": {"every_steps": 100}}),
    fix="room for three checkpoints: the best, the last and the one being written",
    sources=(f"{SAVES}:4405-4413",),
    facts=("ST02",),
)  # fmt: skip
def best_and_last(case: Case) -> Outcome | None:
    """The best checkpoint is kept beside the last

    With save_total_limit 1 a Trainer keeps both, and a third exists while it is written.
    """
    if case.spec.checkpoint.keep != 1 or not best(case):
        return None
    return Outcome("checkpoint.keep", "keep: 1 with load_best_model_at_end keeps two checkpoints, the best and the last", "plan the storage for three")


@rule(
    "JG830", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"training.options": {"save-retain-interval": 500}}),
    good=Example("pretrain-70b-megatron", {"training.options": {"save-retain-interval": 1000}}),
    fix="a multiple of checkpoint.every_steps",
    sources=("Megatron-LM@d98e8a64 megatron/training/arguments.py:1366",),
    facts=("ST04",),
)  # fmt: skip
def retained_between_saves(case: Case) -> Outcome | None:
    """Megatron retains checkpoints that it does not save

    save-retain-interval must be a multiple of the save interval.
    """
    every = case.spec.checkpoint.every_steps
    retain = number(case, "save-retain-interval")
    if case.spec.training.framework != "megatron-lm" or not every or not retain or retain % every == 0:
        return None
    found = setting(case, "save-retain-interval")
    assert found is not None
    right = max(1, round(retain / every)) * every
    return Outcome(found.path, f"save-retain-interval ({retain:g}) / every_steps ({every}) is not a whole number", f"write save-retain-interval: {right}",
                   {found.edit: right} if found.edit else None)  # fmt: skip
