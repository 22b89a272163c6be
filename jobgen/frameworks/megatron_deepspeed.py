"""Megatron-DeepSpeed: Megatron's older flags with DeepSpeed's JSON beside them.

Its flags are Megatron-LM's of 2022-2023; the rows are those whose names did not change since. The repository was not
read release by release, so nothing is said of versions.
"""

from __future__ import annotations

from jobgen.frameworks import deepspeed_file, formats, megatron_lm
from jobgen.frameworks.codecs import choice, present
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, in_config_dir, laid_over, user_values, words

FILE = "deepspeed.json"

OPTIONS = rows(
    "cli", "github.com/deepspeedai/Megatron-DeepSpeed megatron/arguments.py (flag names, not read by release)",
    row("training.micro_batch_size", "micro-batch-size"),
    row("training.global_batch_size", "global-batch-size"),
    row("training.sequence_length", "seq-length"),
    row("training.sequence_length", "max-position-embeddings"),
    row("training.precision", "bf16", choice({"bf16": True}, also={"bf16_pure": True})),
    row("training.precision", "fp16", present("fp16")),
    row("training.activation_checkpointing.mode", "deepspeed-activation-checkpointing", choice({"full": True}, also={"selective": True})),
    row("training.activation_checkpointing.mode", "checkpoint-activations", choice({"full": True}, also={"selective": True})),
    row("training.max_steps", "train-iters"),
    row("training.data.workers", "num-workers", default=2),
    row("training.evaluation.every_steps", "eval-interval", default=1000),
    row("checkpoint.directory", "save"),
    row("checkpoint.directory", "load", written=False),
    row("checkpoint.every_steps", "save-interval"),
    row("parallelism.sharding", "zero-stage", choice(deepspeed_file.STAGE), default=1),
    row("parallelism.tensor", "tensor-model-parallel-size", default=1),
    row("parallelism.pipeline", "pipeline-model-parallel-size", default=1),
    row("offload.optimizer", "cpu-optimizer", present("cpu")),
)  # fmt: skip

TABLE = Framework(
    name="megatron-deepspeed",
    library="deepspeed",
    launcher="deepspeed",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "zero2", "zero3"}),
    attention="flash_attention_2",
    options=OPTIONS,
    checkpoint=CheckpointLayout("global_step*", None, "latest", resumes_itself=True),
    config_format="cli",
    config_file=FILE,
    source="github.com/deepspeedai/Megatron-DeepSpeed; DeepSpeed 0.14.0-0.19.8 runtime/engine.py",
)


def configure(view: View, config: Config) -> Configured:
    """Flags, and DeepSpeed's JSON with the same batch."""
    theirs = {megatron_lm.bare(key): value for key, value in user_values(view, config).items()}
    base = theirs.pop("deepspeed", None)
    values = laid_over(view, theirs)
    if view["checkpoint.resume.mode"] != "never" and view["checkpoint.directory"] is not None:
        values["load"] = view["checkpoint.directory"]
    if view["parallelism.pipeline"] == 1:
        values["no-pipeline-parallel"] = True
    text = formats.as_json(deepspeed_file.content(view, hf=False, base=base if isinstance(base, dict) else None))
    args: tuple[Text, ...] = (
        *words(*formats.switches(values), "--deepspeed", "--deepspeed_config"),
        in_config_dir(FILE),
    )
    return Configured(files=((FILE, text),), args=args, config_file=FILE)
