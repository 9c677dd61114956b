"""A small memory for Anthropic's memory tool, and what the tool says to its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import memfiles
from memfiles.tools.session import Session

FILES = """\
memory:
  durability: os
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, max_size_bytes: 100}
    - {uid: u-play, name: playbook, description: Refunds., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret deal\\n"}
    - {uid: u-news, name: news, description: News., level: PUBLIC, content: "old news\\n"}
agents:
  support:
    level: INTERNAL
    memory: [{id: u-notes, mode: rw}, {id: u-play, mode: r}, {id: u-deals, mode: rw}, {id: u-news, mode: rw}]
"""
ENTRIES = FILES.replace("  files:", "  entries: {max_entries: 500}\n  files:")
Opening = Callable[[str], memfiles.Memory]


def said_by(tool: Any, command: str, **arguments: Any) -> str:
    """The result as the model gets it, an error marked."""
    from anthropic.lib.tools import ToolError  # late: it takes a second

    try:
        return str(tool.call({"command": command, **arguments}))
    except ToolError as error:
        return f"error: {error}"


def calls(session: Session, *commands: dict[str, Any]) -> list[str]:
    from memfiles.adapters.anthropic_memory import MemoryTool  # late, as above

    tool = MemoryTool(session)
    return [said_by(tool, **command) for command in commands]
