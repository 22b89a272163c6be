"""Models of several modalities: a text decoder of a described family, a vision tower and a projector."""

from __future__ import annotations

from collections.abc import Callable

from jobgen.catalog import families
from jobgen.catalog.arch import Arch
from jobgen.catalog.errors import BadConfig, MissingFields, UnknownArchitecture
from jobgen.catalog.families import vision
from jobgen.catalog.families.fields import Fields

TEXT: dict[str, str] = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""model_type -> model type of its text_config where that does not say."""
TOWERS: dict[str, tuple[str, Callable[[Fields, int], vision.Tower]]] = {
    "gemma3": ("siglip_vision_model", vision.siglip),
    "gemma4": ("gemma4_vision", vision.gemma4),
    "llama4": ("llama4_vision_model", vision.llama4),
    "mistral3": ("pixtral", vision.pixtral),
    "qwen2_vl": ("qwen2_vl_vision", vision.qwen2),
    "qwen2_5_vl": ("qwen2_5_vl_vision", vision.qwen2_5),
    "qwen3_vl": ("qwen3_vl_vision", vision.qwen3),
    "qwen3_vl_moe": ("qwen3_vl_moe_vision", vision.qwen3),
    "qwen3_5": ("qwen3_5_vision", vision.qwen3),
    "qwen3_5_moe": ("qwen3_5_moe_vision", vision.qwen3),
}
"""model_type -> model type of its vision_config, and the shapes of tower and projector."""


def build(fields: Fields, name: str) -> Arch:
    """The architecture: matrices of the tower stand in ``outer``, with ``copies`` for its layers."""
    outer_type = fields.model_type
    section = "text_config"
    text = dict(fields.section(section))
    if not text and fields.has("hidden_size"):  # older files hold the text part's fields at the top
        text, section = {key: value for key, value in fields.config.items() if key != "model_type"}, ""
    if not text:
        raise MissingFields(outer_type, ["text_config"])
    given = text.get("tie_word_embeddings")
    text["tie_word_embeddings"] = fields.flag("tie_word_embeddings") or given is True
    text_type = text.get("model_type", TEXT[outer_type])
    if not isinstance(text_type, str) or text_type in TEXT:
        raise BadConfig(f"text_config.model_type cannot be {text_type!r}", "text_config.model_type")
    arch = families.part(text, text_type, name, section)._replace(model_type=outer_type)
    if fields.has("audio_config"):
        raise UnknownArchitecture(outer_type, f"the audio tower of model type {outer_type!r} is not described")
    if not fields.has("vision_config"):
        return arch
    tower_type, shapes = TOWERS[outer_type]
    tower_config = fields.section("vision_config")
    kind = tower_config.get("model_type", tower_type)
    if kind not in (tower_type, outer_type, "siglip"):
        raise UnknownArchitecture(
            outer_type, f"model type {outer_type!r} with the vision tower {kind!r} is not described"
        )
    reader = Fields(tower_config, tower_type, families.defaults(tower_type), "vision_config")
    reader.outer = fields
    tower = shapes(reader, arch.hidden)
    reader.finish()
    return arch._replace(
        outer=arch.outer + tower.matrices, other_parameters=arch.other_parameters + tower.other_parameters
    )
