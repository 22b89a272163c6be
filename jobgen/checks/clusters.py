"""What only one kind of cluster does or does not: settings without effect, and what the operators need."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.fabric import profile
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.words import gib
from jobgen.targets.directives import HANDLE

KUBERNETES = ("k8s", "trainjob", "jobset")
POD = {"target": "k8s", "launch.image": "x", "volumes": [{"mount": "/lustre", "claim": "lustre"}], "kubernetes.extra_resources": {"rdma/hca": 1}}
GANGS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}


def on_kubernetes(case: Case) -> bool:
    """One of the three Kubernetes targets is under check."""
    return case.target in KUBERNETES


@rule(
    "JG761", "warning", "init", "spec",
    bad=Example("full-8b-fsdp1", {"launch.setup": ["module load cuda"]}),
    good=Example("full-8b-fsdp1", {"launch.prepare": ["hf download x"]}),
    fix="the same in the image, or launch.prepare",
    sources=("a pod has no host shell",),
)  # fmt: skip
def no_host_to_set_up(case: Case) -> Outcome | None:
    """Set-up lines of the host have no host on Kubernetes

    launch.setup runs before the container on Slurm's nodes; a pod begins inside its image.
    """
    if not on_kubernetes(case) or not case.spec.launch.setup:
        return None
    return Outcome("launch.setup", "launch.setup is ignored: a pod begins inside the image", "put it into the image or into launch.prepare",
                   {"launch.setup": None})  # fmt: skip


@rule(
    "JG762", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"after": [{"job": "k8s/ml/other"}]}),
    good=Example("full-8b-fsdp1", {}),
    fix="submit it when the other has ended; Slurm can wait",
    sources=("PyTorchJob, TrainJob and JobSet have no dependencies on other jobs",),
)  # fmt: skip
def cannot_wait(case: Case) -> Outcome | None:
    """Kubernetes jobs do not wait for each other

    None of the three kinds of job has a dependency, so it would start at once.
    """
    if not on_kubernetes(case) or not case.spec.after:
        return None
    return Outcome("after", f"{case.target} would start at once, without waiting for {case.spec.after[0].job}", "remove after", {"after": None})


@rule(
    "JG763", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"after": [{"job": "k8s/ml/other"}]}),
    good=Example("full-32b-zero3", {"after": [{"job": "slurm:1234"}]}),
    fix="the handle or number of a Slurm job",
    sources=("man sbatch --dependency",),
)  # fmt: skip
def waits_for_another_cluster(case: Case) -> Outcome | None:
    """Slurm cannot wait for a job of another cluster

    A dependency is the number of a Slurm job.
    """
    if case.target != "slurm":
        return None
    for i, after in enumerate(case.spec.after):
        if HANDLE.fullmatch(after.job) is None and after.job.startswith(KUBERNETES):
            return Outcome(f"after.{i}.job", f"{after.job} is no Slurm job", "write the handle of a Slurm job")
    return None


@rule(
    "JG764", "error", "init", "spec",
    bad=Example("full-8b-zero2", {"kubernetes.elastic": {"min_nodes": 1, "max_nodes": 4}, "target": "k8s", "launch.image": "x",
                                  "volumes": [{"mount": "/checkpoints", "claim": "c"}], "training.framework": "custom"}),
    good=Example("full-8b-zero2", {"target": "k8s", "launch.image": "x", "volumes": [{"mount": "/checkpoints", "claim": "c"}]}),
    fix="a fixed number of nodes, or FSDP with sharded checkpoints",
    sources=("DeepSpeed@edaa7221 runtime/engine.py:4629", "DeepSpeed docs/_tutorials/universal-checkpointing.md"),
    facts=("CK15",),
    because=("JG791",),
)  # fmt: skip
def resumes_with_another_world(case: Case) -> Outcome | None:
    """An elastic job resumes with another number of ranks

    DeepSpeed refuses a ZeRO checkpoint of another data-parallel size, unless it is converted to a universal one. Tensor
    and pipeline groups do not change size either.
    """
    spec, elastic = case.spec, case.spec.kubernetes.elastic
    if elastic is None or elastic.min_nodes == elastic.max_nodes or spec.parallelism.sharding not in ("zero1", "zero2", "zero3"):
        return None
    if case.target is not None and case.target != "k8s":
        return None
    return Outcome("kubernetes.elastic", f"{elastic.min_nodes} to {elastic.max_nodes} nodes with {spec.parallelism.sharding}: its checkpoints load at one size only",
                   "remove elastic", {"kubernetes.elastic": None})  # fmt: skip


@rule(
    "JG765", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {**POD, "target": "jobset", "kubernetes.restart": "pod"}),
    good=Example("full-32b-zero3", {**POD, "target": "jobset"}),
    fix="kubernetes.restart: gang (JobSet, TrainJob)",
    sources=("pytorch/pytorch#146371", "kubeflow/trainer#2000, #2269"),
)  # fmt: skip
def one_pod_restarts(case: Case) -> Outcome | None:
    """One pod restarts while the others hang

    The ranks of other pods wait for the dead one until their timeout; only then do they restart too, at different times.
    """
    spec = case.spec
    if case.target not in ("trainjob", "jobset") or case.layout.nodes == 1 or spec.launch.restarts == 0 or spec.kubernetes.restart != "pod":
        return None
    return Outcome("kubernetes.restart", f"restart: pod on {case.layout.nodes} nodes", "write restart: gang", {"kubernetes.restart": "gang"})


@rule(
    "JG910", "info", "end", "spec",
    bad=Example("full-32b-zero3", POD),
    good=Example("full-32b-zero3", {**POD, "target": "jobset"}),
    fix="target jobset or trainjob, which restart the whole gang",
    sources=("pytorch/pytorch#146371", "kubeflow/trainer#2000, #2269"),
)  # fmt: skip
def in_place(case: Case) -> Outcome | None:
    """A PyTorchJob restarts a failed container in its place

    The API has no restart of all pods: the others hang until their collectives time out, then restart one by one.
    """
    spec = case.spec
    if case.target != "k8s" or case.layout.nodes == 1 or spec.launch.restarts == 0 or spec.kubernetes.restart == "never" or spec.kubernetes.elastic:
        return None
    return Outcome("launch.restarts", "a PyTorchJob restarts one container; the other nodes wait for their timeout before they follow",
                   "nothing on few nodes; on many prefer --target jobset or trainjob")  # fmt: skip


@rule(
    "JG911", "info", "init", "spec",
    bad=Example("full-32b-zero3", {**POD, "kubernetes.scheduler": "volcano"}),
    good=Example("full-32b-zero3", {**POD, "kubernetes.scheduler": "kueue", "kubernetes.queue": "a", "kubernetes.extra_resources": {}, "resources.fabric": "tcp"}),
    fix="start the operator with --gang-scheduler-name",
    sources=("kubeflow/trainer#1825, #1630",),
)  # fmt: skip
def gang_by_the_operator(case: Case) -> Outcome | None:
    """The operator gangs only when it is started for it

    schedulingPolicy of a PyTorchJob is ignored without the flag, and half of a job may then start and wait for the other
    half.
    """
    scheduler = case.spec.kubernetes.scheduler
    if case.target != "k8s" or scheduler not in GANGS or case.layout.nodes == 1:
        return None
    return Outcome("kubernetes.scheduler", f"the training operator reads this only when started with --gang-scheduler-name={GANGS[scheduler]}",
                   "ask whoever runs the operator; JobSet makes its own gang")  # fmt: skip


@rule(
    "JG912", "info", "init", "spec",
    bad=Example("full-32b-zero3", {**POD, "kubernetes.queue": "team-a"}),
    good=Example("full-32b-zero3", POD),
    fix="list them in the ClusterQueue, or exclude their prefixes in Kueue",
    sources=("kubernetes-sigs/kueue#4848, pkg/scheduler/flavorassigner",),
)  # fmt: skip
def resources_of_the_queue(case: Case) -> Outcome | None:
    """Kueue must cover every resource that a pod asks for

    A workload with one that its ClusterQueue does not list is never admitted ("resource X unavailable in ClusterQueue").
    """
    spec = case.spec
    if not on_kubernetes(case) or not spec.kubernetes.queue or spec.kubernetes.scheduler not in (None, "kueue"):
        return None
    names = [*spec.kubernetes.extra_resources, *_devices(case)]
    if not names:
        return None
    return Outcome("kubernetes.queue", f"the ClusterQueue must cover {', '.join(dict.fromkeys(names))} beside GPUs, CPUs and memory",
                   "ask whoever runs the queue")  # fmt: skip


def _devices(case: Case) -> tuple[str, ...]:
    fabric = profile(case)
    return tuple(one.name for one in fabric.kubernetes.resources) if fabric is not None else ()


@rule(
    "JG766", "warning", "first_step", "spec",
    bad=Example("full-8b-fsdp1", {"kubernetes.shm_size": "64MiB"}),
    good=Example("full-8b-fsdp1", {}),
    fix="kubernetes.shm_size: auto",
    sources=("NVIDIA/nccl#525", "cortexlabs/cortex#2115", "facebookresearch/SlowFast#136", "pytorch/ci-infra PR#490"),
    facts=("LA08",),
)  # fmt: skip
def small_shared_memory(case: Case) -> Outcome | None:
    """/dev/shm is too small

    Data-loader workers pass batches through it ("Unexpected bus error ... shared memory") and NCCL its buffers ("No space
    left on device"). Docker's and Kubernetes' own default is 64 MiB.
    """
    spec = case.spec
    asked = spec.kubernetes.shm_size
    if not on_kubernetes(case) or asked == "auto":
        return None
    data, training = spec.training.data, spec.training
    workers = data.workers if data is not None and data.workers is not None else 4
    image_tokens = (data.images_per_sample * data.tokens_per_image) if data is not None else 0
    batch = training.micro_batch_size * (24 * training.sequence_length + 9408 * image_tokens)
    need = case.layout.processes_per_node * (workers * 2 * batch + 2**28)
    if asked >= need:
        return None
    return Outcome("kubernetes.shm_size", f"{gib(asked)}; {case.layout.processes_per_node} ranks with their buffers and workers take about {gib(need)}",
                   "write shm_size: auto", {"kubernetes.shm_size": "auto"})  # fmt: skip


@rule(
    "JG767", "warning", "init", "spec",
    bad=Example("full-32b-zero3", {"launch.image": "nvcr.io/nvidia/pytorch:25.09-py3"}),
    good=Example("full-32b-zero3", {"launch.image": "nvcr.io/nvidia/pytorch:25.09-py3", "slurm.container": "pyxis",
                                    "volumes": [{"mount": "/lustre", "path": "/lustre"}]}),
    fix="slurm.container: pyxis or apptainer",
    sources=("slurm.container is none by default",),
)  # fmt: skip
def image_not_used(case: Case) -> Outcome | None:
    """The image is not used on Slurm

    slurm.container says how it runs; none starts the program on the nodes themselves.
    """
    spec = case.spec
    if case.target != "slurm" or spec.launch.image is None or spec.slurm.container != "none":
        return None
    return Outcome("launch.image", "launch.image is ignored: slurm.container is none", "write slurm.container: pyxis (or apptainer)",
                   {"slurm.container": "pyxis"})  # fmt: skip


@rule(
    "JG768", "warning", "read", "spec",
    bad=Example("lora-8b", {"resources.hosts": ["10.0.0.1"], "target": "slurm"}),
    good=Example("lora-8b", {"target": "slurm"}),
    fix="target: hosts, or remove resources.hosts",
    sources=("schedulers choose the nodes",),
)  # fmt: skip
def scheduler_chooses(case: Case) -> Outcome | None:
    """Hosts are listed, and a scheduler chooses the nodes

    resources.hosts is for target hosts; on Slurm slurm.extra.nodelist, on Kubernetes kubernetes.node_selector choose.
    """
    if not case.spec.resources.hosts or case.target in (None, "hosts", "local"):
        return None
    return Outcome("resources.hosts", f"resources.hosts is ignored on {case.target}", "remove it", {"resources.hosts": None})
