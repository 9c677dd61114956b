"""How much of strict tools the vendors take, and what is given up to stay within it.

The rule this file guards: a request is never refused for what memfiles puts into it, and the same tools always give
up the same. The figures are the vendors', as documented in November 2026; a vendor counts the whole request, so a
host that sends strict tools of its own has the less left for these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memfiles.tools.definitions import ToolDefinition

STRICT_TOOLS = 20
"""Strict tools in one request: Anthropic, and Bedrock for Anthropic's models."""
OPTIONAL_PARAMETERS = 24
"""Parameters that may be left out, of all strict tools of one request together; the same two."""
ENUM_VALUES = 1000
"""Values of all enums in one strict schema: OpenAI. The others name no figure, only a size of the grammar."""
LONG_ENUM = 250
"""An enum of more values than this is a long one: OpenAI."""
LONG_ENUM_CHARACTERS = 15_000
"""Characters of all values of a long enum: OpenAI."""

_INSTEAD = "It is one of the names in the index card."


def strict_together(tools: Iterable[ToolDefinition]) -> frozenset[str]:
    """The names of those tools that can be strict in one request.

    Of too many, the ones with the most parameters that may be left out are given up first, and of equals the last.
    """
    kept = list(tools)
    while len(kept) > STRICT_TOOLS or sum(map(_optional, kept)) > OPTIONAL_PARAMETERS:
        kept.remove(max(reversed(kept), key=_optional))
    return frozenset(tool.name for tool in kept)


def within_enum_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object; an enum that is too large for a strict one is left out, and its description says so."""
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
