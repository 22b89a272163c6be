"""The job as every target sees it. A command is made of typed words: literals and values known only at run time.

No shell or YAML is written here: targets quote each word by the one function of their language.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from jobgen.spec.record import NamedTuple


class Unrenderable(Exception):
    """A job that cannot be written down for a target: the field, why, and what to write instead."""

    def __init__(self, path: str, why: str, fix: str) -> None:
        self.path, self.why, self.fix = path, why, fix
        super().__init__(f"{path}: {why}; {fix}")


class RunTime(StrEnum):
    """A value that only the running job knows. Targets say how they get it (a variable, a field reference)."""

    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"
    NODE_RANK = "NODE_RANK"
    JOB_ID = "JOB_ID"
    ATTEMPT = "ATTEMPT"
    """0 for the first start, then one more per requeue or restart."""
    HOST_ADDR = "HOST_ADDR"
    """This node's own address, for rendezvous on hosts with several."""
    CONFIG_DIR = "CONFIG_DIR"
    """The folder in which the job's shipped files lie."""
    RESUME_FROM = "RESUME_FROM"
    """The newest complete checkpoint found at the start of this attempt; empty when there is none."""
    RANK = "RANK"
    """Only where the scheduler starts every rank (``Command.per == "rank"``)."""
    LOCAL_RANK = "LOCAL_RANK"
    """The rank on its node; as RANK."""


class Word(NamedTuple):
    """One argument or value: literal text and run-time values, joined without a gap."""

    parts: tuple[str | RunTime, ...]
    origin: str = ""
    """Path of the spec field that made it."""

    @property
    def literal(self) -> str | None:
        """The text when no part is known only at run time."""
        return "".join(self.parts) if all(type(part) is str for part in self.parts) else None


def word(*parts: str | RunTime, origin: str = "") -> Word:
    """A word of these parts."""
    return Word(parts, origin)


class Variable(NamedTuple):
    """One environment variable of the program."""

    name: str
    value: Word
    layer: Literal["jobgen", "fabric", "framework", "user"] = "jobgen"
    """Who sets it; the user's wins, a provider script's beats fabric defaults."""


class File(NamedTuple):
    """A file shipped with the job, placed in CONFIG_DIR."""

    name: str
    content: str
    origin: str = ""
    executable: bool = False


class Mount(NamedTuple):
    """Something mounted at ``target`` inside the job."""

    target: str
    source: str | None = None
    """Host path; None for a claim or scratch."""
    claim: str | None = None
    create_size_bytes: int | None = None
    """Set when jobgen makes the claim."""
    storage_class: str | None = None
    access_mode: str = "ReadWriteMany"
    scratch: bool = False
    read_only: bool = False
    origin: str = ""


class Command(NamedTuple):
    """What runs on every node (or once per rank for the srun launcher)."""

    words: tuple[Word, ...]
    per: Literal["node", "rank"] = "node"
    """node: the launcher starts the ranks of its node; rank: the scheduler starts one process per rank."""
    resume_at: int | None = None
    """Where ``Resume.arguments`` go among the words; None: at the end."""


class Resume(NamedTuple):
    """How an attempt finds its checkpoint."""

    mode: Literal["auto", "never", "path"]
    path: str | None
    directory: str | None
    pattern: str | None
    """Glob of one checkpoint below the directory (``checkpoint-*``), the framework's layout."""
    complete_marker: str | None
    """File inside a checkpoint that is written last; a folder without it is half-written."""
    fingerprint: str
    """Digest of model and batch: a directory of another run is refused."""
    by_framework: bool
    """The framework finds the newest checkpoint itself."""
    tracker: str | None = None
    """File in the directory that names the newest complete one (``latest``)."""
    arguments: tuple[Word, ...] = ()
    """Words added to the command when an attempt has a checkpoint to start from."""


class Python(NamedTuple):
    """The Python environment to enter."""

    kind: Literal["none", "venv", "conda", "uv"]
    value: str = ""


class Job(NamedTuple):
    """Everything a target needs, and nothing that only one scheduler knows (those stay in the spec)."""

    name: str
    nodes: int
    processes_per_node: int
    gpus_per_node: int
    gpu_name: str
    cpus_per_node: int | None
    memory_per_node_bytes: int | None
    exclusive: bool
    command: Command
    env: tuple[Variable, ...]
    secrets: tuple[str, ...]
    files: tuple[File, ...]
    mounts: tuple[Mount, ...]
    image: str | None
    working_directory: str | None
    python: Python
    setup: tuple[str, ...]
    prepare: tuple[str, ...]
    stage: tuple[tuple[str, str], ...]
    finish: tuple[str, ...]
    time_limit_seconds: int | None
    restarts: int
    resume: Resume
    directories: tuple[str, ...]
    """Folders made once before the launch (the run and log folders)."""
    fabric: str | None
    checkpoint_seconds: float
    """Time one save takes at the storage's bandwidth: grace periods and signal leads must be longer."""
    single_node: bool
    launcher: str
    framework: str
    rendezvous: Literal["standalone", "static", "c10d", "none"] = "static"
    port_base: int = 20000
    hosts: tuple[str, ...] = ()
    """Addresses of bare machines, first is the master (target hosts)."""
    only_node: int | None = None
    """Target hosts: start this node only."""
    rdma: bool = False
    """The network's adapters read and write the memory of the processes, which must be locked for that (Slurm)."""
    environment_script: str = ""
    """The fabric provider's script, sourced after the fabric's variables and before the user's."""
    environment_wait: str = ""
    """A file that the provider's installer writes when the script may be sourced."""
    library_path: tuple[str, ...] = ()
    """Folders put in front of LD_LIBRARY_PATH, which the node or image has set already (Slurm)."""
    fabric_mounts: tuple[Mount, ...] = ()
    """Host folders that the fabric needs inside the container (Slurm)."""
    base: str = ""
    """The spec's folder on the machine that renders: where relative paths start on this machine."""
    notes: tuple[str, ...] = ()
    """What a person should know about the job; targets print them as comments."""
