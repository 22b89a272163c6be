"""verl: one driver on a Ray cluster, configured by Hydra overrides."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import formats
from jobgen.frameworks.codecs import choice, flag, member, says_nothing, targets, whole
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Option
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, laid_over, user_values, words

_ACTOR, _MODEL, _ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.model.", "actor_rollout_ref.rollout."
_cpu = choice({"cpu": True, "none": False})

_COMMON = rows(
    "cli", "verl 0.9.1 trainer/config/*.yaml",
    row("training.objective", "algorithm.adv_estimator", choice({"grpo": "grpo", "ppo": "gae"}), default="gae"),
    row("model.path", _MODEL + "path"),
    row("training.global_batch_size", _ACTOR + "ppo_mini_batch_size", says_nothing, written=False, default=256,
        note="prompts; multiplied by rollout.n"),
    row("training.global_batch_size", "data.train_batch_size", says_nothing, written=False, note="prompts per rollout step"),
    row("training.micro_batch_size", _ACTOR + "ppo_micro_batch_size_per_gpu"),
    row("training.packing", _MODEL + "use_remove_padding", flag("padding_free"), default=True),
    row("training.optimizer.name", _ACTOR + "optim.optimizer", choice({"adamw": "AdamW"}), default="AdamW"),
    row("training.activation_checkpointing.mode", _MODEL + "enable_gradient_checkpointing",
        choice({"full": True, "none": False}, also={"selective": True}), default=True),
    row("offload.activations", _MODEL + "enable_activation_offload", _cpu, default=False),
    row("training.loss", _MODEL + "use_liger", choice({"liger": True}), default=False),
    row("training.freeze", _ACTOR + "freeze_vision_tower", member("vision_tower"), default=False),
    row("training.lora.rank", _MODEL + "lora_rank", default=0),
    row("training.lora.alpha", _MODEL + "lora_alpha", whole, default=16),
    row("training.lora.target_modules", _MODEL + "target_modules", targets("all-linear"), default="all-linear"),
    row("training.rollout.engine", _ROLLOUT + "name", choice({"vllm": "vllm", "sglang": "sglang", "hf": "hf"})),
    row("training.rollout.tensor", _ROLLOUT + "tensor_model_parallel_size", default=2),
    row("training.rollout.num_generations", _ROLLOUT + "n", default=1),
    row("training.rollout.gpu_memory_utilization", _ROLLOUT + "gpu_memory_utilization", default=0.5),
    row("checkpoint.directory", "trainer.default_local_dir"),
    row("checkpoint.every_steps", "trainer.save_freq", default=-1),
    row("checkpoint.keep", "trainer.max_actor_ckpt_to_keep"),
    row("checkpoint.async", _ACTOR + "checkpoint.async_save", choice({True: True, False: False}), default=False),
    row("checkpoint.resume.mode", "trainer.resume_mode", choice({"auto": "auto", "never": "disable", "path": "resume_path"}), default="auto"),
    row("checkpoint.resume", "trainer.resume_from_path", says_nothing, written=False),
    row("training.max_steps", "trainer.total_training_steps"),
    row("training.data.epochs", "trainer.total_epochs", whole, default=30),
    row("training.evaluation.every_steps", "trainer.test_freq", default=-1),
    row("resources.nodes", "trainer.nnodes", default=1),
    row("launch.processes_per_node", "trainer.n_gpus_per_node", default=8),
)  # fmt: skip
_FSDP = rows(
    "cli", "verl 0.9.1 trainer/config/engine/fsdp.yaml",
    row("parallelism.sharding", _ACTOR + "strategy", choice({"fsdp1": "fsdp", "fsdp2": "fsdp2"}), default="fsdp"),
    row("training.precision", _ACTOR + "fsdp_config.dtype", choice({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}, also={"bf16_pure": "bfloat16"}),
        default="bfloat16"),
    row("training.precision", _ACTOR + "fsdp_config.model_dtype", choice({"bf16_pure": "bf16"}, rest="fp32"), default="fp32"),
    row("parallelism.replicate", _ACTOR + "fsdp_config.fsdp_size", says_nothing, written=False, default=-1),
    row("parallelism.context", _ACTOR + "ulysses_sequence_parallel_size", default=1),
    row("offload.parameters", _ACTOR + "fsdp_config.param_offload", _cpu, default=False),
    row("offload.optimizer", _ACTOR + "fsdp_config.optimizer_offload", _cpu, default=False),
)  # fmt: skip


def _megatron(field: str, key: str) -> Option:
    return row(field, _ACTOR + "megatron." + key)


_MEGATRON = rows(
    "cli", "verl 0.9.1 trainer/config/engine/megatron.yaml",
    _megatron("parallelism.tensor", "tensor_model_parallel_size"),
    _megatron("parallelism.pipeline", "pipeline_model_parallel_size"),
    _megatron("parallelism.context", "context_parallel_size"),
    _megatron("parallelism.expert", "expert_model_parallel_size"),
    row("parallelism.sharding", _ACTOR + "megatron.use_distributed_optimizer", choice({"zero1": True}, rest=False)),
)  # fmt: skip

TABLE = Framework(
    name="verl",
    library="verl",
    launcher="python",
    starts_torchrun=True,
    command=("python", "-m", "verl.trainer.main_ppo"),
    sharding=frozenset({"fsdp1", "fsdp2"}),
    attention="flash_attention_2",
    options=(*_COMMON, *_FSDP),
    checkpoint=CheckpointLayout("global_step_*", None, "latest_checkpointed_iteration.txt", resumes_itself=True),
    config_format="cli",
    source="verl 0.9.1 (only this release was read); ranks are Ray actors, one driver per job",
)
BACKENDS = {
    "megatron": TABLE._replace(
        options=(*_COMMON, *_MEGATRON), sharding=frozenset({"none", "zero1"}),
    ),
}  # fmt: skip


def configure(view: View, config: Config) -> Configured:
    """Overrides for the driver."""
    values = laid_over(view, user_values(view, config))
    owned: dict[str, Any] = {}
    rollout = view.spec.training.rollout
    if rollout is not None:
        prompts = max(1, view["training.global_batch_size"] // rollout.num_generations)
        owned |= {_ACTOR + "ppo_mini_batch_size": prompts, "data.train_batch_size": prompts}
    if view["parallelism.replicate"] > 1:
        owned[_ACTOR + "fsdp_config.fsdp_size"] = view["parallel.shard"]
    if view["checkpoint.resume.mode"] == "path":
        owned["trainer.resume_from_path"] = view["checkpoint.resume"]
    if view.spec.training.backend == "megatron":
        owned["model_engine"] = "megatron"
    if view["parallel.nodes"] > 1:
        view.note("verl needs a Ray cluster over the nodes (`ray start` on each) before its driver starts on the first")
    view.note(
        "data.max_prompt_length + data.max_response_length make training.sequence_length: give both in training.options"
    )
    return Configured(args=words(*formats.assignments(formats.merged(values, owned))))
