"""The shape of one framework's knowledge. One table each; writers, readers, effects, checks and docs all read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Version = tuple[int, ...]


class Codec(NamedTuple):
    """Spec value to framework value and back; ``decode(encode(x)) == x``."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


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
    file: Literal["yaml", "json", "toml", "cli", "env", "deepspeed", "accelerate"] = "yaml"
    note: str = ""
    source: str = ""


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
    """Default command ({config} stands for its file); empty when an entry point must be given."""
    sharding: frozenset[str]
    """Sharding kinds it can do."""
    attention: str
    """Default attention kernel."""
    options: tuple[Option, ...]
    checkpoint: CheckpointLayout
    config_format: Literal["yaml", "json", "toml", "cli", "none"] = "none"
    trainer: Literal["hf", "own"] = "own"
    """hf: a transformers Trainer inside, with its dtype and loss behaviour."""
    sequence_parallel_default: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that it needs (``FORCE_TORCHRUN=1``)."""
    source: str = ""
