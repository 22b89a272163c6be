"""Offload: what is ignored, what is refused, and what makes it slow."""

from __future__ import annotations

import re

from jobgen.checks.case import Case
from jobgen.checks.quantization import map_path, quantizes
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.loading import device_map
from jobgen.effective.options import flag, hugging_face, option, switch

EIGHT_BIT = frozenset(("adamw_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit"))
ZERO = ("zero1", "zero2", "zero3")


def optimizer_on_cpu(case: Case) -> bool:
    """The optimizer is offloaded through DeepSpeed."""
    return case.spec.offload.optimizer == "cpu" and case.spec.parallelism.sharding in ZERO


@rule(
    "JG301", "warning", "init", "effective",
    bad=Example("full-8b-zero2", {"offload.parameters": "cpu", "offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}}),
    good=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}}),
    fix="parallelism.sharding: zero3",
    sources=("DeepSpeed runtime/zero/offload_config.py", "DeepSpeed runtime/engine.py:2397-2430"),
    facts=("OF01",),
)  # fmt: skip
def parameters_stay(case: Case) -> Outcome | None:
    """Parameter offload is ignored below ZeRO-3

    offload_param reaches the stage 3 optimizer only. GPU memory is unchanged and nothing says so.
    """
    effect = next((e for e in case.effective.offloaded.effects if e.id == "zero_parameters_stay"), None)
    if effect is None:
        return None
    return Outcome(effect.path, f"{effect.ignored} is ignored: {effect.instead}", "write parallelism.sharding: zero3, or remove offload.parameters",
                   {"parallelism.sharding": "zero3"})  # fmt: skip


@rule(
    "JG302", "warning", "init", "effective",
    bad=Example("qlora-235b-zero3", {"model.name": "Qwen/Qwen2.5-Coder-32B-Instruct", "training.optimizer": "paged_adamw_8bit"}),
    good=Example("qlora-235b-zero3", {"model.name": "Qwen/Qwen2.5-Coder-32B-Instruct"}),
    fix="training.optimizer: adamw, or zero_force_ds_cpu_optimizer: false",
    sources=("accelerate utils/deepspeed.py map_pytorch_optim_to_deepspeed", "accelerate accelerator.py:2366-2374"),
    facts=("OF02",),
)  # fmt: skip
def becomes_cpu_adam(case: Case) -> Outcome | None:
    """The optimizer becomes DeepSpeed's CPU Adam

    accelerate swaps the optimizer when it is offloaded: 8-bit variants get fp32 states and L2 decay instead of decoupled
    weight decay, SGD becomes Adam.
    """
    if not optimizer_on_cpu(case) or flag(case.spec, "zero_force_ds_cpu_optimizer") is False:
        return None
    effect = next((e for e in case.effective.stepped.effects if e.id == "becomes_cpu_adam"), None)
    name = case.spec.training.optimizer.name
    if effect is None and case.spec.training.framework == "custom" and name in (*EIGHT_BIT, "sgd"):
        return Outcome(
            "training.optimizer", f"training.optimizer: {name} is ignored by programs on accelerate: DeepSpeed's CPU Adam steps instead, "
            "with fp32 states and no decoupled weight decay", "write training.optimizer: adamw", {"training.optimizer": "adamw"},
        )  # fmt: skip
    if effect is None:
        return None
    return Outcome(effect.path, f"{effect.ignored} is ignored: {effect.instead}", "write training.optimizer: adamw", {"training.optimizer": "adamw"})


@rule(
    "JG303", "error", "init", "spec",
    bad=Example("full-8b-deepspeed", {"training.optimizer": "adamw_8bit"}),
    good=Example("full-8b-deepspeed", {}),
    fix="DeepSpeedCPUAdam, or zero_force_ds_cpu_optimizer: false",
    sources=("DeepSpeed runtime/engine.py:2040-2044",),
    facts=("OF03",),
    versions="DeepSpeed >= 0.8",
)  # fmt: skip
def client_optimizer(case: Case) -> Outcome | None:
    """DeepSpeed refuses an optimizer of the program's own with offload

    With ZeRO-Offload the optimizer must be DeepSpeedCPUAdam or DeepSpeedCPULion.
    """
    spec = case.spec
    if spec.training.framework != "deepspeed" or not optimizer_on_cpu(case):
        return None
    if spec.training.optimizer.name in ("adamw", "lion", "adagrad") or flag(spec, "zero_force_ds_cpu_optimizer") is False:
        return None
    return Outcome("training.optimizer", f"DeepSpeed steps offloaded states with its own CPU optimizers, not {spec.training.optimizer.name}",
                   "write training.optimizer: adamw", {"training.optimizer": "adamw"})  # fmt: skip


@rule(
    "JG306", "warning", "first_step", "spec",
    bad=Example("full-8b-zero2", {"offload.optimizer": "cpu"}),
    good=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}}),
    fix="launch.env.OMP_NUM_THREADS: cores / processes",
    sources=("torch 2.13.0 distributed/run.py:872-886",),
    facts=("OF06",),
)  # fmt: skip
def one_thread(case: Case) -> Outcome | None:
    """torchrun gives the CPU optimizer one thread

    With several processes a node torchrun sets OMP_NUM_THREADS=1 unless it is set. DeepSpeed's CPU Adam is OpenMP code:
    the step then runs on one core a rank.
    """
    spec, per_node = case.spec, case.layout.processes_per_node
    if not optimizer_on_cpu(case) or per_node == 1 or "OMP_NUM_THREADS" in spec.launch.env:
        return None
    launcher = spec.launch.launcher or case.framework.launcher
    if launcher not in ("torchrun", "accelerate") and not case.framework.starts_torchrun:
        return None
    cores = spec.resources.cpus_per_node
    threads = max(1, cores // per_node) if cores else None
    return Outcome(
        "offload.optimizer", "torchrun sets OMP_NUM_THREADS=1, so the CPU optimizer steps on one core a rank",
        f'write launch.env.OMP_NUM_THREADS: "{threads or "cores / processes"}"',
        {"launch.env.OMP_NUM_THREADS": str(threads or 8)},
    )  # fmt: skip


@rule(
    "JG307", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}, "training.options": {"offload_optimizer": {"ratio": 0.5}}}),
    good=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}}),
    fix="ratio: 1.0, or zero3",
    sources=("DeepSpeed runtime/zero/config.py:392",),
    facts=("OF07",),
)  # fmt: skip
def partial_offload(case: Case) -> Outcome | None:
    """Partial offload needs ZeRO-3

    offload_optimizer.ratio below 1 is an assertion below stage 3.
    """
    ratio = option(case.spec, "offload_optimizer.ratio", "zero_optimization.offload_optimizer.ratio")
    if case.spec.parallelism.sharding not in ("zero1", "zero2") or not isinstance(ratio, int | float) or ratio >= 1:
        return None
    return Outcome("training.options", f"ratio: {ratio} of the optimizer's offload works under ZeRO-3 only",
                   "write parallelism.sharding: zero3", {"parallelism.sharding": "zero3"})  # fmt: skip


@rule(
    "JG308", "error", "first_step", "spec",
    bad=Example("full-8b-fsdp1", {"offload.optimizer": "cpu", "offload.parameters": "cpu", "training.optimizer": "adamw_8bit"}),
    good=Example("full-8b-fsdp1", {"offload.optimizer": "cpu", "offload.parameters": "cpu"}),
    fix="training.optimizer: adamw",
    sources=("Axolotl utils/schemas/validation.py:1125-1137",),
    facts=("OF08",),
)  # fmt: skip
def fsdp_offload_8bit(case: Case) -> Outcome | None:
    """FSDP offload and bitsandbytes' 8-bit optimizers exclude each other

    The step then happens on the CPU, where bitsandbytes' CUDA kernels find CPU tensors.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp1" or "cpu" not in (spec.offload.parameters, spec.offload.optimizer):
        return None
    if spec.training.optimizer.name not in EIGHT_BIT:
        return None
    return Outcome("training.optimizer", f"{spec.training.optimizer.name} cannot step states that FSDP keeps on the CPU",
                   "write training.optimizer: adamw", {"training.optimizer": "adamw"})  # fmt: skip


@rule(
    "JG309", "warning", "first_step", "spec",
    bad=Example("full-8b-fsdp1", {"training.framework": "custom", "offload.optimizer": "cpu", "offload.parameters": "cpu", "training.options": {}}),
    good=Example("full-8b-fsdp1", {"offload.optimizer": "cpu", "offload.parameters": "cpu"}),
    fix="accumulate inside no_sync(), one accumulation step, or FSDP2",
    sources=("torch 2.13.0 fully_sharded_data_parallel.py:194-197",),
    facts=("OF09",),
)  # fmt: skip
def accumulation_with_offload(case: Case) -> Outcome | None:
    """FSDP1 with offload accumulates wrong gradients outside no_sync

    torch documents that gradient accumulation outside no_sync() is not supported with CPU offload: new gradients
    replace the accumulated ones.
    """
    spec = case.spec
    if spec.training.framework != "custom" or spec.parallelism.sharding != "fsdp1" or case.layout.accumulation == 1:
        return None
    if "cpu" not in (spec.offload.parameters, spec.offload.optimizer):
        return None
    return Outcome("offload.parameters", f"with FSDP1 and offload the {case.layout.accumulation} micro-steps must run inside no_sync(): else gradients are wrong",
                   "write parallelism.sharding: fsdp2, or accumulate inside no_sync()", {"parallelism.sharding": "fsdp2"})  # fmt: skip


@rule(
    "JG310", "error", "init", "spec",
    bad=Example("full-8b-axolotl", {"training.options": {"fsdp_config": {"cpu_offload_pin_memory": False}}}),
    good=Example("full-8b-axolotl", {"offload.optimizer": "cpu", "offload.parameters": "cpu", "training.options": {"fsdp_config": {"cpu_offload_pin_memory": False}}}),
    fix="fsdp2 with offload, or no cpu_offload_pin_memory",
    sources=("Axolotl utils/schemas/validation.py:1058-1062",),
    facts=("OF10",),
)  # fmt: skip
def axolotl_pin_memory(case: Case) -> Outcome | None:
    """Axolotl's cpu_offload_pin_memory needs FSDP2 with offload

    It raises at start otherwise.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or flag(spec, "fsdp_config.cpu_offload_pin_memory") is not False:
        return None
    if spec.parallelism.sharding == "fsdp2" and spec.offload.parameters == "cpu":
        return None
    path = "training.options.fsdp_config.cpu_offload_pin_memory"
    return Outcome(path, "cpu_offload_pin_memory: false needs FSDP2 with offload", "remove it", {path: None})


@rule(
    "JG311", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"training.options": {"cpu_offloading": True}}),
    good=Example("pretrain-70b-megatron", {}),
    fix="pipeline: 1 and no recomputation",
    sources=("Megatron-LM megatron/core/transformer/transformer_config.py:1891-1899",),
    facts=("OF11",),
)  # fmt: skip
def megatron_offload(case: Case) -> Outcome | None:
    """Megatron's activation offload excludes pipelines and recomputation

    cpu_offloading raises with pipeline parallelism or a recompute granularity.
    """
    spec = case.spec
    asked = flag(spec, "cpu_offloading", "cpu-offloading") or spec.offload.activations == "cpu"
    if spec.training.framework not in ("megatron-lm", "nemo") or not asked:
        return None
    if spec.parallelism.pipeline == 1 and spec.training.activation_checkpointing.mode == "none":
        return None
    path = next((f"training.options.{k}" for k in ("cpu_offloading", "cpu-offloading") if k in spec.training.options), "offload.activations")
    return Outcome(path, f"activation offload does not work with pipeline: {spec.parallelism.pipeline} and "
                   f"activation_checkpointing: {spec.training.activation_checkpointing.mode}", "remove it", {path: None})  # fmt: skip


@rule(
    "JG312", "error", "init", "spec",
    bad=Example("full-8b-torchtune", {"parallelism.tensor": 8, "offload.optimizer": "cpu", "offload.parameters": "cpu"}),
    good=Example("full-8b-torchtune", {"parallelism.tensor": 4, "offload.optimizer": "cpu", "offload.parameters": "cpu"}),
    fix="a data-parallel size above 1, or no offload",
    sources=("torchtune recipes/full_finetune_distributed.py:632",),
    facts=("OF12",),
)  # fmt: skip
def torchtune_offload(case: Case) -> Outcome | None:
    """torchtune's offload needs data parallelism

    Tensor parallelism alone with FSDP CPU offload raises.
    """
    spec = case.spec
    if spec.training.framework != "torchtune" or spec.parallelism.tensor == 1 or case.layout.data > 1 or spec.offload.parameters != "cpu":
        return None
    return Outcome("offload.parameters", "FSDP offload with tensor parallelism alone (data = 1) is refused", "write no offload",
                   {"offload.parameters": "none", "offload.optimizer": "none"})  # fmt: skip


@rule(
    "JG313", "error", "load", "spec",
    bad=Example("qlora-8b", {"training.options": {"device_map": "cpu"}}),
    good=Example("qlora-8b", {}),
    fix="more GPUs, a smaller model, or ZeRO-3 with parameter offload",
    sources=("transformers 5.24.0 quantizers/quantizer_bnb_4bit.py validate_environment", "accelerate accelerator.py:1865-1873"),
    facts=("OF13",),
)  # fmt: skip
def quantized_on_cpu(case: Case) -> Outcome | None:
    """A quantised model cannot be dispatched to the CPU

    bitsandbytes refuses modules on CPU or disk at load, and accelerate refuses to train such a model.
    """
    spec = case.spec
    if not quantizes(case) or not hugging_face(spec) or spec.parallelism.sharding in ("fsdp1", "fsdp2", "zero3"):
        return None
    if device_map(spec) not in ("cpu", "disk") or switch(option(spec, "llm_int8_enable_fp32_cpu_offload")):
        return None
    path = map_path(case)
    return Outcome(path, "bitsandbytes refuses a model that is dispatched to the CPU",
                   "remove device_map", {path: None})  # fmt: skip


@rule(
    "JG314", "warning", "first_step", "spec",
    bad=Example("full-32b-zero3", {"offload.parameters": "cpu", "offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "12"}, "training.compile": True, "training.options": {"compile": {"deepcompile": True}}}),
    good=Example("full-32b-zero3", {"offload.parameters": "cpu", "offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="deepcompile: false unless it was measured",
    sources=("DeepSpeed runtime/engine.py:5655-5668",),
    facts=("OF14",),
    versions="DeepSpeed >= 0.17",
)  # fmt: skip
def deepcompile_offload(case: Case) -> Outcome | None:
    """DeepCompile brings an offload pass of its own

    With ZeRO-3 parameter offload it replaces DeepSpeed's without a word.
    """
    spec = case.spec
    if not flag(spec, "compile.deepcompile", "deepcompile") or spec.parallelism.sharding != "zero3" or spec.offload.parameters != "cpu":
        return None
    if not case.v["deepspeed"] >= (0, 17):
        return None
    path = f"training.options.{'compile.deepcompile' if case.option('compile.deepcompile') is not None else 'deepcompile'}"
    return Outcome(path, "offload.parameters is ignored: DeepCompile runs its own offload pass instead", "write deepcompile: false",
                   {path: False})  # fmt: skip


@rule(
    "JG305", "error", "first_step", "spec",
    bad=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}, "launch.setup": ["module load cuda/11.8"],
                                  "training.versions": {"torch": "2.9.1+cu128", "transformers": "4.57.6"}}),
    good=Example("full-8b-zero2", {"offload.optimizer": "cpu", "launch.env": {"OMP_NUM_THREADS": "16"}, "launch.setup": ["module load cuda/12.8"],
                                   "training.versions": {"torch": "2.9.1+cu128", "transformers": "4.57.6"}}),
    fix="the toolkit of torch's CUDA release, or DS_SKIP_CUDA_CHECK=1",
    sources=("DeepSpeed op_builder/builder.py:112-134",),
    facts=("OF05",),
)  # fmt: skip
def cuda_toolkit(case: Case) -> Outcome | None:
    """DeepSpeed compiles its CPU optimizer with a toolkit of another CUDA release than torch's

    CPU Adam is compiled at the first use, and the builder compares releases. Known here from torch's build tag (+cu128)
    and a module line or versions.cuda.
    """
    spec = case.spec
    if not optimizer_on_cpu(case) or switch(spec.launch.env.get("DS_SKIP_CUDA_CHECK")):
        return None
    built, toolkit = _built_for(spec.training.versions.get("torch", "")), _toolkit(case)
    if built is None or toolkit is None or toolkit[0] == built[0]:
        return None
    path, (major, minor) = toolkit[2], built
    return Outcome(
        path, f"torch is built for CUDA {major}.{minor}, the toolkit is {toolkit[0]}.{toolkit[1]}: DeepSpeed's CPU optimizer refuses to compile",
        f'load cuda/{major}.{minor}, or write launch.env.DS_SKIP_CUDA_CHECK: "1"', {"launch.env.DS_SKIP_CUDA_CHECK": "1"},
    )  # fmt: skip


def _built_for(torch: str) -> tuple[int, int] | None:
    """``2.9.1+cu128`` -> (12, 8)."""
    tag = torch.partition("+cu")[2]
    return (int(tag[:-1]), int(tag[-1])) if tag.isdigit() and len(tag) >= 3 else None


def _toolkit(case: Case) -> tuple[int, int, str] | None:
    """Release of the toolkit and where it stands."""
    for index, line in enumerate(case.spec.launch.setup):
        found = re.search(r"\bmodule\s+(?:load|add)\b.*?\bcuda(?:toolkit)?/(\d+)\.(\d+)", line)
        if found:
            return int(found[1]), int(found[2]), f"launch.setup.{index}"
    written = re.match(r"(\d+)\.(\d+)", case.spec.training.versions.get("cuda", ""))
    return (int(written[1]), int(written[2]), "training.versions.cuda") if written else None
