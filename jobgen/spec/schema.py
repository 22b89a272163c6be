"""The JSON Schema of a spec (draft 2020-12), for editors; made from the models, so that it cannot drift."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from jobgen.spec.models import Spec, Training

ID = "urn:jobgen:schema:spec:1"


def schema() -> dict[str, Any]:
    """The schema with short forms, descriptions and defaults."""
    for section in (Spec, Training):
        for info in section.model_fields.values():
            if isinstance(info.default, BaseModel):
                type(info.default).model_rebuild()  # pydantic before 2.10 needs the deferred serializer of a default
    made = Spec.model_json_schema(by_alias=True, mode="validation")
    _untitle(made)
    described = {"title": "jobgen spec", "description": "One distributed training job, as jobgen reads it."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, **made, **described}


def _untitle(node: Any) -> None:
    """Drop what only repeats: titles that are a field's name (a field may be called title), defaults of whole sections."""
    if isinstance(node, list):
        for each in node:
            _untitle(each)
    elif isinstance(node, dict):
        if isinstance(node.get("title"), str) and ("type" in node or "anyOf" in node or "$ref" in node or "enum" in node):
            del node["title"]
        if isinstance(node.get("default"), dict) and "description" in node:
            del node["default"]
        for each in node.values():
            _untitle(each)
