"""One compiled agent serves many users at once: neither sees the other's text in prompts, tools or results."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from anthropic.lib.tools import ToolError
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.memory import Memory as HarnessMemory

import memfiles
from memfiles.adapters import anthropic_tools, langgraph, openai_agents, pydantic_ai, pydantic_ai_harness
from memfiles.adapters.anthropic_memory import MemoryTool
from memfiles.adapters.deepagents import MemfilesBackend
from memfiles.adapters.langgraph import MemfilesMiddleware
from memfiles.adapters.langgraph_store import MemfilesStore
from memfiles.adapters.pydantic_ai import MemoryToolset, memory_instructions
from memfiles.adapters.pydantic_ai_harness import session_stores
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from memfiles.workflow.fields import TOOL_NAMES
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  files: [{uid: rules-1, name: rules, level: INTERNAL, content: "Be kind.\\n"}]
  entries: {}
agents:
  support: {level: INTERNAL, users: required, memory: [{id: rules-1, mode: rw}]}
"""
USERS = ("ada", "bob")
ANIMALS = {"ada": "zebra", "bob": "walrus"}
"""What each user says, and the other one must never see."""


@dataclass
class Who:
    """The context of a run."""

    user: str | None


@dataclass
class Seen:
    """All that the model and the program were shown in the runs of one user."""

    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.parts)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


class InTurns:
    """Lets the runs of all users go on only when each of them has come to the same turn, so that they interleave."""

    def __init__(self) -> None:
        self._all_are_here = threading.Barrier(len(USERS))

    def wait(self) -> None:
        self._all_are_here.wait(60)


def steps(user: str) -> list[list[tuple[str, dict[str, Any]]]]:
    """The calls of a model for a user: what it saves, and whatever may find what another one saved."""
    animal = ANIMALS[user]
    return [
        [("memory_save", {"key": "pet", "content": f"the {animal} of {user}", "tags": ["pet"]})],
        [
            ("memory_search", {"query": "which pet"}),
            ("memory_list", {}),
            ("memory_get", {"key": "pet"}),
            ("memory_update", {"key": "pet", "tags": ["pet", "mine"]}),
            ("append_memory", {"file": "rules", "content": f"- {animal}\n"}),
            ("memory_delete", {"key": "never"}),
            ("read_memory", {"file": "rules"}),
        ],
    ]


def user_in(text: str) -> str:
    """The user whose question the model was asked."""
    (found,) = (user for user in USERS if f"I am {user}" in text)
    return found


def session_for(memory: memfiles.Memory, user: str | None) -> Session:
    if user is None:
        raise KeyError("the program forgot to say who asks; its words are secret")
    return memory.session("support", user=user)


def check(memory: memfiles.Memory, seen: dict[str, Seen]) -> None:
    """Each saw her own text and nobody else's, and it is stored with her; what is for all is as it was."""
    for user in USERS:
        (other,) = set(USERS) - {user}
        assert [True, False] == [ANIMALS[each] in seen[user].text for each in (user, other)], seen[user].text
        found = memory.entries.get(memory.session("support", user=user), "pet")
        assert found is not None
        assert f"the {ANIMALS[user]} of {user}" == found.content
    assert "Be kind.\n" == memory.manager.read("rules-1")


class LangChainModel(GenericFakeChatModel):
    """Plays the steps of whoever asks, in turns with the other one's run."""

    seen: Any
    turns: Any
    offered: list[str] = []

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> LangChainModel:
        shown = [json.dumps(each.args_schema if isinstance(each.args_schema, dict) else each.name) for each in tools]
        return self.model_copy(update={"offered": shown})

    async def _agenerate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        return await asyncio.to_thread(self._generate, messages)

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        user = user_in("\n".join(each.text for each in messages if isinstance(each, HumanMessage)))
        self.turns.wait()
        self.seen[user].parts += [*self.offered, *(f"{each.text} {each.additional_kwargs}" for each in messages)]
        self.seen[user].parts += [str(each.artifact) for each in messages if isinstance(each, ToolMessage)]
        turn = sum(isinstance(each, AIMessage) for each in messages)
        calls = steps(user)[turn] if turn < 2 else []
        made: Any = [{"name": n, "args": a, "id": f"c{turn}{i}", "type": "tool_call"} for i, (n, a) in enumerate(calls)]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("" if made else "done", tool_calls=made))])


def asked(user: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"I am {user}"}]}


def run_langgraph(agent: Any, way: str) -> None:
    """Both users, twice, at the same time: in one loop, or in two threads."""
    if way == "asyncio":

        async def both() -> None:
            await asyncio.gather(*(agent.ainvoke(asked(user), context=Who(user)) for user in USERS))

        for _ in range(2):
            asyncio.run(both())
        return
    with ThreadPoolExecutor(len(USERS)) as threads:
        for _ in range(2):
            list(threads.map(lambda user: agent.invoke(asked(user), context=Who(user)), USERS))


WAYS = ["asyncio", "threads"]


@pytest.mark.parametrize("way", WAYS)
def test_langgraph(memory: memfiles.Memory, way: str) -> None:
    """One agent of ``create_agent``, with a function from the runtime to the session."""
    seen = {user: Seen() for user in USERS}
    model = LangChainModel(messages=iter([]), seen=seen, turns=InTurns())
    of_user: Callable[[Any], Session] = lambda runtime: session_for(memory, runtime.context.user)  # noqa: E731
    run_langgraph(create_agent(model, middleware=[MemfilesMiddleware(of_user)], context_schema=Who), way)

    check(memory, seen)
    assert all("rules" in each.text and "memory_save" in each.text for each in seen.values())


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_node(memory: memfiles.Memory, way: str) -> None:
    """One node for the tools of all; the model of a graph of one's own is bound to those of the run's session."""
    seen = {user: Seen() for user in USERS}
    model = LangChainModel(messages=iter([]), seen=seen, turns=InTurns())
    node = ToolNode(langgraph.tools(lambda runtime: session_for(memory, runtime.context.user)))

    def think(state: MessagesState, runtime: Runtime[Who]) -> dict[str, Any]:
        bound = model.bind_tools(langgraph.tools(session_for(memory, runtime.context.user)))
        return {"messages": [bound.invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState, context_schema=Who)
    graph.add_node("think", think).add_node("tools", node).add_edge(START, "think").add_edge("tools", "think")
    graph.add_conditional_edges("think", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    run_langgraph(graph.compile(), way)

    check(memory, seen)


@pytest.mark.parametrize("way", WAYS)
def test_openai_agents(memory: memfiles.Memory, way: str) -> None:
    """One agent of the SDK, with a function from the run's context; what it offers is of no user."""
    seen = {user: Seen() for user in USERS}

    def answer(call: ModelCall) -> Any:
        items = call.input if isinstance(call.input, list) else [{"role": "user", "content": call.input}]
        user = user_in(str(items))
        tools = [f"{tool.name} {vars(tool)['params_json_schema']}" for tool in call.tools]
        seen[user].parts += [str(items), call.system_instructions or "", *tools]
        turn = sum(item.get("type") == "function_call_output" for item in items)
        calls = steps(user)[min(turn, 1)] if turn < 2 else []
        return [function_call(n, a, call_id=f"c{turn}{i}") for i, (n, a) in enumerate(calls)] or [
            assistant_message("Done.")
        ]

    async def of_user(run: Any) -> Session:
        return session_for(memory, run.context.user)

    agent: OpenAIAgent[Who] = OpenAIAgent(
        name="support",
        instructions=openai_agents.instructions(of_user, "Help."),
        tools=[*openai_agents.tools(of_user)],
        model=ScriptedModel([ModelStep.respond(answer)] * 12),
    )
    quiet = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")

    async def runs(*users: str) -> None:
        await asyncio.gather(*(Runner.run(agent, f"I am {u}", context=Who(u), run_config=quiet) for u in users))

    for _ in range(2):
        if way == "asyncio":
            asyncio.run(runs(*USERS))
        else:
            with ThreadPoolExecutor(len(USERS)) as threads:
                list(threads.map(lambda user: asyncio.run(runs(user)), USERS))

    check(memory, seen)
    assert all("memory_save" in each.text and "append_memory" not in each.parts[2] for each in seen.values())


def pydantic_model(seen: dict[str, Seen]) -> FunctionModel:
    """Plays the steps of whoever asks."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        user = user_in(str(messages))
        seen[user].parts += [str(messages), info.instructions or "", str(info.function_tools)]
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        calls = steps(user)[turn] if turn < 2 else []
        return ModelResponse(parts=[ToolCallPart(n, a) for n, a in calls] or [TextPart("done")])

    return FunctionModel(answer)


def run_pydantic(agent: Agent[Who, str], way: str) -> None:
    """Both users, twice, at the same time."""

    async def runs(*users: str) -> None:
        await asyncio.gather(*(agent.run(f"I am {user}", deps=Who(user)) for user in users))

    for _ in range(2):
        if way == "asyncio":
            asyncio.run(runs(*USERS))
        else:
            with ThreadPoolExecutor(len(USERS)) as threads:
                list(threads.map(lambda user: asyncio.run(runs(user)), USERS))


@pytest.mark.parametrize("way", WAYS)
def test_pydantic_ai(memory: memfiles.Memory, way: str) -> None:
    """One agent with one toolset, and a function from the run's context."""
    seen = {user: Seen() for user in USERS}
    of_user: Callable[[RunContext[Who]], Session] = lambda ctx: session_for(memory, ctx.deps.user)  # noqa: E731
    toolsets, instructions = [MemoryToolset(of_user)], memory_instructions(of_user)
    run_pydantic(Agent(pydantic_model(seen), toolsets=toolsets, instructions=instructions, deps_type=Who), way)

    check(memory, seen)


@pytest.mark.parametrize("way", WAYS)
def test_pydantic_ai_harness(memory: memfiles.Memory, way: str) -> None:
    """One agent with the harness's own memory, whose files are entries of the user of the run."""
    seen = {user: Seen() for user in USERS}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        user = user_in(str(messages))
        seen[user].parts += [str(messages), info.instructions or ""]
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        calls = [("write_memory", {"content": f"the {ANIMALS[user]}"}), ("search_memory", {"query": "the"})]
        return ModelResponse(parts=[ToolCallPart(*calls[turn]) if turn < 2 else TextPart("done")])

    stores: Any = session_stores(lambda ctx: session_for(memory, ctx.deps.user))
    memories: Any = HarnessMemory(store_resolver=stores)
    run_pydantic(Agent(FunctionModel(answer), capabilities=[memories], deps_type=Who), way)

    for user, other in zip(USERS, reversed(USERS), strict=True):
        assert [True, False] == [ANIMALS[each] in seen[user].text for each in (user, other)]
        kept = memory.entries.list(memory.session("support", user=user)).memories
        assert [(True, False)] == [(ANIMALS[user] in each.content, ANIMALS[other] in each.content) for each in kept]


@pytest.mark.parametrize("way", WAYS)
def test_deepagents(memory: memfiles.Memory, way: str) -> None:
    """One deep agent, whose folder of memories is that of the user of the run."""
    seen = {user: Seen() for user in USERS}
    turns = InTurns()

    class DeepModel(LangChainModel):
        def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
            user = user_in("\n".join(each.text for each in messages if isinstance(each, HumanMessage)))
            turns.wait()
            seen[user].parts += [each.text for each in messages]
            animal = ANIMALS[user]
            calls = [
                [("write_file", {"file_path": f"/memories/{animal}", "content": f"the {animal}"})],
                [("ls", {"path": "/memories/"}), ("grep", {"pattern": "the"}), ("glob", {"pattern": "**/*"})],
            ]
            turn = sum(isinstance(each, AIMessage) for each in messages)
            made: Any = [
                {"name": n, "args": a, "id": f"c{turn}{i}", "type": "tool_call"}
                for i, (n, a) in enumerate(calls[turn] if turn < 2 else [])
            ]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("" if made else "done", tool_calls=made))])

    memories = MemfilesBackend(lambda runtime: session_for(memory, runtime.context.user))
    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": memories})
    model = DeepModel(messages=iter([]), seen=seen, turns=turns)
    run_langgraph(create_deep_agent(model, backend=backend, context_schema=Who), way)

    for user, other in zip(USERS, reversed(USERS), strict=True):
        assert [True, False] == [f"/memories/{ANIMALS[each]}" in seen[user].text for each in (user, other)]
        assert memory.entries.get(memory.session("support", user=user), ANIMALS[user]) is not None


@pytest.mark.parametrize("way", WAYS)
def test_a_store_of_langgraph(memory: memfiles.Memory, way: str) -> None:
    """Nodes of one graph put, get and search among the items of the user of the run."""
    seen = {user: Seen() for user in USERS}
    turns = InTurns()

    def remember(_: Any, runtime: Runtime[Who]) -> dict[str, Any]:
        user, store = str(runtime.context.user), runtime.store
        assert store is not None
        store.put(("pets",), "pet", {"text": f"the {ANIMALS[user]}"})
        turns.wait()
        found = store.get(("pets",), "pet")
        seen[user].parts += [str(found), str(store.search((), query="the pet")), str(store.list_namespaces())]
        return {}

    graph: Any = StateGraph(MessagesState, context_schema=Who)
    graph.add_node("remember", remember).add_edge(START, "remember")
    store = MemfilesStore(lambda runtime: session_for(memory, runtime.context.user))
    run_langgraph(graph.compile(store=store), way)

    for user, other in zip(USERS, reversed(USERS), strict=True):
        assert [True, False] == [ANIMALS[each] in seen[user].text for each in (user, other)]
    with pytest.raises(memfiles.InvalidArgument, match="outside a run of a graph, the function cannot be asked"):
        store.get(("pets",), "pet")


def test_tools_of_anthropic(memory: memfiles.Memory) -> None:
    """The runner has no context, so the function asks the program's own; in threads each has its own."""
    who: ContextVar[str | None] = ContextVar("who", default=None)
    files = MemoryTool(lambda: session_for(memory, who.get()))
    turns = InTurns()

    def use(user: str) -> str:
        who.set(user)
        tools = {tool.name: tool for tool in anthropic_tools.tools(lambda: session_for(memory, who.get()))}
        tools["memory_save"].call({"key": "pet", "content": f"the {ANIMALS[user]} of {user}"})
        turns.wait()
        listed = str(files.call({"command": "view", "path": "/memories/pet"}))
        return listed + tools["memory_search"].call({"query": "which pet"})

    with ThreadPoolExecutor(len(USERS)) as threads:
        shown = list(threads.map(use, USERS))
    check(memory, {user: Seen([text]) for user, text in zip(USERS, shown, strict=True)})
    with pytest.raises(ToolError, match="its session failed with KeyError"):
        files.call({"command": "view", "path": "/memories/pet"})


def test_a_function_that_fails_is_an_error_that_tells_no_secret(
    memory: memfiles.Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn goes on without memory, a call is refused, and the log has the program's own error."""
    people = [Who("ada")]
    memory.entries.save(memory.session("support", user="ada"), "pet", "the zebra")

    def of_user(_: Any) -> Session:
        return session_for(memory, people[0].user)

    prompts: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(info.instructions or "")
        people[0] = Who(None)
        last = messages[-1]
        asked = isinstance(last, ModelRequest) and len(messages) == 1
        return ModelResponse(parts=[ToolCallPart("memory_get", {"key": "pet"}) if asked else TextPart("done")])

    agent = Agent(FunctionModel(answer), toolsets=[MemoryToolset(of_user)], instructions=memory_instructions(of_user))
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        told = str(asyncio.run(agent.run("Go.")).all_messages()[2:])

    assert [True, False] == ["zebra" in prompt for prompt in prompts]
    assert "No memory is available at the moment." == prompts[1]
    assert [True, False, False] == [text in told for text in ("its session failed with KeyError", "secret", "zebra")]
    assert "the program forgot to say who asks" in caplog.text


def test_an_agent_that_needs_a_user_says_so(memory: memfiles.Memory) -> None:
    """A function that names none gets the reason, and so do the model and the program."""
    tool = {each.name: each for each in langgraph.tools(lambda _: memory.session("support"))}["memory_list"]

    assert "name the user" in str(tool.invoke({}))


@pytest.mark.parametrize(
    "make",
    [
        *(MemoryTool, anthropic_tools.tools, MemfilesBackend),
        *(MemfilesMiddleware, langgraph.RecallMiddleware, langgraph.tools, MemfilesStore),
        *(openai_agents.tools, openai_agents.instructions, openai_agents.recall_filter),
        *(pydantic_ai.MemoryToolset, pydantic_ai.memory_instructions, pydantic_ai.MemoryRecall),
        *(pydantic_ai_harness.SessionStore, pydantic_ai_harness.session_stores),
    ],
)
def test_what_gives_no_session_is_refused_at_once(memory: memfiles.Memory, make: Any) -> None:
    """The memory in place of a session is an easy slip; an agent would run without memory."""
    with pytest.raises(InvalidArgument, match="pass a session, or a function that gives one, not Memory"):
        make(memory)


@pytest.mark.parametrize(
    ("gives", "why"),
    [("ada", "gave str, not a session"), (None, "gave NoneType, not a session"), (7, "gave int, not a session")],
)
def test_a_function_that_gives_no_session(gives: Any, why: str) -> None:
    """Is told what it gave."""
    (tool,) = [each for each in langgraph.tools(lambda _: gives) if each.name == "memory_list"]

    assert why in str(tool.invoke({}))


def test_a_session_of_a_function_never_ends_its_run(memory: memfiles.Memory) -> None:
    """Nobody knows which call is the last: what belongs to the run alone is there for the next one."""
    kept: list[Session] = []

    def of_user(_: Any) -> Session:
        kept.append(memory.session("support", user="ada", run="r1"))
        return kept[-1]

    tools = {each.name: each for each in langgraph.tools(of_user)}
    tools["memory_save"].invoke({"key": "now", "content": "of this run", "category": "conversation"})
    kept.pop().close()

    assert "of this run" in str(tools["memory_get"].invoke({"key": "now"}))


@pytest.mark.parametrize("names", TOOL_NAMES)
def test_every_tool_of_a_session_is_known_before_there_is_one(tmp_path: Path, names: str) -> None:
    """Under every profile, also for an agent that may forget."""
    with opened(tmp_path, WORKFLOW.replace("users: required", "users: required, forget: true")) as memory:
        session = memory.session("support", user="ada", tool_names=names)
        every = {tool.name: tool for tool in langgraph.tools(lambda _: session)}

        assert set() == {tool.name for tool in session.definitions()} - set(every)
        assert "memory_forget" in every
        assert "enum" not in str(every["read_memory"].args["file"])
