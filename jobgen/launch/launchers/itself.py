"""Commands that start the ranks of a node themselves: they are told where they are by variables, and by options where
they know no variables."""

from __future__ import annotations

from jobgen.launch.job import Command, RunTime, Variable, Word, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start, accelerate, address, torchrun


def start(program: Program, ranks: Ranks) -> Start:
    """The command with its form of "two nodes, this is the second"."""
    words = program.python
    values: tuple[tuple[str, str | RunTime], ...] = (
        ("NNODES", str(ranks.nodes)),
        ("NODE_RANK", "0" if ranks.nodes == 1 else RunTime.NODE_RANK),
        ("NPROC_PER_NODE", str(ranks.per_node)),
        ("MASTER_ADDR", address(ranks)),
        ("MASTER_PORT", RunTime.MASTER_PORT),
    )
    env = tuple(Variable(name, word(value, origin=FIELD)) for name, value in values)
    rendezvous = "standalone" if ranks.nodes == 1 else "static"
    at = None
    if not _told(words):
        match _first(words):
            case "axolotl":
                at = len(words)
                words = (*words, *_words("--launcher", "torchrun", "--"), *torchrun.agent(ranks))
            case "tune" if len(words) > 1 and words[1].literal == "run":
                words = (*words[:2], *torchrun.agent(ranks), *words[2:])
            case "trl":
                words = (
                    *words,
                    *accelerate.machines(ranks._replace(launcher_arguments=ranks.launcher_arguments or (word(),))),
                )
    return Start(Command(words, resume_at=at), env, rendezvous="standalone" if rendezvous == "standalone" else "static")


def _words(*texts: str) -> tuple[Word, ...]:
    return tuple(word(text, origin=FIELD) for text in texts)


def _first(words: tuple[Word, ...]) -> str:
    return (words[0].literal or "").rpartition("/")[2]


def _told(words: tuple[Word, ...]) -> bool:
    """The user says it already."""
    names = ("--nnodes", "--launcher", "--num_machines", "--num-machines")
    return any((one.literal or "").split("=")[0] in names for one in words)
