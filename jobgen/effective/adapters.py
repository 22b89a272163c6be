"""Adapters as the library will make them: which modules get one, by model type and version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobgen.catalog import counts
from jobgen.effective.options import flag, hugging_face, option
from jobgen.effective.setup import Adapters, Effect

if TYPE_CHECKING:
    from jobgen.catalog.arch import Arch, Matrix
    from jobgen.effective.setup import Effective
    from jobgen.spec.models import Spec

FUSED = (5, 0)
"""The transformers release that made the experts 3-D parameters."""
_NONE = Adapters(0, frozenset(), False, 0, 0)
_LEAVES_TOWERS = frozenset(("llama-factory", "ms-swift", "unsloth"))
"""Frameworks whose ``all`` leaves vision and audio towers alone."""


def wants_all(spec: Spec) -> bool:
    """Every linear layer is asked for."""
    return spec.training.lora.target_modules in ("all-linear", "all") or flag(spec, "lora_target_linear") is True


def target_parameters(spec: Spec) -> tuple[str, ...]:
    """Parameters (not modules) that the user names for adapters, peft >= 0.17; ``experts`` are all of the routed ones."""
    if "experts" in spec.training.lora.target_modules and isinstance(spec.training.lora.target_modules, list):
        return ("experts",)
    named = option(spec, "lora_target_parameters", "target_parameters", "lora.target_parameters", "peft_config.target_parameters")
    if isinstance(named, str):
        return (named,)
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


def adaptable(spec: Spec, arch: Arch) -> Arch:
    """The architecture without the parts that no target reaches.

    peft matches ``parent.name`` by the end of a module's path: ``shared_expert.up_proj`` is not an ``up_proj`` of the
    routed experts (peft tuners/tuners_utils.py check_target_module_exists).
    """
    written = spec.training.lora.target_modules
    if not isinstance(written, list) or not arch.moe:
        return arch
    names = {name for m, _ in counts.matrices(arch) if m.part == "expert" for name in (m.name, *m.unfused)}
    parents = {each.rpartition(".")[0].rpartition(".")[2] for each in written if each.rpartition(".")[2] in names}
    if any(parent in ("", "experts") or parent.isdigit() for parent in parents):
        return arch
    kinds = tuple(kind._replace(matrices=tuple(m for m in kind.matrices if m.part != "expert")) for kind in arch.layers)
    return arch._replace(layers=kinds)


def targets(spec: Spec, arch: Arch, fused: bool) -> tuple[str, ...]:
    """The module names that the spec's list or pattern means; a name may carry its path."""
    written = spec.training.lora.target_modules
    names = dict.fromkeys((*counts.target_names(arch, False), *counts.target_names(arch, fused)))
    if isinstance(written, list):
        return tuple(name for name in names if any(each == name or each.endswith(f".{name}") for each in written))
    if written in names:
        return (written,)
    try:
        pattern = re.compile(written)
    except re.error:
        return ()
    homes = ("", "model.layers.0.self_attn.", "model.layers.0.mlp.", "model.layers.0.mlp.experts.0.")
    return tuple(name for name in names if any(pattern.fullmatch(home + name) for home in homes))


_ROLES = {
    "q_proj": ("attention", "column"), "k_proj": ("attention", "column"), "v_proj": ("attention", "column"), "o_proj": ("attention", "row"),
    "gate_proj": ("mlp", "column"), "up_proj": ("mlp", "column"), "down_proj": ("mlp", "row"),
}  # fmt: skip
"""What Llama's module names stand for."""


def _counterparts(spec: Spec, arch: Arch, fused: bool) -> tuple[str, ...]:
    """Modules that do what a Llama name says in a model that names them otherwise (``c_attn``, ``dense_h_to_4h``): LitGPT,
    Megatron and others switch adapters on by role, and a rule speaks where peft would find no module."""
    written = spec.training.lora.target_modules
    known = frozenset((*counts.target_names(arch, False), *counts.target_names(arch, fused)))
    roles = {_ROLES[name] for name in (written if isinstance(written, list) else ()) if name in _ROLES and name not in known}
    return tuple(dict.fromkeys(m.name for m, _ in counts.matrices(arch) if (m.part, m.split) in roles and m.name in known))


def fused(effective: Effective) -> bool:
    """The model has parts that are 3-D parameters in the release that will run."""
    parts = any(matrix.fused_since for matrix, _ in counts.matrices(effective.arch))
    return parts and hugging_face(effective.spec) and effective.versions["transformers"] >= FUSED


def decide(effective: Effective) -> Adapters:
    """The adapters that will be trained."""
    spec, arch = effective.spec, effective.arch
    if spec.training.method == "full":
        return _NONE
    lora, everything, is_fused = spec.training.lora, wants_all(spec), fused(effective)
    if spec.training.freeze or spec.training.framework in _LEAVES_TOWERS:
        arch = arch._replace(outer=tuple(matrix for matrix in arch.outer if matrix.part != "other"))
    arch = adaptable(spec, arch)
    wanted = "all-linear" if everything else (*targets(spec, arch, is_fused), *_counterparts(spec, arch, is_fused))
    routed = [m for m, _ in counts.matrices(effective.arch) if m.part == "expert"]
    experts = [m for m, _ in counts.matrices(arch) if m.part == "expert" and m.fused_since]
    asked = is_fused and any(everything or {m.name, *m.unfused} & set(wanted) for m in experts)
    seen = asked and any(m.adapter_rank for m in experts) and effective.versions["peft"] >= (0, 19)
    direct = _direct(effective, routed)
    total = counts.lora_parameters(arch, lora.rank, wanted, is_fused, seen)
    apart = 0 if is_fused else 1  # matrices of their own read the input each through an adapter of its own
    total += sum(times * m.copies * lora.rank * (m.inputs * max(1, apart * len(m.unfused)) + m.outputs) for m, times in direct)
    reached = _reached(arch, everything, wanted, is_fused, seen) | {m.name for m, _ in direct}
    effects: tuple[Effect, ...] = ()
    if asked and not seen and not direct:
        effects = (Effect(
            "adapters_skip_experts",
            "training.lora.target_modules",
            "LoRA on the routed experts",
            "since transformers 5 they are 3-D parameters that peft < 0.19 does not see: "
            + (f"only {', '.join(sorted(reached))} get adapters" if reached else "no module is left to adapt"),
            ("MO04",),
            "peft commit 5356277d (#3083, v0.19.0)",
        ),)  # fmt: skip
    saved = counts.module_parameters(arch, lora.modules_to_save)
    return Adapters(lora.rank, frozenset(reached), seen or (is_fused and bool(direct)), total, saved, dropout(effective), effects)


def dropout(effective: Effective) -> float:
    """As written, else the framework's own default, which is then left to it; peft's is none (tuners/lora/config.py)."""
    written = effective.spec.training.lora.dropout
    if written is not None:
        return written
    defaults = [row.default for row in effective.framework.options if row.field == "training.lora.dropout"]
    return next((float(each) for each in defaults if each is not None), 0.0)


def _direct(effective: Effective, experts: list[Matrix]) -> list[tuple[Matrix, int]]:
    """Expert parameters that the user names himself."""
    named = {part for name in target_parameters(effective.spec) for part in name.split(".")}
    everything = target_parameters(effective.spec) == ("experts",)
    if not named or not any(everything or m.name in named for m in experts) or not effective.versions["peft"] >= (0, 17):
        return []
    return [(m, times) for m, times in counts.matrices(effective.arch) if m in experts and (everything or m.name in named)]


def _reached(arch: Arch, everything: bool, wanted: str | tuple[str, ...], is_fused: bool, seen: bool) -> set[str]:
    """Names of the modules that get an adapter."""
    found: set[str] = set()
    for matrix, _ in counts.matrices(arch):
        names = matrix.unfused if matrix.unfused and not is_fused else (matrix.name,)
        if counts.is_linear(matrix, is_fused):
            if not (everything and matrix.part == "head"):
                found.update(name for name in names if everything or name in wanted)
        elif is_fused and seen and matrix.adapter_rank and (everything or {matrix.name, *matrix.unfused} & set(wanted)):
            found.add(matrix.name)
    return found
