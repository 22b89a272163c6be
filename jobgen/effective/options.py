"""Keys that users write under a framework's or library's own name, and the environment of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobgen.effective.setup import Facts
    from jobgen.spec.models import Spec

_MISSING = object()
_YES, _NO = frozenset(("true", "1", "yes", "on", "y")), frozenset(("false", "0", "no", "off", "n", ""))

HUGGING_FACE = frozenset(
    ("custom", "transformers", "trl", "accelerate", "deepspeed", "llama-factory", "axolotl", "unsloth", "ms-swift")
)
"""Frameworks that load weights with transformers' ``from_pretrained`` (``custom``: most programs do)."""

READ = frozenset(("training.loading", "training.quantization.moe_experts", "training.lora.target_modules", "training.lora.target_parameters"))
"""Fields whose framework spelling is read as well, so that it need not be repeated in the spec's words."""

TRAINER = frozenset(("transformers", "trl", "llama-factory", "axolotl", "unsloth", "ms-swift"))
"""Frameworks built on transformers' Trainer."""


def hugging_face(spec: Spec) -> bool:
    """Weights come through ``from_pretrained``."""
    training = spec.training
    return training.framework in HUGGING_FACE and not (training.framework == "ms-swift" and training.backend == "megatron")


def trainer(spec: Spec) -> bool:
    """A transformers Trainer runs the loop."""
    return spec.training.framework in TRAINER and spec.training.backend != "megatron"


def option(spec: Spec, *names: str, default: Any = None) -> Any:
    """A key of ``training.options`` under any of these names; dots lead into nested maps."""
    options = spec.training.options
    if not options:
        return default
    for name in names:
        if name in options:
            return options[name]
        node: Any = options
        for part in name.split("."):
            node = node.get(part, _MISSING) if isinstance(node, dict) else _MISSING
            if node is _MISSING:
                break
        else:
            return node
    return default


def switch(value: Any) -> bool | None:
    """A yes or no as YAML, JSON or an environment variable says it; None when it says neither."""
    if isinstance(value, bool) or value is None:
        return value
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None


def flag(spec: Spec, *names: str) -> bool | None:
    """A switch of ``training.options``; None when unset."""
    return switch(option(spec, *names))


def environment(spec: Spec, name: str) -> str | None:
    """A variable of the program, as the spec sets it."""
    value = spec.launch.env.get(name)
    return None if value is None else str(value)


def with_file(facts: Facts, values: Mapping[str, Any]) -> Facts:
    """Facts whose options hold the keys of the framework's own file too, under those of ``training.options``.

    Keys that the spec owns are left out: the spec's fields are laid over them.
    """
    if not values:
        return facts
    owned = {each.key for each in facts.framework.options if each.field not in READ}
    spec = facts.spec
    merged = _laid(_without(values, owned, ""), spec.training.options)
    training = spec.training.model_copy(update={"options": merged})
    return facts._replace(spec=spec.model_copy(update={"training": training}))


def _without(values: Mapping[str, Any], owned: set[str], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path not in owned:
            kept[name] = _without(value, owned, f"{path}.") if isinstance(value, dict) else value
    return kept


def _laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        result[name] = _laid(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result
