"""Google's Gemini API: https://ai.google.dev/gemini-api/docs/function-calling.

The list goes into a tool's ``function_declarations``. Gemini has neither strict declarations (its mode ``VALIDATED``
is a setting of the request) nor sample arguments.
"""

from __future__ import annotations

from typing import Any

from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects.schemas import without_keywords

_REFUSED = frozenset({"$schema", "const", "default", "exclusiveMaximum", "exclusiveMinimum", "format", "title"})


def tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{name, description, parameters_json_schema}``."""
    return {
        "name": definition.name,
        "description": definition.description,
        "parameters_json_schema": without_keywords(definition.parameters, _REFUSED),
    }
