"""Which data types weights, gradients, masters and moments have, by framework, method, precision and sharding.

The knowledge is two tables: ``STATES`` says what an engine of mixed precision keeps, ``RULES`` which engine a set-up
runs (the first match). Bytes are per element; a rule is a line with its source, so that a person can argue with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jobgen.spec.record import NamedTuple

Engine = Literal[
    "fp32", "autocast", "half", "fsdp", "deepspeed", "deepspeed_half", "deepspeed_plain", "megatron"
]


class State(NamedTuple):
    """Bytes per element of what an engine keeps for trained weights (0: does not exist)."""

    weights: float
    """As forward and backward read them."""
    trainable: float
    """As they are stored."""
    gradients: float
    master: float
    """A copy besides ``trainable`` that the optimizer steps."""
    moment: float
    """Each moment of the optimizer."""
    reduce: float
    autocast: bool
    """Weights are cast at each use (torch.autocast), and the casts are kept for backward."""
    residual: float
    """The residual stream."""
    source: str


STATES: dict[Engine, State] = {
    "fp32": State(4, 4, 4, 0, 4, 4, False, 4, "torch: everything has the parameters' dtype"),
    "autocast": State(4, 4, 4, 0, 4, 4, True, 4,
        "torch.amp: weights stay fp32, matrix products run in 16 bit; gradients and moments follow the weights"),
    "half": State(2, 2, 2, 0, 2, 2, False, 2,
        "torch.optim: moments are made like their parameter (torch/optim/adamw.py, zeros_like); no fp32 copy exists"),
    "fsdp": State(2, 4, 4, 0, 4, 2, False, 2,
        "FSDP mixed precision: fp32 shards, 16-bit gathered copies, gradients of the shard in fp32"
        " (torch/distributed/fsdp MixedPrecision; accelerate upcasts trained weights when mixed precision is on)"),
    "deepspeed": State(2, 2, 2, 4, 4, 2, False, 2,
        "DeepSpeed ZeRO: 16-bit weights and gradients, fp32 master and moments (runtime/zero/stage_1_and_2.py, stage3.py;"
        " runtime/engine.py get_data_types: gradients accumulate in the model's dtype under ZeRO)"),
    "deepspeed_half": State(2, 2, 2, 2, 2, 2, False, 2,
        "DeepSpeed bf16_master_weights_and_grads and bf16_optimizer_states: the master copy exists, in 16 bit"),
    "deepspeed_plain": State(2, 2, 4, 4, 4, 4, False, 2,
        "DeepSpeed without ZeRO: gradients accumulate in fp32 (runtime/engine.py get_data_types, bf16_optimizer.py)"),
    "megatron": State(2, 2, 4, 4, 4, 4, False, 2,
        "Megatron-LM: 16-bit weights, fp32 main gradients, fp32 main weights (core/optimizer/distrib_optimizer.py;"
        " training/theoretical_memory_usage.py: 18 bytes, 6 + 12 / dp with the distributed optimizer)"),
}  # fmt: skip
"""What each engine keeps."""

HF = frozenset({"transformers", "trl", "accelerate", "llama-factory", "axolotl", "unsloth", "ms-swift"})
"""Frameworks around transformers' Trainer or accelerate."""
MEGATRON = frozenset({"megatron-lm", "nemo"})
ZERO = frozenset({"zero1", "zero2", "zero3"})
FSDP = frozenset({"fsdp1", "fsdp2"})


class Rule(NamedTuple):
    """One line: conditions (None matches all) and the engine that runs then."""

    engine: Engine
    frameworks: frozenset[str] | None = None
    sharding: frozenset[str] | None = None
    precisions: frozenset[str] | None = None
    methods: frozenset[str] | None = None
    transformers_since: tuple[int, ...] | None = None
    """Only from this transformers release on (or where the program says so itself)."""
    source: str = ""


_MIXED = frozenset({"bf16", "fp16", "fp8"})
_BF16 = frozenset({"bf16", "fp8"})
_FP16, _PURE = frozenset({"fp16"}), frozenset({"bf16_pure"})
_FULL, _LORA, _ADAPTERS = frozenset({"full"}), frozenset({"lora"}), frozenset({"lora", "qlora"})

RULES: tuple[Rule, ...] = (
    Rule("fp32", precisions=frozenset({"fp32"})),
    Rule("megatron", MEGATRON),
    Rule("deepspeed_half", None, ZERO, _PURE, source="DeepSpeed bf16 block, 0.18.3"),
    Rule("deepspeed_plain", frozenset({"deepspeed"}), None, _PURE),
    Rule("megatron", frozenset({"megatron-deepspeed"}), None, _PURE),
    Rule("half", precisions=_PURE),
    Rule("deepspeed", None, ZERO, _MIXED),
    Rule("megatron", frozenset({"megatron-deepspeed"}), None, _MIXED,
         source="Megatron-DeepSpeed keeps fp32 main weights and gradients (megatron/optimizer)"),
    Rule("deepspeed_plain", frozenset({"deepspeed"}), None, _MIXED),
    Rule("half", frozenset({"torchtune"}), None, _BF16,
         source="torchtune: dtype is the dtype of weights, gradients and moments (recipes/full_finetune_*.py)"),
    Rule("autocast", frozenset({"litgpt"}), None, _FP16, _LORA,
         source="LitGPT 16-mixed: lightning fabric/plugins/precision/amp.py, fsdp.py: every weight is made in fp32"),
    Rule("fsdp", frozenset({"litgpt"}), FSDP, _MIXED, _FULL,
         source="LitGPT bf16-mixed: lightning fabric/plugins/precision/fsdp.py: fp32 shards, gathered and reduced in 16 bit"),
    Rule("autocast", frozenset({"fsdp-qlora"}), None, _FP16,
         source="fsdp_qlora train.py fp16_autocast: fp32 weights, MixedPrecision(param_dtype=fp32), torch.amp.autocast"),
    Rule("autocast", frozenset({"fsdp-qlora"}), None, frozenset({"bf16"}), _FULL,
         source="fsdp_qlora train.py bf16_autocast: fp32 weights, MixedPrecision(param_dtype=fp32), torch.amp.autocast"),
    Rule("fsdp", frozenset({"verl"}), FSDP, _MIXED, _ADAPTERS,
         source="verl 0.9.1 trainer/config/engine/fsdp.yaml: model_dtype fp32, the frozen weights too"),
    Rule("autocast", frozenset({"torchtitan"}), frozenset({"none"}), _MIXED, _ADAPTERS,
         source="torchtitan training.dtype float32, autocast without FSDP"),
    Rule("fsdp", frozenset({"torchtitan"}), FSDP, _MIXED, _ADAPTERS,
         source="torchtitan training.dtype float32, mixed_precision_param bfloat16: the frozen weights too"),
    Rule("half", frozenset({"axolotl"}), frozenset({"fsdp2"}), _BF16, _FULL,
         source="axolotl monkeypatch/accelerate/fsdp2.py fsdp2_prepare_model: accelerate's upcast is left out"),
    Rule("fsdp", HF | frozenset({"verl"}), FSDP, _MIXED, _FULL,
         source="accelerate accelerator.py prepare_model, utils/fsdp_utils.py: upcast to fp32 when mixed precision is on"),
    Rule("fsdp", None, FSDP, _MIXED, _FULL,
         source="torchtitan, torch: MixedPrecisionPolicy(param 16 bit, reduce fp32) over fp32 parameters"),
    Rule("half", frozenset({"axolotl"}), None, _BF16, _FULL,
         source="axolotl loads in torch_dtype = bf16 when bf16 is set (utils/config normalize_config)"),
    Rule("half", frozenset({"ms-swift"}), None, _BF16, _FULL,
         source="ms-swift loads in the checkpoint's dtype (torch_dtype default of the model's config)"),
    Rule("half", frozenset({"unsloth"}), None, _BF16, _FULL, source="unsloth full_finetuning loads in bf16"),
    Rule("autocast", frozenset({"llama-factory"}), None, _MIXED, _FULL,
         source="LLaMA-Factory model/adapter.py: trained weights are upcast to fp32 unless pure_bf16"),
    Rule("half", frozenset({"transformers", "trl", "accelerate"}), None, _BF16, _FULL, (5, 0),
         source="transformers >= 5 loads in the checkpoint's dtype (from_pretrained dtype='auto'); autocast then casts nothing"),
    Rule("autocast", frozenset({"trl"}), None, _MIXED, _FULL,
         source="TRL ModelConfig dtype: float32 by default from 0.27, and what jobgen writes for full training without sharding"),
    Rule("autocast", frozenset({"litgpt", "torchtitan", "unsloth", "ms-swift", "axolotl"}), None, _MIXED, _FULL,
         source="torch.amp over fp32 weights"),
    Rule("autocast", None, None, _MIXED, _FULL,
         source="transformers < 5 loads in fp32; transformers docs, model memory anatomy: 18 bytes with AdamW"),
    Rule("half", None, None, _MIXED),
)  # fmt: skip
"""The engines; the first line that matches decides."""


UNSUPPORTED: Mapping[str, tuple[frozenset[str], str]] = {
    "deepspeed": (frozenset({"fp8"}), "DeepSpeed's JSON has no fp8"),
    "megatron-lm": (frozenset({"bf16_pure"}), "Megatron-LM keeps main weights and gradients in fp32 (or fp16: training.dtypes.master)"),
    "megatron-deepspeed": (frozenset({"fp8"}), "Megatron-DeepSpeed has no fp8 flag"),
    "nemo": (frozenset({"fp32", "bf16_pure"}), "Megatron-Bridge's recipes of mixed precision keep main weights in fp32"),
    "torchtune": (frozenset({"fp8"}), "torchtune's recipes to 0.6.1 have no fp8"),
    "torchtitan": (frozenset({"fp16"}), "torchtitan's mixed_precision_param is bfloat16 or float32"),
    "fsdp-qlora": (frozenset({"fp8"}), "fsdp_qlora's precisions are fp32, bf16, bf16_autocast and fp16_autocast"),
    "litgpt": (frozenset({"fp8"}), "LitGPT's recipes have no fp8"),
    "verl": (frozenset({"fp8"}), "verl's actor has no fp8 (fsdp_config.dtype)"),
}
"""Precisions for which a framework has no word: another one would run than was checked."""
UNSUPPORTED_MEGATRON: Mapping[str, tuple[frozenset[str], str]] = {
    "ms-swift": (frozenset({"bf16_pure"}), "Megatron keeps main weights and gradients in fp32"),
    "verl": (frozenset({"fp8", "fp16", "fp32", "bf16_pure"}), "verl's Megatron engine trains in bf16"),
}
"""The same with ``training.backend: megatron``."""


def unsupported(framework: str, backend: str | None, precision: str) -> str:
    """Why a framework cannot be told to train in this precision; '' where it can."""
    table = UNSUPPORTED_MEGATRON if backend == "megatron" else UNSUPPORTED
    known, why = table.get(framework, (frozenset[str](), ""))
    return why if precision in known else ""


class Adapter(NamedTuple):
    """Data types of adapters and their optimizer, over frozen 16-bit weights."""

    weights: float
    gradients: float
    moment: float
    source: str


ADAPTERS: tuple[tuple[frozenset[str] | None, Adapter], ...] = (
    (frozenset({"torchtune", "litgpt", "fsdp-qlora"}),
     Adapter(2, 2, 2, "adapters are made in the model's dtype (torchtune modules/peft/lora.py, litgpt/lora.py)")),
    (None, Adapter(4, 4, 4, "peft autocast_adapter_dtype=True: 16-bit adapters are cast to fp32 (peft 0.12 and later)")),
)  # fmt: skip
"""Adapters by framework; engines with a master (DeepSpeed, Megatron) keep the base's 16 bit and their own fp32 copy."""

KBIT_FP32 = frozenset({"transformers", "accelerate"})
"""Programs that call peft's prepare_model_for_kbit_training and leave what it made: every unquantised weight in fp32,
so the residual stream too (peft utils/other.py). TRL casts embeddings back (trl models/utils peft_module_casting_to_bf16),
axolotl too (loaders/model.py convert_embedding_modules_dtype), LLaMA-Factory, ms-swift and Unsloth do not call it."""


class Optimizer(NamedTuple):
    """What an optimizer keeps and needs, per trained element."""

    moments: float
    """How many moments of the engine's moment dtype."""
    fixed: float | None
    """Bytes of all moments together whatever the dtype (8-bit states); None: ``moments`` x dtype."""
    paged: bool
    every: float
    """Temporaries at the step over all elements, in moments' dtype (foreach)."""
    largest: float
    """Temporaries at the step over the largest matrix, in elements of fp32."""
    source: str


_BLOCK8 = 2 * (1 + 4 / 256)
_BLOCK4 = 2 * (0.5 + 4 / 128)
OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(2, None, False, 1, 0, "torch/optim/adamw.py _multi_tensor_adamw: one list of square roots of the second moment"),
    "adamw_8bit": Optimizer(2, _BLOCK8, False, 0, 0, "two 8-bit moments and an fp32 scale per 256 (bitsandbytes optim, torchao optim)"),
    "adamw_4bit": Optimizer(2, _BLOCK4, False, 0, 0, "two 4-bit moments and an fp32 scale per 128 (torchao optim/adam.py)"),
    "paged_adamw": Optimizer(2, 8, True, 0, 0, "bitsandbytes keeps 32-bit moments, in CUDA managed memory (functional.get_paged)"),
    "paged_adamw_8bit": Optimizer(2, _BLOCK8, True, 0, 0, "as adamw_8bit, in CUDA managed memory"),
    "adafactor": Optimizer(0, 0.01, False, 0, 3, "row and column sums only; update and its square per parameter in fp32 (transformers Adafactor)"),
    "sgd": Optimizer(0, 0, False, 0, 0, "torch SGD without momentum (transformers optim: sgd)"),
    "lion": Optimizer(1, None, False, 0, 1, "one moment; the update of one parameter at a time (lion_pytorch)"),
    "lion_8bit": Optimizer(1, _BLOCK8 / 2, False, 0, 0, "one 8-bit moment (bitsandbytes)"),
    "paged_lion_8bit": Optimizer(1, _BLOCK8 / 2, True, 0, 0, "one 8-bit moment in managed memory (bitsandbytes)"),
    "muon": Optimizer(1, None, False, 0, 3, "one momentum; Newton-Schulz works on copies of one matrix in 16 bit (Keller Jordan's Muon)"),
    "adagrad": Optimizer(1, None, False, 1, 0, "torch/optim/adagrad.py: one sum"),
    "rmsprop": Optimizer(1, None, False, 1, 0, "torch/optim/rmsprop.py: one square average"),
    "lomo": Optimizer(0, 0, False, 0, 1, "no state: parameters are updated inside backward (LOMO)"),
    "adalomo": Optimizer(0, 0.01, False, 0, 1, "factored second moment, updated inside backward (AdaLomo)"),
    "galore_adamw": Optimizer(0.5, None, False, 0, 2, "moments of the projected gradient: rank over the smaller side (GaLore)"),
    "galore_adamw_8bit": Optimizer(0.5, _BLOCK8 / 4, False, 0, 2, "as galore_adamw, 8-bit moments"),
    "apollo_adamw": Optimizer(0.5, None, False, 0, 2, "moments of the projected gradient (APOLLO)"),
    "schedule_free_adamw": Optimizer(2, None, False, 1, 0, "one average and one second moment (schedulefree)"),
}  # fmt: skip
"""Optimizers by the spec's name. torch's AdamW keeps ``foreach`` unless a framework asks for its fused kernel."""

IN_BACKWARD = frozenset({"lomo", "adalomo"})
"""Optimizers that always step inside backward."""
FUSED = frozenset({"torchtitan", "torchtune", "megatron-lm", "megatron-deepspeed", "nemo"})
"""Frameworks whose AdamW is one fused kernel without temporaries (torchtitan components/optimizer.py, torchtune's
recipes, apex or TransformerEngine FusedAdam in Megatron)."""
BNB_EMBEDDINGS_FP32 = frozenset({"adamw_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit"})
"""transformers' Trainer registers embeddings for 32-bit states with bitsandbytes (trainer.py create_optimizer)."""
CPU_ADAM = frozenset({"adamw_8bit", "paged_adamw_8bit", "paged_adamw", "sgd", "adamw_4bit"})
"""Optimizers that accelerate swaps for DeepSpeedCPUAdam under CPU offload (utils/deepspeed.py
map_pytorch_optim_to_deepspeed): fp32 moments on the host."""


def engine(
    framework: str, sharding: str, precision: str, method: str, transformers_at_least_5: bool, megatron: bool = False
) -> tuple[Engine, str]:
    """The engine of a set-up and the source of that knowledge. ``megatron``: ms-swift's Megatron backend."""
    for rule in RULES:
        if megatron and rule.frameworks == MEGATRON:
            pass
        elif rule.frameworks is not None and (framework not in rule.frameworks or megatron):
            continue
        if rule.sharding is not None and sharding not in rule.sharding:
            continue
        if rule.precisions is not None and precision not in rule.precisions:
            continue
        if rule.methods is not None and method not in rule.methods:
            continue
        if rule.transformers_since is not None and not transformers_at_least_5:
            continue
        return rule.engine, rule.source or STATES[rule.engine].source
    raise AssertionError("the last rules match every precision")


def adapter(framework: str) -> Adapter:
    """Data types of a framework's adapters."""
    return next(found for names, found in ADAPTERS if names is None or framework in names)
