"""The network between nodes: which it is, what only the site knows of it, and whether the nodes have it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from jobgen.catalog import fabrics
from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule

if TYPE_CHECKING:
    from jobgen.catalog.fabrics import Fabric

KUBERNETES = ("k8s", "trainjob", "jobset")
FAMILY = {
    "infiniband": ("infiniband", "azure-ib", "coreweave-ib", "nebius-ib"), "azure-ib": ("azure-ib", "infiniband"),
    "oci-roce": ("oci-roce", "roce"), "gcp-gib": ("gcp-gib", "roce"),
}  # fmt: skip
"""Networks of node types that more than one profile describes."""


def profile(case: Case) -> Fabric | None:
    """The fabric's profile; None where there is none or it cannot be read."""
    name = case.spec.resources.fabric
    if name is None or name == "none":
        return None
    from jobgen.effective.resolve import beside

    try:
        return fabrics.find(name, beside(case.document, "."))
    except (fabrics.UnknownFabric, fabrics.BadFabric):
        return None


@rule(
    "JG720", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"resources.fabric": None}),
    good=Example("full-32b-zero3", {}),
    fix="resources.fabric: the network between the nodes (tcp when there is only Ethernet)",
    sources=("aws/sagemaker-hyperpod-cli#306: training at TCP speed, no error",),
)  # fmt: skip
def fabric_unset(case: Case) -> Outcome | None:
    """Several nodes and no word on their network

    NCCL takes the network that it finds, and TCP where it finds none: ten times slower without an error. The profile of
    the fabric brings the devices, limits and variables that it needs.
    """
    if case.layout.nodes < 2 or case.spec.resources.fabric is not None or case.target == "local":
        return None
    own = case.node.fabric if case.node is not None else "none"
    near = next((one for one in FAMILY.get(own, (own,)) if one in fabrics.names()), None) if own != "none" else None
    choice = near or "infiniband, efa, roce, tcp ..."
    return Outcome("resources.fabric", f"{case.layout.nodes} nodes, and nothing says what joins them", f"write fabric: {choice}",
                   {"resources.fabric": near} if near else None)  # fmt: skip


@rule(
    "JG721", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"resources.fabric": "infinibant"}),
    good=Example("full-32b-zero3", {"resources.fabric": "infiniband"}),
    fix="one of the shipped profiles, or the path of a file",
    sources=("jobgen.catalog.fabrics",),
)  # fmt: skip
def fabric_unknown(case: Case) -> Outcome | None:
    """No fabric of that name

    A shipped profile is named, or a file of one's own (its path ends in .yaml).
    """
    name = case.spec.resources.fabric
    if name is None or name == "none":
        return None
    from jobgen.effective.resolve import beside

    try:
        fabrics.find(name, beside(case.document, "."))
    except fabrics.UnknownFabric as reason:
        near = reason.nearest[0] if reason.nearest else None
        return Outcome("resources.fabric", f"no fabric {name!r} ({', '.join(fabrics.names())})", f"write fabric: {near or 'NAME'}",
                       {"resources.fabric": near} if near else None)  # fmt: skip
    except fabrics.BadFabric as reason:
        return Outcome("resources.fabric", f"the profile cannot be used: {reason}", "correct the file")
    return None


@rule(
    "JG722", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.cpus_per_node": 90}),
    good=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.cpus_per_node": 90, "resources.fabric": "efa"}),
    fix="the network of that node type",
    sources=("jobgen.catalog.nodes, which name their sources",),
)  # fmt: skip
def fabric_of_other_nodes(case: Case) -> Outcome | None:
    """The node type has another network

    Its profile would set variables for adapters that the nodes do not have.
    """
    node, name = case.node, case.spec.resources.fabric
    if node is None or name is None or name in ("tcp", "none") or profile(case) is None or node.fabric in ("", "none") or case.layout.nodes == 1:
        return None
    fits = FAMILY.get(node.fabric, (node.fabric,))
    if name in fits or any(name.startswith(one) for one in fits) or name.endswith((".yaml", ".yml")) or not set(fits) & set(fabrics.names()):
        return None
    right = next(one for one in fits if one in fabrics.names())
    return Outcome("resources.fabric", f"fabric: {name}, but {node.name} has {node.fabric}", f"write fabric: {right}", {"resources.fabric": right})


@rule(
    "JG723", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"target": "k8s", "launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "lustre"}]}),
    good=Example("full-32b-zero3", {"target": "k8s", "launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "lustre"}],
                                    "kubernetes.extra_resources": {"rdma/rdma_shared_device_a": 1}}),
    fix="what the message names: only the site knows it",
    sources=("the fabric's profile (jobgen.catalog.fabrics), which names its sources",),
)  # fmt: skip
def fabric_needs_site(case: Case) -> list[Outcome]:
    """The fabric needs something that only the site knows

    Without it a pod has no device of the network, and NCCL falls back to TCP without a word.
    """
    fabric, spec = profile(case), case.spec
    if fabric is None or case.layout.nodes == 1 or case.target not in (*KUBERNETES, "slurm"):
        return []
    side = "slurm" if case.target == "slurm" else "kubernetes"
    found: list[Outcome] = []
    for wanted in fabric.inputs:
        if not wanted.required or wanted.target != side or _given(case, wanted.field, wanted.key):
            continue
        if wanted.field == "resources.node_type" and any("/efa" in name for name in spec.kubernetes.extra_resources):
            continue
        found.append(Outcome(wanted.field, f"fabric: {fabric.name}: {wanted.why}",
                             f"write {wanted.field}: {wanted.example}" if wanted.example else f"write {wanted.field}"))  # fmt: skip
    return found


def _given(case: Case, field: str, key: str) -> bool:
    """The spec gives that field, with a key of that form where it is a map."""
    node: object = case.spec
    for part in field.split("."):
        node = getattr(node, part, None)
    if isinstance(node, dict):
        return any(fnmatchcase(name, key) for name in node)
    return node not in (None, "", [])


@rule(
    "JG724", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"resources.fabric": "tcp", "launch.env": {"FI_PROVIDER": "efa", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"resources.fabric": "efa"}),
    fix="resources.fabric: efa, and no FI_* variables",
    sources=("aws/sagemaker-hyperpod-cli#306", "awslabs/awsome-distributed-ai#386", "NVIDIA-NeMo/RL#1973"),
)  # fmt: skip
def variables_of_another_fabric(case: Case) -> Outcome | None:
    """Variables of a network that the job does not ask for

    EFA's variables without its devices leave training at the speed of TCP, with no error.
    """
    spec = case.spec
    names = [name for name in spec.launch.env if name.startswith(("FI_EFA_", "FI_PROVIDER"))]
    if not names or spec.resources.fabric in (None, "efa", "slingshot") or case.layout.nodes == 1:
        return None
    return Outcome(f"launch.env.{names[0]}", f"{', '.join(names)} with fabric: {spec.resources.fabric}", f"write fabric: efa, or remove {names[0]}",
                   {f"launch.env.{name}": None for name in names})  # fmt: skip
