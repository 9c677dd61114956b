"""The one prompt: what a model shall be told of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptResult, Prompt, PromptMessage, TextContent

from memfiles.tools.arguments import shortened

if TYPE_CHECKING:
    from memfiles.server.offer import Offer

NAME = "memory"
_DESCRIPTION = "What your memory holds: the index card of your memory files, and what was saved that fits."
_NOTHING = "There is nothing in your memory that you may see."


def prompts() -> list[Prompt]:
    """The prompts there are."""
    return [Prompt(name=NAME, description=_DESCRIPTION)]


def rendered(offer: Offer, name: str) -> GetPromptResult:
    """The session's system prompt, as it is at this moment."""
    if name != NAME:
        raise MCPError(INVALID_PARAMS, f"there is no prompt {shortened(name)}: use {NAME}")
    told = TextContent(text=offer.session.system_prompt(read_only=offer.read_only) or _NOTHING)
    return GetPromptResult(description=_DESCRIPTION, messages=[PromptMessage(role="user", content=told)])
