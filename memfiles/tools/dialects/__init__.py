"""Dialects: tool definitions in each vendor's shape, one small module a vendor.

The rule this package guards: a dialect only rewrites; ``definitions`` says what a tool is and may do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from memfiles.errors import InvalidArgument
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import anthropic, bedrock, gemini, mcp, openai
from memfiles.tools.dialects.schemas import strict_together


class Dialect(Protocol):
    """Rewrites one tool definition for one vendor."""

    def __call__(self, tool: ToolDefinition, /, *, strict: bool | None, examples: bool) -> dict[str, Any]:
        """A fresh JSON object that the vendor's API accepts as a tool; the same definition gives the same object.

        ``strict`` asks the vendor to enforce the schema, None takes the vendor's default. ``examples`` adds sample
        arguments. A dialect ignores what its vendor does not support, and leaves out what would exceed the vendor's
        limits on strict schemas (see ``dialects.schemas``).
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
