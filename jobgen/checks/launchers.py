"""Launchers: who starts the ranks, and commands written by hand that start too few or a world of their own."""

from __future__ import annotations

from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule

ZERO = ("zero1", "zero2", "zero3")
FSDP = ("fsdp1", "fsdp2")
OWN_RANKS = frozenset(("unsloth", "fsdp-qlora", "verl"))
"""Frameworks whose one process may see all GPUs: it spawns ranks, lays layers over them or starts a cluster."""
AGENTS = ("torchrun", "accelerate", "deepspeed")


def launcher(case: Case) -> str:
    """What starts the ranks."""
    return case.spec.launch.launcher or case.framework.launcher


def by_hand(case: Case) -> tuple[str, tuple[str, ...]]:
    """The launcher inside ``launch.command`` and its words; empty where there is none."""
    words = tuple(case.spec.launch.command or ())
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in AGENTS and not (name == "accelerate" and words[index + 1 : index + 2] != ("launch",)):
            return name, words[index:]
        if word == "torch.distributed.run":
            return "torchrun", words[index:]
    return "", ()


def _has(words: tuple[str, ...], *names: str) -> bool:
    """One of these options is among the words, with dashes or underscores."""
    plain = {word.split("=")[0].replace("_", "-") for word in words}
    return any(name in plain for name in names)


@rule(
    "JG741", "warning", "end", "spec",
    bad=Example("lora-8b-ddp", {"launch.launcher": "python"}),
    good=Example("lora-8b-ddp", {}),
    fix="launch.launcher: torchrun, accelerate or deepspeed",
    sources=("kubeflow/trainer#1872, #1713, #1992", "torch distributed/run.py"),
)  # fmt: skip
def idle_gpus(case: Case) -> Outcome | None:
    """One process and several GPUs

    Plain python starts one rank: unless the program spawns others or lays its layers over the GPUs, all but one idle.
    """
    spec = case.spec
    gpus = spec.resources.gpus_per_node
    if spec.launch.launcher != "python" or gpus == 1 or spec.parallelism.device_map is not None or spec.training.framework in OWN_RANKS:
        return None
    if spec.training.framework in ("llama-factory",):
        return None
    return Outcome("launch.launcher", f"python starts one process on {gpus} GPUs: {gpus - 1} idle unless the program spawns ranks itself",
                   "write launcher: torchrun", {"launch.launcher": "torchrun", "launch.processes_per_node": None})  # fmt: skip


@rule(
    "JG742", "error", "init", "spec",
    bad=Example("full-8b-swift", {"launch.processes_per_node": 2}),
    good=Example("full-8b-swift", {}),
    fix="launch.processes_per_node: as many as GPUs",
    sources=("ms-swift@3602360a swift/utils/env.py:64-76, swift/arguments/sft_args.py:254,289",),
    facts=("LA03",),
)  # fmt: skip
def swift_spreads_the_model(case: Case) -> Outcome | None:
    """ms-swift spreads a model over a rank's GPUs

    With two or more visible GPUs a rank it loads with a device map, which DeepSpeed and FSDP refuse.
    """
    spec = case.spec
    gpus, processes = spec.resources.gpus_per_node, case.layout.processes_per_node
    if spec.training.framework != "ms-swift" or spec.training.backend == "megatron" or gpus // processes < 2:
        return None
    if spec.parallelism.sharding not in (*ZERO, *FSDP) and spec.training.loss != "liger":
        return None
    return Outcome("launch.processes_per_node", f"{gpus} GPUs / {processes} ranks: each rank spreads the model over {gpus // processes} GPUs, "
                   f"which {spec.parallelism.sharding} refuses", f"write processes_per_node: {gpus}", {"launch.processes_per_node": gpus})  # fmt: skip


@rule(
    "JG743", "error", "init", "spec",
    bad=Example("qlora-235b-zero3", {"launch.launcher": "python"}),
    good=Example("qlora-235b-zero3", {}),
    fix="leave launch.launcher unset: llamafactory-cli starts torchrun",
    sources=("LLaMA-Factory@ff6d4d12 src/llamafactory/hparams/parser.py:469-472",),
    facts=("LA04",),
)  # fmt: skip
def llama_factory_alone(case: Case) -> Outcome | None:
    """LLaMA-Factory refuses plain python on several GPUs

    It asks for torchrun, which its own command starts; DeepSpeed needs that even on one GPU (FORCE_TORCHRUN=1, which
    jobgen sets).
    """
    spec = case.spec
    if spec.training.framework != "llama-factory" or spec.parallelism.device_map is not None:
        return None
    forced = spec.launch.env.get("FORCE_TORCHRUN", "1").lower() in ("0", "false", "")
    if spec.launch.launcher != "python" and not forced:
        return None
    if spec.resources.gpus_per_node == 1 and spec.parallelism.sharding not in ZERO:
        return None
    path = "launch.launcher" if spec.launch.launcher == "python" else "launch.env.FORCE_TORCHRUN"
    return Outcome(path, f"LLaMA-Factory on {spec.resources.gpus_per_node} GPUs without torchrun", f"remove {path}", {path: None})


@rule(
    "JG744", "error", "init", "spec",
    bad=Example("full-32b-zero3", {"training.framework": "custom", "launch.command": ["accelerate", "launch", "--num_machines", "2", "train.py"]}),
    good=Example("full-32b-zero3", {"training.framework": "custom", "launch.entrypoint": "train.py", "launch.launcher": "accelerate"}),
    fix="launch.entrypoint with launch.launcher: jobgen gives each node its rank and the master's address",
    sources=("accelerate@16cb6eb8 utils/launch.py:153,216-234", "measured: accelerate without --machine_rank makes one world per node",
             "torch distributed/run.py"),
    facts=("LA05", "LA11"),
)  # fmt: skip
def worlds_of_their_own(case: Case) -> Outcome | None:
    """The command does not tell the nodes apart

    A launcher in launch.command on several nodes needs the node's rank and the master's address, which only the running
    job knows. Without them the nodes wait for each other, or each trains alone.
    """
    spec = case.spec
    name, words = by_hand(case)
    if not name or case.layout.nodes == 1:
        return None
    enough = {
        "torchrun": _has(words, "--node-rank", "--rdzv-endpoint", "--rdzv-backend"),
        "accelerate": _has(words, "--machine-rank", "--rdzv-backend") and _has(words, "--main-process-ip"),
        "deepspeed": True,
    }[name]
    if enough or "PET_NODE_RANK" in spec.launch.env:
        return None
    return Outcome("launch.command", f"{name} on {case.layout.nodes} nodes without a node rank and a master",
                   f"write launch.entrypoint (a script) and launch.launcher: {name} instead of launch.command")  # fmt: skip


@rule(
    "JG745", "error", "init", "spec",
    bad=Example("full-32b-zero3", {"training.framework": "deepspeed", "launch.command": ["deepspeed", "--hostfile", "hosts", "train.py"]}),
    good=Example("full-32b-zero3", {"training.framework": "deepspeed", "launch.entrypoint": "train.py", "launch.launcher": "deepspeed",
                                    "launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="launch.entrypoint with launch.launcher: deepspeed (started on every node without ssh)",
    sources=("DeepSpeed@edaa7221 deepspeed/launcher/multinode_runner.py", "DeepSpeed #1603, #2025, #2679, #1334", "LlamaFactory#6685"),
    facts=("LA06",),
)  # fmt: skip
def deepspeed_by_ssh(case: Case) -> Outcome | None:
    """The deepspeed launcher reaches other nodes by ssh or pdsh

    Compute nodes and pods rarely allow that. With --no_ssh it is started on every node.
    """
    name, words = by_hand(case)
    if name != "deepspeed" or case.layout.nodes == 1 or _has(words, "--no-ssh", "--launcher"):
        return None
    return Outcome("launch.command", f"deepspeed on {case.layout.nodes} nodes without --no_ssh needs ssh or pdsh between them",
                   "write launch.entrypoint (a script) and launch.launcher: deepspeed instead of launch.command")  # fmt: skip


@rule(
    "JG746", "warning", "end", "spec",
    bad=Example("lora-8b-ddp", {"training.framework": "custom", "checkpoint.resume": "never",
                                "launch.command": ["torchrun", "--nproc-per-node=8", "--max-restarts=3", "train.py"]}),
    good=Example("lora-8b-ddp", {"training.framework": "custom", "launch.command": ["torchrun", "--nproc-per-node=8", "--max-restarts=3", "train.py"]}),
    fix="--max-restarts=0, or checkpoint.resume: auto",
    sources=("torch 2.13.0 distributed/run.py:118-139,261",),
    facts=("LA07",),
)  # fmt: skip
def restarts_from_nothing(case: Case) -> Outcome | None:
    """The agent restarts its workers from step 0

    torchrun starts all workers anew after a failure. Without resuming, what was trained is lost in silence.
    """
    name, words = by_hand(case)
    if name != "torchrun" or case.spec.checkpoint.resume != "never":
        return None
    option = next((word.replace("_", "-") for word in words if word.replace("_", "-").startswith("--max-restarts")), "")
    if option in ("", "--max-restarts=0"):
        return None
    return Outcome("launch.command", f"{option} with checkpoint.resume: never", "write --max-restarts=0, or checkpoint.resume: auto",
                   {"checkpoint.resume": "auto"})  # fmt: skip


@rule(
    "JG747", "error", "init", "spec",
    bad=Example("full-8b-fsdp1", {"launch.launcher": "python", "resources.gpus_per_node": 1, "resources.gpu": "h200"}),
    good=Example("full-8b-fsdp1", {}),
    fix="launch.launcher: torchrun, or parallelism.sharding: none",
    sources=("transformers 4.57.6 trainer.py:576",),
    facts=("LA10",),
    because=("JG101",),
)  # fmt: skip
def fsdp_without_ranks(case: Case) -> Outcome | None:
    """FSDP needs a distributed launch

    A Trainer refuses it in a process that no launcher started ("only works in distributed training").
    """
    spec = case.spec
    if spec.training.framework not in ("transformers", "trl") or spec.parallelism.sharding not in FSDP or spec.launch.launcher != "python":
        return None
    return Outcome("launch.launcher", f"{spec.parallelism.sharding} in a process that plain python starts", "write launcher: torchrun",
                   {"launch.launcher": "torchrun"})  # fmt: skip


@rule(
    "JG748", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"launch.launcher": "deepspeed"}),
    good=Example("pretrain-70b-megatron", {"launch.launcher": "srun"}),
    fix="launch.launcher: torchrun",
    sources=("Megatron-LM megatron/training/initialize.py, torchtitan torchtitan/train.py: ranks from torchrun's variables",),
)  # fmt: skip
def foreign_launcher(case: Case) -> Outcome | None:
    """The launcher belongs to another engine

    The deepspeed launcher and accelerate's bring settings that Megatron, torchtitan and torchtune never read; plain
    python gives them no ranks.
    """
    spec = case.spec
    chosen = spec.launch.launcher
    if spec.training.framework not in ("megatron-lm", "torchtitan", "torchtune", "nemo", "litgpt") or chosen not in ("deepspeed", "accelerate", "python"):
        return None
    if chosen == "python" and (spec.resources.gpus_per_node == 1 or spec.training.framework in ("nemo", "litgpt")):
        return None
    return Outcome("launch.launcher", f"{spec.training.framework} is started by torchrun (or srun), not by {chosen}", "write launcher: torchrun",
                   {"launch.launcher": "torchrun"})  # fmt: skip


@rule(
    "JG749", "error", "init", "spec",
    bad=Example("full-8b-fsdp2", {"launch.launcher": "deepspeed"}),
    good=Example("full-8b-fsdp2", {"launch.launcher": "torchrun"}),
    fix="launch.launcher: torchrun or accelerate",
    sources=("DeepSpeed@edaa7221 deepspeed/launcher/launch.py", "accelerate@16cb6eb8 commands/launch.py"),
)  # fmt: skip
def deepspeed_starts_fsdp(case: Case) -> Outcome | None:
    """The deepspeed launcher starts an FSDP job

    transformers and accelerate take its variables for a DeepSpeed run.
    """
    spec = case.spec
    if spec.launch.launcher != "deepspeed" or spec.parallelism.sharding not in FSDP or spec.training.framework == "megatron-lm":
        return None
    return Outcome("launch.launcher", f"launcher: deepspeed with sharding: {spec.parallelism.sharding}", "write launcher: torchrun",
                   {"launch.launcher": "torchrun"})  # fmt: skip


@rule(
    "JG750", "error", "read", "spec",
    bad=Example("full-32b-zero3", {"target": "hosts"}),
    good=Example("full-32b-zero3", {"target": "hosts", "resources.hosts": ["10.0.0.1", "10.0.0.2"]}),
    fix="resources.hosts: the machines' addresses, the master first",
    sources=("jobgen render --target hosts starts each machine by ssh",),
)  # fmt: skip
def no_hosts(case: Case) -> Outcome | None:
    """Target hosts without hosts

    Nothing else says on which machines the job runs.
    """
    if case.target != "hosts" or case.spec.resources.hosts:
        return None
    return Outcome("resources.hosts", f"target hosts, and resources.hosts is empty ({case.spec.resources.nodes} machines)",
                   "write resources.hosts: [10.0.0.1, ...]")  # fmt: skip
