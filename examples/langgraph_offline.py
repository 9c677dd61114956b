"""Give an agent of LangChain and LangGraph the tools and the prompt of a session, offline: a script is the model.

Needs memfiles[langgraph]. Run it: python examples/langgraph_offline.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult

import memfiles
from memfiles.adapters.langgraph import MemfilesMiddleware

WORKFLOW = Path(__file__).with_name("workflow.yaml")


class ScriptedModel(GenericFakeChatModel):
    """Answers with the script, whatever tools it gets."""

    def bind_tools(self, tools: Any, **options: Any) -> "ScriptedModel":
        """Print the tools that the session has at this call."""
        print("tools:", *(tool.name for tool in tools))
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            print(messages[-1].status, "|", messages[-1].text)
        return super()._generate(messages, *arguments, **options)


def script() -> Iterator[AIMessage]:
    """The model's answers: two calls, the second of which the workflow forbids, then a text."""
    note = {"file": "customer-notes", "content": "- Ada moved to Pro.\n"}
    forbidden = {"file": "playbook", "content": "- Refund everything.\n"}
    for number, arguments in enumerate([note, forbidden]):
        call = {"name": "append_memory", "args": arguments, "id": f"call_{number}"}
        yield AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
    yield AIMessage("Noted, Ada.")


def main() -> None:
    """Run the agent on a session, then show what it remembers."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        model = ScriptedModel(messages=script())
        agent = create_agent(model, system_prompt="You are kind.", middleware=[MemfilesMiddleware(session)])
        done = agent.invoke({"messages": [{"role": "user", "content": "I moved to Pro. Ada"}]})
        print(done["messages"][-1].text)
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
