"""The variables of the program, by who sets them: jobgen, the fabric, the framework, the launcher, then the user."""

from __future__ import annotations

from collections.abc import Iterable

from jobgen.effective.setup import Effective
from jobgen.launch.job import RunTime, Variable, word

RECORDER_ENTRIES = "2000"
RENAMED = (2, 10)
"""torch that surely has the flight recorder's new name (it came with 2.9)."""
MEGATRON = ("megatron-lm", "megatron-deepspeed", "nemo")


def derived(
    effective: Effective, processes_per_node: int, cpus_per_node: int | None, slurm: bool
) -> tuple[Variable, ...]:
    """What follows from the job itself."""
    found = [Variable("PYTHONUNBUFFERED", word("1", origin="launch"))]
    if cpus_per_node is not None:
        threads = max(1, cpus_per_node // processes_per_node)
        found.append(Variable("OMP_NUM_THREADS", word(str(threads), origin="resources.cpus_per_node")))
    if effective.layout.world > 1:
        found += _collectives(effective)
    connections = device_connections(effective)
    if connections is not None:
        found.append(Variable("CUDA_DEVICE_MAX_CONNECTIONS", word(connections, origin="parallelism.tensor")))
    if slurm:
        for name, folder in (("TRITON_CACHE_DIR", "triton"), ("TORCHINDUCTOR_CACHE_DIR", "inductor")):
            found.append(Variable(name, word("/tmp/jobgen-", RunTime.JOB_ID, f"/{folder}", origin="launch")))
    return tuple(found)


def _collectives(effective: Effective) -> list[Variable]:
    """NCCL speaks when something is wrong; torch's flight recorder is on, under its new name, and under the old one too
    where torch may be older than the new: later releases complain of the old name on every rank."""
    renamed = effective.versions.interval("torch").low >= RENAMED
    values = (
        ("NCCL_DEBUG", "WARN"),
        *(() if renamed else (("TORCH_NCCL_TRACE_BUFFER_SIZE", RECORDER_ENTRIES),)),
        ("TORCH_FR_BUFFER_SIZE", RECORDER_ENTRIES),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_FR_DUMP_ON_TIMEOUT", "1"),
    )
    return [Variable(name, word(value, origin="resources.nodes")) for name, value in values]


def device_connections(effective: Effective) -> str | None:
    """Megatron's rule for CUDA_DEVICE_MAX_CONNECTIONS: 1 where tensor or context parallelism overlaps communication
    on GPUs older than Blackwell, and never with a fully sharded optimizer."""
    training, split, gpu = effective.spec.training, effective.spec.parallelism, effective.gpu
    if training.framework not in MEGATRON and training.backend != "megatron":
        return None
    older = gpu.compute_capability is None or gpu.compute_capability < (10, 0)
    if older and (split.tensor > 1 or split.context > 1) and split.sharding not in ("fsdp1", "fsdp2"):
        return "1"
    return None


def merged(layers: Iterable[Iterable[Variable]]) -> tuple[Variable, ...]:
    """One value per name: a later layer wins and takes its place."""
    result: dict[str, Variable] = {}
    for layer in layers:
        for variable in layer:
            result.pop(variable.name, None)
            result[variable.name] = variable
    return tuple(result.values())
