"""What starts the ranks. A launcher is one module here with ``start(program, ranks) -> Start``; a new one is a new file.

None of them knows a scheduler: node ranks and addresses are run-time words.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal

from jobgen.launch.job import Command, File, RunTime, Unrenderable, Variable, Word, word
from jobgen.spec.record import NamedTuple

__all__ = ["Program", "Ranks", "Start", "address", "begin"]

FIELD = "launch.launcher"


class Program(NamedTuple):
    """What is started."""

    kind: Literal["script", "module", "command"]
    name: Word
    """The script or module; of a command its first word."""
    arguments: tuple[Word, ...]
    resume: tuple[Word, ...] = ()
    """Further arguments for an attempt with a checkpoint."""

    @property
    def python(self) -> tuple[Word, ...]:
        """As one process: ``python script ...``, ``python -m module ...`` or the command itself."""
        match self.kind:
            case "script":
                return (word("python", origin=FIELD), self.name, *self.arguments)
            case "module":
                return (word("python", origin=FIELD), word("-m", origin=FIELD), self.name, *self.arguments)
            case "command":
                return (self.name, *self.arguments)


class Ranks(NamedTuple):
    """How many processes, where."""

    nodes: int
    per_node: int
    gpus_per_node: int
    hosts: tuple[str, ...] = ()
    launcher_arguments: tuple[Word, ...] = ()
    """What the framework wants of ``accelerate launch``."""
    old_torch: bool = False
    """torch is known to be below 2.0, whose torchrun has options with ``_`` only."""

    @property
    def world(self) -> int:
        """Processes of the job."""
        return self.nodes * self.per_node


class Start(NamedTuple):
    """What a launcher made of a program."""

    command: Command
    env: tuple[Variable, ...] = ()
    files: tuple[File, ...] = ()
    rendezvous: Literal["standalone", "static", "c10d", "none"] = "static"


def begin(launcher: str, program: Program, ranks: Ranks) -> Start:
    """The command of one launcher."""
    started: Start = import_module(f"jobgen.launch.launchers.{launcher}").start(program, ranks)
    return started


def option(name: str, *value: str | int | RunTime, origin: str = FIELD) -> Word:
    """``--name=value`` as one word."""
    return word(f"{name}=", *(part if isinstance(part, RunTime) else str(part) for part in value), origin=origin)


def address(ranks: Ranks) -> str | RunTime:
    """Where rank 0 listens: this machine when there is no other, whatever its name resolves to."""
    return "127.0.0.1" if ranks.nodes == 1 else RunTime.MASTER_ADDR


def only_python(program: Program, launcher: str) -> None:
    """Refuse a whole command where the launcher starts Python programs."""
    if program.kind == "command":
        raise Unrenderable(
            "launch.command", f"{launcher} starts a Python script or module, not a command",
            "write launch.entrypoint (a script) or launch.module",
        )  # fmt: skip
