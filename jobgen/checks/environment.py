"""Variables of the program: those that nobody reads, that mislead NCCL and torch, and that the launcher owns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobgen.catalog import fabrics
from jobgen.checks.case import Case
from jobgen.checks.registry import Example, Outcome, rule
from jobgen.effective.options import switch
from jobgen.launch.environment import device_connections

NCCL = "NVIDIA/nccl@5067397c docs/userguide/source/env.rst"
DEAD: Mapping[str, str] = {
    "NCCL_TIMEOUT": "NCCL has no such variable; the timeout is the framework's (ddp_timeout, --distributed-timeout-minutes)",
    "NCCL_IB_CUDA_SUPPORT": "removed in NCCL 2.4; GPUDirect is on where it works",
    "NCCL_LL_THRESHOLD": "removed; NCCL tunes protocols itself",
    "NCCL_TREE_THRESHOLD": "removed in NCCL 2.5",
    "NCCL_SINGLE_RING_THRESHOLD": "removed in NCCL 2.3",
    "NCCL_CHECKS_DISABLE": "deprecated since NCCL 2.2.12",
    "NCCL_LAUNCH_MODE": "obsolete",
}
"""Variables without effect."""
RESERVED = re.compile(r"PET_.*|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|NODE_RANK|NNODES|NPROC_PER_NODE|JOBGEN_.*")
DEBUGGING: Mapping[str, tuple[frozenset[str], str]] = {
    "TORCH_DISTRIBUTED_DEBUG": (frozenset(("DETAIL",)), "checks every collective for consistency, which slows all of them"),
    "CUDA_LAUNCH_BLOCKING": (frozenset(("1",)), "makes every kernel wait, so that nothing overlaps"),
    "NCCL_DEBUG": (frozenset(("TRACE",)), "logs every call"),
    "TORCH_NCCL_BLOCKING_WAIT": (frozenset(("1",)), "blocks the program in each collective"),
    "NCCL_BLOCKING_WAIT": (frozenset(("1",)), "blocks the program in each collective"),
    "NCCL_P2P_DISABLE": (frozenset(("1",)), "sends through host memory between GPUs that NVLink or PCIe joins"),
    "NCCL_SHM_DISABLE": (frozenset(("1",)), "hides a small /dev/shm behind slow sockets"),
}  # fmt: skip
CLEARED = re.compile(r"(?:ACCELERATE|TORCHELASTIC|SLURM|SLURMD|SBATCH|SRUN|PMIX?|SQUEUE|SACCT|SCANCEL|SCONTROL)_.*|OMP_NUM_THREADS")
"""Names that no submitting shell hands on: jobgen's submit or the head of the script takes them away."""
TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|xox[baprs]-[A-Za-z0-9-]{10,}|nvapi-[A-Za-z0-9_-]{20,}|glpat-[A-Za-z0-9_-]{20,}")
SECRET = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)(?:_ID)?$")


def _remove(name: str) -> dict[str, object]:
    return {f"launch.env.{name}": None}


@rule(
    "JG710", "warning", "init", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"NCCL_TIMEOUT": "1800", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="remove it; a timeout is the framework's option",
    sources=(NCCL,),
)  # fmt: skip
def dead_variable(case: Case) -> list[Outcome]:
    """A variable that nobody reads

    It is copied from script to script and changes nothing.
    """
    return [
        Outcome(f"launch.env.{name}", f"{name} has no effect: {DEAD[name]}", f"remove {name}", _remove(name))
        for name in case.spec.launch.env if name in DEAD
    ]  # fmt: skip


@rule(
    "JG711", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"NCCL_IB_DISABLE": "1", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="leave it to the fabric's profile",
    sources=("the fabric's profile (jobgen.catalog.fabrics), which names its sources", NCCL),
)  # fmt: skip
def against_the_fabric(case: Case) -> list[Outcome]:
    """A variable works against the fabric

    The fabric's profile lists what its plug-in or provider sets, and what would switch it off: NCCL then falls back to
    TCP without a word, or a copied value breaks another version.
    """
    spec = case.spec
    found: list[Outcome] = []
    if not spec.launch.env or spec.resources.fabric is None or case.layout.nodes == 1:
        return found
    try:
        fabric = fabrics.find(spec.resources.fabric)
    except (fabrics.UnknownFabric, fabrics.BadFabric):
        return found
    for setting in fabric.unset:
        value = spec.launch.env.get(setting.name)
        if value is None or (setting.name == "NCCL_IB_DISABLE" and switch(value) is False):
            continue
        if setting.name in ("NCCL_NET_PLUGIN",) and value.lower() != "none" and fabric.name == "efa":
            continue
        if setting.name == "GLOO_SOCKET_IFNAME":
            continue
        found.append(Outcome(f"launch.env.{setting.name}", f"{setting.name}: {value} with fabric: {fabric.name}: {setting.why}",
                             f"remove {setting.name}", _remove(setting.name)))  # fmt: skip
    return found


@rule(
    "JG712", "warning", "init", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"NCCL_SOCKET_IFNAME": "^lo", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"NCCL_SOCKET_IFNAME": "^docker,lo,veth", "OMP_NUM_THREADS": "12"}}),
    fix="^docker,lo,veth, one interface, or nothing",
    sources=("horovod PR#700 (NCCL's author)", "NVIDIA/nccl#913, #286", NCCL),
)  # fmt: skip
def half_an_exclusion(case: Case) -> Outcome | None:
    """An exclusion admits what NCCL leaves out by itself

    Setting NCCL_SOCKET_IFNAME turns its default filter off: ^lo admits docker0, and ^docker0 admits lo. Ranks then hang
    in the bootstrap.
    """
    value = case.spec.launch.env.get("NCCL_SOCKET_IFNAME")
    if value is None or not value.startswith("^"):
        return None
    names = [name.strip() for name in value[1:].lstrip("=").split(",") if name.strip()]
    missing = [kind for kind in ("lo", "docker") if not any(name.startswith(kind) or kind.startswith(name) for name in names)]
    if not missing:
        return None
    path = "launch.env.NCCL_SOCKET_IFNAME"
    return Outcome(path, f"NCCL_SOCKET_IFNAME: {value} admits {' and '.join(missing)}", "write ^docker,lo,veth", {path: "^docker,lo,veth"})


@rule(
    "JG713", "error", "init", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"GLOO_SOCKET_IFNAME": "^lo", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"GLOO_SOCKET_IFNAME": "eno1", "OMP_NUM_THREADS": "12"}}),
    fix="the name of one interface",
    sources=("aws-samples/aws-do-eks PR#51", "pytorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"),
)  # fmt: skip
def gloo_interface(case: Case) -> Outcome | None:
    """Gloo takes the name of an interface, not NCCL's patterns

    "Unable to find address for: ^lo". Several names mean several devices, all of which must exist.
    """
    value = case.spec.launch.env.get("GLOO_SOCKET_IFNAME")
    if value is None or re.fullmatch(r"[A-Za-z0-9_.:@-]+(?:,[A-Za-z0-9_.:@-]+)*", value):
        return None
    return Outcome("launch.env.GLOO_SOCKET_IFNAME", f"GLOO_SOCKET_IFNAME: {value} is not the name of an interface", "write one name such as eth0",
                   _remove("GLOO_SOCKET_IFNAME"))  # fmt: skip


@rule(
    "JG714", "error", "init", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="remove it: the launcher and the target set it on every node",
    sources=("torch distributed/run.py", "kubeflow/trainer pkg/controller.v1/pytorch/envvar.go", "measured: MASTER_ADDR=localhost hangs on two nodes"),
    because=("JG791",),
)  # fmt: skip
def launchers_own(case: Case) -> list[Outcome]:
    """A variable that the launcher sets

    Ranks, world size and the master's address differ between nodes or are known only to the running job; a constant makes
    each node a world of its own, or breaks the rendezvous. A secret of such a name comes from the submitting shell, whose
    variables of that kind are taken away before the program starts.
    """
    launch = case.spec.launch
    found = [
        Outcome(f"launch.env.{name}", f"{name} is set by the launcher on every node", f"remove {name}", _remove(name))
        for name in launch.env if RESERVED.fullmatch(name)
    ]  # fmt: skip
    pods = case.target in ("k8s", "trainjob", "jobset")
    for index, name in enumerate(launch.secrets):
        if RESERVED.fullmatch(name) or (not pods and CLEARED.fullmatch(name)):
            others = [one for one in launch.secrets if one != name]
            found.append(Outcome(f"launch.secrets.{index}", f"the secret {name} would not arrive: jobgen, Slurm and launchers clear or set variables of that name",
                                 "give the secret another name", {"launch.secrets": others}))  # fmt: skip
    return found


@rule(
    "JG715", "warning", "end", "spec",
    bad=Example("full-32b-zero3", {"launch.env": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "12"}}),
    good=Example("full-32b-zero3", {"launch.env": {"OMP_NUM_THREADS": "12"}}),
    fix="remove it (the default is 3)",
    sources=("pytorch#121055", "torchtitan distributed/utils.py sets 3"),
)  # fmt: skip
def old_error_handling(case: Case) -> list[Outcome]:
    """Error handling of old torch releases

    1 aborts communicators from the watchdog, which collides with the flight recorder's dump: the trace that would tell
    which rank hung is lost. The default 3 leaves the clean-up to the end of the process.
    """
    env = case.spec.launch.env
    names = [name for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING") if env.get(name) in ("1", "2")]
    return [Outcome(f"launch.env.{name}", f"{name}: {env[name]} loses the dump of a hang; the default is 3", f"remove {name}", _remove(name)) for name in names]


@rule(
    "JG716", "error", "init", "spec",
    bad=Example("pretrain-70b-megatron", {"launch.env": {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}}),
    good=Example("pretrain-70b-megatron", {}),
    fix="CUDA_DEVICE_MAX_CONNECTIONS: \"1\" with tensor or context parallelism before Blackwell; unset with FSDP",
    sources=("Megatron-LM@d98e8a64 megatron/training/arguments.py:1048,1166,1453-1479",),
    facts=("PD19",),
)  # fmt: skip
def device_connection_count(case: Case) -> Outcome | None:
    """CUDA_DEVICE_MAX_CONNECTIONS contradicts Megatron

    It asserts 1 where tensor or context parallelism overlaps communication on GPUs before Blackwell, and refuses 1 with
    FSDP.
    """
    spec = case.spec
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    value, needed = spec.launch.env.get(name), device_connections(case.effective)
    if value is None or (spec.training.framework not in ("megatron-lm", "nemo") and spec.training.backend != "megatron"):
        return None
    path = f"launch.env.{name}"
    if needed == "1" and value != "1":
        return Outcome(path, f"{name}: {value}; Megatron asserts 1 with tensor ({case.layout.tensor}) and context ({case.layout.context})", 'write "1"', {path: "1"})
    if spec.parallelism.sharding in ("fsdp1", "fsdp2") and value == "1":
        return Outcome(path, f"{name}: 1 with FSDP, which Megatron refuses", f"remove {name}", {path: None})
    return None


@rule(
    "JG717", "warning", "end", "spec",
    bad=Example("full-8b-fsdp2", {"launch.env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}),
    good=Example("full-8b-fsdp2", {}),
    fix="remove it",
    sources=("Megatron-LM README; CUDA programming guide: one hardware queue for all streams",),
)  # fmt: skip
def one_queue(case: Case) -> Outcome | None:
    """One hardware queue keeps FSDP and ZeRO from overlapping

    CUDA_DEVICE_MAX_CONNECTIONS: 1 is Megatron's; elsewhere gathers wait behind the computation that they should run beside.
    """
    spec = case.spec
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if spec.launch.env.get(name) != "1" or spec.training.framework in ("megatron-lm", "megatron-deepspeed", "nemo", "verl"):
        return None
    if spec.training.backend == "megatron" or spec.parallelism.sharding not in ("fsdp1", "fsdp2", "zero3") or case.layout.tensor > 1:
        return None
    return Outcome(f"launch.env.{name}", f"{name}: 1 serialises communication and computation of {spec.parallelism.sharding}", f"remove {name}", _remove(name))


@rule(
    "JG718", "warning", "end", "spec",
    bad=Example("full-8b-fsdp2", {"launch.env": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}),
    good=Example("full-8b-fsdp2", {"launch.env": {"TORCH_DISTRIBUTED_DEBUG": "INFO"}}),
    fix="remove it once the fault is found",
    sources=(NCCL, "torch distributed documentation"),
)  # fmt: skip
def left_from_debugging(case: Case) -> list[Outcome]:
    """A debugging variable is left on

    It makes the whole run slower, or floods the log that it was to explain.
    """
    env = case.spec.launch.env
    return [
        Outcome(f"launch.env.{name}", f"{name}: {env[name]} {why}", f"remove {name}", _remove(name))
        for name, (values, why) in DEBUGGING.items() if env.get(name, "").upper() in values
    ]  # fmt: skip


@rule(
    "JG719", "error", "read", "spec",
    bad=Example("full-8b-fsdp2", {"launch.env": {"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"}}),
    good=Example("full-8b-fsdp2", {"launch.secrets": ["WANDB_API_KEY"]}),
    fix="launch.secrets: [NAME]: the value comes from a Secret or the submitter's environment",
    sources=("awslabs/awsome-distributed-ai: HF_TOKEN in clear text in 11 of 35 manifests (survey)",),
)  # fmt: skip
def secret_written_down(case: Case) -> list[Outcome]:
    """A secret is written down

    Scripts and manifests are stored, shown and accounted (sacct keeps them); a value in the spec reaches all of them.
    """
    spec = case.spec
    found: list[Outcome] = []
    for name, value in spec.launch.env.items():
        shaped = TOKEN.search(value) is not None
        if shaped or (SECRET.search(name) and len(value) >= 16 and "/" not in value and " " not in value and "$" not in value):
            edits: dict[str, object] = {f"launch.env.{name}": None}
            if name not in spec.launch.secrets:
                edits["launch.secrets"] = [*spec.launch.secrets, name]
            found.append(Outcome(f"launch.env.{name}", f"the value of {name} looks like a secret", f"write launch.secrets: [{name}]", edits))
    for index, word in enumerate(spec.launch.args):
        if TOKEN.search(word):
            found.append(Outcome(f"launch.args.{index}", "an argument looks like a secret", "pass it as a variable of launch.secrets"))
    for key, value in spec.training.options.items():
        if isinstance(value, str) and TOKEN.search(value):
            found.append(Outcome(f"training.options.{key}", f"{key} looks like a secret", "remove it; write launch.secrets: [HF_TOKEN]"))
    return found
