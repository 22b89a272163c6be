"""accelerate launch: its file is always named, so that nobody's cached default takes part, and so is every number that
differs between nodes (``--machine_rank``: without it each node is a world of its own)."""

from __future__ import annotations

from jobgen.launch.job import Command, RunTime, Word, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start, address, only_python


def start(program: Program, ranks: Ranks) -> Start:
    """``accelerate launch --config_file ... --machine_rank "$NODE_RANK" ... train.py ARGS``."""
    only_python(program, "accelerate")
    module = (word("--module", origin="launch.module"),) if program.kind == "module" else ()
    words = (
        word("accelerate", origin=FIELD), word("launch", origin=FIELD), *ranks.launcher_arguments, *machines(ranks),
        *module, program.name, *program.arguments,
    )  # fmt: skip
    return Start(Command(words), rendezvous="standalone" if ranks.nodes == 1 else "static")


def machines(ranks: Ranks) -> tuple[Word, ...]:
    """Which machine this is, also for frameworks that take accelerate's options."""
    rank: str | RunTime = "0" if ranks.nodes == 1 else RunTime.NODE_RANK
    pairs: tuple[tuple[str, str | RunTime, str], ...] = (
        ("--num_machines", str(ranks.nodes), "resources.nodes"),
        ("--num_processes", str(ranks.world), "launch.processes_per_node"),
        ("--machine_rank", rank, FIELD),
        ("--main_process_ip", address(ranks), FIELD),
        ("--main_process_port", RunTime.MASTER_PORT, FIELD),
    )
    kind = (word("--multi_gpu", origin=FIELD),) if ranks.world > 1 and not ranks.launcher_arguments else ()
    return (
        *kind,
        *(one for name, value, origin in pairs for one in (word(name, origin=origin), word(value, origin=origin))),
    )
