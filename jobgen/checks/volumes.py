"""Where checkpoints, caches and data lie: shared or not, there or not, writable or not."""

from __future__ import annotations

from pathlib import PurePosixPath

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.checks.settings import setting
from jobgen.spec.sections import Volume

KUBERNETES = ("k8s", "trainjob", "jobset")
LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/local", "/localscratch", "/local_scratch", "/scratch_local", "/mnt/localssd", "/mnt/local", "/raid", "/nvme")
CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HF_DATASETS_CACHE", "TRITON_CACHE_DIR",
          "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")  # fmt: skip
ZERO = ("zero1", "zero2", "zero3")


def covering(case: Case, folder: str) -> tuple[int, Volume] | None:
    """The volume that holds a folder."""
    path = PurePosixPath(folder)
    fitting = [(i, v) for i, v in enumerate(case.spec.volumes) if path.is_relative_to(v.mount)]
    return max(fitting, key=lambda one: len(one[1].mount), default=None)


def _below(folder: str, roots: tuple[str, ...]) -> str | None:
    return next((root for root in roots if PurePosixPath(folder).is_relative_to(root)), None)


@rule(
    "JG850", "error", "resume", "spec",
    bad=Example("full-32b-zero3", {"checkpoint.directory": "/tmp/full-32b"}),
    good=Example("full-32b-zero3", {"checkpoint.directory": "/lustre/full-32b"}),
    fix="a folder on storage that all nodes share",
    sources=("foundation-model-stack/fms-hf-tuning#217, PR#106", "transformers 4.57.6 integrations/deepspeed.py (save_on_each_node)"),
    facts=("ST05",),
    because=("JG791",),
)  # fmt: skip
def checkpoints_on_a_node(case: Case) -> Outcome | None:
    """Checkpoints lie on a node's own disk

    Other nodes do not see them, so each has its own shards only and no attempt on other nodes can resume; temporary
    folders go with the job.
    """
    spec = case.spec
    directory = spec.checkpoint.directory
    if directory is None or case.target == "local":
        return None
    volume = covering(case, directory)
    several = case.layout.nodes > 1 or spec.launch.restarts > 0
    if volume is not None and volume[1].scratch:
        return Outcome("checkpoint.directory", f"{directory} is on scratch space ({volume[1].mount}), which ends with the job",
                       "write a folder on storage that stays")  # fmt: skip
    root = _below(directory, LOCAL)
    if root is None or volume is not None or not several:
        return None
    return Outcome("checkpoint.directory", f"{directory} is on each node's own disk ({root}), and {_why(case)}", "write a folder on shared storage")


def _why(case: Case) -> str:
    return f"{case.layout.nodes} nodes write it" if case.layout.nodes > 1 else f"{case.spec.launch.restarts} restarts may come on other nodes"


@rule(
    "JG851", "warning", "checkpoint", "spec",
    bad=Example("full-32b-zero3", {"training.options": {"save_on_each_node": True}}),
    good=Example("full-32b-zero3", {}),
    fix="remove save_on_each_node",
    sources=("huggingface/transformers#20988, #28015, #27925", "axolotl#948"),
)  # fmt: skip
def every_node_saves(case: Case) -> Outcome | None:
    """Every node saves to one folder

    On shared storage save_on_each_node makes all nodes write, rename and delete the same checkpoint: FileNotFoundError in
    the rotation.
    """
    found = setting(case, "save_on_each_node")
    if found is None or found.on is not True or case.layout.nodes == 1:
        return None
    return Outcome(found.path, f"save_on_each_node on {case.layout.nodes} nodes that share {case.spec.checkpoint.directory}", "remove it",
                   {found.edit: None} if found.edit else None)  # fmt: skip


@rule(
    "JG852", "error", "checkpoint", "spec",
    bad=Example("full-32b-zero3", {"training.versions": {"transformers": "4.36.2"}, "training.framework": "transformers", "launch.entrypoint": "train.py"}),
    good=Example("full-32b-zero3", {"training.framework": "transformers", "launch.entrypoint": "train.py"}),
    fix="transformers 4.37.2 or later",
    sources=("huggingface/transformers#28015, #27925", "axolotl#948"),
    versions="transformers 4.36.0-4.37.1",
)  # fmt: skip
def renamed_by_all(case: Case) -> Outcome | None:
    """All nodes rename the checkpoint

    These releases write to tmp-checkpoint-N and rename it on every node: on shared storage the first wins and the others
    stop.
    """
    spec = case.spec
    if case.layout.nodes == 1 or spec.training.framework not in ("transformers", "trl", "axolotl", "llama-factory"):
        return None
    if not case.v.between("transformers", (4, 36), (4, 37, 2)):
        return None
    return Outcome("training.versions", f"transformers 4.36.0-4.37.1 renames each checkpoint on all {case.layout.nodes} nodes",
                   "write training.versions.transformers: 4.57.1", {"training.versions.transformers": "4.57.1"})  # fmt: skip


@rule(
    "JG853", "error", "load", "spec",
    bad=Example("full-32b-zero3", {"volumes": [{"mount": "/models", "path": "/lustre/models", "read_only": True}],
                                   "launch.env": {"HF_HOME": "/models/hf", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"volumes": [{"mount": "/models", "path": "/lustre/models", "read_only": True}],
                                    "launch.env": {"HF_HOME": "/models/hf", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "12"}}),
    fix="a writable cache, or HF_HUB_OFFLINE: \"1\"",
    sources=("huggingface_hub#2797",),
)  # fmt: skip
def cache_read_only(case: Case) -> Outcome | None:
    """A cache lies on a read-only volume

    huggingface_hub writes locks and references even for files that are there, unless it is told to stay offline.
    """
    env = case.spec.launch.env
    for name in CACHES:
        folder = env.get(name)
        volume = covering(case, folder) if folder else None
        if volume is None or not volume[1].read_only or (name.startswith("HF_H") and env.get("HF_HUB_OFFLINE", "") in ("1", "true", "True")):
            continue
        edits: dict[str, object] | None = {"launch.env.HF_HUB_OFFLINE": "1"} if name.startswith("HF_H") else None
        return Outcome(f"launch.env.{name}", f"{name}: {folder} is on {volume[1].mount}, which is read-only",
                       'write HF_HUB_OFFLINE: "1"' if edits else "choose a writable folder", edits)  # fmt: skip
    return None


@rule(
    "JG854", "error", "checkpoint", "spec",
    bad=Example("full-32b-zero3", {"volumes": [{"mount": "/lustre", "path": "/lustre", "read_only": True}]}),
    good=Example("full-32b-zero3", {"volumes": [{"mount": "/lustre", "path": "/lustre"}]}),
    fix="read_only: false",
    sources=("jobgen makes the folder before the launch",),
    because=("JG791",),
)  # fmt: skip
def checkpoints_read_only(case: Case) -> Outcome | None:
    """Checkpoints go to a read-only volume

    The first save fails.
    """
    directory = case.spec.checkpoint.directory
    volume = covering(case, directory) if directory else None
    if volume is None or not volume[1].read_only:
        return None
    path = f"volumes.{volume[0]}.read_only"
    return Outcome(path, f"{directory} is on {volume[1].mount}, which is mounted read-only", "remove read_only", {path: None})


@rule(
    "JG855", "warning", "load", "spec",
    bad=Example("full-32b-zero3", {"volumes": [{"mount": "/lustre", "claim": "lustre"}]}),
    good=Example("full-32b-zero3", {"volumes": [{"mount": "/lustre", "claim": "lustre", "path": "/lustre"}]}),
    fix="path: the folder on the nodes",
    sources=("a claim is an object of Kubernetes; Slurm mounts folders of the nodes",),
    because=("JG790",),
)  # fmt: skip
def claim_on_slurm(case: Case) -> list[Outcome]:
    """A claim says nothing to Slurm

    Only a path can be mounted there; one volume may have both.
    """
    if case.target != "slurm":
        return []
    return [
        Outcome(f"volumes.{i}", f"{volume.mount} has a claim and no path, and Slurm knows no claims", f"write path: {volume.mount} (the folder on the nodes)",
                {f"volumes.{i}.path": volume.mount})
        for i, volume in enumerate(case.spec.volumes) if volume.claim is not None and volume.path is None
    ]  # fmt: skip


@rule(
    "JG856", "warning", "resume", "spec",
    bad=Example("full-32b-zero3", {"volumes": [{"mount": "/cache", "claim": "cache", "path": "/cache", "create": {"size": "1TB", "access_mode": "ReadWriteOnce"}}]}),
    good=Example("full-32b-zero3", {"volumes": [{"mount": "/cache", "claim": "cache", "path": "/cache", "create": {"size": "1TB"}}]}),
    fix="access_mode: ReadWriteMany",
    sources=("NVIDIA/deepops PR#587", "kubeflow/pytorch-operator#224"),
    because=("JG791",),
)  # fmt: skip
def one_node_claim(case: Case) -> list[Outcome]:
    """A claim for one node, and a job on several

    The pods of the other nodes stay in ContainerCreating.
    """
    if case.target in KUBERNETES or case.layout.nodes == 1:
        return []  # an error there
    return [
        Outcome(f"volumes.{i}.create.access_mode", f"{volume.create.access_mode} for pods on {case.layout.nodes} nodes", "write access_mode: ReadWriteMany",
                {f"volumes.{i}.create.access_mode": "ReadWriteMany"})
        for i, volume in enumerate(case.spec.volumes)
        if volume.create is not None and volume.create.access_mode in ("ReadWriteOnce", "ReadWriteOncePod")
    ]  # fmt: skip
