"""torchtune: ``tune run`` with a recipe, its YAML and overrides; the command starts torchrun itself."""

from __future__ import annotations

from jobgen.frameworks import formats
from jobgen.frameworks.codecs import choice, present, says_nothing, whole, yes_no
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework, Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, asks_for_config, in_config_dir, laid_over, user_values, words

FILE = "torchtune.yaml"
_cpu = choice({"cpu": True, "none": False})

OPTIONS = rows(
    "yaml", "torchtune 0.1.0-0.6.1 recipes/*.py, recipes/configs",
    row("training.micro_batch_size", "batch_size"),
    row("training.gradient_accumulation_steps", "gradient_accumulation_steps", default=1),
    row("training.sequence_length", "tokenizer.max_seq_len"),
    row("training.packing", "dataset.packed", choice({"packed": True}, rest=False), "0.4", default=False),
    row("training.precision", "dtype", choice({"bf16_pure": "bf16", "fp32": "fp32"}, also={"bf16": "bf16"}), default="bf16",
        note="bf16 weights, gradients and moments: there is no mixed precision"),
    row("training.optimizer.name", "optimizer._component_", choice({
        "adamw": "torch.optim.AdamW", "sgd": "torch.optim.SGD", "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
        "adamw_4bit": "torchao.optim.AdamW4bit", "paged_adamw": "bitsandbytes.optim.PagedAdamW",
        "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit"}, reads={"torchao.optim.AdamW8bit": "adamw_8bit"})),
    row("training.optimizer.in_backward", "optimizer_in_bwd", yes_no, default=False),
    row("training.activation_checkpointing.mode", "enable_activation_checkpointing", choice({"full": True}, rest=False), default=False),
    row("training.activation_checkpointing.mode", "ac_mode", choice({"selective": "selective"}), "0.2"),
    row("training.activation_checkpointing.every", "ac_option", since="0.2"),
    row("offload.activations", "enable_activation_offloading", _cpu, "0.3.1", default=False),
    row("training.compile", "compile", yes_no, default=False),
    row("training.loss", "loss._component_", choice({"chunked": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        reads={"torchtune.modules.loss.LinearCrossEntropyLoss": "chunked", "torch.nn.CrossEntropyLoss": "standard"})),
    row("training.lora.rank", "model.lora_rank"),
    row("training.lora.alpha", "model.lora_alpha", whole),
    row("training.lora.dropout", "model.lora_dropout"),
    row("training.lora.target_modules", "model.lora_attn_modules", says_nothing, written=False),
    row("training.lora.use_dora", "model.use_dora", present(True), "0.3.1"),
    row("training.max_steps", "max_steps_per_epoch"),
    row("training.data.epochs", "epochs", whole),
    row("parallelism.tensor", "tensor_parallel_dim", since="0.6", default=1),
    row("offload.parameters", "fsdp_cpu_offload", _cpu, "0.2", default=False),
    row("checkpoint.directory", "output_dir"),
    row("checkpoint.async", "enable_async_checkpointing", yes_no, "0.6", default=False),
    row("checkpoint.content", "save_adapter_weights_only", choice({"adapter_only": True}, rest=False), "0.3.1", default=False),
    row("checkpoint.resume", "resume_from_checkpoint", says_nothing, written=False, default=False),
)  # fmt: skip

TABLE = Framework(
    name="torchtune",
    library="torchtune",
    launcher="torchrun",
    starts_torchrun=True,
    command=("tune", "run"),
    sharding=frozenset({"none", "fsdp2"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout("epoch_*", None),
    config_format="yaml",
    config_file=FILE,
    source="torchtune 0.1.0-0.6.1 training/checkpointing, recipes; recipe_state/recipe_state.pt is beside the epochs",
)
_ALL_ATTENTION = ["q_proj", "k_proj", "v_proj", "output_proj"]


def configure(view: View, config: Config) -> Configured:
    """The YAML over the user's recipe configuration, and ``tune run``, which takes torchrun's options from the launch."""
    values = laid_over(view, user_values(view, config))
    if view["training.lora.target_modules"] == "all-linear":
        values = formats.merged(values, {"model": {"lora_attn_modules": _ALL_ATTENTION, "apply_lora_to_mlp": True}})
    elif view["training.lora.target_modules"] is not None:
        view.note("torchtune names LoRA modules by its own builders: model.lora_attn_modules is the recipe's")
    if view["training.max_steps"] is not None:
        values["epochs"] = 1
    if not config.file:
        view.note("torchtune's recipe needs its own configuration (model, tokenizer, dataset): give training.config")
    if view["checkpoint.every_steps"] is not None:
        view.note("torchtune to 0.6.1 saves at the end of an epoch only: checkpoint.every_steps has no effect")
    done = Configured(files=((FILE, formats.yaml(values)),), config_file=FILE)
    launch = view.spec.launch
    if launch.command is not None or launch.entrypoint is not None or launch.module is not None:
        place: tuple[Text, ...] = (("--config",), in_config_dir(FILE))
        return done if asks_for_config(view.spec) else done._replace(args=place)
    command = (*words("tune", "run", _recipe(view), "--config"), in_config_dir(FILE))
    return done._replace(command=command)


def _recipe(view: View) -> str:
    """The recipe that trains by this method and objective; the distributed ones run on one GPU as well."""
    kind = "full" if view.spec.training.method == "full" else "lora"
    return f"{kind}_dpo_distributed" if view.spec.training.objective == "dpo" else f"{kind}_finetune_distributed"
