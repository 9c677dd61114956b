"""Of calls that have one id, those that are made again are told from those that are others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, RunUsage, TextPart, ToolCallPart, UserError
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from memfiles.adapters import openai_agents
from memfiles.adapters.agent_calls import call_id_in_conversation
from memfiles.adapters.langgraph import MemfilesMiddleware, tools
from memfiles.adapters.pydantic_ai import MemoryToolset
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import opened

NOTE: dict[str, Any] = {"file": "notes", "content": "- again\n"}
CALL = AIMessage("", tool_calls=[{"name": "append_memory", "args": NOTE, "id": "call_0", "type": "tool_call"}])
RESULT = ToolMessage("Done.", tool_call_id="call_0")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path) as memory:
        yield memory.session("support", run="monday")


class Model(GenericFakeChatModel):
    """Makes the same call twice, under the same id, and ends."""

    def bind_tools(self, tools: Any, **options: Any) -> Model:
        """As it is."""
        return self


class Tracer(BaseCallbackHandler):
    """Keeps what a tracing of the calls is shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def on_tool_start(self, *_: Any, inputs: dict[str, Any] | None = None, **__: Any) -> None:
        """See ``BaseCallbackHandler``."""
        self.shown.append(inputs)


def ids_of(session: Session) -> list[str | None]:
    """The ids of the calls that changed the notes, as the history has them."""
    return [change.by.call for change in session.manager.log("u-notes")[1:]]


def test_the_number_is_that_of_the_call_among_those_of_its_id() -> None:
    """Other ids, and what is no id, do not count."""
    others = "call_1", None, "", object()

    assert "call_0" == call_id_in_conversation("call_0", answered=others)
    assert "call_0#3" == call_id_in_conversation("call_0", answered=["call_0", *others, "call_0"])
    assert [None, ""] == [call_id_in_conversation(none, answered=others) for none in (None, "")]


def test_pydantic_ai(session: Session) -> None:
    """A model that gives one id at every step saves what it says; a run that goes on after a loss adds nothing."""
    asked: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        asked.append([*messages])
        return ModelResponse(parts=[TextPart("Done.") if len(asked) == 3 else ToolCallPart("append_memory", NOTE, "c")])

    agent = Agent(FunctionModel(answer), toolsets=[MemoryToolset(session)])
    asyncio.run(agent.run("Go."))
    lost = [*asked[1], ModelResponse(parts=[ToolCallPart("append_memory", NOTE, "c")])]
    asked.pop()
    asyncio.run(agent.run(message_history=lost))

    assert "- again\n- again\n" == session.manager.read("u-notes")
    assert ["c", "c#2"] == ids_of(session)


def test_pydantic_ai_where_the_context_has_no_messages(session: Session) -> None:
    """As in an activity of Temporal, in which the context has ids alone: the call is made under its own."""

    class InActivity(RunContext[None]):
        def __getattribute__(self, name: str) -> Any:
            if name == "messages":
                raise UserError("'messages' is not available in an activity")
            return super().__getattribute__(name)

    async def called() -> object:
        context = InActivity(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c")
        toolset: MemoryToolset[None] = MemoryToolset(session)
        return await toolset.call_tool(
            "append_memory", NOTE, context, (await toolset.get_tools(context))["append_memory"]
        )

    asyncio.run(called())

    assert ["c"] == ids_of(session)


def test_the_openai_agents_sdk(session: Session) -> None:
    """A run that begins with the messages of another makes another call; one that is begun again makes none."""

    def messages(asked: list[Any]) -> list[Any]:
        model = ScriptedModel([[function_call("append_memory", NOTE, call_id="c")], [assistant_message("Done.")]])
        agent = OpenAIAgent(name="support", tools=[*openai_agents.tools(session)], model=model)
        return asyncio.run(Runner.run(agent, asked, run_config=RunConfig(tracing_disabled=True))).to_input_list()

    first: list[Any] = [{"role": "user", "content": "Go."}, function_call("elsewhere", {}, call_id="c")]
    for asked in (first, first, [*messages(first), *first], [*messages(first), *first]):
        messages(asked)

    assert ["c", "c#2"] == ids_of(session)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_of_langgraph(session: Session, is_async: bool) -> None:
    """The messages of the graph tell which call it is."""
    agent = create_agent(
        Model(messages=iter([CALL.model_copy(), CALL.model_copy(), AIMessage("Done.")])),
        middleware=[MemfilesMiddleware(session)],
    )
    asked: Any = {"messages": [{"role": "user", "content": "Go."}]}
    asyncio.run(agent.ainvoke(asked)) if is_async else agent.invoke(asked)

    assert "- again\n- again\n" == session.manager.read("u-notes")
    assert ["call_0", "call_0#2"] == ids_of(session)


@pytest.mark.parametrize("state", [MessagesState, Annotated[list[AnyMessage], add_messages]], ids=["state", "messages"])
def test_a_tool_node_of_a_graph(session: Session, state: Any) -> None:
    """Whatever its state is; and that the tools look at it is shown to nobody who traces their calls."""
    graph = StateGraph(state)
    graph.add_node("tools", ToolNode(tools(session)))
    graph.add_edge(START, "tools")
    node, tracer = graph.compile(), Tracer()
    for messages in ([CALL], [CALL], [CALL, RESULT, CALL], [CALL, RESULT, CALL]):
        sent: Any = {"messages": messages} if state is MessagesState else messages
        node.invoke(sent, {"callbacks": [tracer]})

    assert ["call_0", "call_0#2"] == ids_of(session)
    assert [NOTE] * 4 == tracer.shown
