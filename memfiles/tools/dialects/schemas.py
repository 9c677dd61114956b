"""Schema rewrites shared by several dialects, and the vendors' limits on strict tools.

The rules this file guards: rewrites return fresh objects and keep the order of keys. A request is never refused because
of memfiles' tools, and the same tools always lose the same features. The limits are the vendors', as documented in
November 2026; a vendor counts the whole request, so a host's own strict tools leave less room for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from copy import deepcopy
from typing import Any

from memfiles.tools.definitions import ToolDefinition


def without_keywords(schema: dict[str, Any], refused: Set[str]) -> dict[str, Any]:
    """The schema without these keywords, at any depth; a property of the same name stays."""
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
    """The schema of an object with every property required, and nullable if it was optional."""
    required = schema["required"]
    properties = {name: inner if name in required else _nullable(inner) for name, inner in schema["properties"].items()}
    return schema | {"properties": properties, "required": list(properties)}


def null_for_not_given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with optional properties nullable, spelled as pydantic does.

    For frameworks that may require every property in strict mode: without null, the model would have to invent a value.
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


STRICT_TOOLS = 20


"""Limit of strict tools in one request: Anthropic, and Bedrock for Anthropic's models."""


OPTIONAL_PARAMETERS = 24


"""Limit of optional parameters of all strict tools in one request together; the same two vendors."""


ENUM_VALUES = 1000


"""Limit of enum values in one strict schema: OpenAI. The others limit only the size of the grammar."""


LONG_ENUM = 250


"""An enum of more values than this is long: OpenAI."""


LONG_ENUM_CHARACTERS = 15_000


"""Limit of characters in all values of a long enum: OpenAI."""


_INSTEAD = "Use one of the names in the index card."


def strict_together(tools: Iterable[ToolDefinition]) -> frozenset[str]:
    """The names of the tools that can be strict in one request.

    If there are too many, tools with the most optional parameters drop out first, and of equals the last.
    """
    kept = list(tools)
    while len(kept) > STRICT_TOOLS or sum(map(_optional, kept)) > OPTIONAL_PARAMETERS:
        kept.remove(max(reversed(kept), key=_optional))
    return frozenset(tool.name for tool in kept)


def within_enum_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object without enums too large for a strict schema; the description says what to use."""
    properties: dict[str, dict[str, Any]] = dict(schema["properties"])
    while enums := {name: inner["enum"] for name, inner in properties.items() if "enum" in inner}:
        largest = max(enums, key=lambda name: len(enums[name]))
        if sum(map(len, enums.values())) <= ENUM_VALUES and not _is_long(enums[largest]):
            break
        kept = {key: value for key, value in properties[largest].items() if key != "enum"}
        properties[largest] = kept | {"description": f"{kept['description']} {_INSTEAD}"}
    return schema | {"properties": properties}


def _optional(tool: ToolDefinition) -> int:
    return len(tool.parameters["properties"]) - len(tool.parameters["required"])


def _is_long(enum: list[str | None]) -> bool:
    return len(enum) > LONG_ENUM and sum(len(value or "") for value in enum) > LONG_ENUM_CHARACTERS
