"""Data types as they will be: the engine's state model, then what the user overrides."""

from __future__ import annotations

from jobgen.effective.setup import Effective, Numbers
from jobgen.effective.unheard import unheard
from jobgen.frameworks import states

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "none": 0.0}
"""Bytes per element of the spec's data types."""


def megatron(effective: Effective) -> bool:
    """Megatron's engine runs. ms-swift's other engine has no tensor, pipeline or expert parallelism."""
    training, split = effective.spec.training, effective.spec.parallelism
    if training.framework in states.MEGATRON or training.backend == "megatron":
        return True
    return training.framework == "ms-swift" and (split.tensor > 1 or split.pipeline > 1 or split.expert > 1)


def decide(effective: Effective) -> Numbers:
    """Bytes per element of weights, gradients, masters and activations."""
    spec = effective.spec
    training, sharding = spec.training, spec.parallelism.sharding
    runs_megatron = megatron(effective)
    name, source = _engine(effective, runs_megatron)
    state = states.STATES[name]
    weights, trainable, gradients, master = state.weights, state.trainable, state.gradients, state.master
    residual, adapters = state.residual, 0.0
    if training.method != "full":
        if name in ("half", "fsdp"):
            weights = 2.0
            kind = states.adapter(training.framework)
            trainable, gradients, master = kind.weights, kind.gradients, 0.0
            source = kind.source
            residual = 2.0
            if sharding == "fsdp2" and training.framework in states.HF and training.precision != "bf16_pure":
                trainable = gradients = 4.0
        adapters = trainable
        if _kbit_fp32(effective):
            residual = 4.0
    given = training.dtypes
    if given.weights is not None:
        weights = BYTES[given.weights]
        trainable = weights if name != "fsdp" else trainable
        source = "training.dtypes"
    if given.gradients is not None and not unheard(effective, "training.dtypes.gradients"):
        gradients = BYTES[given.gradients]
    if given.master is not None and not unheard(effective, "training.dtypes.master"):
        master = BYTES[given.master]
        if name == "fsdp" and given.master == "none":
            trainable = weights
        elif name == "fsdp":
            trainable, master = BYTES[given.master], 0.0
    reduce = state.reduce if given.reduce is None else BYTES[given.reduce]
    if name == "fsdp" and given.reduce is None and training.framework not in states.HF | {"verl", "litgpt"}:
        reduce = 4.0
    compute = 4.0 if training.precision == "fp32" else 2.0
    return Numbers(weights, trainable, gradients, master, state.autocast, reduce, compute, residual, adapters, source)


def _engine(effective: Effective, runs_megatron: bool) -> tuple[states.Engine, str]:
    training = effective.spec.training
    needs_version = (
        training.framework in ("transformers", "trl", "accelerate")
        and training.method == "full"
        and training.precision in ("bf16", "fp8")
        and effective.spec.parallelism.sharding == "none"
    )
    asked = _loads_half(effective) if needs_version and training.dtypes.weights is None else False
    name, source = states.engine(
        training.framework, effective.spec.parallelism.sharding, training.precision, training.method, asked, runs_megatron
    )
    if name == "deepspeed_half" and not effective.versions["deepspeed"] >= (0, 18, 3):
        return "deepspeed", "DeepSpeed < 0.18.3 keeps fp32 masters whatever the precision"
    if training.method == "full" and training.precision in ("bf16", "fp16"):  # dtypes.weights is what is loaded
        if name == "half" and training.dtypes.weights == "fp32":
            return "autocast", "training.dtypes.weights"
        if name == "autocast" and training.dtypes.weights in ("bf16", "fp16"):
            return "half", "training.dtypes.weights"
    return name, source


def _loads_half(effective: Effective) -> bool:
    """The program loads in the checkpoint's 16 bit: it says so, or transformers does since 5.0. TRL is told fp32."""
    options = effective.spec.training.options
    for key in ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype"):
        if key in options:
            return str(options[key]) not in ("float32", "fp32", "None")
    return effective.spec.training.framework != "trl" and effective.versions["transformers"] >= (5, 0)


def engine(effective: Effective) -> states.Engine:
    """The name of the engine of mixed precision."""
    return _engine(effective, megatron(effective))[0]


def moment(effective: Effective) -> float:
    """Bytes of one optimizer moment per trained element."""
    training = effective.spec.training
    if training.dtypes.moments is not None and not unheard(effective, "training.dtypes.moments"):
        return BYTES[training.dtypes.moments]
    name = engine(effective)
    if training.method != "full" and name in ("half", "autocast", "fsdp"):
        if name == "fsdp" or effective.numbers.trainable == 4.0:
            return 4.0
        return states.adapter(training.framework).moment
    return states.STATES[name].moment


def _kbit_fp32(effective: Effective) -> bool:
    """peft's prepare_model_for_kbit_training ran and nothing took its fp32 back (never under sharding)."""
    training = effective.spec.training
    quantised = effective.quantized.type
    return (
        training.framework in states.KBIT_FP32
        and training.method == "qlora"
        and quantised is not None
        and not quantised.startswith("gptq")
        and effective.spec.parallelism.sharding == "none"
    )


def unquantised_bytes(effective: Effective) -> float:
    """Bytes per element of the frozen weights that the quantiser leaves (embeddings, norms, head)."""
    return 4.0 if effective.numbers.residual == 4.0 and _kbit_fp32(effective) else effective.numbers.weights
