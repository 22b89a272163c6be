"""pyxis and enroot: srun's own options. ``#`` ends the registry, ``,`` separates mounts, ``:`` their fields."""

from __future__ import annotations

from jobgen.launch.job import Job, word
from jobgen.spec.sections import Spec
from jobgen.targets.containers import Entrance, bound, image, is_path, needed_inside, scratch_folder
from jobgen.targets.words import constant, quote, shell

FIELD = "slurm.container"


def enter(job: Job, spec: Spec) -> Entrance:
    """Image, mounts and the variables that win over the image's own (the program exports the spec's itself)."""
    mounts = [*job.mounts, *job.fabric_mounts]
    options = [quote(f"--container-image={normalised(image(job, spec))}", "launch.image")]
    if mounts:
        pairs = [bound(mount, index, "pyxis").parts for index, mount in enumerate(mounts)]
        parts = [part for pair in pairs for part in (",", *pair)][1:]
        options.append(shell(word("--container-mounts=", *parts, origin="volumes")))
    options += [
        constant("--no-container-mount-home", FIELD),
        quote(f"--container-env={','.join(needed_inside(job))}", FIELD),
    ]
    folders = tuple(shell(scratch_folder(i, mount.origin)) for i, mount in enumerate(mounts) if mount.scratch)
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
