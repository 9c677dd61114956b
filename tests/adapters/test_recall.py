"""What memory holds about a question reaches the model in a message of the turn, and stays nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.messages import ImageUrl, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.memory import Memory

import memfiles
from memfiles.adapters import anthropic_tools, langgraph, openai_agents, pydantic_ai, pydantic_ai_harness
from memfiles.adapters.agent_calls import user_text
from memfiles.adapters.deepagents import MemfilesBackend
from memfiles.adapters.langgraph_store import MemfilesStore
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import WORKFLOW, Call, Script, ScriptedClaude
from tests.support.workflows import opened

pytestmark = pytest.mark.usefixtures("loops")
QUESTION = "Which plan is Ada on?"
SAVE = Call("memory_save", {"key": "ada/tone", "content": "The plan of Ada's replies: short."})


@dataclass(frozen=True)
class Request:
    """What a model was sent: its system prompt, and the texts of the messages of the user, in order."""

    system: str
    asked: tuple[str, ...]


@dataclass(frozen=True)
class Turn:
    """The requests of one turn, and the conversation as the framework keeps it."""

    requests: tuple[Request, ...]
    kept: Any


class ScriptedChat(GenericFakeChatModel):
    """A chat model of LangChain that plays a script and keeps what it was sent."""

    script: Any
    seen: list[Request] = []

    def bind_tools(self, tools: Any, **options: Any) -> ScriptedChat:
        """Itself."""
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        system = "".join(each.text for each in messages if isinstance(each, SystemMessage))
        self.seen.append(Request(system, tuple(each.text for each in messages if isinstance(each, HumanMessage))))
        wanted = self.script.next_calls([])
        calls: list[Any] = [{"name": name, "args": sent, "id": id, "type": "tool_call"} for name, sent, id in wanted]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("" if calls else "done", tool_calls=calls))])


async def _of_langchain(make: Callable[[Any], Any], kept: Any, question: str, script: Script, way: str) -> Turn:
    model = ScriptedChat(messages=iter([]), script=script, seen=[])
    agent = make(model)
    asked = {"messages": [*(kept or []), HumanMessage(question)]}
    done = agent.invoke(asked) if way == "sync" else await agent.ainvoke(asked)
    return Turn(tuple(model.seen), done["messages"])


async def with_langgraph(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    middleware = [langgraph.MemfilesMiddleware(session, recall_bytes=4096)]
    return await _of_langchain(lambda model: create_agent(model, middleware=middleware), kept, question, script, way)


async def with_deepagents(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    tools, middleware = langgraph.tools(session), [langgraph.RecallMiddleware(session)]
    return await _of_langchain(
        lambda model: create_deep_agent(model, tools, backend=MemfilesBackend(session), middleware=middleware),
        *(kept, question, script, way),
    )


async def with_a_store(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    tools, middleware = langgraph.tools(session), [langgraph.RecallMiddleware(session)]
    return await _of_langchain(
        lambda model: create_agent(model, tools, store=MemfilesStore(session), middleware=middleware),
        *(kept, question, script, way),
    )


async def with_openai(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    seen: list[Request] = []

    def answered(call: ModelCall) -> Any:
        items = [call.input] if isinstance(call.input, str) else call.input
        seen.append(Request(call.system_instructions or "", tuple(filter(None, map(user_text, items)))))
        calls = [function_call(name, sent, call_id=id) for name, sent, id in script.next_calls([])]
        return calls or [assistant_message("done")]

    agent = OpenAIAgent[None](
        name="support",
        instructions=openai_agents.instructions(session, budget_bytes=0),
        tools=[*openai_agents.tools(session)],
        model=ScriptedModel([ModelStep.respond(answered)] * (len(script) + 1)),
    )
    config = RunConfig(tracing_disabled=True, call_model_input_filter=openai_agents.recall_filter(session))
    items: Any = [*(kept or []), {"role": "user", "content": question}]
    if way == "sync":
        running = Runner.run_streamed(agent, items, run_config=config)
        async for _ in running.stream_events():
            pass
        return Turn(tuple(seen), running.to_input_list())
    ran = await Runner.run(agent, items, run_config=config)
    return Turn(tuple(seen), ran.to_input_list())


async def _of_pydantic_ai(settings: dict[str, Any], kept: Any, question: str, script: Script) -> Turn:
    seen: list[Request] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
        asked = tuple(str(part.content) for part in parts if isinstance(part, UserPromptPart))
        seen.append(Request(info.instructions or "", asked))
        calls = [ToolCallPart(*call) for call in script.next_calls([])]
        return ModelResponse(parts=[*calls] or [TextPart("done")])

    ran = await Agent(FunctionModel(answer), **settings).run(question, message_history=kept)
    return Turn(tuple(seen), ran.all_messages())


async def with_pydantic_ai(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    async def found(_: RunContext[Any]) -> Session:
        return session

    settings = {
        "toolsets": [pydantic_ai.MemoryToolset(session)],
        "instructions": pydantic_ai.memory_instructions(session, budget_bytes=0),
        "capabilities": [pydantic_ai.MemoryRecall(session if way == "sync" else found)],
    }
    return await _of_pydantic_ai(settings, kept, question, script)


async def with_the_harness(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    store = Memory[Any](store=pydantic_ai_harness.SessionStore(session), agent_name="main", inject_memory=False)
    of_entries = pydantic_ai.MemoryToolset[Any](session).filtered(lambda _, tool: tool.name.startswith("memory_"))
    settings = {
        "toolsets": [of_entries],
        "capabilities": [store, pydantic_ai.MemoryRecall(session)],
    }
    return await _of_pydantic_ai(settings, kept, question, script)


async def with_anthropic(session: Session, kept: Any, question: str, script: Script, way: str) -> Turn:
    """A loop of the host's own; ``kept`` are its messages."""
    claude = ScriptedClaude(script)
    transport: Any = httpx2.MockTransport(claude.answer if way == "sync" else claude.answer_later)
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    later = anthropic.AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport))
    messages: list[Any] = [*(kept or []), {"role": "user", "content": [{"type": "text", "text": question}]}]
    given: dict[str, Any] = {"model": "claude", "max_tokens": 99, "system": session.system_prompt(budget_bytes=0)}
    used: list[Any] = [None]
    while used:
        if way == "sync":
            said = client.messages.create(messages=anthropic_tools.with_recall(session, messages), **given)
        else:
            recalled = await anthropic_tools.async_with_recall(session, messages)
            said = await later.messages.create(messages=recalled, **given)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in said.content]})
        used = [block for block in said.content if block.type == "tool_use"]
        results = [(block.id, session.call(block.name, block.input)) for block in used]
        if results:
            content = [{"type": "tool_result", "tool_use_id": id, "content": done.text} for id, done in results]
            messages.append({"role": "user", "content": content})
    seen = [Request(sent["system"], tuple(filter(None, map(user_text, sent["messages"])))) for sent in claude.requests]
    return Turn(tuple(seen), messages)


WAYS = {
    "langgraph": with_langgraph,
    "deepagents": with_deepagents,
    "langgraph store": with_a_store,
    "openai": with_openai,
    "pydantic-ai": with_pydantic_ai,
    "harness": with_the_harness,
    "anthropic": with_anthropic,
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


@pytest.fixture(params=WAYS)
def ask(request: pytest.FixtureRequest) -> Callable[..., Turn]:
    """Ask an agent of one framework a question, after what was said before."""

    def asked(session: Session, question: str, *turns: Any, kept: Any = None, way: str = "async") -> Turn:
        return asyncio.run(WAYS[request.param](session, kept, question, Script(*turns), way))

    return asked


def taught(memory: memfiles.Memory) -> Session:
    session = memory.session("support", run="monday")
    memory.entries.save(session, "ada/plan", "Ada is on Pro.")
    return session


@pytest.mark.parametrize("way", ["async", "sync"])
def test_it_stands_before_the_question_at_every_call(
    memory: memfiles.Memory, ask: Callable[..., Turn], way: str
) -> None:
    """As the session recalls it; and the prompt has no entries."""
    session = taught(memory)
    before = str(session.recall(QUESTION))
    turn = ask(session, QUESTION, [Call("memory_get", {"key": "ada/plan"})], way=way)

    assert "| Ada is on Pro." in before
    assert [(before, QUESTION)] * 2 == [request.asked for request in turn.requests]
    assert ["## Saved memory" in request.system for request in turn.requests] == [False, False]


def test_the_prompt_stays_the_same_while_entries_are_saved(memory: memfiles.Memory, ask: Callable[..., Turn]) -> None:
    """So does what was said before: a turn's request begins with the conversation as it is kept."""
    session = taught(memory)
    first = ask(session, QUESTION, [SAVE])
    second = ask(session, "And what of her replies?", kept=first.kept)
    asked = [request.asked for request in (*first.requests, *second.requests)]

    assert 1 == len({request.system for request in (*first.requests, *second.requests)})
    assert ["ada/tone" in block for block, _ in asked[:2]] == [False, True]
    assert (QUESTION, str(session.recall("And what of her replies?")), "And what of her replies?") == asked[2]


def test_nothing_of_it_is_kept(memory: memfiles.Memory, ask: Callable[..., Turn]) -> None:
    """Neither in the conversation, nor after it was forgotten in a later turn."""
    session = taught(memory)
    first = ask(session, QUESTION)
    memory.entries.forget(session, key="ada/plan")
    second = ask(session, QUESTION, kept=first.kept)

    assert "| Ada is on Pro." in first.requests[0].asked[0]
    assert "is on Pro" not in repr(first.kept) + repr(second)
    assert (QUESTION, QUESTION) == second.requests[0].asked


def test_a_memory_that_refuses_ends_no_turn(memory: memfiles.Memory, ask: Callable[..., Turn]) -> None:
    """The question comes without it. The other tools of the run are the framework's business."""
    session = taught(memory)
    closing = memory.session("support", run="tuesday")
    asked = ask(_ClosedForRecall(session, closing), QUESTION)

    assert [(QUESTION,)] == [request.asked for request in asked.requests]


class _ClosedForRecall(Session):
    """A session of which what it recalls is asked after its end."""

    def __init__(self, session: Session, closing: Session) -> None:
        vars(self).update(vars(session))
        closing.close()
        self._closing = closing

    def recall(self, *args: Any, **options: Any) -> Any:
        """See ``Session.recall``; this one is over."""
        return self._closing.recall(*args, **options)


def test_a_turn_without_a_question_is_left_alone(memory: memfiles.Memory) -> None:
    """As messages are without any, or with a tool's result alone; a picture without words gets what is pinned."""
    session = taught(memory)
    memory.entries.save(session, "rule", "Be kind.", pinned=True)
    result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    picture: Any = {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y"}}]}
    bare = [anthropic_tools.with_recall(session, messages) for messages in ([], [result])]
    shown = anthropic_tools.with_recall(session, [picture, result])
    parts: Any = [ImageUrl("https://x/y"), QUESTION]
    with_text = pydantic_ai._question_in(ModelRequest([UserPromptPart(parts)]))

    assert [[], [result]] == bare
    assert [{"role": "user", "content": str(session.recall(""))}, picture, result] == shown
    assert "| Be kind." in str(shown[0]["content"])
    assert QUESTION == with_text


def test_anthropic_s_tool_runner_begins_with_it(memory: memfiles.Memory) -> None:
    """The API keeps the thread of a run, and so what the run began with."""
    session, claude = taught(memory), ScriptedClaude(Script([SAVE]))
    client = anthropic.Anthropic(
        api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(claude.answer))
    )
    asked: Any = [{"role": "user", "content": QUESTION}]
    before = str(session.recall(QUESTION))
    messages: Any = anthropic_tools.with_recall(session, asked)
    given: dict[str, Any] = {"model": "claude", "max_tokens": 99, "messages": messages}
    client.beta.messages.tool_runner(tools=anthropic_tools.tools(session), **given).until_done()

    assert [{"role": "user", "content": before}, *asked] == claude.requests[0]["messages"]
    assert [{"role": "user", "content": QUESTION}] == asked
