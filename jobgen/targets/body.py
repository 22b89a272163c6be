"""What the shell targets (slurm, hosts, local) share: the program that every node runs, checkpoints and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jobgen.launch.job import File, Job, RunTime, Unrenderable, Variable, Word
from jobgen.spec.record import NamedTuple
from jobgen.targets import template
from jobgen.targets.words import NAMES, Shell, Unquotable, assignment, constant, joined, lines, program, quote, shell

INCOMPLETE = {"trainer_state.json": "checkpoint-is-incomplete.txt"}
"""Marker to the file that says the opposite: transformers writes it during a save on SIGTERM."""
_GLOB = re.compile(r"[A-Za-z0-9_.*?/-]+", re.ASCII)
_MODULE = re.compile(r"^\s*(module|ml)\s")

_NOTHING = Shell("")


class Here(NamedTuple):
    """A here-document, or one quoted word where a here-document would change the text."""

    name: Shell
    open: Shell
    content: Shell
    close: Shell
    here: bool = True
    executable: bool = False


def document(text: str, word: str, origin: str = "", name: Shell = _NOTHING) -> Here:
    """A here-document of text that ends in a newline, under a delimiter that no line of it equals."""
    content, used = text.removesuffix("\n"), {template.unmarked(line) for line in text.split("\n")}
    delimiter, number = word, 1
    while delimiter in used:
        number += 1
        delimiter = f"{word}_{number}"
    return Here(name, constant(f"'{delimiter}'", origin), Shell(content, origin), constant(delimiter, origin))


def file(given: File) -> Here:
    """A shipped file: readable where the text allows it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", given.name, re.ASCII):
        raise Unrenderable(given.origin, f"{given.name!r} is not a file name that every shell and ConfigMap takes",
                           "rename it: letters, digits, `.`, `_`, `+` and `-`")  # fmt: skip
    name = quote(given.name, given.origin)
    try:
        quoted = quote(given.content, given.origin)
    except Unquotable as reason:
        raise Unrenderable(given.origin, f"{given.name} {reason}", "ship text only") from None
    if given.content.endswith("\n") and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", given.content):
        return document(given.content, "END_OF_FILE", given.origin, name)._replace(executable=given.executable)
    return Here(name, Shell(""), quoted, Shell(""), False, given.executable)


def files(job: Job) -> list[Here]:
    """All shipped files."""
    return [file(one) for one in job.files]


class Node(NamedTuple):
    """What a target knows of the shell on a node."""

    identity: dict[RunTime, str]
    """Shell text of each value that is known on the node only."""
    container: bool = False
    checks: tuple[Shell, ...] = ()
    setup: tuple[Shell, ...] = ()
    """The user's set-up lines, in the shell of the program."""
    host_setup: tuple[Shell, ...] = ()
    """The same on the node, where the program is in a container."""
    execute: tuple[Shell, ...] = ()
    carried: tuple[str, ...] = ()
    limit: tuple[Shell, ...] = ()
    signal: str = "USR1"
    """Told ahead of the end."""
    preflight: Shell | None = None
    """What a node that may lock too little memory is told; None: the network needs none."""


def program_text(job: Job, node: Node) -> Shell:
    """The program of every node, marked with the fields that made it."""
    head, resume, tail = _command(job)
    after = [one for one in job.env if one.layer in ("framework", "user") or not job.environment_script]
    before = [one for one in job.env if one not in after]
    return template.fill(
        "shell/program.sh.j2",
        container=node.container,
        defaults=_exports(before) if job.environment_script else [],
        provider=quote(job.environment_script, "resources.fabric") if job.environment_script else None,
        provider_wait=_wait(job),
        chosen=_exports(after),
        checks=node.checks,
        setup=node.setup,
        identity=_identity(job, node),
        python=[*_libraries(job), *_python(job)],
        directory=[_folder(job.working_directory)] if job.working_directory else [],
        words=head,
        resume=resume,
        words_after=tail,
        limit=node.limit,
        preflight=node.preflight,
        survived=constant(node.signal, "slurm.signal") if node.signal != "TERM" else None,
        prepare=[*_sync(job), *lines(job.prepare, "launch.prepare")],
        stage=[
            joined(
                (quote(source, f"launch.stage.{i}.from"), quote(target, f"launch.stage.{i}.to")), f"launch.stage.{i}"
            )
            for i, (source, target) in enumerate(job.stage)
        ],
        finish=lines(job.finish, "launch.finish"),
        host_setup=node.host_setup,
        execute=node.execute,
        carried=[constant(name) for name in node.carried],
    )


def _folder(path: str) -> Shell:
    return quote(path, "launch.working_directory")


def _libraries(job: Job) -> list[Shell]:
    """The fabric's libraries before those that the node or image names."""
    if not job.library_path:
        return []
    folders = quote(":".join(job.library_path)).text
    return [
        constant(f'export LD_LIBRARY_PATH={folders}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"', "resources.fabric")
    ]


def _exports(variables: list[Variable]) -> list[Shell]:
    return [assignment(one.name, one.value) for one in variables]


def _wait(job: Job) -> list[Shell]:
    if not job.environment_wait:
        return []
    path = quote(job.environment_wait, "resources.fabric").text
    return [constant(f"until [ -e {path} ]; do sleep 1; done", "resources.fabric")]


def _command(job: Job) -> tuple[list[Shell], list[Shell], list[Shell]]:
    """The command up to the resume arguments, these, and what follows them."""
    words, resume = program(job.command.words), [shell(one) for one in job.resume.arguments]
    at = job.command.resume_at
    if at is None or not resume:
        return _paired(words), resume, []
    return _paired(words[:at]), resume, _paired(words[at:])


def _paired(words: Sequence[Shell]) -> list[Shell]:
    """Lines of a command: an option and its value share one."""
    found = list[Shell]()
    for one in words:
        last = found[-1] if found else None
        alone = last is None or " " in last.text or not last.text.startswith("-") or "=" in last.text
        if last is None or alone or one.text.startswith("-") or one.origin != last.origin:
            found.append(one)
        else:
            found[-1] = joined((last, one), last.origin)
    return found


def used(job: Job) -> set[RunTime]:
    """Run-time values that the command or a variable holds."""
    words: list[Word] = [*job.command.words, *job.resume.arguments, *(one.value for one in job.env)]
    return {part for one in words for part in one.parts if isinstance(part, RunTime)}


def _identity(job: Job, node: Node) -> list[Shell]:
    wanted = used(job)
    return [
        constant(f"{NAMES[value]}={text}", "resources.nodes")
        for value, text in node.identity.items()
        if value in wanted
    ]


def setup(job: Job) -> tuple[Shell, ...]:
    """The user's set-up lines; ``module`` is defined first where the shell is not a login shell."""
    if not job.setup:
        return ()
    found = lines(job.setup, "launch.setup")
    if not any(_MODULE.match(line) for text in job.setup for line in text.split("\n")):
        return found
    places = "/etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash"
    return (
        constant("if ! type module >/dev/null 2>&1; then", "launch.setup"),
        constant(f"  for place in {places}; do", "launch.setup"),
        constant("    # shellcheck disable=SC1090", "launch.setup"),
        constant('    if [ -r "$place" ]; then . "$place"; break; fi', "launch.setup"),
        constant("  done", "launch.setup"),
        constant("fi", "launch.setup"),
        *found,
    )


def _python(job: Job) -> list[Shell]:
    """The user's environment, entered without its activation script where a PATH is all that it sets."""
    value = quote(job.python.value, "launch.python").text
    origin = "launch.python"
    match job.python.kind:
        case "venv":
            return [
                constant(f"export VIRTUAL_ENV={value}", origin),
                constant('export PATH="$VIRTUAL_ENV/bin:$PATH"', origin),
                *_present(),
            ]
        case "uv":
            return [
                constant(f"export VIRTUAL_ENV={absolute(job.python.value, origin).text}/.venv", origin),
                constant('export PATH="$VIRTUAL_ENV/bin:$PATH"', origin),
            ]  # fmt: skip
        case "conda":
            return [
                constant('conda_base=${CONDA_EXE:+"${CONDA_EXE%/bin/conda}"}', origin),
                constant('conda_base=${conda_base:-$(conda info --base)}', origin),
                constant("# shellcheck disable=SC1091", origin),
                constant('. "$conda_base/etc/profile.d/conda.sh"', origin),
                constant(f"conda activate {value}", origin),
            ]  # fmt: skip
    return []


def _present() -> list[Shell]:
    message = 'echo "no Python in $VIRTUAL_ENV (launch.python.venv) on $HOSTNAME" >&2; exit 1'
    return [constant(f'if [ ! -x "$VIRTUAL_ENV/bin/python" ]; then {message}; fi', "launch.python")]


def _sync(job: Job) -> list[Shell]:
    """A uv project is made ready once, not by every node at the same time."""
    if job.python.kind != "uv":
        return []
    return [constant(f"uv sync --frozen --project {quote(job.python.value).text}", "launch.python.uv")]


def note(text: str) -> Shell:
    """One line of a comment."""
    return constant(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", text))


def mount_checks(job: Job) -> tuple[Shell, ...]:
    """Without a container nothing is mounted: the folders must be there; scratch is made."""
    found = list[Shell]()
    for mount in job.mounts:
        target = quote(mount.target).text
        if mount.scratch:
            found.append(constant(f"mkdir -p -- {target}", mount.origin))
        else:
            message = quote(
                f"{mount.target} is not on this node, and only a container mounts volumes ({mount.origin})"
            ).text
            found.append(constant(f"if [ ! -e {target} ]; then echo {message} >&2; exit 1; fi", mount.origin))
    return tuple(found)


MARGIN_SECONDS = 45
"""Of the signal's lead, kept for ending the program and for the requeue itself."""


def signals(lead: int, signal: str = "USR1") -> dict[str, Any]:
    """Values of ``shell/steps.sh.j2``: how the program is told, how often, and how long it may take to save and leave."""
    patience = max(1, lead - MARGIN_SECONDS, lead // 2)
    return {
        "signal": constant(signal, "slurm.signal"), "by_term": signal == "TERM",
        "patience": patience, "interval": min(10, max(1, patience // 3)), "grace": min(20, max(1, lead // 6)),
    }  # fmt: skip


def prepares(job: Job) -> bool:
    """There is something to do once per attempt."""
    return bool(job.prepare) or job.python.kind == "uv"


def absolute(path: str, origin: str) -> Shell:
    """A folder; a relative one starts where the script does."""
    return (
        quote(path, origin)
        if path.startswith("/")
        else constant(f'"$PWD"/{quote(path.removeprefix("./")).text}', origin)
    )


def checkpoints(job: Job, inside: Shell) -> dict[str, Any]:
    """Values of ``shell/checkpoints.sh.j2`` and the lines that choose where the attempt starts."""
    found = job.resume
    pattern = found.pattern
    if pattern is not None and not _GLOB.fullmatch(pattern):
        raise ValueError(f"{pattern!r} is not a glob of a framework's table")
    origin = "checkpoint.resume"
    interrupted = INCOMPLETE.get(found.complete_marker or "")
    result: dict[str, Any] = {
        "pattern": constant(pattern, origin) if pattern else None,
        "tracker": quote(found.tracker, origin) if found.tracker else None,
        "marker": quote(found.complete_marker, origin) if found.complete_marker else None,
        "interrupted": quote(interrupted, origin) if interrupted else None,
        "quarantine": bool(pattern and found.complete_marker and found.by_framework and not found.tracker),
        "fingerprint": quote(found.fingerprint, origin) if found.mode == "auto" else None,
    }
    newest = f'export JOBGEN_RESUME_FROM={inside.text}/"$started_from"'
    resume = list[Shell]()
    if found.mode == "path" and found.path:
        resume.append(constant(f"JOBGEN_RESUME_FROM={quote(found.path).text}", origin))
        if pattern:  # what this run saved itself is further on, unless the path goes back to something of its own folder
            back = found.path.startswith(f"{(found.directory or '').rstrip('/')}/")
            again = "(( JOBGEN_ATTEMPT > 0 )) && " if back else ""
            resume.append(constant(f'if {again}[ -n "$started_from" ]; then {newest}; fi', origin))
    elif found.mode == "auto" and pattern:
        resume.append(constant(f'if [ -n "$started_from" ]; then {newest}; fi', origin))
    result["resume"] = resume
    return result
