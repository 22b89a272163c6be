"""srun: the scheduler starts every rank; the variables that torch reads are set in each task's shell."""

from __future__ import annotations

from jobgen.launch.job import Command, RunTime, Variable, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start, address


def start(program: Program, ranks: Ranks) -> Start:
    """``python train.py ARGS``, once per rank."""
    values: tuple[tuple[str, str | RunTime], ...] = (
        ("RANK", RunTime.RANK),
        ("LOCAL_RANK", RunTime.LOCAL_RANK),
        ("WORLD_SIZE", str(ranks.world)),
        ("LOCAL_WORLD_SIZE", str(ranks.per_node)),
        ("MASTER_ADDR", address(ranks)),
        ("MASTER_PORT", RunTime.MASTER_PORT),
    )
    env = tuple(Variable(name, word(value, origin=FIELD)) for name, value in values)
    return Start(Command(program.python, per="rank"), env, rendezvous="standalone" if ranks.nodes == 1 else "static")
