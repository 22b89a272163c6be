"""pyxis and enroot: srun's own options. ``#`` ends the registry, ``,`` separates mounts, ``:`` their fields."""

from __future__ import annotations

from jobgen.launch.job import Job, Mount, Unrenderable
from jobgen.spec.models import Spec
from jobgen.targets.containers import SCRATCH, Entrance, image, is_path, needed_inside
from jobgen.targets.words import constant, quote

FIELD = "slurm.container"


def enter(job: Job, spec: Spec) -> Entrance:
    """Image, mounts and the variables that win over the image's own (the program exports the spec's itself)."""
    mounts = [*job.mounts, *job.fabric_mounts]
    scratch = [mount for mount in mounts if mount.scratch]
    pieces = [_mount(mount, index) for index, mount in enumerate(mounts)]
    options = [quote(f"--container-image={normalised(image(job, spec))}", "launch.image")]
    if pieces:
        options.append(constant(f"--container-mounts={','.join(pieces)}", "volumes"))
    options += [
        constant("--no-container-mount-home", FIELD),
        quote(f"--container-env={','.join(needed_inside(job))}", FIELD),
    ]
    folders = tuple(constant(f'"{SCRATCH}{mounts.index(mount)}"', mount.origin) for mount in scratch)
    return Entrance(True, tuple(options), scratch=folders)


def normalised(name: str) -> str:
    """An image as enroot reads it: ``nvcr.io/nvidia/pytorch:x`` is ``nvcr.io#nvidia/pytorch:x``; files have a ``/``."""
    name = name.removeprefix("docker://")
    if is_path(name):
        return name if "/" in name else f"./{name}"
    registry, slash, rest = name.partition("/")
    if slash and "#" not in name and ("." in registry or ":" in registry or registry == "localhost"):
        return f"{registry}#{rest}"
    return name


def _mount(mount: Mount, index: int) -> str:
    """``source:target:ro``; neither separator can be part of a path."""
    for path in (mount.target, mount.source or ""):
        if "," in path or ":" in path:
            raise Unrenderable(mount.origin, f"{path}: pyxis separates mounts by `,` and their parts by `:`, so a path cannot hold them",
                               "mount a folder above it, or make a link without these characters")  # fmt: skip
    end = ":ro" if mount.read_only else ""
    if mount.scratch:
        return f'"{SCRATCH}{index}"{quote(":" + mount.target).text}'
    return quote(f"{mount.source or mount.target}:{mount.target}{end}", mount.origin).text
