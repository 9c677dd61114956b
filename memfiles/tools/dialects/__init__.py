"""Vendors' shapes of a tool definition: one small module each, and the one list of them all.

The rule this package guards: a dialect only rewrites; what a tool is and may do stands in ``tool_definitions``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from memfiles.errors import InvalidArgument
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import anthropic, bedrock, gemini, mcp, openai
from memfiles.tools.dialects.limits import strict_together


class Dialect(Protocol):
    """Rewrites one tool definition for one vendor."""

    def __call__(self, tool: ToolDefinition, /, *, strict: bool | None, examples: bool) -> dict[str, Any]:
        """A fresh JSON object that the vendor's API takes as a tool, always the same for the same definition.

        ``strict`` asks the vendor to hold the model to the schema, None is the vendor's usual choice; ``examples``
        adds sample arguments. A vendor that knows no such thing leaves it out. What a vendor would refuse as too much
        of a strict schema is left out as well: see ``dialects.limits``.
        """
        ...


DIALECTS: dict[str, Dialect] = {
    "anthropic": anthropic.tool,
    "bedrock": bedrock.tool,
    "gemini": gemini.tool,
    "mcp": mcp.tool,
    "openai": openai.responses_tool,
    "openai-chat": openai.chat_tool,
}


_SHARE_A_GRAMMAR = {"anthropic", "bedrock"}


def render(
    tools: Iterable[ToolDefinition], dialect: str, *, strict: bool | None = None, examples: bool = False
) -> list[dict[str, Any]]:
    """The tools in the shape of ``dialect``; an unknown one is an ``InvalidArgument`` that lists the known.

    Where a vendor takes only so many strict tools in a request, those that ``strict_together`` gives up are not.
    """
    rewrite = DIALECTS.get(dialect) if isinstance(dialect, str) else None
    if rewrite is None:
        raise InvalidArgument(f"unknown dialect {dialect!r}; use one of {', '.join(sorted(DIALECTS))}")
    offered = list(tools)
    if not (strict and dialect in _SHARE_A_GRAMMAR):
        return [rewrite(tool, strict=strict, examples=examples) for tool in offered]
    together = strict_together(offered)
    return [rewrite(tool, strict=True if tool.name in together else None, examples=examples) for tool in offered]
