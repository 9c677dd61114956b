"""The session's tools as MCP has them.

The rule this file guards: a tool that is not offered cannot be called. With ``read_only`` none that changes anything
is offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult, TextContent, Tool

from memfiles.errors import ReadOnly
from memfiles.tool_arguments import shortened
from memfiles.tool_definitions import APPEND, EDIT, READ
from memfiles.tool_result import ToolResult, failed

if TYPE_CHECKING:
    from memfiles.mcp_server.offer import Offer

CODE = "memfiles/code"
_SAYING_MORE = (READ, APPEND, EDIT)  # their text is not only their data


def offered(offer: Offer) -> list[Tool]:
    """The tools that the session has at this moment and that may be used here."""
    tools = [Tool.model_validate(shape) for shape in offer.session.tools("mcp")]
    return [tool for tool in tools if _changes_nothing(tool)] if offer.read_only else tools


def called(offer: Offer, name: str, arguments: dict[str, Any] | None) -> CallToolResult:
    """Carry out one call; like every tool call it never raises."""
    if offer.read_only and (refusal := _refusal(offer, name)) is not None:
        return as_mcp(name, refusal)
    return as_mcp(name, offer.session.call(name, arguments))


def as_mcp(tool: str, result: ToolResult) -> CallToolResult:
    """A result of a tool call as MCP has it.

    Clients show the model the structured content in place of the text where there is both, so it says all that the
    text says. Of an error they show the text; its code stands in ``_meta``.
    """
    return CallToolResult(
        content=[TextContent(text=result.text)],
        structured_content=_structured(tool, result),
        is_error=result.is_error,
        _meta={CODE: result.code} if result.code else None,
    )


def _structured(tool: str, result: ToolResult) -> dict[str, Any] | None:
    if result.is_error:  # it would have to fit the output schema
        return None
    said = {"text": result.text} if tool in _SAYING_MORE else {}
    return said | (result.data or {})


def _refusal(offer: Offer, name: str) -> ToolResult | None:
    names = [tool.name for tool in offered(offer)]
    if name in names:
        return None
    use = f"use one of {', '.join(names)}" if names else "and there is nothing to be read here"
    return failed(ReadOnly(f"{shortened(name)} cannot be called: memory can only be read here; {use}"))


def _changes_nothing(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True
