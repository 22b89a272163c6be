"""Loading into host memory: private copies, pinned buffers, dtypes and switches that need each other."""

from __future__ import annotations

from jobgen.catalog.counts import total
from jobgen.checks.case import Case
from jobgen.checks.loading import FSDP, pins
from jobgen.checks.quantization import huggingface_trainer, loading_off, older, quantizes
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.weights import bf16, host_bytes, pinned, stored
from jobgen.checks.words import gb
from jobgen.effective.loading import asked, efficient
from jobgen.effective.options import environment, flag, hugging_face, option, switch
from jobgen.effective.quantization import fused


@rule(
    "JG231", "error", "load", "effective",
    bad=Example("full-30b-a3b-zero3", {"parallelism.sharding": "fsdp1", "training.gradient_accumulation_steps": 1, "resources.memory_per_node": "400GB",
                                       "training.versions.transformers": "5.2.0"}),
    good=Example("full-30b-a3b-zero3", {"parallelism.sharding": "fsdp1", "training.gradient_accumulation_steps": 1, "resources.memory_per_node": "400GB"}),
    fix="transformers 4.57, a checkpoint with fused experts, or device_map meta on ranks other than 0",
    sources=("transformers issue #43749", "ms-swift PR #9982"),
    facts=("LH01",),
    versions="transformers >= 5.0",
)  # fmt: skip
def every_rank_fuses(case: Case) -> Outcome | None:
    """Every rank holds the whole mixture in host memory while experts are fused

    Since transformers 5 each rank builds the 3-D experts as new tensors, whatever memory-saving loading says: a private
    copy of the full model per process, where 4.57 kept a shared file mapping.
    """
    if case.spec.parallelism.sharding not in FSDP or not case.arch.moe or not fused(case.effective):
        return None
    loading, room = case.effective.loading, host_bytes(case)
    if loading.place != "cpu" or loading.mode != "every_rank" or room is None:
        return None
    each, ranks = stored(case).total if loading.quantized_copy else bf16(case), loading.copies_per_node
    if room >= each * ranks:
        return None
    return Outcome(
        "resources.memory_per_node",
        f"memory-saving loading is ignored: {ranks} ranks hold {gb(each)} each in host memory, {gb(each * ranks)} of {gb(room)}",
        "use transformers 4.57: " + pins(older(case)), older(case),
    )  # fmt: skip


@rule(
    "JG232", "error", "load", "effective",
    bad=Example("full-32b-zero3", {"offload.parameters": "cpu", "offload.optimizer": "cpu", "training.options": {"zero3_init_flag": False}}),
    good=Example("full-32b-zero3", {"offload.parameters": "cpu", "offload.optimizer": "cpu", "resources.memory_per_node": "2TB"}),
    fix="zero3_init_flag: true; create TrainingArguments before from_pretrained",
    sources=("DeepSpeed runtime/zero/stage3.py estimate_zero3_model_states_mem_needs",),
    facts=("LH02",),
)  # fmt: skip
def zero3_without_init(case: Case) -> Outcome | None:
    """ZeRO-3 without zero.Init builds the whole model in every process

    zero3_init_flag: false, or arguments made after the model, load a full copy per rank into host memory first.
    """
    spec = case.spec
    if spec.parallelism.sharding != "zero3" or spec.training.method != "full" or spec.offload.parameters != "cpu":
        return None
    if flag(spec, "zero3_init_flag", "deepspeed_config.zero3_init_flag") is not False and spec.training.loading != "every_rank":
        return None
    room, nodes = host_bytes(case), case.layout.nodes
    need = total(case.arch) * max(4 * case.layout.processes_per_node, 18 / nodes) * 1.5
    if room is None or room >= need:
        return None
    path = "training.loading" if spec.training.loading == "every_rank" else "training.options.zero3_init_flag"
    edits: dict[str, object] = {"training.loading": "auto"} if path == "training.loading" else {path: True}
    return Outcome(
        path,
        f"every process builds the whole model in host memory first: about {gb(need)} of {gb(room)} a node",
        "let zero.Init shard it: zero3_init_flag: true", edits,
    )  # fmt: skip


@rule(
    "JG233", "warning", "init", "effective",
    bad=Example("qlora-235b-zero3", {"launch.processes_per_node": 1, "resources.memory_per_node": "150GB", "resources.gpus_per_node": 1}),
    good=Example("qlora-235b-zero3", {}),
    fix="offload.pin_memory: false, or room for buffers rounded to powers of two",
    sources=("torch ATen/core/CachingHostAllocator.h", "DeepSpeed runtime/zero/offload_config.py"),
    facts=("LH03",),
)  # fmt: skip
def pinned_rounding(case: Case) -> Outcome | None:
    """Pinned offload buffers are rounded up to powers of two

    torch's pinned allocator takes the next power of two for each buffer: 119 GB of partitions become 159 GB.
    """
    if case.spec.parallelism.sharding != "zero3" or case.effective.offloaded.parameters != "cpu" or not case.spec.offload.pin_memory:
        return None
    room, need = host_bytes(case), pinned(case)
    if room is None or room >= need:
        return None
    base = stored(case)
    raw = (base.packed + base.rest) / case.layout.shard * case.layout.processes_per_node
    return Outcome(
        "offload.pin_memory", f"pinned buffers are rounded up to powers of two: {gb(raw)} of partitions take {gb(need)} of {gb(room)}",
        "write offload.pin_memory: false", {"offload.pin_memory": False},
    )  # fmt: skip


@rule(
    "JG237", "warning", "load", "spec",
    bad=Example("lora-8b-ddp", {"training.options": {"use_safetensors": False}, "resources.memory_per_node": "100GB"}),
    good=Example("lora-8b-ddp", {"resources.memory_per_node": "100GB"}),
    fix="convert the checkpoint to safetensors",
    sources=("transformers 5.24.0 modeling_utils.py _load_pretrained_model",),
    facts=("LH07",),
)  # fmt: skip
def pickled_checkpoint(case: Case) -> Outcome | None:
    """A .bin checkpoint is read into the memory of every process

    safetensors files are mapped and shared between processes; pickled ones are private copies.
    """
    spec = case.spec
    if flag(spec, "use_safetensors", "model_init_kwargs.use_safetensors") is not False or not hugging_face(spec):
        return None
    room, need = host_bytes(case), bf16(case) * case.layout.processes_per_node
    if spec.parallelism.sharding not in ("none", "zero1", "zero2") or room is None or room >= need:
        return None
    path = "training.options.use_safetensors"
    return Outcome(
        path,
        f"{case.layout.processes_per_node} processes read {gb(bf16(case))} of pickled weights each: {gb(need)} of {gb(room)}",
        "convert the checkpoint to safetensors and remove use_safetensors", {path: None},
    )  # fmt: skip


@rule(
    "JG238", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"training.options": {"fsdp_config": {"cpu_ram_efficient_loading": True, "sync_module_states": False}}}),
    good=Example("full-8b-fsdp1", {"training.options": {"fsdp_config": {"cpu_ram_efficient_loading": True, "sync_module_states": True}}}),
    fix="fsdp_config.sync_module_states: true",
    sources=("transformers 4.57.6 training_args.py:2038", "accelerate utils/dataclasses.py:1966"),
    facts=("LH08",),
    versions="transformers 4.x",
)  # fmt: skip
def efficient_loading_without_sync(case: Case) -> Outcome | None:
    """Rank-0 loading needs sync_module_states

    The other ranks get their weights from that broadcast; TrainingArguments refuse the combination.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp1" or spec.training.framework not in ("transformers", "trl") or not asked(spec):
        return None
    if flag(spec, "fsdp_config.sync_module_states", "fsdp_config.fsdp_sync_module_states") is not False or case.v["transformers"] >= (5, 0):
        return None
    key = "sync_module_states" if option(spec, "fsdp_config.sync_module_states") is not None else "fsdp_sync_module_states"
    path = f"training.options.fsdp_config.{key}"
    return Outcome(path, "sync_module_states: false leaves every rank but 0 without weights", "write sync_module_states: true", {path: True})


@rule(
    "JG239", "warning", "load", "spec",
    bad=Example("full-8b-fsdp1", {"training.framework": "custom", "launch.env": {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}}),
    good=Example("full-8b-fsdp1", {"training.framework": "custom", "launch.env": {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true", "ACCELERATE_USE_FSDP": "true"}}),
    fix="ACCELERATE_USE_FSDP=true as well, with the process group made before from_pretrained",
    sources=("transformers 4.51.3 modeling_utils.py:169-176", "transformers 5.24.0 distributed/fsdp.py:45"),
    facts=("LH09",),
)  # fmt: skip
def efficient_loading_half_set(case: Case) -> Outcome | None:
    """FSDP_CPU_RAM_EFFICIENT_LOADING alone does nothing

    transformers looks at ACCELERATE_USE_FSDP too, and at an initialised process group; else every rank loads everything.
    """
    spec = case.spec
    if spec.parallelism.sharding not in FSDP or spec.training.framework != "custom" or spec.launch.launcher == "accelerate":
        return None
    if not switch(environment(spec, "FSDP_CPU_RAM_EFFICIENT_LOADING")) or switch(environment(spec, "ACCELERATE_USE_FSDP")):
        return None
    return Outcome(
        "launch.env.FSDP_CPU_RAM_EFFICIENT_LOADING",
        "FSDP_CPU_RAM_EFFICIENT_LOADING is ignored without ACCELERATE_USE_FSDP: every rank loads the whole model",
        'write launch.env.ACCELERATE_USE_FSDP: "true", and make the process group before from_pretrained',
        {"launch.env.ACCELERATE_USE_FSDP": "true"},
    )  # fmt: skip


@rule(
    "JG240", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"training.precision": "fp8", "training.options": {"fp8_backend": "AO", "fsdp_cpu_ram_efficient_loading": True}}),
    good=Example("full-8b-fsdp2", {"training.precision": "fp8", "training.options": {"fp8_backend": "AO", "fsdp_cpu_ram_efficient_loading": False}}),
    fix="cpu_ram_efficient_loading: false",
    sources=("accelerate accelerator.py:517-525",),
    facts=("LH10",),
    versions="accelerate >= 1.8",
)  # fmt: skip
def torchao_fp8_loading(case: Case) -> Outcome | None:
    """torchao's fp8 under FSDP2 refuses memory-saving loading

    accelerate raises at start.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp2" or spec.training.precision != "fp8" or not efficient(case.effective):
        return None
    backend = str(option(spec, "fp8_backend", "fp8_config.backend", "backend", default="")).lower()
    if backend not in ("ao", "torchao") or not case.v["accelerate"] >= (1, 8):
        return None
    path, edits = loading_off(case)
    return Outcome(path, "torchao fp8 with FSDP2 does not work with memory-saving loading", "turn memory-saving loading off", edits)


@rule(
    "JG241", "error", "init", "spec",
    bad=Example("qlora-32b-axolotl", {"training.quantization": {"type": "mxfp4"}, "training.options": {"fsdp_config": {"cpu_ram_efficient_loading": True}}}),
    good=Example("qlora-32b-axolotl", {"training.quantization": {"type": "mxfp4"}}),
    fix="cpu_ram_efficient_loading: false",
    sources=("Axolotl utils/schemas/validation.py:1549",),
    facts=("LH11",),
)  # fmt: skip
def axolotl_mxfp4_loading(case: Case) -> Outcome | None:
    """Axolotl refuses memory-saving loading of mxfp4 models

    It raises at start.
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or not quantizes(case, frozenset(("mxfp4",))) or not efficient(case.effective):
        return None
    path, edits = loading_off(case)
    return Outcome(path, "Axolotl refuses memory-saving loading of an mxfp4 model", "turn memory-saving loading off", edits)


@rule(
    "JG234", "warning", "load", "spec",
    bad=Example("lora-8b", {"training.options": {"torch_dtype": "float32"}}),
    good=Example("lora-8b", {"training.options": {"torch_dtype": "bfloat16"}}),
    fix="torch_dtype: bfloat16 (dtype since 4.56)",
    sources=("measured: transformers 4.57.6 loads a bf16 checkpoint as fp32 without torch_dtype, 5.x as it is",),
    facts=("LH04",),
    versions="transformers < 5 without torch_dtype; any with float32",
)  # fmt: skip
def widened_on_load(case: Case) -> Outcome | None:
    """The checkpoint is widened to fp32 while loading

    Twice the bytes in host memory and on the GPU. Before transformers 5 this is also what happens without torch_dtype;
    frameworks set it themselves, own programs must.
    """
    spec = case.spec
    key = next((k for k in ("torch_dtype", "dtype") if str(option(spec, k)).removeprefix("torch.") in ("float32", "fp32")), None)
    if key is None or spec.training.precision == "fp32" or not huggingface_trainer(case) or spec.training.method == "full":
        return None
    return Outcome(
        f"training.options.{key}", f"frozen weights are widened to fp32: {gb(2 * bf16(case))} instead of {gb(bf16(case))}",
        f"write training.options.{key}: bfloat16", {f"training.options.{key}": "bfloat16"},
    )  # fmt: skip
