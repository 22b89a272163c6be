"""Verdicts on host memory, checkpoint storage and time."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.weights import host_bytes
from jobgen.checks.words import gb, hours

COPIES = ("JG204", "JG221", "JG231", "JG232")


@rule(
    "JG110", "error", "load", "estimate",
    bad=Example("lora-8b-ddp", {"model.name": "Qwen/Qwen3-30B-A3B", "training.framework": "transformers", "launch.entrypoint": "train.py", "resources.gpu": "b200",
                                "training.versions": {"transformers": "5.2.0", "peft": "0.19.0"}, "resources.memory_per_node": "300GB"}),
    good=Example("lora-8b-ddp", {"model.name": "Qwen/Qwen3-30B-A3B", "resources.memory_per_node": "300GB"}),
    fix="more host memory, fewer processes per node, or a way of loading with fewer copies",
    sources=("jobgen estimate lists every term with its source",),
    because=COPIES,
)  # fmt: skip
def host_load(case: Case) -> Outcome | None:
    """Host memory does not hold the model while it loads

    Each process that materialises weights in private memory counts once. The kernel kills the job, often without a
    message in the program's log.
    """
    room, found = host_bytes(case), case.estimate.host
    if room is None or found.load <= room:
        return None
    parts = ", ".join(f"{part.words}: {gb(part.bytes)}" for part in found.parts if part.during in ("load", "both"))
    need = -(-int(found.load * 1.05) // 10**9)
    return Outcome("resources.memory_per_node", f"loading needs {gb(found.load)} a node, of {gb(room)} ({parts})",
                   f"ask for {need}GB or more a node", {"resources.memory_per_node": f"{need}GB"})  # fmt: skip


@rule(
    "JG111", "error", "init", "estimate",
    bad=Example("full-32b-zero3", {"offload.optimizer": "cpu", "resources.nodes": 1, "resources.memory_per_node": "300GB"}),
    good=Example("full-32b-zero3", {"offload.optimizer": "cpu", "resources.nodes": 1}),
    fix="more host memory or nodes, offload to NVMe, or adapters",
    sources=("DeepSpeed runtime/zero/stage3.py estimate_zero3_model_states_mem_needs", "DeepSpeed runtime/zero/stage_1_and_2.py"),
    facts=("LH05", "LH06"),
)  # fmt: skip
def host_steady(case: Case) -> Outcome | None:
    """Host memory does not hold what is offloaded

    An optimizer in host memory is fp32 master, two moments and fp32 gradients: 16 bytes a parameter over all nodes.
    """
    room, found = host_bytes(case), case.estimate.host
    if room is None or found.steady <= room:
        return None
    parts = ", ".join(f"{part.words}: {gb(part.bytes)}" for part in found.parts if part.during in ("steady", "both"))
    need = -(-int(found.steady * 1.1) // 10**9)
    return Outcome("resources.memory_per_node", f"training keeps {gb(found.steady)} in host memory a node, of {gb(room)} ({parts})",
                   f"ask for {need}GB or more a node, or use more nodes", {"resources.memory_per_node": f"{need}GB"})  # fmt: skip


@rule(
    "JG112", "warning", "init", "estimate",
    bad=Example("full-32b-zero3", {"offload.optimizer": "cpu", "resources.nodes": 1, "resources.memory_per_node": "600GB"}),
    good=Example("full-32b-zero3", {"offload.optimizer": "cpu", "resources.nodes": 1, "resources.memory_per_node": "900GB"}),
    fix="a third more host memory than the states alone",
    sources=("reports of DeepSpeed offload: measured 0.98-1.5 times 16-18 bytes a parameter",),
)  # fmt: skip
def host_margin(case: Case) -> Outcome | None:
    """Host memory for offload has little margin

    Reports of offloaded training needed up to 1.5 times the bytes of the states: pinned buffers, gradients in flight and
    copies while the optimizer starts.
    """
    room, found = host_bytes(case), case.estimate.host
    states = sum(part.bytes for part in found.parts if part.id == "optimizer")
    if room is None or not states or found.steady > room or found.steady + 0.25 * states <= room:
        return None
    need = -(-int(found.steady + 0.3 * states) // 10**9)
    return Outcome("resources.memory_per_node", f"offload keeps {gb(found.steady)} of {gb(room)} a node; reports of such runs needed up to half as much again",
                   f"ask for {need}GB or more a node", {"resources.memory_per_node": f"{need}GB"})  # fmt: skip


@rule(
    "JG120", "error", "checkpoint", "estimate",
    bad=Example("full-32b-zero3", {"checkpoint.storage": "500GB"}),
    good=Example("full-32b-zero3", {"checkpoint.storage": "5000GB"}),
    fix="more space, a smaller keep, or checkpoint.optimizer_state: false",
    sources=("transformers 4.57.6 trainer.py:3312-3370,4396-4418: old checkpoints are deleted after the new one is written",),
    facts=("ST01", "ST03"),
)  # fmt: skip
def checkpoint_storage(case: Case) -> Outcome | None:
    """The checkpoints do not fit their storage

    Old checkpoints go after the new one is written, so keep + 1 of them exist for a while.
    """
    spec, found = case.spec, case.estimate.storage
    room = checkpoint_room(case)
    if room is None:
        return None
    keep = spec.checkpoint.keep or 1
    need = found.size * (keep + 1)
    if need <= room:
        return None
    fewest = 2 * found.size
    edits: dict[str, object] = {}
    if keep > 1 and fewest <= room:
        edits = {"checkpoint.keep": int(room // found.size) - 1}
    elif spec.checkpoint.storage is not None:
        edits = {"checkpoint.storage": f"{int(need * 1.05 // 1e9) + 1}GB"}
    path = "checkpoint.storage" if spec.checkpoint.storage is not None else "checkpoint.directory"
    words = f"write checkpoint.keep: {edits['checkpoint.keep']}" if "checkpoint.keep" in edits else f"make room for {gb(need)}"
    return Outcome(path, f"{keep} kept and one being written are {keep + 1} x {gb(found.size)} = {gb(need)}, of {gb(room)}", words, edits or None)


def checkpoint_room(case: Case) -> float | None:
    """Space for checkpoints: as given, else the claim that jobgen makes at that mount."""
    spec = case.spec
    if spec.checkpoint.storage is not None:
        return spec.checkpoint.storage
    directory = spec.checkpoint.directory
    if directory is None:
        return None
    for volume in spec.volumes:
        mount = volume.mount.rstrip("/")
        if (directory == mount or directory.startswith(mount + "/")) and volume.create is not None:
            return volume.create.size
    return None


@rule(
    "JG130", "warning", "end", "estimate",
    bad=Example("full-32b-zero3", {"launch.time_limit": "1h", "launch.restarts": 0}),
    good=Example("full-32b-zero3", {}),
    fix="a longer limit, restarts that resume, or less data",
    sources=("jobgen estimate: FLOPs at a stated utilisation",),
    facts=("TL02", "TL03"),
)  # fmt: skip
def time_limit(case: Case) -> Outcome | None:
    """The time limit ends the job before the data does

    The estimate is a lower bound: arithmetic at a utilisation that good runs reach, or what PCIe takes to move offloaded
    weights in every pass, whichever is longer. With restarts and resume the limits of all attempts count.
    """
    spec, found = case.spec, case.estimate.time
    limit = spec.launch.time_limit
    if limit is None or found.total is None or found.step is None:
        return None
    attempts = 1 + (spec.launch.restarts if spec.checkpoint.resume != "never" else 0)
    if found.total <= limit * attempts:
        return None
    need = int(found.total * 1.2 // 3600 + 1)
    total = f" over {attempts} attempts" if attempts > 1 else ""
    bound = ", bound by offload over PCIe" if found.offload >= found.step else ", without generation" if found.generates else ""
    return Outcome(
        "launch.time_limit",
        f"training takes about {hours(found.total)} ({case.estimate.steps} steps of {found.step:.1f} s{bound}), the limit is {hours(limit * attempts)}{total}",
        f"write launch.time_limit: {need}h, or restarts: {-(-int(found.total) // int(limit)) if limit else 1} with resume: auto",
        {"launch.time_limit": f"{need}h"},
    )  # fmt: skip
