"""Run a Strands agent with memory over MCP, offline: a script stands in for the model.

Needs strands-agents, and on the PATH memfiles[mcp] from another environment, as the two want different versions of mcp.
Run it: python examples/strands_offline.py
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models import Model
from strands.tools.mcp import MCPClient

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SERVER = StdioServerParameters(command="memfiles", args=["mcp", "-w", str(WORKFLOW), "--agent", "support"])
NOTE = {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}


class ScriptedModel(Model):
    """Stands in for a model: keep a note, answer."""

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """The next turn of the script."""
        yield {"messageStart": {"role": "assistant"}}
        if result := messages[-1]["content"][0].get("toolResult"):
            print(result["content"][0]["text"])
            yield {"contentBlockDelta": {"delta": {"text": "I have refunded the second charge, Ada."}}}
        else:
            print(sorted(tool["name"] for tool in tool_specs))
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "append_memory", "toolUseId": "call_1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(NOTE)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if result else "tool_use"}}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used here."""
        yield {}

    def update_config(self, **_: Any) -> None:
        """Ignore the settings."""

    def get_config(self) -> Any:
        """No settings."""


def main() -> None:
    """Let the agent answer one customer; what it keeps is in the memory directory next to the workflow."""
    with MCPClient(lambda: stdio_client(SERVER)) as memory:
        agent = Agent(model=ScriptedModel(), tools=memory.list_tools_sync(), callback_handler=None)
        print(agent("I was charged twice. Ada"), end="")


if __name__ == "__main__":
    main()
