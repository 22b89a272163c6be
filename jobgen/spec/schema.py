"""The JSON Schema of a spec (draft 2020-12), for editors; made from the models, so that it cannot drift."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from jobgen.spec.merge import SHORT
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
    for path, key in SHORT.items():
        models = made["$defs"]
        section = models[_reference(made["properties"][path[0]]).rpartition("/")[2]]["properties"]
        section[path[1]] = _either(section[str(path[1])], key, models)
    ignore = made["properties"]["ignore"]
    ignore["items"] = _either(ignore["items"], "code", made["$defs"])
    described = {"title": "jobgen spec", "description": "One distributed training job, as jobgen reads it."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, **made, **described}


def _either(field: dict[str, Any], key: str, models: dict[str, Any]) -> dict[str, Any]:
    """A field that may be one word or the map whose ``key`` the word is."""
    reference = _reference(field)
    word = {k: v for k, v in models[reference.rpartition("/")[2]]["properties"][key].items() if k in ("type", "enum", "pattern")}
    words = {"description": field["description"]} if "description" in field else {}
    return words | {"anyOf": [word, {"$ref": reference}]}


def _reference(field: dict[str, Any]) -> str:
    """The model a field refers to; pydantic before 2.9 wraps the reference."""
    found: str = field.get("$ref") or field["allOf"][0]["$ref"]
    return found


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
