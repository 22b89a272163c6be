"""Node types of clouds and vendors: what is sold and what a job may ask of it, by scheduler."""

from __future__ import annotations

from functools import cache

from jobgen.catalog.errors import UnknownNode, nearest
from jobgen.catalog.table import Row, key, number, rows, text, whole
from jobgen.spec.record import NamedTuple

__all__ = ["Node", "UnknownNode", "every", "find", "names"]

GIB = 2**30


class Node(NamedTuple):
    """One node type. Unknown is None."""

    name: str
    provider: str
    gpu: str
    """Name in the GPU catalogue."""
    gpus: int
    cpus: int
    """As sold, in ``cpu_unit``."""
    cpu_unit: str
    """``vcpu`` (a hardware thread) or ``core``."""
    threads_per_core: int
    memory_bytes: int
    """As sold."""
    kubernetes_bytes: int | None
    """Allocatable to pods."""
    slurm_bytes: int | None
    """RealMemory as the provider's Slurm sets it."""
    memory_note: str
    """How the allocatable sizes follow from the memory sold."""
    local_disk_bytes: int | None
    nics: int | None
    """NICs of the RDMA or GPU network."""
    nic_bits: float | None
    """Bits a second of one."""
    network_bits: float | None
    """Bits a second of all, as the provider prints it."""
    fabric: str
    """``none`` | ``efa`` | ``infiniband`` | ``roce`` | ...: names of the fabric catalogue."""
    efa_interfaces: int | None
    intra_link: str
    """What joins the GPUs: nvswitch, nvlink, pcie, none ..."""
    price_per_hour: float | None
    """US dollars, on demand."""
    price_date: str
    source: str
    confidence: str
    notes: str


def _gib(row: Row, column: str) -> int | None:
    value = number(row, column)
    return None if value is None else int(value * GIB)


def _scaled(row: Row, column: str, unit: float) -> float | None:
    value = number(row, column)
    return None if value is None else value * unit


def _node(row: Row) -> Node:
    disk = _scaled(row, "local_disk_tb", 1e12)
    return Node(
        name=text(row, "name"),
        provider=text(row, "provider"),
        gpu=text(row, "gpu"),
        gpus=whole(row, "gpus") or 0,
        cpus=whole(row, "vcpus_or_cores") or 0,
        cpu_unit="vcpu" if text(row, "cpu_unit").startswith("vcpu") else "core",
        threads_per_core=whole(row, "threads_per_core") or 1,
        memory_bytes=_gib(row, "memory_gib") or 0,
        kubernetes_bytes=_gib(row, "allocatable_k8s_gib"),
        slurm_bytes=_gib(row, "allocatable_slurm_gib"),
        memory_note=text(row, "memory_allocatable_note"),
        local_disk_bytes=None if disk is None else int(disk),
        nics=whole(row, "nic_count"),
        nic_bits=_scaled(row, "nic_gbps_each", 1e9),
        network_bits=_scaled(row, "network_gbps_total", 1e9),
        fabric=text(row, "fabric", "none"),
        efa_interfaces=whole(row, "efa_interfaces"),
        intra_link=text(row, "intra_node_link", "none"),
        price_per_hour=number(row, "list_price_usd_per_hour"),
        price_date=text(row, "price_date"),
        source=text(row, "source"),
        confidence=text(row, "confidence"),
        notes=text(row, "notes"),
    )


@cache
def every() -> tuple[Node, ...]:
    """All node types, in the order of the table."""
    return tuple(_node(row) for row in rows("nodes.jsonl"))


def names() -> tuple[str, ...]:
    """All names."""
    return tuple(node.name for node in every())


def find(name: str) -> Node:
    """The node type of that name, any case, dashes and underscores alike; UnknownNode has ``nearest``."""
    wanted = key(name)
    for form in (wanted, key("Standard_") + wanted):
        for node in every():
            if key(node.name) == form:
                return node
    raise UnknownNode(name, nearest(name, names()))
