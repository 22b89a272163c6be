"""Megatron-LM: command-line flags of ``pretrain_gpt.py`` and its like. Versions are those of megatron-core."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import formats, megatron_model
from jobgen.frameworks.codecs import choice, present, says_nothing
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, laid_over, user_values, words

OPTIONS = rows(
    "cli", "Megatron-LM core 0.12-0.19 megatron/training/arguments.py, megatron/training/config",
    row("training.micro_batch_size", "micro-batch-size"),
    row("training.global_batch_size", "global-batch-size"),
    row("training.sequence_length", "seq-length"),
    row("training.sequence_length", "max-position-embeddings"),
    row("training.objective", "sft", present("sft"), "0.13"),
    row("training.precision", "bf16", choice({"bf16": True}, also={"fp8": True})),
    row("training.precision", "fp16", present("fp16")),
    row("training.precision", "fp8-format", choice({"fp8": "hybrid"}, reads={"e4m3": "fp8"})),
    row("training.dtypes.gradients", "main-grads-dtype", choice({"fp32": "fp32", "bf16": "bf16"}), written=False),
    row("training.dtypes.master", "main-params-dtype", choice({"fp32": "fp32", "fp16": "fp16"}), written=False),
    row("training.dtypes.moments", "exp-avg-dtype", choice({"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}), written=False),
    row("training.dtypes.moments", "exp-avg-sq-dtype", choice({"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}), written=False),
    row("training.dtypes.reduce", "grad-reduce-in-bf16", present("bf16")),
    row("training.optimizer.name", "optimizer", choice({"adamw": "adam", "sgd": "sgd", "lion": "lion", "muon": "muon"}), default="adam"),
    row("training.activation_checkpointing.mode", "recompute-granularity", choice({"selective": "selective", "full": "full"})),
    row("training.activation_checkpointing.mode", "recompute-method", choice({"full": "uniform"})),
    row("training.activation_checkpointing.every", "recompute-num-layers", written=False),
    row("training.activation_checkpointing.policy", "recompute-modules", choice({"core_attention": "core_attn"}), default="core_attn"),
    row("training.attention", "attention-backend",
        choice({"flash_attention_2": "flash", "eager": "unfused", "sdpa": "fused"}, also={"flash_attention_3": "flash"}), default="auto"),
    row("training.loss", "cross-entropy-loss-fusion", present("vocab_parallel")),
    row("training.max_steps", "train-iters"),
    row("training.data.samples", "train-samples", written=False),
    row("training.data.workers", "num-workers", default=2),
    row("training.evaluation.every_steps", "eval-interval", default=1000),
    row("training.evaluation.micro_batch_size", "eval-micro-batch-size", since="0.18"),
    row("checkpoint.directory", "save"),
    row("checkpoint.directory", "load", written=False),
    row("checkpoint.every_steps", "save-interval"),
    row("checkpoint.async", "async-save", present(True)),
    row("checkpoint.optimizer_state", "no-save-optim", present(False)),
    row("checkpoint.content", "ckpt-format", says_nothing, written=False, default="torch_dist"),
    row("parallelism.sharding", "use-distributed-optimizer", present("zero1")),
    row("parallelism.sharding", "use-megatron-fsdp", says_nothing, "0.14", written=False),
    row("parallelism.sharding", "use-custom-fsdp", says_nothing, until="0.14", written=False),
    row("parallelism.sharding", "data-parallel-sharding-strategy", choice({"zero1": "optim", "zero2": "optim_grads"}), written=False),
    row("parallelism.replicate", "num-distributed-optimizer-instances", written=False, default=1),
    row("parallelism.tensor", "tensor-model-parallel-size", default=1),
    row("parallelism.pipeline", "pipeline-model-parallel-size", default=1),
    row("parallelism.virtual_pipeline", "num-virtual-stages-per-pipeline-rank", written=False),
    row("parallelism.context", "context-parallel-size", default=1),
    row("parallelism.context_method", "cp-comm-type", choice({"ring": "p2p", "ulysses": "a2a"}), default="p2p", written=False),
    row("parallelism.expert", "expert-model-parallel-size", default=1),
    row("parallelism.expert_tensor", "expert-tensor-parallel-size", written=False),
    row("parallelism.sequence_parallel", "sequence-parallel", choice({True: True}), written=False),
    row("parallelism.pipeline_layers", "pipeline-model-parallel-layout", says_nothing, "0.13", written=False),
    row("offload.optimizer", "optimizer-cpu-offload", present("cpu")),
)  # fmt: skip
"""Keys are flags without their dashes; a switch is a flag without a value."""

TABLE = Framework(
    name="megatron-lm",
    library="megatron-core",
    launcher="torchrun",
    starts_torchrun=False,
    command=(),
    sharding=frozenset({"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"}),
    attention="flash_attention_2",
    options=OPTIONS,
    checkpoint=CheckpointLayout("iter_*", None, "latest_checkpointed_iteration.txt", resumes_itself=True),
    config_format="cli",
    source="Megatron-LM core 0.12-0.19 training/checkpointing.py: the tracker is written after all ranks finished",
)


def configure(view: View, config: Config) -> Configured:
    """Flags over the user's, and the architecture's under them (unless ``--use-checkpoint-args`` or a file gives it)."""
    theirs = {bare(key): value for key, value in user_values(view, config).items()}
    arch = view["model.arch"]
    if arch is not None and not any(theirs.get(name) for name in megatron_model.GIVEN[1:]):
        theirs = megatron_model.flags(arch) | theirs
    values = formats.merged(laid_over(view, theirs), derived(view), dotted=False)
    env: list[tuple[str, Text]] = []
    if view["parallelism.tensor"] > 1 or view["parallelism.context"] > 1:
        env.append(("CUDA_DEVICE_MAX_CONNECTIONS", ("1",)))  # needed before Blackwell, harmless after it
    if not any(name in values for name in megatron_model.GIVEN):
        view.note("Megatron-LM takes the architecture from flags: give them in training.options or launch.args")
    return Configured(args=words(*formats.switches(values)), env=tuple(env))


def bare(key: str) -> str:
    """A flag as the table writes it: without dashes in front, dashes inside."""
    return key.lstrip("-").replace("_", "-")


def derived(view: View) -> dict[str, Any]:
    """Flags that several fields make."""
    owned: dict[str, Any] = {}
    if view["training.activation_checkpointing.mode"] == "full":
        owned["recompute-num-layers"] = view["training.activation_checkpointing.every"] or 1
    mode = view["checkpoint.resume.mode"]
    if mode != "never":
        load = view["checkpoint.directory"] if mode == "auto" else view["checkpoint.resume"]
        if load is not None:
            owned["load"] = load
    sharding, replicate = view["parallelism.sharding"], view["parallelism.replicate"]
    if sharding in ("zero2", "zero3", "fsdp1", "fsdp2"):
        owned["use-megatron-fsdp" if view.at_least((0, 14)) else "use-custom-fsdp"] = True
        owned["use-distributed-optimizer"] = True
        owned["data-parallel-sharding-strategy"] = "optim_grads" if sharding == "zero2" else "optim_grads_params"
        owned["ckpt-format"] = "fsdp_dtensor"
    elif replicate > 1:
        owned["num-distributed-optimizer-instances"] = replicate
    if view["parallelism.virtual_pipeline"] > 1:
        owned["num-virtual-stages-per-pipeline-rank"] = view["parallelism.virtual_pipeline"]
    if view["parallelism.context"] > 1:
        owned["cp-comm-type"] = "a2a" if view["parallelism.context_method"] == "ulysses" else "p2p"
    if view["parallelism.expert"] > 1:
        owned["expert-tensor-parallel-size"] = view["parallelism.expert_tensor"]
    if sequence_parallel(view):
        owned["sequence-parallel"] = True
    if view["offload.optimizer"] == "cpu":
        owned |= {"use-distributed-optimizer": True, "use-precision-aware-optimizer": True}
    owned |= _dtypes(view)
    return owned


def sequence_parallel(view: View) -> bool:
    """As written; auto: with tensor parallelism, as ``effective/activations.py`` counts it (the flag is off by default,
    and a mixture of experts needs it)."""
    wanted = view["parallelism.sequence_parallel"]
    return view["parallelism.tensor"] > 1 and (wanted if isinstance(wanted, bool) else True)


def _dtypes(view: View) -> dict[str, Any]:
    """The four dtype flags, which need the precision-aware optimizer."""
    dtypes = view.spec.training.dtypes
    given = {
        "main-grads-dtype": dtypes.gradients, "main-params-dtype": dtypes.master, "exp-avg-dtype": dtypes.moments,
        "exp-avg-sq-dtype": dtypes.moments,
    }  # fmt: skip
    found = {key: value for key, value in given.items() if value not in (None, "none")}
    if any(value != "fp32" for value in found.values()):
        return found | {"use-precision-aware-optimizer": True, "use-distributed-optimizer": True}
    return {}
