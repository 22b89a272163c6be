"""apptainer: the program is started on each node by ``apptainer exec``; variables go on by APPTAINERENV_, so that a site's
``--cleanenv`` loses none and no secret stands on a command line."""

from __future__ import annotations

from jobgen.launch.job import Job, Unrenderable
from jobgen.spec.sections import Spec
from jobgen.targets.containers import Entrance, bound, image, is_path, needed_inside, scratch_folder
from jobgen.targets.words import constant, quote, shell

FIELD = "slurm.container"
SLURM = (
    "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_RESTART_COUNT", "SLURMD_NODENAME",
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip


def enter(job: Job, spec: Spec) -> Entrance:
    """``apptainer exec --nv --bind ... IMAGE``."""
    vendor = "--rocm" if job.gpu_name.lower().startswith(("mi2", "mi3")) else "--nv"
    words = [
        constant("apptainer", FIELD),
        constant("exec", FIELD),
        constant(vendor, "resources.gpu"),
        constant("--no-home", FIELD),
    ]
    mounts = [*job.mounts, *job.fabric_mounts]
    for index, mount in enumerate(mounts):
        words += [constant("--bind", mount.origin), shell(bound(mount, index, "apptainer"))]
    words.append(quote(name_of(image(job, spec)), "launch.image"))
    folders = tuple(shell(scratch_folder(i, mount.origin)) for i, mount in enumerate(mounts) if mount.scratch)
    return Entrance(True, execute=tuple(words), carried=(*needed_inside(job), *SLURM), scratch=folders)


def name_of(name: str) -> str:
    """A file as it is, else a reference with its transport."""
    if name.startswith("-"):
        raise Unrenderable("launch.image", f"{name} begins with a dash, so apptainer would read an option", f"write ./{name}")
    if is_path(name) or "://" in name:
        return name
    return f"docker://{name.replace('#', '/', 1)}"
