"""One file per framework: everything that only this framework knows."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobgen.frameworks.table import Framework

NAMES = (
    "custom", "transformers", "trl", "accelerate", "deepspeed", "llama-factory", "axolotl", "unsloth", "fsdp-qlora",
    "torchtune", "torchtitan", "megatron-lm", "megatron-deepspeed", "nemo", "ms-swift", "litgpt", "verl",
)  # fmt: skip
"""All frameworks; a test holds them against ``spec.models.Framework`` and the files of this folder."""


@cache
def find(name: str, backend: str | None = None) -> Framework:
    """The table of a framework (of one of its engines); imports that framework's file only."""
    module = import_module(f"jobgen.frameworks.{module_name(name)}")
    tables: dict[str | None, Framework] = getattr(module, "BACKENDS", {})
    table: Framework = tables.get(backend, module.TABLE)
    return table


def module_name(name: str) -> str:
    """The module of a framework: its name with underscores."""
    return name.replace("-", "_")
