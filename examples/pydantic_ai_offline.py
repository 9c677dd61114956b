"""Run a pydantic-ai agent with memory, offline: a FunctionModel stands in for the model.

Needs pydantic-ai-slim. Run it: python examples/pydantic_ai_offline.py
"""

from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, Tool, ToolCallPart, ToolFailed
from pydantic_ai.models.function import AgentInfo, FunctionModel

import memfiles

WORKFLOW = Path(__file__).with_name("workflow.yaml")


def memory_tools(session: memfiles.Session) -> list[Tool[None]]:
    """The session's tools as pydantic-ai wants them; an error goes back to the model, never up."""

    def tool(definition: dict[str, Any]) -> Tool[None]:
        def call(context: RunContext[None], **arguments: Any) -> str:
            result = session.call(definition["name"], arguments, call_id=context.tool_call_id)
            if result.is_error:
                raise ToolFailed(result.text)
            return result.text

        name, text, schema = definition["name"], definition["description"], definition["input_schema"]
        return Tool.from_schema(call, name=name, description=text, json_schema=schema, takes_ctx=True)

    return [tool(definition) for definition in session.tools("anthropic")]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model: read the playbook, keep a note, answer."""
    if len(messages) == 1:
        print(info.instructions)  # the index card, as a real model would get it
        return ModelResponse(parts=[ToolCallPart("read_memory", {"file": "playbook"})])
    if len(messages) == 3:
        note = {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}
        return ModelResponse(parts=[ToolCallPart("append_memory", note)])
    return ModelResponse(parts=[TextPart("I have refunded the second charge, Ada.")])


def main() -> None:
    """Let the agent answer one customer, then show what it will remember."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        agent = Agent(FunctionModel(scripted), instructions=session.system_prompt, tools=memory_tools(session))
        print(agent.run_sync("I was charged twice. Ada").output)
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
