"""Run an agent of Microsoft's Agent Framework with memory over MCP, offline: a script stands in for the model.

Needs memfiles[mcp], agent-framework-core and tenacity. Run it: python examples/agent_framework_offline.py
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    MCPStdioTool,
    Message,
)

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SERVER = ["mcp", "-w", str(WORKFLOW), "--agent", "support"]
NOTE = {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Stands in for a model: keep a note, answer."""

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any) -> Any:
        return self._next(messages[-1], options)

    async def _next(self, last: Message, options: Any) -> ChatResponse:
        if last.contents[0].type == "function_result":
            print(last.contents[0].result)
            said = Content.from_text("I have refunded the second charge, Ada.")
        else:
            print(options["instructions"])
            print(sorted(tool.name for tool in options["tools"]))
            said = Content.from_function_call("call_1", "append_memory", arguments=NOTE)
        return ChatResponse(messages=[Message(role="assistant", contents=[said])])


async def main() -> None:
    """Let the agent answer one customer; what it keeps is in the memory directory next to the workflow."""
    async with MCPStdioTool(name="memory", command="memfiles", args=SERVER) as memory:
        told = await memory.get_prompt("memory")  # the index card, and the entries that fit
        agent = Agent(client=ScriptedClient(), name="support", instructions=told, tools=[memory])
        print((await agent.run("I was charged twice. Ada")).text)


if __name__ == "__main__":
    asyncio.run(main())
