"""How a program gets into its container on Slurm. A runtime is one module here with ``enter(job, spec) -> Entrance``."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePosixPath

from jobgen.launch.job import Job, Mount, RunTime, Unrenderable, Word, word
from jobgen.spec.record import NamedTuple
from jobgen.spec.sections import Spec
from jobgen.targets.words import Shell

SET_BY_SCRIPT = (
    "MASTER_ADDR", "MASTER_PORT", "JOBGEN_JOB_ID", "JOBGEN_ATTEMPT", "JOBGEN_CONFIG_DIR", "JOBGEN_RESUME_FROM",
    "JOBGEN_DONE_FILE",
)  # fmt: skip
"""What the batch script tells the program."""


class Entrance(NamedTuple):
    """What a container changes in the batch script."""

    inside: bool = False
    """The program runs in a container."""
    srun: tuple[Shell, ...] = ()
    """Options of every srun that runs in the container."""
    execute: tuple[Shell, ...] = ()
    """Words in front of the program on each node."""
    carried: tuple[str, ...] = ()
    """Variables that are handed on by name (those words clear the environment)."""
    scratch: tuple[Shell, ...] = ()
    """Folders that each node makes before, and removes after the job."""


def enter(job: Job, spec: Spec) -> Entrance:
    """The entrance of the spec's container runtime."""
    entrance: Entrance = import_module(f"jobgen.targets.containers.{spec.slurm.container}").enter(job, spec)
    return entrance


def image(job: Job, spec: Spec) -> str:
    """The image, which a container runtime needs."""
    if not job.image:
        raise Unrenderable("launch.image", f"is not set, and slurm.container is {spec.slurm.container}",
                           "name an image, or write slurm.container: none")  # fmt: skip
    return job.image


def is_path(name: str) -> bool:
    """An image file rather than a name in a registry."""
    return name.startswith(("/", "./", "../")) or name.endswith((".sqsh", ".sif", ".img"))


def scratch_folder(index: int, origin: str) -> Word:
    """Where a scratch volume of a container lies on each node."""
    return word("/tmp/jobgen-", RunTime.JOB_ID, f"/scratch{index}", origin=origin)


def bound(mount: Mount, index: int, runtime: str) -> Word:
    """``source:target:ro``, as pyxis and apptainer write it; neither separator can be part of a path."""
    for path in (mount.target, mount.source or ""):
        if "," in path or ":" in path:
            raise Unrenderable(mount.origin, f"{path}: {runtime} separates mounts by `,` and their parts by `:`, so a path cannot hold them",
                               "mount a folder above it, or make a link without these characters")  # fmt: skip
    source = scratch_folder(index, mount.origin).parts if mount.scratch else (mount.source or mount.target,)
    return word(*source, f":{mount.target}{':ro' if mount.read_only else ''}", origin=mount.origin)


def covering(job: Job, path: str) -> Mount | None:
    """The mount that holds a path of the container: the deepest one."""
    wanted = PurePosixPath(path)
    found = [mount for mount in job.mounts if wanted.is_relative_to(mount.target)]
    return max(found, key=lambda mount: len(mount.target), default=None)


def on_host(job: Job, path: str, origin: str, inside: bool) -> str:
    """Where a path of the job lies on the nodes; Unrenderable when it would vanish with the container."""
    if not inside:
        return path
    mount = covering(job, path)
    if mount is None or mount.scratch:
        why = "is not on a mounted volume" if mount is None else f"lies on the scratch volume {mount.target}"
        raise Unrenderable(origin, f"{path} {why}, so it would vanish with the container",
                           f"add a volume: {{mount: {path}, path: {path}}}")  # fmt: skip
    rest = PurePosixPath(path).relative_to(mount.target)
    return str(PurePosixPath(mount.source or mount.target) / rest)


def needed_inside(job: Job) -> tuple[str, ...]:
    """Variables of the batch script that the program reads: they must reach it whatever the image sets."""
    return (*SET_BY_SCRIPT, *job.secrets)
