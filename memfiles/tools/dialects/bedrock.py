"""Amazon Bedrock's Converse API: https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use.html.

The list goes into ``toolConfig.tools``. Strict is off by default, as not every model behind the API supports it.
Bedrock has no sample arguments.
"""

from __future__ import annotations

from typing import Any

from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects.schemas import within_enum_limits, without_keywords

_REFUSED_WHEN_STRICT = frozenset({"minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"})


def tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{toolSpec: {name, description, inputSchema: {json}}}``, with ``strict`` when asked for."""
    schema = without_keywords(definition.parameters, _REFUSED_WHEN_STRICT if strict else frozenset())
    specification: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": {"json": within_enum_limits(schema) if strict else schema},
    }
    if strict:
        specification["strict"] = True
    return {"toolSpec": specification}
