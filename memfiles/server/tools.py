"""The session's tools as MCP has them.

The rule this file guards: a tool that is not offered cannot be called. With ``read_only`` none that changes anything
is offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult, TextContent, Tool

from memfiles.errors import ReadOnly
from memfiles.tools.arguments import shortened
from memfiles.tools.dialects import render
from memfiles.tools.dialects.mcp import structured
from memfiles.tools.result import ToolResult, failed

if TYPE_CHECKING:
    from memfiles.tools.definitions import ToolDefinition
    from memfiles.tools.session import Session

CODE = "memfiles/code"
"""Where in the ``_meta`` of a result that is an error its code stands."""


class Tools:
    """The tools of one session. Threads may share it."""

    def __init__(self, session: Session, *, read_only: bool) -> None:
        self._session = session
        self._read_only = read_only
        self._known: dict[str, ToolDefinition] = {}  # making them takes twenty times as long as a call

    def offered(self) -> list[Tool]:
        """Those that can be used at this moment."""
        return [Tool.model_validate(shape) for shape in render(self._definitions(), "mcp")]

    def called(self, name: str, arguments: dict[str, Any] | None) -> CallToolResult:
        """Carry out one call; what goes wrong in it is a result that says so."""
        definition = self._known.get(name) or {tool.name: tool for tool in self._definitions()}.get(name)
        if definition is None and self._read_only:
            return _as_mcp(self._refusal(name), None)
        return _as_mcp(self._session.call(name, arguments), definition)

    def _definitions(self) -> list[ToolDefinition]:
        found = [tool for tool in self._session.definitions() if tool.read_only or not self._read_only]
        self._known = {tool.name: tool for tool in found}
        return found

    def _refusal(self, name: str) -> ToolResult:
        use = f"use one of {', '.join(self._known)}" if self._known else "and there is nothing to be read here"
        return failed(ReadOnly(f"{shortened(name)} cannot be called: memory can only be read here; {use}"))


def _as_mcp(result: ToolResult, definition: ToolDefinition | None) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=result.text)],
        structured_content=structured(definition, result) if definition is not None else None,
        is_error=result.is_error,
        _meta={CODE: result.code} if result.code else None,
    )
