"""A program of the user's own around a transformers Trainer, configured by TrainingArguments."""

from __future__ import annotations

from pathlib import PurePath

from jobgen.frameworks import engines, formats, hf
from jobgen.frameworks.config import Config
from jobgen.frameworks.table import Framework, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, asks_for_config, in_config_dir, user_values, words

TABLE = Framework(
    name="transformers",
    library="transformers",
    launcher="torchrun",
    starts_torchrun=False,
    command=(),
    sharding=hf.SHARDING,
    attention="sdpa",
    options=hf.TRAINING_ARGUMENTS,
    checkpoint=hf.CHECKPOINTS,
    config_format="cli",
    trainer="hf",
    source="transformers 4.45.2-5.24.0 training_args.py, trainer.py (order of a save: trainer_state.json last)",
)


def configure(view: View, config: Config) -> Configured:
    """Everything as flags, which every HfArgumentParser takes, or as one file where the user places ``{config}``."""
    outside = [path for path in _OUTSIDE if view[path] not in (None, [], "none", "pretrained")]
    if outside:
        view.note(f"TrainingArguments hold no {', '.join(outside)}: the program must follow the spec")
    config = config._replace(values={"do_train": True, **config.values})  # the Trainer's own examples train nothing without it
    return trainer(view, config, file=PurePath(config.file).name if asks_for_config(view.spec) else "")


_OUTSIDE = (
    "model.path", "model.revision", "model.init", "training.objective", "training.sequence_length", "training.attention",
    "training.packing", "training.freeze", "training.lora", "training.quantization", "training.dtypes.weights", "training.reference",
)  # fmt: skip
"""Fields of which TrainingArguments have no word."""


def trainer(view: View, config: Config, file: str = "") -> Configured:
    """A program that takes TrainingArguments (and its own keys beside them): one file of this name, or flags."""
    resumed = hf.resume(view)
    extra, variables = hf.engine_arguments(view)
    values = user_values(view, config)
    base = values.pop("deepspeed", None) if view.engine == "deepspeed" else None
    engine = engines.configure(view, hf=True, base=base if isinstance(base, dict) else None)
    values = formats.merged(values, {**hf.arguments(view, values), **extra})
    args: list[Text] = []
    if view.engine == "deepspeed" and view.launcher != "accelerate":
        args += [("--deepspeed",), in_config_dir(engines.DEEPSPEED_FILE)]
    env = tuple((name, (value,)) for name, value in variables.items())
    if not file and not asks_for_config(view.spec):
        return engine._replace(args=(*words(*formats.flags(values)), *args), env=env, resume_args=resumed)
    name = file or "training.yaml"
    files = (*engine.files, (name, formats.dump(name, values)))
    return engine._replace(files=files, args=tuple(args), env=env, resume_args=resumed, config_file=name)
