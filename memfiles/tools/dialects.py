"""Dialects: tool definitions in each vendor's shape, and the vendors' limits on strict tools.

The rules this file guards: a dialect only rewrites, and ``definitions`` says what a tool is and may do. Rewrites return
fresh objects and keep the order of keys. A request is never refused because of memfiles' tools, and the same tools
always lose the same features. The limits are the vendors', as documented in November 2026; a vendor counts the whole
request, so a host's own strict tools leave less room for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from copy import deepcopy
from typing import Any, Protocol

from memfiles.errors import InvalidArgument
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.results import ToolResult

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
_REFUSED_IF_STRICT = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"})
"""Keywords that Anthropic and Bedrock refuse in a strict schema; Bedrock refuses ``multipleOf`` too."""

_REFUSED_BY_GEMINI = frozenset(
    {"$schema", "const", "default", "exclusiveMaximum", "exclusiveMinimum", "format", "title"}
)


class Dialect(Protocol):
    """Rewrites one tool definition for one vendor."""

    def __call__(self, tool: ToolDefinition, /, *, strict: bool | None, examples: bool) -> dict[str, Any]:
        """A fresh JSON object that the vendor's API accepts as a tool; the same definition gives the same object.

        ``strict`` asks the vendor to enforce the schema, None takes the vendor's default. ``examples`` adds sample
        arguments. A dialect ignores what its vendor does not support, and leaves out what would exceed the vendor's
        limits on strict schemas.
        """


def anthropic_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """Anthropic's Messages API: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use.

    Strict is off by default, as all strict tools of a request share one grammar of bounded size. If asked for, it
    applies to the tools that ``strict_together`` chooses.
    """
    shape: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": _strict_if(strict, tool.parameters, _REFUSED_IF_STRICT),
    }
    if strict:
        shape["strict"] = True
    if examples and tool.examples:
        shape["input_examples"] = deepcopy(list(tool.examples))
    return shape


def bedrock_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """Amazon Bedrock's Converse API: https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use.html.

    The list goes into ``toolConfig.tools``. Strict is off by default, as not every model behind the API supports it.
    Bedrock has no sample arguments.
    """
    specification: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": _strict_if(strict, tool.parameters, _REFUSED_IF_STRICT | {"multipleOf"})},
    }
    if strict:
        specification["strict"] = True
    return {"toolSpec": specification}


def gemini_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """Google's Gemini API: https://ai.google.dev/gemini-api/docs/function-calling.

    The list goes into a tool's ``function_declarations``. Gemini has neither strict declarations (its mode
    ``VALIDATED`` is a setting of the request) nor sample arguments.
    """
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": without_keywords(tool.parameters, _REFUSED_BY_GEMINI),
    }


def mcp_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """The Model Context Protocol: https://modelcontextprotocol.io/specification, "Tools".

    A client assumes the worst of a missing annotation, so all are set. MCP has neither strict tools nor sample
    arguments.
    """
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": deepcopy(tool.parameters),
        **({"outputSchema": deepcopy(tool.output)} if tool.output else {}),
        "annotations": {
            "readOnlyHint": tool.read_only,
            "destructiveHint": tool.destructive,
            "idempotentHint": tool.idempotent,
            "openWorldHint": False,
        },
    }


def structured(definition: ToolDefinition, result: ToolResult) -> dict[str, Any] | None:
    """MCP's ``structuredContent`` of a result, which fits ``outputSchema``; None for an error, or without a schema.

    Some clients show the model this instead of the text, so it includes the text where the data lacks it.
    """
    if result.is_error or result.data is None or not definition.output:
        return None
    return {"text": result.text, **result.data} if "text" in definition.output["properties"] else dict(result.data)


def openai_chat_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """OpenAI's Chat API: https://platform.openai.com/docs/guides/function-calling.

    Strict by default: every property is then required, optional ones are nullable, and an enum too large for a strict
    schema is left out. OpenAI has no sample arguments.
    """
    is_strict, parameters = strict is not False, deepcopy(tool.parameters)
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": within_enum_limits(all_required(parameters)) if is_strict else parameters,
        "strict": is_strict,
    }
    return {"type": "function", "function": function}


def openai_tool(tool: ToolDefinition, *, strict: bool | None, examples: bool) -> dict[str, Any]:
    """OpenAI's Responses API: as the Chat API, with the function's fields at the top."""
    return {"type": "function", **openai_chat_tool(tool, strict=strict, examples=examples)["function"]}


DIALECTS: dict[str, Dialect] = {
    "anthropic": anthropic_tool,
    "bedrock": bedrock_tool,
    "gemini": gemini_tool,
    "mcp": mcp_tool,
    "openai": openai_tool,
    "openai-chat": openai_chat_tool,
}
_SHARE_A_GRAMMAR = {"anthropic", "bedrock"}


def render(
    tools: Iterable[ToolDefinition], dialect: str, *, strict: bool | None = None, examples: bool = False
) -> list[dict[str, Any]]:
    """The tools in the shape of ``dialect``; an unknown one is an ``InvalidArgument`` that lists the known ones.

    If a vendor limits the strict tools of one request, ``strict_together`` chooses which tools are strict.
    """
    rewrite = DIALECTS.get(dialect) if isinstance(dialect, str) else None
    if rewrite is None:
        raise InvalidArgument(f"unknown dialect {dialect!r}; use one of {', '.join(sorted(DIALECTS))}")
    offered = list(tools)
    if not (strict and dialect in _SHARE_A_GRAMMAR):
        return [rewrite(tool, strict=strict, examples=examples) for tool in offered]
    together = strict_together(offered)
    return [rewrite(tool, strict=True if tool.name in together else None, examples=examples) for tool in offered]


def _strict_if(strict: bool | None, schema: dict[str, Any], refused: Set[str]) -> dict[str, Any]:
    """A copy of the schema; if strict, without these keywords and large enums."""
    return within_enum_limits(without_keywords(schema, refused)) if strict else deepcopy(schema)


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
    properties = {name: dict(inner) for name, inner in schema["properties"].items()}
    for name in properties.keys() - set(schema["required"]):
        properties[name]["type"] = [properties[name]["type"], "null"]
        if "enum" in properties[name]:
            properties[name]["enum"] = [*properties[name]["enum"], None]
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
        values = enums[largest]
        is_long = len(values) > LONG_ENUM and sum(len(value or "") for value in values) > LONG_ENUM_CHARACTERS
        if sum(map(len, enums.values())) <= ENUM_VALUES and not is_long:
            break
        kept = {key: value for key, value in properties[largest].items() if key != "enum"}
        properties[largest] = kept | {"description": f"{kept['description']} {_INSTEAD}"}
    return schema | {"properties": properties}


def _optional(tool: ToolDefinition) -> int:
    return len(tool.parameters["properties"]) - len(tool.parameters["required"])
