"""Anthropic's Messages API: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use.

Strict is off by default, as all strict tools of a request share one grammar of bounded size. If asked for, it applies
to the tools that ``schemas.strict_together`` chooses.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects.schemas import within_enum_limits, without_keywords

_REFUSED_WHEN_STRICT = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"})


def tool(definition: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """``{name, description, input_schema}``, with ``strict`` and ``input_examples`` when asked for."""
    shape: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "input_schema": without_keywords(definition.parameters, _REFUSED_WHEN_STRICT if strict else frozenset()),
    }
    if strict:
        shape |= {"input_schema": within_enum_limits(shape["input_schema"]), "strict": True}
    if examples and definition.examples:
        shape["input_examples"] = deepcopy(list(definition.examples))
    return shape
