"""The Model Context Protocol: https://modelcontextprotocol.io/specification, "Tools".

A client assumes the worst of a missing annotation, so all are set. MCP has neither strict tools nor sample arguments.
"""

from __future__ import annotations

from typing import Any

from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects.schemas import without_keywords
from memfiles.tools.results import ToolResult


def tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{name, description, inputSchema, outputSchema, annotations}``."""
    return {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": without_keywords(definition.parameters, frozenset()),
        "outputSchema": without_keywords(definition.output, frozenset()),
        "annotations": {
            "readOnlyHint": definition.read_only,
            "destructiveHint": definition.destructive,
            "idempotentHint": definition.idempotent,
            "openWorldHint": False,
        },
    }


def structured(definition: ToolDefinition, result: ToolResult) -> dict[str, Any] | None:
    """The ``structuredContent`` of a result, which fits ``outputSchema``; None for an error.

    Some clients show the model this instead of the text, so it includes the text where the data lacks it.
    """
    if result.is_error or result.data is None:
        return None
    return {"text": result.text, **result.data} if "text" in definition.output["properties"] else dict(result.data)
