"""From a Hugging Face configuration to an architecture: one entry in ``table.py`` or one file here for each family.

A file is found by the model type it is named after and offers ``build(fields, name) -> Arch``; ``ALIASES`` name
further model types that a file or an entry describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import cast

from jobgen.catalog.arch import Arch
from jobgen.catalog.errors import BadConfig, UnknownArchitecture, nearest
from jobgen.catalog.families.fields import Fields

DATA = Path(__file__).parent.parent / "data"
FILES: dict[str, str] = {
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5",
    "qwen3_next": "qwen3_5",
    "deepseek_v2": "mla",
    "deepseek_v3": "mla",
    "kimi_k2": "mla",
    "deepseek_v32": "mla",
    "glm_moe_dsa": "mla",
    "glm4_moe_lite": "mla",
    "llama4_text": "llama4",
    "gemma4_text": "gemma4",
    "gpt_bigcode": "gpt2",
    "mistral3": "multimodal",
    "gemma3": "multimodal",
    "qwen2_vl": "multimodal",
    "qwen2_5_vl": "multimodal",
    "qwen3_vl": "multimodal",
    "qwen3_vl_moe": "multimodal",
}
"""model_type -> file, where the file has another name."""


@cache
def facts(model_type: str) -> Mapping[str, object]:
    """``defaults`` and ``since`` of a model type: its configuration class in transformers 5.24.0."""
    mark = f'{{"model_type":"{model_type}",'
    with (DATA / "families.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(mark):
                return cast(Mapping[str, object], json.loads(line))
    return {}


def defaults(model_type: str) -> Mapping[str, object]:
    """Default values of the configuration's fields."""
    return cast(Mapping[str, object], facts(model_type).get("defaults", {}))


def first_release(model_type: str) -> tuple[int, ...] | None:
    """The first minor release of transformers that has the model type; None where it is older than 4.38 or not there at all."""
    since = facts(model_type).get("since")
    return tuple(cast(list[int], since)) if since else None


def known() -> tuple[str, ...]:
    """Every model type that can be built."""
    from jobgen.catalog.families.table import ALIASES, TABLE

    files = {path.stem for path in Path(__file__).parent.glob("*.py")} - HELPERS
    return tuple(sorted({*TABLE, *ALIASES, *FILES, *files}))


HELPERS = frozenset({"__init__", "fields", "parts", "table", "transformer", "mla", "multimodal", "vision", "recurrent"})


def build(config: Mapping[str, object], name: str) -> Arch:
    """The architecture that a configuration describes.

    Raises UnknownArchitecture for a model type nobody described, MissingFields and BadConfig for a configuration
    that cannot be read.
    """
    model_type = config.get("model_type")
    if model_type is None:
        raise BadConfig("the configuration has no model_type", "model_type")
    if not isinstance(model_type, str):
        raise BadConfig(f"model_type must be a string, not {model_type!r}", "model_type")
    return part(config, model_type, name)._replace(first_release=first_release(model_type))


def part(config: Mapping[str, object], model_type: str, name: str, section: str = "") -> Arch:
    """The architecture of one section of a configuration ("" is the whole)."""
    from jobgen.catalog.families.table import ALIASES, TABLE

    traits = TABLE.get(model_type)
    fields = Fields(config, model_type, defaults(model_type), section)
    if traits is not None:
        from jobgen.catalog.families import transformer

        return transformer.build(fields, name, traits)
    file = FILES.get(model_type, model_type)
    path = f"{__name__}.{file}"
    if not file.isidentifier() or (file in HELPERS and model_type not in FILES) or util.find_spec(path) is None:
        if model_type in ALIASES:
            return part(config, ALIASES[model_type], name, section)
        raise UnknownArchitecture(model_type, explain_unknown(config, model_type))
    return cast(Arch, import_module(path).build(fields, name))


def explain_unknown(config: Mapping[str, object], model_type: str) -> str:
    """What is missing to treat a model type that nobody described."""
    like = nearest(model_type, known())
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    lacks = [size for size in sizes if size not in config]
    words = f"model type {model_type!r} is not described"
    if like:
        words += f" (nearest: {', '.join(like)})"
    words += ": biases, norms, experts and head of its layers are not known"
    if lacks:
        words += f", and the configuration lacks {', '.join(lacks)}"
    return f"{words}. If they are those of a described type, name that type as model_type in a copy of config.json"
