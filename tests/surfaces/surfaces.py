"""Every way by which an agent's calls reach its memory, as functions that make the same calls.

To add one, write a function that drives ``CALLS`` through it and put it into ``SURFACES``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import httpx2
from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, UsageLimits
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import memfiles
from memfiles.adapters import anthropic_tools, langgraph, openai_agents, pydantic_ai
from memfiles.tools.dialects import DIALECTS
from tests.adapters.agents_at_work import WORKFLOW, ScriptedClaude, opened
from tests.cli.command_line import run
from tests.server.mcp_clients import Offer, client_of, in_loop, text_of

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_memory", {"file": "playbook"}),
    ("append_memory", {"file": "notes", "content": "- Ada is on Free.\n- Zoë writes “naïve” 日本語.\n"}),
    ("append_memory", {"file": "notes", "content": "- Bob was charged twice.\n"}),
    ("edit_memory", {"file": "notes", "old_string": "Free", "new_string": "Pro"}),
    ("edit_memory", {"file": "notes", "old_string": "- Bob was charged twice.\n", "new_string": ""}),
    ("read_memory", {"file": "notes", "offset": 2, "limit": 1}),
    ("read_memory", {"file": "notes", "offset": 9}),
    ("append_memory", {"file": "playbook", "content": "- Ask no questions.\n"}),
    ("append_memory", {"file": "deals", "content": "- hidden\n"}),
    ("append_memory", {"file": "notes", "content": "x" * 1000}),
    ("edit_memory", {"file": "notes", "old_string": "Carl", "new_string": "Karl"}),
    ("memory_save", {"key": "customers/ada", "content": "Ada moved to Pro.", "tags": ["ada", "plan"], "importance": 1}),
    ("memory_save", {"key": "how-to/refund", "content": "Refund at once.", "kind": "procedure", "pinned": True}),
    ("memory_save", {"key": "team", "content": "The desk opens at nine.", "category": "workspace"}),
    ("memory_save", {"key": "customers/ada", "content": "Ada moved to Pro in May."}),
    ("memory_save", {"key": "customers/bob", "content": "Bob is angry.", "kind": "mood"}),
    ("memory_update", {"key": "how-to/refund", "outcome": "success", "confidence": 0.5}),
    ("memory_update", {"key": "customers/nobody", "content": "x"}),
    ("memory_get", {"key": "customers/ada"}),
    ("memory_get", {"key": "customers/nobody"}),
    ("memory_search", {"query": "What's Ada's plan?", "max_results": 2}),
    ("memory_list", {"prefix": "customers/"}),
    ("memory_delete", {"key": "team"}),
    ("memory_delete", {"key": "team"}),
    ("memory_save", {"key": "note", "content": "x", "level": "PUBLIC"}),
]


class Answer(NamedTuple):
    """What a surface gives back for a call: the text, and whether it marks it as an error (None: it has no mark)."""

    text: str
    is_error: bool | None


Drive = Callable[[memfiles.Memory, memfiles.Session], list[Answer]]
Surface = Callable[[Path], list[Answer]]


def in_process(drive: Drive) -> Surface:
    """A surface that works on a session of a memory that is open in this process."""

    def driven(folder: Path) -> list[Answer]:
        with opened(folder) as memory:
            return drive(memory, memory.session("support", run="monday"))

    return driven


def by_session(_: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    results = [session.call(name, sent, call_id=f"call_{at}") for at, (name, sent) in enumerate(CALLS)]
    return [Answer(result.text, result.is_error) for result in results]


def by_dialect(dialect: str, _: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    """With the arguments as the vendor hands them over for the tools that it was sent."""
    schemas = dict(map(_name_and_schema, session.tools(dialect)))
    results = [session.call(name, _as_sent(dialect, sent, schemas[name])) for name, sent in CALLS]
    return [Answer(result.text, result.is_error) for result in results]


def by_command_line(folder: Path) -> list[Answer]:
    (folder / "workflow.yaml").write_text(WORKFLOW)
    answers = []
    with chdir(folder):
        for name, sent in CALLS:
            ran = run("call", "support", name, "-", "--run", "monday", "--json", stdin=json.dumps(sent))
            answers.append(Answer(ran.error["message"], True) if ran.code else Answer(ran.data["text"], False))
    return answers


def by_mcp(memory: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    async def called() -> list[Answer]:
        async with client_of(Offer(memory, session)) as client:
            results = [await client.call_tool(name, sent) for name, sent in CALLS]
        return [Answer(text_of(result), result.is_error) for result in results]

    return in_loop(called)


def by_anthropic(_: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    claude = ScriptedClaude(*([call] for call in CALLS))
    transport = httpx2.MockTransport(claude.answer)
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    asked: Any = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
    client.beta.messages.tool_runner(tools=anthropic_tools.tools(session), **asked).until_done()
    return [Answer(result["content"], result.get("is_error", False)) for result in claude.results]


def by_openai_agents(_: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    calls = [[function_call(name, sent, call_id=f"call_{at}")] for at, (name, sent) in enumerate(CALLS)]
    model = ScriptedModel([*calls, [assistant_message("Done.")]])
    agent = Agent(name="support", tools=[*openai_agents.tools(session)], model=model)
    quiet = RunConfig(tracing_disabled=True)
    items: list[Any] = asyncio.run(
        Runner.run(agent, "Hello.", max_turns=len(calls) + 1, run_config=quiet)
    ).to_input_list()
    return [Answer(item["output"], None) for item in items if item.get("type") == "function_call_output"]


def by_pydantic_ai(_: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    steps = iter(enumerate(CALLS))

    def next_step(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        for at, (name, sent) in steps:
            return ModelResponse(parts=[ToolCallPart(name, sent, tool_call_id=f"call_{at}")])
        return ModelResponse(parts=[TextPart("Done.")])

    agent = PydanticAgent(FunctionModel(next_step), toolsets=[pydantic_ai.MemoryToolset(session)])
    told = asyncio.run(agent.run("Hello.", usage_limits=UsageLimits(request_limit=None))).all_messages()
    returned = [part for message in told for part in message.parts if isinstance(part, ToolReturnPart)]
    return [Answer(str(part.content), part.outcome != "success") for part in returned]


def by_langgraph(_: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    calls: list[Any] = [
        {"type": "tool_call", "name": name, "args": sent, "id": f"{at}"} for at, (name, sent) in enumerate(CALLS)
    ]
    made = {tool.name: tool for tool in langgraph.tools(session)}
    messages = [made[call["name"]].invoke(call) for call in calls]
    return [Answer(message.content, message.status == "error") for message in messages]


SURFACES: dict[str, Surface] = {
    "session.call": in_process(by_session),
    **{f"{dialect} arguments": in_process(partial(by_dialect, dialect)) for dialect in DIALECTS},
    "memfiles call": by_command_line,
    "MCP": in_process(by_mcp),
    "Anthropic's tool runner": in_process(by_anthropic),
    "OpenAI Agents SDK": in_process(by_openai_agents),
    "pydantic-ai": in_process(by_pydantic_ai),
    "LangGraph": in_process(by_langgraph),
}


def _name_and_schema(shape: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A tool's name and the schema of its arguments, wherever the vendor has them."""
    function = shape.get("function") or shape.get("toolSpec") or shape
    places = ("parameters", "parameters_json_schema", "input_schema", "inputSchema")
    schema = next(function[place] for place in places if place in function)
    return function["name"], schema.get("json", schema)


def _as_sent(dialect: str, sent: dict[str, Any], schema: dict[str, Any]) -> object:
    """OpenAI sends JSON text in which nothing is left out, Gemini has no whole numbers, the others send an object."""
    if dialect.startswith("openai"):
        return json.dumps(dict.fromkeys(schema["required"]) | sent)
    if dialect == "gemini":
        return {name: float(value) if type(value) is int else value for name, value in sent.items()}
    return sent
