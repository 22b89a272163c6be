"""torchtitan: TOML sections until 0.2, dotted flags over a Python configuration from 0.3."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import formats, torchtitan_models
from jobgen.frameworks.codecs import ABSENT, UNDECIDED, choice, present, says_nothing, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Codec, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, in_config_dir, laid_over, user_values, words

FILE = "torchtitan.toml"
FOLDER = "checkpoint"
"""Below the directory, so that it is new at the first start: an initial checkpoint is only read when it does not exist."""
_every = Codec(
    lambda value: ABSENT if value is None else str(value),
    lambda value: int(value) if str(value).isdigit() else UNDECIDED,
)
_loss = choice({"vocab_parallel": False}, reads={True: "standard"})
"""Its cross entropy is cut over the vocabulary whenever tensors are: ``standard`` leaves it alone."""

OPTIONS = rows(
    "toml", "torchtitan 0.1.0-0.3.0 config_manager.py, config/job_config.py",
    row("model.path", "model.hf_assets_path", until="0.3", since="0.2", group="assets"),
    row("model.path", "model.tokenizer_path", until="0.2", group="assets"),
    row("model.path", "hf_assets_path", since="0.3", group="assets"),
    row("training.micro_batch_size", "training.local_batch_size", written=False, default=8,
        note="with a pipeline: micro batch x accumulation, cut by pipeline_parallel_microbatch_size"),
    row("training.global_batch_size", "training.global_batch_size", default=-1),
    row("training.sequence_length", "training.seq_len", default=2048),
    row("training.precision", "training.mixed_precision_param", choice({"bf16": "bfloat16", "fp32": "float32"}, also={"fp8": "bfloat16", "bf16_pure": "bfloat16"}),
        default="bfloat16"),
    row("training.precision", "training.dtype", choice({"bf16_pure": "bfloat16"}, rest="float32"), "0.2", default="float32"),
    row("training.optimizer.name", "optimizer.name", choice({"adamw": "AdamW"}), until="0.3", default="AdamW"),
    row("training.optimizer.in_backward", "optimizer.early_step_in_backward", yes_no, until="0.3", default=False),
    row("training.activation_checkpointing.mode", "activation_checkpoint.mode",
        choice({"none": "none", "selective": "selective", "full": "full"}), until="0.3", default="selective"),
    row("training.activation_checkpointing.every", "activation_checkpoint.selective_ac_option", _every, until="0.3", default="2"),
    row("training.activation_checkpointing.policy", "activation_checkpoint.selective_ac_option", choice({"ops": "op"}), until="0.3", group="policy"),
    row("training.compile", "training.compile", yes_no, until="0.2", group="compile", default=False),
    row("training.compile", "compile.enable", yes_no, since="0.2", group="compile", default=False),
    row("training.loss", "parallelism.disable_loss_parallel", _loss, until="0.3", default=False),
    row("training.max_steps", "training.steps", default=10000),
    row("training.data.workers", "training.dataloader.num_workers", since="0.2.1", until="0.3", group="workers", default=0),
    row("training.data.workers", "dataloader.num_workers", since="0.3", group="workers", default=0),
    row("training.evaluates", "validation.enable", choice({True: True}), since="0.2", until="0.3", group="evaluates"),
    row("training.evaluates", "validator.enable", choice({True: True}), since="0.3", group="evaluates"),
    row("training.evaluation.every_steps", "validation.freq", since="0.2", until="0.3", group="freq", default=10),
    row("training.evaluation.every_steps", "validator.freq", since="0.3", group="freq", default=10),
    row("training.evaluation.micro_batch_size", "validation.local_batch_size", since="0.2", until="0.3", default=8),
    row("checkpoint.directory", "job.dump_folder", until="0.3", group="folder", written=False),
    row("checkpoint.directory", "dump_folder", since="0.3", group="folder", written=False),
    row("checkpoint.strategy", "checkpoint.enable_checkpoint", choice({"steps": True}), until="0.2", group="enable", default=False),
    row("checkpoint.strategy", "checkpoint.enable", choice({"steps": True}), since="0.2", group="enable", default=False),
    row("checkpoint.every_steps", "checkpoint.interval", default=500),
    row("checkpoint.keep", "checkpoint.keep_latest_k", default=10, note="1 is refused"),
    row("checkpoint.async", "checkpoint.async_mode", choice({True: "async", False: "disabled"}), default="disabled"),
    row("checkpoint.resume", "checkpoint.initial_load_path", says_nothing, written=False),
    row("parallelism.sharding", "parallelism.data_parallel_shard_degree", says_nothing, written=False),
    row("parallelism.replicate", "parallelism.data_parallel_replicate_degree", written=False, default=1),
    row("parallelism.tensor", "parallelism.tensor_parallel_degree", default=1),
    row("parallelism.pipeline", "parallelism.pipeline_parallel_degree", default=1),
    row("parallelism.context", "parallelism.context_parallel_degree", default=1),
    row("parallelism.expert", "parallelism.expert_parallel_degree", since="0.2", default=1),
    row("parallelism.expert_tensor", "parallelism.expert_tensor_parallel_degree", since="0.2", until="0.3", default=1),
    row("parallelism.sequence_parallel", "parallelism.enable_sequence_parallel", choice({True: True, False: False}), since="0.3", default=True),
    row("parallelism.virtual_pipeline", "parallelism.pipeline_parallel_schedule",
        choice({1: "1F1B"}, rest="Interleaved1F1B"), default="1F1B"),
    row("parallelism.pipeline_layers", "parallelism.pipeline_parallel_split_points", says_nothing, until="0.2", written=False),
    row("parallelism.pipeline_layers", "parallelism.module_fqns_per_model_part", says_nothing, since="0.2", written=False),
    row("offload.parameters", "training.enable_cpu_offload", choice({"cpu": True, "none": False}), default=False),
    row("training.precision", "model.converters", present("fp8"), until="0.3", written=False),
)  # fmt: skip

TABLE = Framework(
    name="torchtitan",
    library="torchtitan",
    launcher="torchrun",
    starts_torchrun=False,
    command=("-m", "torchtitan.train"),
    sharding=frozenset({"none", "fsdp2"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout(f"{FOLDER}/step-*", ".metadata", resumes_itself=True),
    config_format="toml",
    sequence_parallel_default=True,
    config_file=FILE,
    source="torchtitan 0.1.0-0.3.0 components/checkpoint.py (a folder with .metadata is whole)",
)


def configure(view: View, config: Config) -> Configured:
    """The TOML until 0.2, the same keys as flags from 0.3."""
    flags = view.at_least((0, 3))
    values = laid_over(view, formats.merged(_model(view, flags), user_values(view, config)))
    values = formats.merged(values, _derived(view, flags))
    if not flags:
        _trim(values)
        return Configured(
            files=((FILE, formats.toml(values)),), args=(("--job.config_file",), in_config_dir(FILE)), config_file=FILE
        )
    if view["training.optimizer.name"] != "adamw" or view["training.activation_checkpointing.mode"] != "selective":
        view.note(
            "from torchtitan 0.3 the optimizer and activation checkpointing are part of the Python config function"
        )
    chosen = {key: values.pop(key, None) for key in ("module", "config")}
    if None in chosen.values():
        view.note("torchtitan >= 0.3 needs training.options.module and config (the model and its config function)")
    head = [word for key, value in chosen.items() if value is not None for word in (f"--{key}", str(value))]
    return Configured(args=words(*head, *_flags(values)))


def _model(view: View, flags: bool) -> dict[str, Any]:
    """The registered model that the architecture is, and its weights: the defaults are a debug model and none."""
    arch = view["model.arch"]
    found = None if flags or arch is None else torchtitan_models.find(arch)
    if found is None or not view.at_least(found.since):
        return {}
    weights = {"checkpoint.initial_load_in_hf": True} if view["model.init"] == "pretrained" and view.at_least((0, 2)) else {}
    return formats.merged({}, {"model.name": found.name, "model.flavor": found.flavor, **weights})


def _trim(values: dict[str, Any]) -> None:
    """The schedule is left to the default without a pipeline."""
    parallel = values["parallelism"]
    if parallel.get("pipeline_parallel_degree") == 1:
        parallel.pop("pipeline_parallel_schedule", None)


def _flags(values: dict[str, Any]) -> list[str]:
    """``--section.key value``; a boolean is ``--section.key`` or ``--section.no-key``, left out where it is the default."""
    default = {option.key: option.default for option in OPTIONS}
    found: list[str] = []
    for key, value in formats.leaves(values):
        parents, _, leaf = key.rpartition(".")
        if isinstance(value, bool):
            if value is not default.get(key):
                found.append(f"--{parents}.{leaf if value else f'no-{leaf}'}")
        else:
            found += [f"--{key}", formats.word(value)]
    return found


def _derived(view: View, flags: bool) -> dict[str, Any]:
    """Keys that several fields make."""
    owned: dict[str, Any] = {}
    directory = view["checkpoint.directory"]
    if directory is not None:
        owned["dump_folder" if flags else "job.dump_folder"] = str(directory)
        owned["checkpoint.folder"] = FOLDER
    micro = view["training.micro_batch_size"]
    piped = view["parallelism.pipeline"] > 1
    owned["training.local_batch_size"] = micro * (view["training.gradient_accumulation_steps"] if piped else 1)
    if piped:
        owned["parallelism.pipeline_parallel_microbatch_size"] = micro
    replicate = view["parallelism.replicate"]
    if view.engine == "none":
        owned["parallelism.data_parallel_replicate_degree"] = view["parallel.data"]
        owned["parallelism.data_parallel_shard_degree"] = 1
    else:
        owned["parallelism.data_parallel_replicate_degree"] = replicate
        owned["parallelism.data_parallel_shard_degree"] = view["parallel.shard"]
    if view["training.precision"] == "fp8" and not flags:
        owned["model.converters"] = ["quantize.linear.float8" if view.at_least((0, 2)) else "float8"]
    if view["checkpoint.resume.mode"] == "path":
        owned["checkpoint.initial_load_path"] = view["checkpoint.resume"]
    return owned
