"""One spec as a framework's writer sees it: values by path, and which names its version has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from jobgen.frameworks.formats import at
from jobgen.frameworks.table import Framework, Known, Nothing, Option, Version
from jobgen.spec.layout import Layout, layout
from jobgen.spec.sections import Quantization, Spec

_ANY: Known = ((), (1 << 30,))
_PYTHON_NAMES = {"async": "async_", "from": "from_"}
_SHARDED_BY_DEEPSPEED = ("zero1", "zero2", "zero3")


class View:
    """``view["training.micro_batch_size"]``: the resolved value, else the spec's; None where it does not apply.

    Sections that have no meaning for this job read as None: ``training.lora`` of a full fine-tuning,
    ``training.quantization`` without quantised weights, ``training.rollout`` of objectives that do not generate,
    ``training.data.epochs`` where steps decide.
    """

    def __init__(
        self, spec: Spec, table: Framework, resolved: Mapping[str, Any], versions: Mapping[str, Known]
    ) -> None:
        self.spec, self.table, self._resolved, self._versions = spec, table, resolved, versions
        self._notes: list[str] = []
        self._guessed: dict[str, dict[str, Version]] = {}

    def __getitem__(self, path: str) -> Any:
        if path in self._resolved:
            return self._resolved[path]
        derived = _DERIVED.get(path)
        return derived(self) if derived is not None else self._walk(path)

    def _walk(self, path: str) -> Any:
        node: Any = self.spec
        parts = path.split(".")
        for depth, part in enumerate(parts):
            if depth == 1 and not self._applies(parts[0], part):
                return None
            node = getattr(node, _PYTHON_NAMES.get(part, part), None)
            if depth == 1 and part == "quantization" and node is None:
                node = _NF4
            if node is None:
                return None
        return node

    def _applies(self, section: str, part: str) -> bool:
        training = self.spec.training
        if section != "training":
            return True
        if part == "lora":
            return training.method != "full"
        if part == "quantization":
            return training.method == "qlora" or training.quantization is not None
        if part == "rollout":
            return training.objective in ("grpo", "ppo")
        if part == "reference":
            return training.objective in ("dpo", "kto", "orpo", "grpo", "ppo")
        return True

    @cached_property
    def layout(self) -> Layout:
        """How the ranks are laid out."""
        return layout(self.spec)

    @property
    def counts_epochs(self) -> bool:
        """The user wrote epochs, and the framework counts them: its own data set then says how many steps they are."""
        training = self.spec.training
        asked = training.max_steps is None and training.data is not None and "epochs" in training.data.model_fields_set
        return asked and any(self._meant(row) and row.written and row.field == "training.data.epochs" for row in self.table.options)

    @property
    def launcher(self) -> str:
        """What starts the ranks."""
        return self.spec.launch.launcher or self.table.launcher

    @property
    def engine(self) -> str:
        """Who shards: ``deepspeed``, ``fsdp`` or ``none``."""
        sharding = self.spec.parallelism.sharding
        if sharding in _SHARDED_BY_DEEPSPEED:
            return "deepspeed"
        return "fsdp" if sharding in ("fsdp1", "fsdp2") else "none"

    # Versions -----------------------------------------------------------------------------------------------------

    def interval(self, library: str = "") -> Known:
        """What is known of a library ('': the framework's own)."""
        return self._versions.get(library or self.table.library, _ANY)

    def at_least(self, version: Version, library: str = "") -> bool:
        """Whether names of this release can be written: known to be there, or possible (the newest is assumed)."""
        low, high = self.interval(library)
        if low < version < high:
            self._guessed.setdefault(library or self.table.library, {})[""] = version
        return high > version

    def note(self, text: str) -> None:
        """Something a person should know about what was written."""
        if text not in self._notes:
            self._notes.append(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes; names that depend on an unknown version come as one note for each library."""
        return (*self._notes, *(_guess(library, keys) for library, keys in self._guessed.items()))

    def options(self, *files: str) -> Iterator[Option]:
        """The rows to write, one of each group: of those that hold in every release this could be, the newest name;
        else the one of the newest release (with a note that says what would decide it)."""
        groups: dict[str, list[Option]] = {}
        for option in self.table.options:
            if option.written and (not files or option.file in files) and self._meant(option):
                groups.setdefault(option.group or option.key, []).append(option)
        for rows in groups.values():
            chosen = self._choose(rows)
            if chosen is not None:
                yield chosen

    def _meant(self, option: Option) -> bool:
        return not option.objectives or self.spec.training.objective in option.objectives

    def _choose(self, rows: list[Option]) -> Option | None:
        always, sometimes = [], []
        for row in rows:
            low, high = self.interval(row.library)
            until = row.until or _ANY[1]
            if low >= row.since and high <= until:
                always.append(row)
            elif high > row.since and high <= until:
                sometimes.append(row)
        best = max(always or sometimes, key=lambda row: row.since, default=None)
        if best is not None and not always and self.encoded(best) is not Nothing.ABSENT:
            self._guessed.setdefault(best.library or self.table.library, {})[best.key] = best.since
        return best

    def encoded(self, option: Option) -> Any:
        """The framework's value of a row; ABSENT when it is not written."""
        value = self[option.field]
        return Nothing.ABSENT if value is None else option.codec.encode(value)

    def values(self, *files: str, written: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Key to value of every row that goes into these kinds of file (all when none is named). ``written``: the
        user's own keys; one that means what the spec says stays as it is spelt (``optim: adamw_torch_fused``)."""
        found = {}
        for option in self.options(*files):
            value = self.encoded(option)
            if value is not Nothing.ABSENT:
                theirs = at(written or {}, option.key)
                kept = theirs is not None and self.means(option, theirs)
                found[option.key] = theirs if kept else value
        return found

    def means(self, option: Option, theirs: Any) -> bool:
        """Whether a framework value says what the spec says."""
        value = self[option.field]
        return bool(option.codec.decode(theirs) == value) or bool(theirs == option.codec.encode(value))


def _guess(library: str, keys: Mapping[str, Version]) -> str:
    newest = ".".join(map(str, max(keys.values())))
    names = ", ".join(key for key in keys if key)
    return (f"training.versions does not say which {library} runs: written for {library} >= {newest}"
            + (f" ({names})" if names else ""))  # fmt: skip


_NF4 = Quantization.model_construct()


def _layout(name: str) -> Callable[[View], int]:
    def read(view: View) -> int:
        value: int = getattr(view.layout, name)
        return value

    return read


def _freeze(view: View) -> Sequence[str] | None:
    """Frozen parts; an empty list says something only of a model that has parts (``resolved``: model.multimodal)."""
    parts = view.spec.training.freeze
    return parts if parts or view["model.multimodal"] else None


def _steps(view: View) -> int | None:
    """As written; else those that the amount of data makes (``resolved``: training.steps), unless epochs say it."""
    training = view.spec.training
    if training.max_steps is not None:
        return training.max_steps
    steps: int | None = None if view.counts_epochs else view["training.steps"]
    return steps


def _epochs(view: View) -> float | None:
    data = view.spec.training.data
    return None if data is None or view["training.max_steps"] is not None else data.epochs


def _weights(view: View) -> str | None:
    model = view.spec.model
    return model.path or model.name


def _save_strategy(view: View) -> str | None:
    """``steps``, ``epochs`` (every single epoch) or None."""
    checkpoint = view.spec.checkpoint
    if checkpoint.every_steps is not None:
        return "steps"
    return "epochs" if checkpoint.every_epochs == 1 else None


def _resume(view: View) -> str:
    """``auto``, ``never`` or ``path``."""
    resume = view.spec.checkpoint.resume
    return resume if resume in ("auto", "never") else "path"


EXPERTS = "experts"
"""The target that means all routed experts: 3-D parameters, no modules (``lora.target_modules``)."""


def _modules(view: View) -> Any:
    """LoRA's targets that are modules."""
    lora = view.spec.training.lora
    if view.spec.training.method == "full" or not isinstance(lora.target_modules, list):
        return None if view.spec.training.method == "full" else lora.target_modules
    return [name for name in lora.target_modules if name != EXPERTS] if EXPERTS in lora.target_modules else lora.target_modules


def _parameters(view: View) -> Any:
    """LoRA's targets that are parameters, by the ends of their names (``resolved``: model.expert_parameters)."""
    training = view.spec.training
    asked = training.method != "full" and isinstance(training.lora.target_modules, list) and EXPERTS in training.lora.target_modules
    return view["model.expert_parameters"] if asked else None


def _precision(view: View) -> str:
    """The spec's, with what only adapters train: mixed precision keeps nothing in fp32 beside a frozen 16-bit base."""
    training = view.spec.training
    return "bf16_pure" if training.precision == "bf16" and training.method != "full" else training.precision


def _evaluates(view: View) -> bool | None:
    evaluation = view.spec.training.evaluation
    return True if evaluation is not None and evaluation.every_steps is not None else None


_DERIVED: Mapping[str, Any] = {
    "launch.processes_per_node": _layout("processes_per_node"),
    "parallel.nodes": _layout("nodes"),
    "parallel.world": _layout("world"),
    "parallel.data": _layout("data"),
    "parallel.shard": _layout("shard"),
    "training.gradient_accumulation_steps": _layout("accumulation"),
    "training.global_batch_size": _layout("global_batch"),
    "training.max_steps": _steps,
    "training.data.epochs": _epochs,
    "training.freeze": _freeze,
    "model.path": _weights,
    "checkpoint.strategy": _save_strategy,
    "checkpoint.resume.mode": _resume,
    "training.evaluates": _evaluates,
    "training.precision.of_method": _precision,
    "training.lora.target_modules": _modules,
    "training.lora.target_parameters": _parameters,
}
"""Values that follow from several fields; ``resolved`` may give any of them."""
