"""LitGPT: one command per method, one YAML; Lightning Fabric starts the processes of a node."""

from __future__ import annotations

from typing import Any

from jobgen.frameworks import formats
from jobgen.frameworks.codecs import choice, says_nothing, whole
from jobgen.frameworks.config import Config
from jobgen.frameworks.rows import row, rows
from jobgen.frameworks.table import CheckpointLayout, Framework
from jobgen.frameworks.view import View
from jobgen.frameworks.write import CONFIG, Configured, laid_over, user_values, words

FILE = "litgpt.yaml"

_NAMES = choice({"adamw": "AdamW", "sgd": "SGD", "adamw_8bit": "bitsandbytes.optim.AdamW8bit"},
                reads={"torch.optim.AdamW": "adamw", "torch.optim.SGD": "sgd"})  # fmt: skip
_optimizer = _NAMES._replace(decode=lambda theirs: _NAMES.decode(theirs.get("class_path") if isinstance(theirs, dict) else theirs))
"""A name, or a class with its arguments (the learning rate among them), which stay as the user writes them."""

_FINETUNES = frozenset({"sft"})

OPTIONS = rows(
    "yaml", "LitGPT 0.5.0-0.5.13 finetune/full.py, finetune/lora.py, pretrain.py, args.py",
    row("model.path", "checkpoint_dir", objectives=_FINETUNES),
    row("model.path", "initial_checkpoint_dir", says_nothing, objectives=frozenset({"pretrain"}), written=False),
    row("training.micro_batch_size", "train.micro_batch_size", default=4),
    row("training.global_batch_size", "train.global_batch_size", default=64),
    row("training.sequence_length", "train.max_seq_length"),
    row("training.precision.of_method", "precision",
        choice({"bf16": "bf16-mixed", "bf16_pure": "bf16-true", "fp16": "16-mixed", "fp32": "32-true"}, reads={"16-true": "fp16"}),
        note="full training is mixed (fp32 weights); adapters are trained in bf16-true, as all of config_hub/finetune"),
    row("training.optimizer.name", "optimizer", _optimizer, default="AdamW"),
    row("training.quantization.type", "quantize", choice({"nf4": "bnb.nf4", "fp4": "bnb.fp4", "int8": "bnb.int8-training"},
        reads={"bnb.nf4-dq": "nf4", "bnb.fp4-dq": "fp4"}), written=False),
    row("training.lora.rank", "lora_r", default=8),
    row("training.lora.alpha", "lora_alpha", whole, default=16),
    row("training.lora.dropout", "lora_dropout", default=0.05),
    row("training.lora.target_modules", "lora_query", says_nothing, written=False),
    row("training.max_steps", "train.max_steps", objectives=_FINETUNES),
    row("training.max_steps", "train.max_tokens", says_nothing, objectives=frozenset({"pretrain"}), written=False, default=3_000_000_000_000),
    row("training.data.epochs", "train.epochs", whole, objectives=_FINETUNES, default=5),
    row("training.data.workers", "data.init_args.num_workers", default=4),
    row("training.evaluation.every_steps", "eval.interval", default=600),
    row("checkpoint.directory", "out_dir"),
    row("checkpoint.every_steps", "train.save_interval", default=1000),
    row("checkpoint.resume.mode", "resume", choice({"auto": "auto", "never": False}), written=False),
    row("resources.nodes", "num_nodes", default=1),
    row("launch.processes_per_node", "devices", default=1),
)  # fmt: skip

TABLE = Framework(
    name="litgpt",
    library="litgpt",
    launcher="python",
    starts_torchrun=True,
    command=("litgpt", "finetune_full", "--config", CONFIG),
    sharding=frozenset({"none", "fsdp1", "fsdp2"}),
    attention="sdpa",
    options=OPTIONS,
    checkpoint=CheckpointLayout("step-*", "lit_model.pth", resumes_itself=True),
    config_format="yaml",
    config_file=FILE,
    source="LitGPT 0.5.0-0.5.13; Lightning Fabric starts a node's processes; resume: auto takes the newest step-*",
)
_PARTS = ("query", "key", "value", "projection", "mlp")


def configure(view: View, config: Config) -> Configured:
    """The YAML and the command of the method."""
    values = laid_over(view, user_values(view, config))
    tuned = view.spec.training.method != "full"
    if view["training.quantization.type"] is not None and view["training.precision"] == "fp16":
        values["precision"] = "16-true"  # "Quantization and mixed precision is not supported" (finetune/lora.py)
    pretrain = view.spec.training.objective == "pretrain"
    owned: dict[str, Any] = _length(view, pretrain)
    if view["training.lora.target_modules"] == "all-linear":
        owned |= {f"lora_{part}": True for part in _PARTS}
    kind = view["training.quantization.type"]
    if kind in ("nf4", "fp4"):
        owned["quantize"] = f"bnb.{kind}" + ("-dq" if view["training.quantization.double_quant"] else "")
    elif kind == "int8":
        owned["quantize"] = "bnb.int8-training"
    if tuned and view["checkpoint.resume.mode"] != "never":
        view.note("litgpt finetune_lora cannot resume: a restart begins anew")
    elif not tuned:
        mode = view["checkpoint.resume.mode"]
        owned["resume"] = {"auto": "auto", "never": False}.get(mode, view["checkpoint.resume"])
    if pretrain:
        values = _pretrained(view) | values
    text = formats.yaml(formats.merged(values, owned))
    command = "pretrain" if pretrain else "finetune_lora" if tuned else "finetune_full"
    done = Configured(files=((FILE, text),), config_file=FILE)
    if view.spec.launch.command or view.spec.launch.entrypoint or view.spec.launch.module:
        return done
    return done._replace(command=words("litgpt", command, "--config", CONFIG))


def _length(view: View, pretrain: bool) -> dict[str, Any]:
    """pretrain counts tokens and refuses steps and epochs; finetune ends at its epochs (5) however many steps it may make."""
    steps = view["training.max_steps"]
    if steps is None:
        return {}
    tokens = view["training.tokens_per_step"] or view["training.global_batch_size"] * view["training.sequence_length"]
    return {"train.max_tokens": steps * tokens} if pretrain else {"train.epochs": steps}


def _pretrained(view: View) -> dict[str, Any]:
    """pretrain knows no checkpoint_dir: it takes the name of a model that LitGPT has (its own or the hub's), and weights to
    begin with only where it does not resume ("Can't provide both `--resume` and `--initial_checkpoint_dir`")."""
    model = view.spec.model
    found: dict[str, Any] = {"model_name": model.name.rpartition("/")[2]} if model.name else {}
    if model.init == "pretrained":
        if view["checkpoint.resume.mode"] == "never":
            return found | {"initial_checkpoint_dir": view["model.path"]}
        view.note("litgpt pretrain resumes or begins with weights, not both: write checkpoint.resume: never, or it trains from random weights")
    return found
