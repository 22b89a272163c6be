"""What the job asks of a node, against what the node type can give to a job."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.words import gb

KUBERNETES = ("k8s", "trainjob", "jobset")
NODES = "jobgen.catalog.nodes, which name their sources"


def memory_limit(case: Case) -> tuple[int, str] | None:
    """The memory of a node that a job may ask for, and who says so."""
    node = case.node
    if node is None:
        return None
    if case.target in KUBERNETES and node.kubernetes_bytes:
        return node.kubernetes_bytes, "leaves to pods"
    if case.target == "slurm" and node.slurm_bytes:
        return node.slurm_bytes, "leaves to Slurm jobs"
    return node.memory_bytes, "has"


@rule(
    "JG731", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"resources.node_type": "p5.48xlarge", "resources.fabric": "efa"}),
    good=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 90}),
    fix="the GPUs that the node type has",
    sources=(NODES,),
)  # fmt: skip
def gpus_of_other_nodes(case: Case) -> Outcome | None:
    """The node type has other GPUs

    The job would wait for a node that does not exist, and its memory would be estimated for another card.
    """
    node, resources = case.node, case.spec.resources
    if node is None or not node.gpus:
        return None
    if resources.gpus_per_node > node.gpus:
        return Outcome("resources.gpus_per_node", f"{resources.gpus_per_node} GPUs a node; {node.name} has {node.gpus}", f"write gpus_per_node: {node.gpus}",
                       {"resources.gpus_per_node": node.gpus})  # fmt: skip
    if node.gpu and case.gpu.name != node.gpu and node.gpu not in case.gpu.aliases and resources.gpu.memory is None:
        return Outcome("resources.gpu", f"gpu: {resources.gpu.name}; {node.name} has {node.gpu}", f"write gpu: {node.gpu}", {"resources.gpu": node.gpu})
    return None


@rule(
    "JG732", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.memory_per_node": "1150GiB",
                                   "resources.cpus_per_node": 90}),
    good=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.memory_per_node": "1090GiB",
                                    "resources.cpus_per_node": 90}),
    fix="less than what the scheduler gives of that node type",
    sources=(NODES, "aws/sagemaker-hyperpod-cli#383"),
    because=("JG791",),
)  # fmt: skip
def memory_above_node(case: Case) -> Outcome | None:
    """More host memory than a job can get of that node

    What is sold is not what a scheduler gives: the system, the kubelet and Slurm keep a part. Such a job waits for ever.
    """
    asked, limit = case.spec.resources.memory_per_node, memory_limit(case)
    if asked is None or limit is None or asked <= limit[0] or case.node is None:
        return None
    right = int(limit[0] * 0.98) // 2**30
    return Outcome("resources.memory_per_node", f"{gb(asked)} a node; {case.node.name} {limit[1]} {gb(limit[0])}", f"write memory_per_node: {right}GiB",
                   {"resources.memory_per_node": f"{right}GiB"})  # fmt: skip


@rule(
    "JG733", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 128}),
    good=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 96}),
    fix="at most the CPUs of the node type; less on Kubernetes, where the kubelet keeps some",
    sources=(NODES, "aws/sagemaker-hyperpod-cli#383; a vjepa2 manifest asks for all 192 CPUs of p5 and is never scheduled"),
    because=("JG791",),
)  # fmt: skip
def cpus_above_node(case: Case) -> Outcome | None:
    """More CPUs than a job can get of that node

    On Kubernetes not even all that are sold: the kubelet keeps some, and a pod that asks for all of them stays Pending.
    """
    asked, node = case.spec.resources.cpus_per_node, case.node
    if asked is None or node is None or not node.cpus:
        return None
    pods = case.target in KUBERNETES
    if asked < node.cpus or (asked == node.cpus and not pods):
        return None
    right = node.cpus - max(2, node.cpus // 16) if pods else node.cpus
    return Outcome("resources.cpus_per_node", f"{asked} CPUs a node; {node.name} has {node.cpus}{', of which the kubelet keeps some' if pods else ''}",
                   f"write cpus_per_node: {right}", {"resources.cpus_per_node": right})  # fmt: skip


@rule(
    "JG734", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 90,
                                   "resources.local_disk_per_node": "20TB"}),
    good=Example("full-32b-zero3", {"resources.node_type": "p4de.24xlarge", "resources.fabric": "efa", "resources.cpus_per_node": 90,
                                    "resources.local_disk_per_node": "5TB"}),
    fix="at most the local disk of the node type",
    sources=(NODES,),
)  # fmt: skip
def disk_above_node(case: Case) -> Outcome | None:
    """More local disk than the node has

    Offload to NVMe and staged data would fill it.
    """
    asked, node = case.spec.resources.local_disk_per_node, case.node
    if asked is None or node is None or not node.local_disk_bytes or asked <= node.local_disk_bytes:
        return None
    right = max(1, node.local_disk_bytes * 9 // 10**13)
    return Outcome("resources.local_disk_per_node", f"{gb(asked)} a node; {node.name} has {gb(node.local_disk_bytes)}",
                   f"write local_disk_per_node: {right}TB", {"resources.local_disk_per_node": f"{right}TB"})  # fmt: skip


@rule(
    "JG735", "warning", "end", "spec",
    bad=Example("full-8b-fsdp1", {"resources.cpus_per_node": None}),
    good=Example("full-8b-fsdp1", {}),
    fix="resources.cpus_per_node (and memory_per_node), or a node_type",
    sources=("measured: srun gives one CPU a task where none are asked for", "kubernetes-sigs/kueue#485", "microsoft/pai#5215"),
)  # fmt: skip
def nothing_asked(case: Case) -> Outcome | None:
    """The job does not say how many CPUs it needs

    Slurm then gives a task one, and the data loader crawls; on Kubernetes the pod has no request for them, so a quota or
    Kueue's flavours do not see it.
    """
    spec = case.spec
    if case.target not in (*KUBERNETES, "slurm") or spec.resources.cpus_per_node is not None or case.node is not None:
        return None
    if case.target == "slurm" and (spec.resources.exclusive is True or spec.resources.gpus_per_node >= 8):
        return None
    words = "a task gets one CPU" if case.target == "slurm" else "the pod asks for none"
    return Outcome("resources.cpus_per_node", f"cpus_per_node is not written: {words}", f"write cpus_per_node: {12 * spec.resources.gpus_per_node} (what the node has)",
                   {"resources.cpus_per_node": 12 * spec.resources.gpus_per_node})  # fmt: skip


@rule(
    "JG736", "warning", "load", "spec",
    bad=Example("lora-8b", {"target": "slurm", "resources.memory_per_node": None}),
    good=Example("lora-8b", {"target": "slurm"}),
    fix="resources.memory_per_node",
    sources=("measured: without --mem a job gets the partition's DefMemPerCPU, or the whole node", "man sbatch"),
)  # fmt: skip
def memory_unset(case: Case) -> Outcome | None:
    """The job does not say how much host memory it needs

    A job that shares its node then gets the partition's default, often a few GB a CPU, and is killed while it loads.
    """
    spec = case.spec
    if case.target != "slurm" or spec.resources.memory_per_node is not None or case.node is not None:
        return None
    if spec.resources.exclusive is True or (spec.resources.exclusive == "auto" and spec.resources.gpus_per_node >= 8):
        return None
    need = max(32, -(-int(case.estimate.host.peak * 1.2) // 10**9))
    return Outcome("resources.memory_per_node", "memory_per_node is not written: the partition's default applies", f"write memory_per_node: {need}GB",
                   {"resources.memory_per_node": f"{need}GB"})  # fmt: skip
