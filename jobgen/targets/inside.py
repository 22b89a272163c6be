"""The script that runs in the container of a Kubernetes pod, from ``bash -c`` to the launcher.

Same order as a Slurm script: what this node is, the provider's environment, folders, copies, Python, preparation on
the first node while the others wait for its port, the checkpoint to resume from, then the launcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jobgen.catalog.fabrics import Fabric
from jobgen.launch.job import Job, Resume
from jobgen.targets.words import Shell, assignment, constant, joined, lines, program, quote, shell

CONFIG_DIR = "/etc/jobgen"
WORK = "/jobgen"
"""An emptyDir: it outlives a restarted container, not the pod."""
PORT = 29500
FORWARDING = ("torchrun", "accelerate", "deepspeed")
"""Launchers that handle SIGTERM themselves, so that they may be the container's first process."""


class Place(NamedTuple):
    """How a target tells a pod what it is, as shell words."""

    node_rank: str
    master_addr: str
    attempt: str
    lines: tuple[str, ...] = ()
    """Further lines of the target, after these variables are known."""


COUNTED = f"$(cat {WORK}/attempt 2>/dev/null || echo 0)"
"""Restarts of this container: nothing else tells them where the container restarts in place."""


def script(job: Job, place: Place, fabric: Fabric | None, port: int) -> tuple[Shell, ...]:
    """The lines of the script, each with the field that made it."""
    return (
        constant("set -euo pipefail"),
        *_identity(place, port),
        *_environment(job, fabric),
        *_room(job),
        *_python(job),
        *_prepare(job),
        *_resume(job.resume),
        *_launch(job),
    )


def _identity(place: Place, port: int) -> Iterator[Shell]:
    yield constant(f"export NODE_RANK={place.node_rank} MASTER_ADDR={place.master_addr} MASTER_PORT={port}")
    yield constant(f"export ATTEMPT={place.attempt}")
    if place.attempt == COUNTED:
        yield constant(f"echo $((ATTEMPT + 1)) >{WORK}/attempt")
    yield constant("unset RANK WORLD_SIZE  # the operator's count pods; the launcher sets those of processes")
    yield from map(constant, place.lines)


def _environment(job: Job, fabric: Fabric | None) -> Iterator[Shell]:
    """The provider's script, then what is known only now, then the user's values that the script may have changed."""
    side = fabric.kubernetes if fabric else None
    origin = "resources.fabric"
    if side and side.wait_for:
        file = quote(side.wait_for).text
        yield constant(
            f"until [ -e {file} ]; do echo 'jobgen: waiting for the fabric plug-in' >&2; sleep 5; done", origin
        )
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


def _room(job: Job) -> Iterator[Shell]:
    """Writable folders, the job's folders, and the copies of every node."""
    yield constant(f'[ -w "${{HOME:-/}}" ] || export HOME={WORK}/home')
    yield constant(f'mkdir -p {WORK}/home "$TRITON_CACHE_DIR" "$XDG_CACHE_HOME"')
    yield constant("rm -f /dev/shm/nccl-* /dev/shm/torch_*  # left by a container that was killed")
    for folder in job.directories:
        yield constant(f"mkdir -p -- {quote(folder).text}", "checkpoint.directory")
    for number, (source, target) in enumerate(job.stage):
        origin = f"launch.stage.{number}"
        yield constant(f"mkdir -p -- {quote(target).text}", origin)
        yield constant(f"cp -a -- {quote(source.rstrip('/') + '/.').text} {quote(target).text}", origin)
    directory = job.resume.directory
    if directory:
        trace = quote(directory.rstrip("/") + "/.jobgen/attempt-").text + '"$ATTEMPT"'
        yield constant(f"mkdir -p -- {trace}", "checkpoint.directory")
        yield constant(f"export TORCH_FR_DUMP_TEMP_FILE={trace}/nccl_trace_rank_")
        yield constant('export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$TORCH_FR_DUMP_TEMP_FILE"')


def _python(job: Job) -> Iterator[Shell]:
    value, origin = quote(job.python.value).text, f"launch.python.{job.python.kind}"
    match job.python.kind:
        case "venv":
            yield constant(f"set +u; . {value}/bin/activate; set -u", origin)
        case "conda":
            yield constant(f'set +u; eval "$(conda shell.bash hook)"; conda activate {value}; set -u', origin)
        case "uv":
            yield constant(f"(cd {value} && uv sync --frozen)", origin)
            yield constant(f"set +u; . {value}/.venv/bin/activate; set -u", origin)


def _prepare(job: Job) -> Iterator[Shell]:
    """The first node prepares; its launcher's port opens when it is done, and that is what the others wait for."""
    if not job.prepare:
        return
    yield constant('if [ "$NODE_RANK" = 0 ]; then')
    yield from _user(job.prepare, "launch.prepare")
    if job.nodes > 1:
        yield constant("else")
        yield constant('  until (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do sleep 2; done')
    yield constant("fi")


def _user(texts: tuple[str, ...], origin: str) -> Iterator[Shell]:
    """The user's shell lines in a subshell: a ``cd`` or a shell option of theirs ends with them."""
    yield constant("( set +u")
    yield from lines(texts, origin)
    yield constant(")")


def _resume(resume: Resume) -> Iterator[Shell]:
    """RESUME_FROM: the newest complete checkpoint, unless the framework finds it itself."""
    if resume.mode == "path" and resume.path:
        yield constant(f"export RESUME_FROM={quote(resume.path).text}", "checkpoint.resume")
        return
    yield constant("export RESUME_FROM=''")
    if resume.mode != "auto" or resume.by_framework or not resume.directory or not resume.pattern:
        return
    directory, origin = quote(resume.directory).text, "checkpoint.directory"
    if resume.tracker:
        tracker = quote(resume.directory.rstrip("/") + "/" + resume.tracker).text
        yield constant(f'if [ -s {tracker} ]; then RESUME_FROM={directory}/"$(cat {tracker})"; fi', origin)
        return
    complete = f'"$found"/{quote(resume.complete_marker).text}' if resume.complete_marker else '"$found"'
    pattern = "".join(part if part == "*" else quote(part).text for part in _split(resume.pattern))
    yield constant("while IFS= read -r found; do", origin)
    yield constant(f"  if [ -e {complete} ]; then RESUME_FROM=$found; break; fi", origin)
    yield constant(f"done < <(ls -d -- {directory}/{pattern} 2>/dev/null | sort -rV)", origin)


def _split(pattern: str) -> list[str]:
    """``checkpoint-*`` as ``checkpoint-`` and ``*``."""
    found: list[str] = []
    for number, part in enumerate(pattern.split("*")):
        found += ["*"] if number else []
        found += [part] if part else []
    return found


def _launch(job: Job) -> Iterator[Shell]:
    yield from _command(job)
    if not job.finish and job.launcher in FORWARDING:
        return
    yield constant("child=$!")
    yield constant("trap 'kill -TERM \"$child\" 2>/dev/null || true' TERM INT")
    yield constant('while :; do status=0; wait "$child" || status=$?; kill -0 "$child" 2>/dev/null || break; done')
    yield constant('[ "$status" = 0 ] || exit "$status"')
    if job.finish:
        yield constant('[ "$NODE_RANK" = 0 ] || exit 0')
        yield from _user(job.finish, "launch.finish")


def _command(job: Job) -> Iterator[Shell]:
    """The launcher's line; with the words of a resumed start where the attempt found a checkpoint."""
    direct = not job.finish and job.launcher in FORWARDING
    words, more = job.command.words, job.resume.arguments
    first, rest = program(words[:1])[0], tuple(map(shell, words[1:]))
    head, tail = ("exec ", "") if direct else ("", " &")
    if not more:
        yield constant(f"{head}{joined((first, *rest)).text}{tail}", "launch")
        return
    at = len(words) if job.command.resume_at is None else job.command.resume_at
    yield constant("resume=()", "checkpoint.resume")
    yield constant(f'if [ -n "$RESUME_FROM" ]; then resume=({joined(map(shell, more)).text}); fi', "checkpoint.resume")
    placed = [first, *rest[: at - 1], constant('${resume[@]+"${resume[@]}"}'), *rest[at - 1 :]]
    yield constant(f"{head}{joined(placed).text}{tail}", "launch")
