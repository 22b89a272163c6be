"""Each launcher's command, on one node and on two, and commands that start the ranks themselves."""

import sys
from pathlib import Path

import pytest

from jobgen.launch.job import RunTime, Unrenderable, word
from jobgen.launch.launchers import Program, Ranks, begin

SCRIPT = Program("script", word("train.py"), (word("--lr"), word("1e-4")))
MODULE = Program("module", word("pkg.train"), (word("--lr"),))


def line(launcher: str, program: Program = SCRIPT, nodes: int = 2, **more: object) -> str:
    """The command with run-time words in angle brackets."""
    started = begin(launcher, program, Ranks(nodes, 8, 8, **more))
    return " ".join("".join(f"<{p.value}>" if isinstance(p, RunTime) else p for p in one.parts) for one in started.command.words)


@pytest.mark.parametrize(("launcher", "nodes", "expected"), [
    ("torchrun", 2, "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=<NODE_RANK> --master-addr=<MASTER_ADDR> --master-port=<MASTER_PORT> --max-restarts=0 train.py --lr 1e-4"),
    ("torchrun", 1, "torchrun --nnodes=1 --nproc-per-node=8 --node-rank=0 --master-addr=127.0.0.1 --master-port=<MASTER_PORT> --max-restarts=0 train.py --lr 1e-4"),
    ("accelerate", 2, "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank <NODE_RANK> --main_process_ip <MASTER_ADDR> --main_process_port <MASTER_PORT> train.py --lr 1e-4"),
    ("accelerate", 1, "accelerate launch --multi_gpu --num_machines 1 --num_processes 8 --machine_rank 0 --main_process_ip 127.0.0.1 --main_process_port <MASTER_PORT> train.py --lr 1e-4"),
    ("deepspeed", 2, "deepspeed --no_ssh --node_rank=<NODE_RANK> --hostfile=<CONFIG_DIR>/hostfile --master_addr=<MASTER_ADDR> --master_port=<MASTER_PORT> train.py --lr 1e-4"),
    ("deepspeed", 1, "deepspeed --num_gpus=8 --master_addr=127.0.0.1 --master_port=<MASTER_PORT> train.py --lr 1e-4"),
    ("srun", 2, "python train.py --lr 1e-4"),
    ("python", 1, "python train.py --lr 1e-4"),
])  # fmt: skip
def test_the_command(launcher, nodes, expected):
    assert line(launcher, nodes=nodes) == expected


@pytest.mark.parametrize(("launcher", "words"), [
    ("torchrun", "-m pkg.train --lr"), ("accelerate", "--module pkg.train --lr"), ("deepspeed", "--module pkg.train --lr"), ("srun", "python -m pkg.train --lr"),
])  # fmt: skip
def test_a_module(launcher, words):
    assert line(launcher, MODULE).endswith(words)


def test_the_hostfile_lists_the_hosts_in_their_order():
    assert begin("deepspeed", SCRIPT, Ranks(2, 8, 8)).files[0].content == "node-0 slots=8\nnode-1 slots=8\n"
    assert begin("deepspeed", SCRIPT, Ranks(2, 4, 8, ("a", "b"))).files[0].content == "a slots=4\nb slots=4\n"
    assert begin("deepspeed", SCRIPT, Ranks(1, 8, 8)).files == ()


def test_options_of_a_torchrun_before_two():
    assert "--nproc_per_node=8 --node_rank=<NODE_RANK>" in line("torchrun", old_torch=True)


def test_srun_sets_what_torch_reads():
    started = begin("srun", SCRIPT, Ranks(2, 8, 8))
    assert started.command.per == "rank"
    assert {one.name: one.value.parts[0] for one in started.env} == {
        "RANK": RunTime.RANK, "LOCAL_RANK": RunTime.LOCAL_RANK, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": RunTime.MASTER_ADDR, "MASTER_PORT": RunTime.MASTER_PORT,
    }  # fmt: skip


def command(*words: str) -> Program:
    return Program("command", word(words[0]), tuple(word(one) for one in words[1:]))


AGENT = "--nnodes=2 --nproc-per-node=8 --node-rank=<NODE_RANK> --master-addr=<MASTER_ADDR> --master-port=<MASTER_PORT> --max-restarts=0"


@pytest.mark.parametrize(("words", "expected"), [
    (("llamafactory-cli", "train", "f.yaml"), "llamafactory-cli train f.yaml"),
    (("axolotl", "train", "f.yaml"), f"axolotl train f.yaml --launcher torchrun -- {AGENT}"),
    (("axolotl", "train", "f.yaml", "--launcher", "python"), "axolotl train f.yaml --launcher python"),
    (("tune", "run", "recipe", "--config", "f.yaml"), f"tune run {AGENT} recipe --config f.yaml"),
    (("/opt/bin/tune", "run", "--nnodes=2", "recipe"), "/opt/bin/tune run --nnodes=2 recipe"),
    (("trl", "sft", "--config", "f"), "trl sft --config f --num_machines 2 --num_processes 16 --machine_rank <NODE_RANK> --main_process_ip <MASTER_ADDR> --main_process_port <MASTER_PORT>"),
])  # fmt: skip
def test_commands_that_start_the_ranks_themselves(words, expected):
    assert line("itself", command(*words)) == expected
    env = {one.name: one.value.parts for one in begin("itself", command(*words), Ranks(2, 8, 8)).env}
    assert env == {"NNODES": ("2",), "NODE_RANK": (RunTime.NODE_RANK,), "NPROC_PER_NODE": ("8",), "MASTER_ADDR": (RunTime.MASTER_ADDR,), "MASTER_PORT": (RunTime.MASTER_PORT,)}  # fmt: skip


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed"])
def test_a_launcher_of_python_programs_takes_no_command(launcher):
    with pytest.raises(Unrenderable, match=r"launch\.command"):
        begin(launcher, command("./run.sh"), Ranks(1, 8, 8))


def test_a_launcher_is_a_module_of_its_own():
    folder = Path(sys.modules["jobgen.launch.launchers"].__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {"torchrun", "accelerate", "deepspeed", "srun", "python", "itself"}
