"""Loading: who holds how much while the weights come in, on the GPU and in host memory."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.quantization import (
    OLD_TRANSFORMERS,
    loading_off,
    older,
)
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.weights import MARGIN, bf16, host_bytes, stored
from jobgen.checks.words import gb
from jobgen.effective.loading import device_map, efficient
from jobgen.effective.options import hugging_face
from jobgen.effective.quantization import bnb4, fused, wants_experts

FSDP = ("fsdp1", "fsdp2")
ZERO3_OFFLOAD: dict[str, object] = {
    "parallelism.sharding": "zero3", "offload.parameters": "cpu", "offload.optimizer": "cpu",
}  # fmt: skip
NEWER = {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"}


@rule(
    "JG202", "error", "load", "effective",
    bad=Example("qlora-235b-fsdp", {"training.versions": NEWER}),
    good=Example("qlora-235b-fsdp", {}),
    fix="transformers 4.45-4.57, or device_map cpu on rank 0 and meta elsewhere with a broadcast that knows Params4bit",
    sources=("transformers 5.24.0 modeling_utils.py:4862", "transformers issue #43749"),
    facts=("QS02",),
    versions="transformers >= 5.0",
)  # fmt: skip
def fsdp_loading_ignored(case: Case) -> Outcome | None:
    """Memory-saving loading of 4-bit models is ignored under FSDP since transformers 5

    The guard that leaves quantised models out of rank-0 loading has been there since 4.39; since 5.0 every rank loads
    the whole model straight onto its own GPU.
    """
    if case.spec.parallelism.sharding not in FSDP or not bnb4(case.spec) or not efficient(case.effective):
        return None
    effect = next((e for e in case.effective.loading.effects if "QS02" in e.facts), None)
    if effect is None:
        return None
    held, room = stored(case).total, case.gpu.usable_bytes
    return Outcome(
        "parallelism.sharding", f"{effect.ignored} is ignored: {effect.instead}: {gb(held)} on each of {gb(case.gpu.memory_bytes)}",
        "use transformers 4.57: " + pins(older(case)), older(case), "error" if held > room else "info",
    )  # fmt: skip


def pins(edits: dict[str, object]) -> str:
    """Edits as words."""
    return ", ".join(f'{path}: "{value}"' if isinstance(value, str) else f"{path}: {value}" for path, value in edits.items())


@rule(
    "JG203", "error", "load", "effective",
    bad=Example("qlora-235b-zero3", {"training.versions": NEWER}),
    good=Example("qlora-235b-zero3", {}),
    fix="transformers 4.45-4.57 for ZeRO-3 with a 4-bit model larger than one GPU",
    sources=("transformers 4.57.6 modeling_utils.py:776-793 against 5.24.0 core_model_loading.py",),
    facts=("QS03", "QS26"),
    versions="transformers >= 5.0",
)  # fmt: skip
def zero3_whole_on_gpu(case: Case) -> Outcome | None:
    """ZeRO-3 loads the whole 4-bit model onto every GPU since transformers 5

    4.x moved each quantised weight to host memory until deepspeed.initialize shards it; 5.x leaves it on the GPU, so
    the model must fit one GPU even with parameter offload.
    """
    if case.spec.parallelism.sharding != "zero3" or not bnb4(case.spec) or not hugging_face(case.spec):
        return None
    loading, held = case.effective.loading, stored(case).total
    if not loading.full_on_gpu or held <= case.gpu.usable_bytes:
        return None
    return Outcome(
        "parallelism.sharding",
        f"ZeRO-3's sharded loading is ignored for a 4-bit model: every rank puts {gb(held)} on its own GPU of "
        f"{gb(case.gpu.memory_bytes)} before deepspeed.initialize, with parameter offload too",
        "use transformers 4.57: " + pins(older(case)), older(case),
    )  # fmt: skip


@rule(
    "JG204", "error", "load", "effective",
    bad=Example("qlora-235b-zero3", {"resources.memory_per_node": "480GB"}),
    good=Example("qlora-235b-zero3", {}),
    fix="more host memory, or fewer processes per node",
    sources=("transformers 4.57.6 modeling_utils.py:518,839", "DeepSpeed runtime/zero/partition_parameters.py:1200,1808"),
    facts=("QS04",),
    versions="transformers 4.39-4.57",
)  # fmt: skip
def zero3_host_copies(case: Case) -> Outcome | None:
    """Every rank keeps a whole 4-bit copy in host memory under ZeRO-3

    zero.Init skips quantised models, so until deepspeed.initialize each process holds the full 4-bit model. More GPUs
    in a node mean more copies: eight ranks fail where four fit.
    """
    if case.spec.parallelism.sharding != "zero3" or not bnb4(case.spec) or not hugging_face(case.spec):
        return None
    loading, room = case.effective.loading, host_bytes(case)
    if loading.place != "cpu" or room is None:
        return None
    each, ranks = stored(case).total, case.layout.processes_per_node
    if room >= each * ranks * MARGIN:
        return None
    most = int(room // (each * MARGIN))
    need = -(-int(each * ranks * MARGIN) // 10**9)
    return Outcome(
        "resources.memory_per_node",
        f"{ranks} processes each keep a whole 4-bit copy in host memory until deepspeed.initialize: {ranks} x {gb(each)} = "
        f"{gb(each * ranks)} of {gb(room)}",
        f"ask for {need}GB or more a node" + (f", or use {most} processes a node" if most else ""),
        {"resources.memory_per_node": f"{need}GB"},
    )  # fmt: skip


@rule(
    "JG210", "error", "init", "effective",
    bad=Example("qlora-235b-fsdp", {"parallelism.sharding": "fsdp2", "offload": None, "training.versions": {"llamafactory": "0.9.4", "transformers": "4.57.1", "accelerate": "1.11.0"}}),
    good=Example("qlora-235b-fsdp", {}),
    fix="FSDP1 or ZeRO-3, or memory-saving loading off where the model fits one GPU",
    sources=("accelerate utils/fsdp_utils.py:820,872,882 (PR #3546)", "Axolotl issue #3445"),
    facts=("QS10",),
    versions="accelerate >= 1.7 with transformers 4.45-4.57",
)  # fmt: skip
def fsdp2_meta_params4bit(case: Case) -> Outcome | None:
    """FSDP2 leaves 4-bit weights on the meta device with memory-saving loading

    transformers leaves ranks other than 0 on meta and accelerate skips its broadcast for Params4bit: FSDP2 then finds
    parameters that were never materialised.
    """
    spec = case.spec
    if spec.parallelism.sharding != "fsdp2" or not bnb4(spec) or not efficient(case.effective):
        return None
    if spec.training.framework not in ("transformers", "accelerate", "trl", "llama-factory") or device_map(spec) is not None:
        return None
    if case.v["transformers"] >= (5, 0) or not case.v["accelerate"] >= (1, 7):
        return None
    return Outcome(
        "parallelism.sharding",
        "with memory-saving loading ranks other than 0 stay on meta, and accelerate does not send them 4-bit weights: FSDP2 stops",
        "write parallelism.sharding: fsdp1 (or zero3)", {"parallelism.sharding": "fsdp1"},
    )  # fmt: skip


@rule(
    "JG211", "error", "load", "effective",
    bad=Example("qlora-32b-axolotl", {"model.name": "Qwen/Qwen3-235B-A22B-Thinking-2507"}),
    good=Example("qlora-32b-axolotl", {}),
    fix="memory-saving loading with FSDP1 on transformers 4.45-4.57, or ZeRO-3 with parameter offload",
    sources=("Axolotl loaders/model.py:619-621,864-865", "transformers 4.57.6 quantizer_bnb_4bit.py update_device_map"),
    facts=("QS11",),
)  # fmt: skip
def fsdp_whole_on_gpu(case: Case) -> Outcome | None:
    """Every process puts the whole 4-bit model on its GPU before FSDP shards it

    Without memory-saving loading the device map of each rank is its own GPU.
    """
    spec = case.spec
    if spec.parallelism.sharding not in FSDP or not bnb4(spec) or not hugging_face(spec) or efficient(case.effective):
        return None
    loading, held = case.effective.loading, stored(case).total
    if not loading.full_on_gpu or held <= case.gpu.usable_bytes:
        return None
    edits = dict(ZERO3_OFFLOAD)
    if spec.training.framework != "axolotl" or fused(case.effective):
        edits |= older(case)
    return Outcome(
        "parallelism.sharding",
        f"each process puts the whole 4-bit model on its own GPU before FSDP shards it: {gb(held)} into {gb(case.gpu.memory_bytes)}",
        "write parallelism.sharding: zero3 with offload.parameters: cpu and offload.optimizer: cpu", edits,
    )  # fmt: skip


@rule(
    "JG227", "error", "load", "spec",
    bad=Example("qlora-32b-axolotl", {"training.options": {"fsdp_config": {"cpu_ram_efficient_loading": True}}}),
    good=Example("qlora-32b-axolotl", {}),
    fix="memory-saving loading off where the model fits one GPU; else ZeRO-3 on transformers 4.57",
    sources=("Axolotl issue #3445", "Axolotl loaders/model.py:866-877"),
    facts=("QS27",),
)  # fmt: skip
def axolotl_meta_tensor(case: Case) -> Outcome | None:
    """Axolotl's memory-saving loading of a 4-bit model dies on the move to the GPU

    Rank 0 loads to the CPU and the others to meta; the move then fails: "Cannot copy out of meta tensor; no data!".
    """
    spec = case.spec
    if spec.training.framework != "axolotl" or spec.parallelism.sharding != "fsdp2" or not bnb4(spec):
        return None
    if not efficient(case.effective) or (wants_experts(spec) and case.v["axolotl"] >= (0, 15)):
        return None
    held = stored(case).total
    path, off = loading_off(case)
    edits: dict[str, object] = off if held <= case.gpu.usable_bytes else {**ZERO3_OFFLOAD, "training.versions": {"axolotl": "0.13.1"}}
    return Outcome(
        path,
        f"rank 0 loads the 4-bit model to the CPU ({gb(held)}) and the others to meta; the move to the GPU stops with "
        "\"Cannot copy out of meta tensor\"",
        "turn memory-saving loading off" if edits is off else "use ZeRO-3 with offload on transformers 4.57", edits,
    )  # fmt: skip


@rule(
    "JG220", "warning", "load", "effective",
    bad=Example("qlora-235b-fsdp", {}),
    good=Example("full-8b-fsdp1", {}),
    fix="a copy of the checkpoint on local NVMe, a longer ddp_timeout",
    sources=("transformers 4.57.6 modeling_utils.py:842, :789", "transformers PR #29587, PR #33154"),
    facts=("QS20",),
    versions="transformers 4.45-4.57",
)  # fmt: skip
def fsdp_every_rank_reads(case: Case) -> Outcome | None:
    """Memory-saving loading does not save reads for 4-bit models

    Every rank reads and quantises the whole bf16 checkpoint; only rank 0 keeps its copy.
    """
    spec = case.spec
    if spec.parallelism.sharding not in FSDP or not bnb4(spec) or not efficient(case.effective):
        return None
    effect = next((e for e in case.effective.loading.effects if "QS20" in e.facts), None)
    if effect is None:
        return None
    read, kept = bf16(case) * case.layout.processes_per_node, stored(case).total
    return Outcome(
        "parallelism.sharding",
        f"{effect.ignored} is ignored while reading: {effect.instead}: {case.layout.processes_per_node} x {gb(bf16(case))} = {gb(read)} "
        f"of reads a node; {gb(kept)} of host memory stay on rank 0",
        "stage the checkpoint to local NVMe (launch.stage) and set a ddp_timeout that covers the load", None,
        "warning" if read > 300e9 else "info",
    )  # fmt: skip


@rule(
    "JG221", "error", "load", "effective",
    bad=Example("qlora-235b-fsdp", {"model.name": "meta-llama/Llama-3.1-405B", "training.framework": "transformers", "resources.memory_per_node": "400GB",
                                    "training.versions": {"transformers": "4.44.2"}, "launch.entrypoint": "train.py"}),
    good=Example("qlora-235b-fsdp", {}),
    fix="transformers >= 4.45, < 5",
    sources=("transformers 4.44.2 modeling_utils.py:4427,963-970", "transformers PR #32276, issue #31577"),
    facts=("QS21",),
    versions="transformers 4.39-4.44",
)  # fmt: skip
def fsdp_host_copies(case: Case) -> Outcome | None:
    """Every rank keeps a whole 4-bit copy in host memory under FSDP

    In 4.39-4.44 memory-saving loading leaves every rank with a full copy.
    """
    spec = case.spec
    if spec.parallelism.sharding not in FSDP or not bnb4(spec) or not efficient(case.effective):
        return None
    loading, room = case.effective.loading, host_bytes(case)
    if not any("QS21" in e.facts for e in loading.effects) or room is None:
        return None
    each, ranks = stored(case).total, loading.copies_per_node
    if room >= each * ranks:
        return None
    return Outcome(
        "training.versions.transformers" if case.wrote("training.versions.transformers") else "training.versions",
        f"memory-saving loading is ignored: {ranks} ranks keep {gb(each)} each in host memory, {gb(each * ranks)} of {gb(room)}",
        f'write training.versions.transformers: "{OLD_TRANSFORMERS}"', older(case),
    )  # fmt: skip
