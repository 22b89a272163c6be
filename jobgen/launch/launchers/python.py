"""python: one process per node that sees all of its GPUs (device_map, a program that spawns its own ranks)."""

from __future__ import annotations

from jobgen.launch.job import Command, RunTime, Variable, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start


def start(program: Program, ranks: Ranks) -> Start:
    """``python train.py ARGS``; a program that spans nodes is told where it is."""
    if ranks.nodes == 1:
        return Start(Command(program.python), rendezvous="none")
    values: tuple[tuple[str, str | RunTime], ...] = (
        ("NNODES", str(ranks.nodes)),
        ("NODE_RANK", RunTime.NODE_RANK),
        ("MASTER_ADDR", RunTime.MASTER_ADDR),
        ("MASTER_PORT", RunTime.MASTER_PORT),
    )
    env = tuple(Variable(name, word(value, origin=FIELD)) for name, value in values)
    return Start(Command(program.python), env, rendezvous="none")
