"""Run one LangGraph agent for two users at the same time, offline: a script is the model.

Needs memfiles[langgraph]. Run it: python examples/many_users.py
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import memfiles
from memfiles.adapters.langgraph import MemfilesMiddleware

WORKFLOW = "{memory: {entries: {}}, agents: {support: {users: required}}}"


@dataclass
class Context:
    user: str  # who is logged in


class ScriptedModel(GenericFakeChatModel):
    """Stands in for a model: saves what the user says, or answers with what the prompt shows."""

    def bind_tools(self, tools: Any, **options: Any) -> "ScriptedModel":
        """The same model: the script needs no tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        asked = [each.text for each in messages if isinstance(each, HumanMessage)][-1]
        answer = AIMessage(" ".join(line[2:] for line in messages[0].text.splitlines() if line.startswith("| ")))
        if asked.startswith("I am") and not isinstance(messages[-1], ToolMessage):
            save = {"name": "memory_save", "args": {"key": "plan", "content": asked}, "id": "call_1"}
            answer = AIMessage("", tool_calls=[{**save, "type": "tool_call"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


async def main(folder: Path) -> None:
    """Let two users talk to one agent, twice."""
    path = folder / "workflow.yaml"
    path.write_text(WORKFLOW)
    with memfiles.open(path, watch=False) as memory:
        of_user = MemfilesMiddleware(lambda runtime: memory.session("support", user=runtime.context.user))
        agent: Any = create_agent(ScriptedModel(messages=iter([])), middleware=[of_user], context_schema=Context)
        for ada, bob in (("I am Ada, on Pro.", "I am Bob, on Free."), ("Which plan am I on?",) * 2):
            said = (({"messages": [HumanMessage(text)]}, user) for text, user in ((ada, "ada"), (bob, "bob")))
            answers = await asyncio.gather(*(agent.ainvoke(text, context=Context(user)) for text, user in said))
            print(*(answer["messages"][-1].text for answer in answers), sep="\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(Path(place)))
