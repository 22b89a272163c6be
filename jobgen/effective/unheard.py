"""Fields that the framework's writer does not hear: what it writes is the same with the field and without it.

No list of frameworks and fields: the configuration is made twice. A program of the user's own may do what no
configuration says, so the spec is a statement about it, and nothing is taken away there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobgen.frameworks import write

if TYPE_CHECKING:
    from jobgen.effective.setup import Effective
    from jobgen.spec.models import Spec

STATED = frozenset({"custom", "transformers", "accelerate", "deepspeed"})
"""Frameworks under a program of the user's own, of which the spec is a statement."""
DEFAULTS: dict[str, Any] = {
    "offload.optimizer": "none", "offload.parameters": "none", "offload.activations": "none",
    "training.loss": "standard", "training.attention": None, "training.backend": None,
    "training.optimizer.in_backward": False, "training.packing": "none",
    "training.dtypes.weights": None, "training.dtypes.gradients": None, "training.dtypes.master": None,
    "training.dtypes.moments": None, "training.dtypes.reduce": None, "training.loading": "auto",
    "training.evaluation.every_steps": None, "training.evaluation.micro_batch_size": None,
    "checkpoint.async_": False, "checkpoint.every_minutes": None, "checkpoint.every_epochs": None,
}  # fmt: skip
"""Fields that only a framework can act on (by attribute), with what unset means."""
_COUPLED = {"offload.optimizer": "offload.parameters", "offload.parameters": "offload.optimizer"}
"""FSDP has one switch for both, which either field sets."""
_KNOWN: dict[str, Any] = {
    "parallel.world": 2, "parallel.data": 2, "parallel.shard": 2, "parallel.nodes": 1,
    "model.hidden_size": 64, "model.layers": 2, "model.layer_class": None,
}  # fmt: skip
"""Values of the model and the layout, which are the same in both."""


def stated(effective: Effective) -> bool:
    """The spec is a statement about the user's own program, or the framework is configured in Python only."""
    table, launch = effective.framework, effective.spec.launch
    own = launch.entrypoint is not None or launch.module is not None or launch.command is not None
    return table.name in STATED or table.config_format == "none" or (own and table.name == "megatron-deepspeed")


def value(spec: Spec, path: str) -> Any:
    """A field; what unset means where its section is missing."""
    node: Any = spec
    for part in path.split("."):
        node = getattr(node, part, None)
        if node is None:
            return DEFAULTS[path]
    return node


def unwritten(effective: Effective, path: str) -> bool:
    """The field is set and the framework's configuration is the same without it."""
    spec = effective.spec
    if value(spec, path) == DEFAULTS[path]:
        return False
    fields = [path]
    if (
        path in _COUPLED
        and effective.spec.parallelism.sharding in ("fsdp1", "fsdp2")
        and value(spec, _COUPLED[path]) != "none"
    ):
        fields.append(_COUPLED[path])
    other = spec
    for each in fields:
        other = _without(other, each.split("."), DEFAULTS[each])
    known = effective.versions.intervals
    return _written(effective, spec, known) == _written(effective, other, known)


def unheard(effective: Effective, path: str) -> bool:
    """The field is set, and the framework will not do it."""
    return not stated(effective) and unwritten(effective, path)


def _written(effective: Effective, spec: Spec, known: Any) -> tuple[Any, ...]:
    """What is rendered of a framework, without its notes."""
    return tuple(write.configure(spec, effective.framework, _KNOWN, known)._replace(notes=()))


def _without(section: Any, parts: list[str], default: Any) -> Any:
    first, *rest = parts
    inner = _without(getattr(section, first), rest, default) if rest else default
    return section.model_copy(update={first: inner})
