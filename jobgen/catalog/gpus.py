"""GPUs by name: memory, bandwidth, peaks and what they support. Each entry names its source and how sure it is."""

from __future__ import annotations

from functools import cache

from jobgen.catalog.errors import UnknownGpu, nearest
from jobgen.catalog.table import Row, key, number, rows, text, whole, yes
from jobgen.spec.record import NamedTuple

__all__ = ["Gpu", "Peaks", "UnknownGpu", "every", "find", "is_size_of", "names"]

MIB, GIB = 2**20, 2**30
AMBIGUOUS = {
    "a100": ("a100-40gb", "a100-80gb"),
    "v100": ("v100-16gb", "v100-32gb"),
}
"""Short names that users write for either of two sizes; the memory decides. ``h100``, ``gh200``: the first size sold."""
CLOSE = 0.08
"""A memory within 8 % of an entry's is that entry's: labels are decimal, users write GiB, drivers keep some."""


class Peaks(NamedTuple):
    """Dense peaks in TFLOPS by data type; None where the hardware lacks it or no source gave a value."""

    bf16: float | None
    fp16: float | None
    tf32: float | None
    fp32: float | None
    fp8: float | None
    fp4: float | None


class Gpu(NamedTuple):
    """One GPU model (for mi250x one GCD, which is what a job counts)."""

    name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    """NVIDIA only, (9, 0) for Hopper."""
    target: str
    """The compiler's name of the device: ``9.0`` or ``gfx942``."""
    label_gb: float
    """Memory on the label, GB."""
    memory_bytes: int
    """Total as nvidia-smi or rocm-smi shows it; the label in 10^9 bytes where no source gave it (MI300A)."""
    usable_bytes: int
    """``total_memory`` as torch prints it; ``memory_bytes`` where no source gave it (MI300A, Gaudi)."""
    usable_range: tuple[int, int]
    """Lowest and highest torch total that was seen: it depends on the driver."""
    bandwidth: float
    """Device memory, bytes a second, on paper."""
    peaks: Peaks
    link_bandwidth: float | None
    """NVLink or xGMI, bytes a second, both directions, all links; None without."""
    pcie_gen: int
    form_factor: str
    bf16: bool
    fp8: bool
    flash_attention_2: bool
    flash_attention_3: bool
    bitsandbytes_4bit: bool
    source: str
    confidence: str
    """``verified``: stands in the named source; ``known``: from memory."""
    notes: str


def _gpu(row: Row) -> Gpu:
    label = number(row, "memory_label_gb") or 0.0
    reported, seen = number(row, "memory_total_mib_reported"), number(row, "torch_total_memory_gib")
    memory = int(reported * MIB) if reported else int(label * 1e9)
    usable = int(seen * GIB) if seen else memory
    ends = [float(end) for end in text(row, "torch_total_memory_gib_range").split("-") if end]
    span = (int(ends[0] * GIB), int(ends[-1] * GIB)) if ends else (usable, usable)
    target = text(row, "compute_capability")
    major, _, minor = target.partition(".")
    link = number(row, "nvlink_gbs_bidirectional")
    return Gpu(
        name=text(row, "name"),
        aliases=tuple(text(row, "aliases").split("|")) if "aliases" in row else (),
        vendor=text(row, "vendor"),
        architecture=text(row, "architecture"),
        compute_capability=(int(major), int(minor)) if major.isdigit() and minor.isdigit() else None,
        target=target,
        label_gb=label,
        memory_bytes=memory,
        usable_bytes=usable,
        usable_range=span,
        bandwidth=(number(row, "memory_bandwidth_gbs") or 0.0) * 1e9,
        peaks=Peaks(
            number(row, "bf16_dense_tflops"),
            number(row, "fp16_dense_tflops"),
            number(row, "tf32_tflops"),
            number(row, "fp32_tflops"),
            number(row, "fp8_dense_tflops"),
            number(row, "fp4_dense_tflops"),
        ),
        link_bandwidth=link * 1e9 if link else None,
        pcie_gen=whole(row, "pcie_gen") or 0,
        form_factor=text(row, "form_factor"),
        bf16=yes(row, "supports_bf16"),
        fp8=yes(row, "supports_fp8"),
        flash_attention_2=yes(row, "flash_attention_2"),
        flash_attention_3=yes(row, "flash_attention_3"),
        bitsandbytes_4bit=yes(row, "bitsandbytes_4bit"),
        source=text(row, "source"),
        confidence=text(row, "confidence"),
        notes=text(row, "notes"),
    )


@cache
def every() -> tuple[Gpu, ...]:
    """All GPUs, in the order of the table."""
    return tuple(_gpu(row) for row in rows("gpus.jsonl"))


def names() -> tuple[str, ...]:
    """All names, without aliases."""
    return tuple(gpu.name for gpu in every())


@cache
def _index() -> dict[str, str]:
    index: dict[str, str] = {}
    for gpu in every():
        for name in (gpu.name, *gpu.aliases):
            for form in (key(name), key(name).removeprefix("nvidia").removeprefix("geforce")):
                index.setdefault(form, gpu.name)
    return index


def _family(wanted: str) -> list[Gpu]:
    """GPUs with a name or alias that starts with ``wanted``."""
    forms = [(form, name) for form, name in _index().items() if form.startswith(wanted)]
    held = {name for _, name in forms}
    return [gpu for gpu in every() if gpu.name in held]


def find(name: str, memory_bytes: int | None = None) -> Gpu:
    """The GPU of that name or alias, any case, dashes, underscores and spaces alike.

    ``memory_bytes`` chooses between sizes of one model (``a100`` with 80 GB). UnknownGpu: no such name (``nearest``),
    or a name for several sizes without the memory that decides (``candidates``).
    """
    wanted = key(name)
    forms = (
        wanted,
        wanted.removeprefix("nvidia"),
        wanted.removeprefix("nvidia").removeprefix("geforce"),
        f"rtx{wanted}",
    )
    form = next((form for form in forms if form in _index()), forms[1])
    by_name = {gpu.name: gpu for gpu in every()}
    if memory_bytes is not None and form:
        sizes = [gpu for gpu in _family(form) if _close(gpu, memory_bytes)]
        if sizes and not (form in _index() and by_name[_index()[form]] in sizes and form not in AMBIGUOUS):
            return min(sizes, key=lambda gpu: (gpu.name not in AMBIGUOUS.get(form, ()), _distance(gpu, memory_bytes)))
    if form in AMBIGUOUS:
        raise UnknownGpu(name, candidates=AMBIGUOUS[form])
    if form in _index():
        return by_name[_index()[form]]
    spellings = (*(gpu.name for gpu in every()), *AMBIGUOUS, *(alias for gpu in every() for alias in gpu.aliases))
    raise UnknownGpu(name, nearest(name, spellings))


def is_size_of(gpu: Gpu, memory_bytes: int) -> bool:
    """A user's figure for the memory (80GB, 80GiB, 79GiB) can be meant for this GPU."""
    return _close(gpu, memory_bytes)


def _distance(gpu: Gpu, memory: int) -> float:
    return min(abs(size - memory) / size for size in (gpu.memory_bytes, int(gpu.label_gb * 1e9), gpu.usable_bytes))


def _close(gpu: Gpu, memory: int) -> bool:
    return _distance(gpu, memory) <= CLOSE
