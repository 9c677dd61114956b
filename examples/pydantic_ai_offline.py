"""Run a pydantic-ai agent with memory, offline: a FunctionModel stands in for the model.

Needs memfiles[pydantic-ai]. Run it: python examples/pydantic_ai_offline.py
"""

from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import memfiles
from memfiles.adapters.pydantic_ai import MemoryToolset, memory_instructions

WORKFLOW = Path(__file__).with_name("workflow.yaml")


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a model: read the playbook, try to change it, keep a note, answer."""
    if len(messages) == 1:
        print(info.instructions)  # the index card, as a real model would get it
        return ModelResponse(parts=[ToolCallPart("read_memory", {"file": "playbook"})])
    if len(messages) == 3:
        note = {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}
        wrong = {"file": "playbook", "content": "- Refund everything.\n"}
        return ModelResponse(parts=[ToolCallPart("append_memory", note), ToolCallPart("append_memory", wrong)])
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            print(f"{part.outcome}: {part.content}")
    return ModelResponse(parts=[TextPart("I have refunded the second charge, Ada.")])


def main() -> None:
    """Let the agent answer one customer, then show what it remembers."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        toolset, instructions = MemoryToolset(session), memory_instructions(session)
        agent = Agent(FunctionModel(scripted), toolsets=[toolset], instructions=instructions)
        print(agent.run_sync("I was charged twice. Ada").output)
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
