"""Every way by which an agent's calls reach its memory, as functions that make the same calls.

To add one, write a function that drives ``CALLS`` through it and put it into ``SURFACES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import memfiles
from memfiles.tools.dialects import DIALECTS
from tests.adapters.agents_at_work import WORKFLOW, Answer, Call, Script
from tests.adapters.exam import ToolExam
from tests.adapters.test_anthropic_tools import TestAnthropicTools
from tests.adapters.test_langgraph import TestLangGraph
from tests.adapters.test_openai_agents import TestOpenAIAgents
from tests.adapters.test_pydantic_ai import TestPydanticAI
from tests.cli.command_line import run
from tests.server.mcp_clients import Offer, client_of, in_loop, text_of
from tests.support.workflows import opened, write_workflow

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


Drive = Callable[[memfiles.Memory, memfiles.Session], list[Answer]]
Surface = Callable[[Path], list[Answer]]


def in_process(drive: Drive) -> Surface:
    """A surface that works on a session of a memory that is open in this process."""

    def driven(folder: Path) -> list[Answer]:
        with opened(folder, WORKFLOW) as memory:
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
    write_workflow(folder, WORKFLOW)
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


def by_framework(exam: ToolExam, _: memfiles.Memory, session: memfiles.Session) -> list[Answer]:
    return exam.run(session, Script(*([Call(*call)] for call in CALLS)))


SURFACES: dict[str, Surface] = {
    "session.call": in_process(by_session),
    **{f"{dialect} arguments": in_process(partial(by_dialect, dialect)) for dialect in DIALECTS},
    "memfiles call": by_command_line,
    "MCP": in_process(by_mcp),
    "Anthropic's tool runner": in_process(partial(by_framework, TestAnthropicTools())),
    "OpenAI Agents SDK": in_process(partial(by_framework, TestOpenAIAgents())),
    "pydantic-ai": in_process(partial(by_framework, TestPydanticAI())),
    "LangGraph": in_process(partial(by_framework, TestLangGraph())),
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
