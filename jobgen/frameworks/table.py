"""The shape of one framework's knowledge. One table each; writers, readers, effects, checks and docs all read it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any, Literal

from jobgen.spec.record import NamedTuple

Version = tuple[int, ...]
Known = tuple[Version, Version]
"""What is known of a library's version: ``low <= v < high`` (``effective.versions.Interval`` is one)."""


class Slot(StrEnum):
    """A value that only the running job knows. The names are those of ``launch.job.RunTime``: ``RunTime(slot.value)``."""

    CONFIG_DIR = "CONFIG_DIR"
    RESUME_FROM = "RESUME_FROM"
    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"
    NODE_RANK = "NODE_RANK"
    HOST_ADDR = "HOST_ADDR"


Text = tuple[str | Slot, ...]
"""One argument or value: literal parts and slots, joined without a gap."""


class Nothing(Enum):
    """Answers of a codec that are no value."""

    ABSENT = "absent"
    """From ``encode``: the key is not written."""
    UNDECIDED = "undecided"
    """From ``decode``: this key alone does not say which spec value it was."""


class Codec(NamedTuple):
    """Spec value to framework value and back; ``decode(encode(x)) == x`` for every x in ``values``."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    values: tuple[Any, ...] | None = None
    """Spec values that this key alone can tell apart; None: all that the field allows."""


class Option(NamedTuple):
    """One framework key that a spec field owns."""

    field: str
    """Spec path: ``training.micro_batch_size``."""
    key: str
    """The framework's name; dots for nested keys (``zero_optimization.stage``)."""
    codec: Codec
    since: Version = ()
    until: Version | None = None
    """First version without it; None: still there."""
    default: Any = None
    """The framework's own default."""
    file: Literal["yaml", "json", "toml", "cli", "env", "deepspeed", "accelerate", "python"] = "yaml"
    note: str = ""
    source: str = ""
    library: str = ""
    """PyPI name of the library whose versions ``since`` and ``until`` are; '': the framework's own."""
    group: str = ""
    """Rows of one group are names or meanings of one thing over time: only one of them is written."""
    objectives: frozenset[str] = frozenset()
    """Objectives in which the key exists; empty: all."""
    written: bool = True
    """False: owned and read, but what the framework's writer makes of it needs more than this row (several fields,
    another file)."""


class CheckpointLayout(NamedTuple):
    """How checkpoints look on disk."""

    pattern: str | None
    """Glob of one checkpoint below the directory (``checkpoint-*``)."""
    marker: str | None
    """File inside a checkpoint that is written last (``trainer_state.json``)."""
    tracker: str | None = None
    """File in the directory that names the newest complete one (``latest``)."""
    resumes_itself: bool = False
    """The framework resumes from the newest without being told."""


class Framework(NamedTuple):
    """What a framework is, before any spec."""

    name: str
    library: str
    """PyPI name, under which ``training.versions`` names it ('' for custom)."""
    launcher: Literal["torchrun", "accelerate", "deepspeed", "srun", "python"]
    """The default launcher."""
    starts_torchrun: bool
    """Its own command starts the ranks of a node."""
    command: tuple[str, ...]
    """Default command ({config} stands for its file); empty when an entry point must be given. Unless the framework
    starts the ranks itself it is what follows the launcher: a script, or ``-m`` and a module."""
    sharding: frozenset[str]
    """Sharding kinds it can do."""
    attention: str
    """Default attention kernel."""
    options: tuple[Option, ...]
    checkpoint: CheckpointLayout
    config_format: Literal["yaml", "json", "toml", "cli", "none"] = "none"
    """The format of its own configuration; none: it is configured in Python only and jobgen writes nothing."""
    trainer: Literal["hf", "own"] = "own"
    """hf: a transformers Trainer inside, with its dtype and loss behaviour."""
    sequence_parallel_default: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that it needs (``FORCE_TORCHRUN=1``)."""
    source: str = ""
    config_file: str = ""
    """Name of its file among those shipped with the job ('' without one)."""
