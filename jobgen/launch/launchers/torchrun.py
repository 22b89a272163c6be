"""torchrun: one agent per node with a fixed rank and a fixed master, so that rank 0 is where everyone expects it.

One node uses the same form on 127.0.0.1: the port is the job's, where ``--standalone`` of torch before 2.1 would share
29400 with any other job of the machine.
"""

from __future__ import annotations

from jobgen.launch.job import Command, RunTime, Word, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start, address, only_python, option


def start(program: Program, ranks: Ranks) -> Start:
    """``torchrun --nnodes=2 --node-rank="$NODE_RANK" ... train.py ARGS``."""
    only_python(program, "torchrun")
    module = (word("-m", origin="launch.module"),) if program.kind == "module" else ()
    words = (word("torchrun", origin=FIELD), *agent(ranks), *module, program.name, *program.arguments)
    return Start(Command(words), rendezvous="standalone" if ranks.nodes == 1 else "static")


def agent(ranks: Ranks) -> tuple[Word, ...]:
    """The agent's own options, also for frameworks that take torchrun's."""
    options: tuple[tuple[str, str | int | RunTime, str], ...] = (
        ("--nnodes", ranks.nodes, "resources.nodes"),
        ("--nproc-per-node", ranks.per_node, "launch.processes_per_node"),
        ("--node-rank", 0 if ranks.nodes == 1 else RunTime.NODE_RANK, FIELD),
        ("--master-addr", address(ranks), FIELD),
        ("--master-port", RunTime.MASTER_PORT, FIELD),
        ("--max-restarts", 0, "launch.restarts"),
    )
    return tuple(
        option(name if not ranks.old_torch else f"--{name[2:].replace('-', '_')}", value, origin=origin)
        for name, value, origin in options
    )
