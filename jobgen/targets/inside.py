"""The script that runs in the container of a Kubernetes pod, from ``bash -c`` to the launcher.

Same order as a Slurm script: what this node is, the provider's environment, folders, copies, Python, preparation on
the first node while the others wait for its port, the checkpoint to resume from, then the launcher.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job, Word
from jobgen.spec.record import NamedTuple
from jobgen.targets import body, template
from jobgen.targets.artifact import Artifact
from jobgen.targets.words import Shell, assignment, constant, joined, lines, program, quote, shell

CONFIG_DIR = "/etc/jobgen"
WORK = "/jobgen"
"""An emptyDir: it outlives a restarted container, not the pod."""
PORT = 29500
KEPT_BYTES = 65536
"""Of the end of a node's output, kept beside the checkpoints."""
MARKING = ("torchrun", "itself")
"""Launchers that torchrun's PET_ variables reach, so that each line of a process says its rank on the node. accelerate
has options of its own for it, by version; deepspeed has nothing that still prints."""
FIXED = tuple(f"--{name}" for name in ("nnodes", "node-rank", "master-addr", "master-port", "max-restarts"))
"""Options of torchrun that the operator's PET_ variables say where nodes come and go."""


class Place(NamedTuple):
    """How a target tells a pod what it is, as shell words."""

    node_rank: str
    master_addr: str
    attempt: str
    lines: tuple[str, ...] = ()
    """Further lines of the target, after these variables are known."""
    elastic: bool = False


COUNTED = f"$(cat {WORK}/attempt 2>/dev/null || echo 0)"
"""Restarts of this container: nothing else tells them where the container restarts in place."""


def script(job: Job, place: Place, fabric: Fabric | None, port: int) -> Artifact:
    """The script, and the field that made each line."""
    directory = job.resume.directory
    words, more, after = _command(job, place.elastic)
    checkpoints = quote(directory, "checkpoint.directory") if directory else None
    found = body.checkpoints(job, constant('"$checkpoints"')) if directory else {"resume": [], "pattern": None}
    return template.finish(
        template.fill(
            "k8s/inside.sh.j2",
            identity=list(_identity(place, port)),
            environment=list(_environment(job, fabric)),
            folders=[quote(folder, "checkpoint.directory") for folder in job.directories],
            checkpoints=checkpoints,
            requeue=False,
            **found,
            stage=[_pair(number, source, target) for number, (source, target) in enumerate(job.stage)],
            python=list(_python(job)),
            prepare=[*_sync(job), *lines(job.prepare, "launch.prepare")],
            nodes=job.nodes,
            words=words,
            more=more,
            words_after=after,
            kept=constant(str(KEPT_BYTES)),
            finish=lines(job.finish, "launch.finish"),
        )
    )


def _identity(place: Place, port: int) -> Iterator[Shell]:
    yield constant(f"export NODE_RANK={place.node_rank} MASTER_ADDR={place.master_addr} MASTER_PORT={port}")
    if place.attempt == COUNTED:
        yield constant(f"JOBGEN_ATTEMPT={place.attempt}")
        yield constant(f"echo $((JOBGEN_ATTEMPT + 1)) >{WORK}/attempt")
        yield constant("export JOBGEN_ATTEMPT")
    else:
        yield constant(f"export JOBGEN_ATTEMPT={place.attempt}")
    yield constant("unset RANK WORLD_SIZE # the operator's count pods; the launcher sets those of processes")
    yield from map(constant, place.lines)


def _environment(job: Job, fabric: Fabric | None) -> Iterator[Shell]:
    """The provider's script, then what is known only now, then the user's values that the script may have changed."""
    side = fabric.kubernetes if fabric else None
    origin = "resources.fabric"
    if side and side.wait_for:
        file = quote(side.wait_for).text
        yield constant(f"until [ -e {file} ]; do say 'waiting for the fabric plug-in'; sleep 5; done", origin)
    if side and side.library_path:
        folders = quote(":".join(row.name for row in side.library_path)).text
        yield constant(f'export LD_LIBRARY_PATH={folders}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"', origin)
    if side and side.source_script:
        yield constant(f"set +u; . {quote(side.source_script).text}; set -u", origin)
    again = side is not None and bool(side.source_script)
    for variable in job.env:
        if variable.value.literal is None or (again and variable.layer == "user"):
            pair = assignment(variable.name, variable.value)
            yield constant(f"export {pair.text}", pair.origin)


def _pair(number: int, source: str, target: str) -> Shell:
    origin = f"launch.stage.{number}"
    return joined((quote(source), quote(target)), origin).by(origin)


def _python(job: Job) -> Iterator[Shell]:
    value, origin = quote(job.python.value).text, f"launch.python.{job.python.kind}"
    match job.python.kind:
        case "venv" | "uv":
            folder = value if job.python.kind == "venv" else f"{value}/.venv"
            yield constant(f'export VIRTUAL_ENV={folder} PATH={folder}/bin:"$PATH"', origin)
        case "conda":
            yield constant('eval "$(conda shell.bash hook)"', origin)
            yield constant(f"conda activate {value}", origin)


def _sync(job: Job) -> list[Shell]:
    """A uv project is made ready once, not by every node at the same time."""
    if job.python.kind != "uv":
        return []
    return [constant(f"uv sync --frozen --project {quote(job.python.value).text}", "launch.python.uv")]


def _command(job: Job, elastic: bool) -> tuple[list[Shell], list[Shell], list[Shell]]:
    """The command's lines up to the words of a resumed start, these, and what follows them."""
    chosen = [(word, shell) for word, shell in zip(job.command.words, program(job.command.words), strict=True)]
    at = len(chosen) if job.command.resume_at is None else job.command.resume_at
    before, after = chosen[:at], chosen[at:]
    if elastic:
        before, after = ([pair for pair in part if not _fixed(pair[0])] for part in (before, after))
    return [pair[1] for pair in before], [shell(word) for word in job.resume.arguments], [pair[1] for pair in after]


def _fixed(word: Word) -> bool:
    """An option of torchrun that an elastic job takes from the operator instead."""
    text = (
        word.parts[0]
        if word.parts and word.origin.startswith(("launch.launcher", "resources.", "launch.restarts"))
        else ""
    )
    return isinstance(text, str) and text.partition("=")[0].replace("_", "-") in FIXED
