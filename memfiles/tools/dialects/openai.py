"""OpenAI's Responses and Chat APIs: https://platform.openai.com/docs/guides/function-calling.

Strict by default: every property is then required, optional ones are nullable, and an enum too large for a strict
schema is left out. OpenAI has no sample arguments.
"""

from __future__ import annotations

from typing import Any

from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects.schemas import all_required, within_enum_limits, without_keywords


def responses_tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{type: "function", name, description, parameters, strict}``."""
    return {"type": "function", **_function(definition, strict=strict)}


def chat_tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{type: "function", function: {name, description, parameters, strict}}``."""
    return {"type": "function", "function": _function(definition, strict=strict)}


def _function(definition: ToolDefinition, *, strict: bool | None) -> dict[str, Any]:
    is_strict = strict is not False
    schema = without_keywords(definition.parameters, frozenset())
    return {
        "name": definition.name,
        "description": definition.description,
        "parameters": within_enum_limits(all_required(schema)) if is_strict else schema,
        "strict": is_strict,
    }
