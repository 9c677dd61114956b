"""Rewritings of a JSON schema that several vendors need. They return fresh objects and keep the order of keys."""

from __future__ import annotations

from collections.abc import Set
from copy import deepcopy
from typing import Any


def without_keywords(schema: dict[str, Any], refused: Set[str]) -> dict[str, Any]:
    """The schema without these keywords, at any depth; a property that happens to be called so stays."""
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in refused:
            continue
        if keyword == "properties":
            kept[keyword] = {name: without_keywords(inner, refused) for name, inner in value.items()}
        elif isinstance(value, dict):
            kept[keyword] = without_keywords(value, refused)
        else:
            kept[keyword] = deepcopy(value)
    return kept


def all_required(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with every property required, and nullable where it could be left out."""
    required = schema["required"]
    properties = {name: inner if name in required else _nullable(inner) for name, inner in schema["properties"].items()}
    return schema | {"properties": properties, "required": list(properties)}


def null_for_not_given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with null for whatever may be left out, said as pydantic says it.

    It is for frameworks that may require every property where they have a model held to the schema: without the null
    the model would have to make something up.
    """
    required = schema["required"]
    properties = {name: inner if name in required else _or_null(inner) for name, inner in schema["properties"].items()}
    return schema | {"properties": properties}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    said = {keyword: value for keyword, value in schema.items() if keyword == "description"}
    kept = {keyword: deepcopy(value) for keyword, value in schema.items() if keyword not in said}
    return {"anyOf": [kept, {"type": "null"}], **said}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    nullable = schema | {"type": [schema["type"], "null"]}
    return nullable | {"enum": [*schema["enum"], None]} if "enum" in schema else nullable
