"""The deepspeed launcher: started on every node without ssh or pdsh, with a hostfile that lists the nodes in the order of
their ranks (with ``--no_ssh`` it only counts them, so the names need not resolve)."""

from __future__ import annotations

from jobgen.launch.job import Command, File, RunTime, Word, word
from jobgen.launch.launchers import FIELD, Program, Ranks, Start, address, only_python, option

HOSTFILE = "hostfile"


def start(program: Program, ranks: Ranks) -> Start:
    """``deepspeed --no_ssh --node_rank="$NODE_RANK" --hostfile=... train.py ARGS``."""
    only_python(program, "deepspeed")
    module = (word("--module", origin="launch.module"),) if program.kind == "module" else ()
    files: tuple[File, ...] = ()
    where: tuple[Word, ...] = (option("--num_gpus", ranks.per_node, origin="launch.processes_per_node"),)
    if ranks.nodes > 1:
        names = ranks.hosts or tuple(f"node-{index}" for index in range(ranks.nodes))
        files = (File(HOSTFILE, "".join(f"{name} slots={ranks.per_node}\n" for name in names), FIELD),)
        where = (
            word("--no_ssh", origin=FIELD),
            option("--node_rank", RunTime.NODE_RANK),
            option("--hostfile", RunTime.CONFIG_DIR, f"/{HOSTFILE}"),
        )
    master = (option("--master_addr", address(ranks)), option("--master_port", RunTime.MASTER_PORT))
    words = (word("deepspeed", origin=FIELD), *where, *master, *module, program.name, *program.arguments)
    return Start(Command(words), files=files, rendezvous="standalone" if ranks.nodes == 1 else "static")
