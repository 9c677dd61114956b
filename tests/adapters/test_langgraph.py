"""An agent of LangChain and LangGraph works with a session's tools and prompt as they are at every moment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import memfiles
from memfiles.adapters.langgraph import MemfilesMiddleware, tools
from memfiles.tools.dialects.schemas import null_for_not_given
from memfiles.tools.session import Session

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 100}
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, max_size_bytes: 1000}
    - {uid: u-play, name: playbook, description: Refunds., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret deal\\n"}
agents:
  support:
    level: INTERNAL
    memory: [{id: u-notes, mode: rw}, {id: u-play, mode: r}, {id: u-deals, mode: rw}]
  late: {level: INTERNAL, memory: [{id: u-deals, mode: rw}]}
"""
FILES_ALONE = WORKFLOW.replace("  entries: {max_entries: 100}\n", "")
WAYS = pytest.mark.parametrize("way", ["invoke", "ainvoke"])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as opened:
        yield opened


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


class Scripted(GenericFakeChatModel):
    """A model that answers from a script, and keeps what it was given at each call."""

    offered: list[list[str]] = []
    told: list[list[BaseMessage]] = []
    before: dict[int, Callable[[], object]] = {}

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        """Keep the names."""
        self.offered.append([each.name for each in tools])
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        self.told.append(messages)
        self.before.get(len(self.told), lambda: None)()
        return super()._generate(messages, *arguments, **options)


def calls(*wanted: tuple[str, dict[str, Any]], ids: str = "call") -> AIMessage:
    """A message of a model that calls several tools at once."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": arguments, "id": f"{ids}_{number}", "type": "tool_call"}
            for number, (name, arguments) in enumerate(wanted)
        ],
    )


def scripted(*answers: AIMessage, before: dict[int, Callable[[], object]] | None = None) -> Scripted:
    """``before``: what happens elsewhere while the model thinks for the nth time."""
    return Scripted(messages=iter([*answers, AIMessage("done")]), offered=[], told=[], before=before or {})


def run(agent: Any, way: str, *, thread: str = "", goes_on: bool = False) -> list[ToolMessage]:
    """What the tools answered."""
    asked = None if goes_on else {"messages": [{"role": "user", "content": "go"}]}
    which: Any = {"configurable": {"thread_id": thread}}
    done = agent.invoke(asked, which) if way == "invoke" else asyncio.run(agent.ainvoke(asked, which))
    return [message for message in done["messages"] if isinstance(message, ToolMessage)]


def test_the_tools_are_those_of_the_session(session: Session) -> None:
    """Their schemas are ours, word by word, and take null for what is not given."""
    shown = [convert_to_openai_tool(each)["function"] for each in tools(session)]
    schemas = [null_for_not_given(each.parameters) for each in session.definitions()]
    expected = [
        (each.name, each.description, schema) for each, schema in zip(session.definitions(), schemas, strict=True)
    ]

    assert [(name, text) for name, text, _ in expected] == [(each["name"], each["description"]) for each in shown]
    for (_, _, schema), each in zip(expected, shown, strict=True):
        assert schema["properties"] == each["parameters"]["properties"]


@WAYS
def test_parallel_calls_of_one_message_are_all_carried_out(session: Session, way: str) -> None:
    """Each in a thread of its own; none is lost, and each result is of its call."""
    wanted = [("append_memory", {"file": "notes", "content": f"{number:02}\n"}) for number in range(20)]
    model = scripted(calls(*wanted))
    answers = run(create_agent(model, middleware=[MemfilesMiddleware(session)]), way)

    assert [f"call_{number}" for number in range(20)] == [answer.tool_call_id for answer in answers]
    assert [f"{number:02}" for number in range(20)] == sorted(session.manager.read("u-notes").split())
    assert {"success"} == {answer.status for answer in answers}
    assert {number + 2 for number in range(20)} == {answer.artifact["data"]["revision"] for answer in answers}


@WAYS
def test_what_goes_wrong_is_an_error_message(session: Session, way: str) -> None:
    """And never an exception, whatever the model sends."""
    model = scripted(
        calls(
            ("append_memory", {"file": "playbook", "content": "x"}),
            ("append_memory", {"file": "deals", "content": "x"}),
            ("memory_save", {"key": "k", "content": "c", "self": 1, "config": 2, "run_manager": 3}),
            ("read_memory", {}),
            ("memory_get", {"key": "k"}),
            ("no_such_tool", {}),
        )
    )
    answers = run(create_agent(model, middleware=[MemfilesMiddleware(session)]), way)

    assert ["error", "error", "error", "error", "success", "error"] == [answer.status for answer in answers]
    assert ["read_only", "file_not_declared", "invalid_argument"] == [answer.artifact["code"] for answer in answers[:3]]
    assert "unknown memory file 'deals'" in answers[1].text
    assert {"found": False, "key": "k"} == answers[4].artifact["data"]


@WAYS
def test_a_call_that_is_made_again_is_answered_as_the_first_time(session: Session, way: str) -> None:
    """The run is lost after the call, and goes on from its checkpoint."""
    lost = iter([True])

    class Losing(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            done = handler(request)
            if next(lost, False):
                raise ConnectionError("the machine went away")
            return done

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            done = await handler(request)
            if next(lost, False):
                raise ConnectionError("the machine went away")
            return done

    model = scripted(calls(("append_memory", {"file": "notes", "content": "once\n"})))
    agent = create_agent(model, middleware=[Losing(), MemfilesMiddleware(session)], checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError):
        run(agent, way, thread="one")
    answers = run(agent, way, thread="one", goes_on=True)

    assert "This call had already been carried out; nothing changed now." in answers[0].text
    assert "once\n" == session.manager.read("u-notes")
    assert "call_0" == session.manager.log("u-notes")[-1].by.call


@WAYS
def test_a_raised_level_counts_at_the_next_call(session: Session, way: str) -> None:
    """For what may be done, and for the prompt and the tools that the model gets then."""
    read, write = ("read_memory", {"file": "deals"}), ("append_memory", {"file": "notes", "content": "x"})
    model = scripted(
        calls(read, ids="one"),
        calls(read, write, ids="two"),
        before={2: lambda: session.raise_level("CONFIDENTIAL")},
    )
    answers = run(create_agent(model, system_prompt="Be kind.", middleware=[MemfilesMiddleware(session)]), way)
    prompts = [messages[0].text for messages in model.told]

    assert ["error", "success", "error"] == [answer.status for answer in answers]
    assert "level_denied" == answers[2].artifact["code"]
    assert [False, False, True] == ["- deals (RW" in prompt for prompt in prompts]
    assert all(prompt.startswith("Be kind.\n\n## Memory files available\n") for prompt in prompts)


@WAYS
def test_tools_come_and_go_with_the_level(tmp_path: Path, way: str) -> None:
    """An agent that has none at first gets them, beside those that are not ours."""

    @tool
    def other() -> str:
        """Another tool."""
        return "other"

    (tmp_path / "workflow.yaml").write_text(FILES_ALONE)
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        session = memory.session("late")
        model = scripted(
            calls(("other", {}), ids="one"),
            calls(("append_memory", {"file": "deals", "content": "x\n"}), ids="two"),
            calls(("append_memory", {"file": "deals", "content": "y\n"}), ids="three"),
            before={1: lambda: session.raise_level("CONFIDENTIAL"), 3: lambda: session.raise_level("RESTRICTED")},
        )
        answers = run(create_agent(model, [other], middleware=[MemfilesMiddleware(session)]), way)

        assert ["success", "success", "error"] == [answer.status for answer in answers]
        assert [
            ["other"],
            ["other", "read_memory", "append_memory", "edit_memory"],
            ["other", "read_memory", "append_memory", "edit_memory"],
            ["other", "read_memory"],
        ] == model.offered
        assert "secret deal\nx\n" == memory.manager.read("u-deals")


def test_the_prompt_goes_behind_what_the_system_message_holds(session: Session) -> None:
    """Blocks stay as they are, with all that is said of them."""
    block = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    model, bare = scripted(), scripted()
    run(create_agent(model, system_prompt=SystemMessage([block]), middleware=[MemfilesMiddleware(session)]), "invoke")
    run(create_agent(bare, middleware=[MemfilesMiddleware(session)]), "invoke")

    assert [block, {"type": "text", "text": session.system_prompt()}] == model.told[0][0].content
    assert session.system_prompt() == bare.told[0][0].content


def test_a_tool_node_of_a_graph_takes_them(session: Session) -> None:
    """Without ``create_agent``: the state of the graph has the messages."""
    node = ToolNode(tools(session))
    runnable = _graph(node)
    done = runnable.invoke({"messages": [calls(("read_memory", {"file": "playbook"}), ("read_memory", {"file": "x"}))]})

    assert [("Be kind.\n", "success"), ("error",)] == [
        (answer.text, answer.status) if answer.status == "success" else (answer.status,)
        for answer in done["messages"][1:]
    ]


def test_a_tool_can_be_called_by_hand(session: Session) -> None:
    """Then it gives the text."""
    read = next(each for each in tools(session) if each.name == "read_memory")

    assert "Be kind.\n" == read.invoke({"file": "playbook"})
    assert "Be kind.\n" == asyncio.run(read.ainvoke({"file": "playbook"}))


@WAYS
def test_an_agent_whose_session_is_closed_goes_on_without_memory(
    session: Session, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A call is an error message, the model is told that there is none, and the log says why."""
    read = ("read_memory", {"file": "playbook"})
    model = scripted(calls(read), before={1: session.close})
    answers = run(create_agent(model, middleware=[MemfilesMiddleware(session)]), way)

    assert [("error", "session_closed")] == [(answer.status, answer.artifact["code"]) for answer in answers]
    assert "No memory is available at the moment." == model.told[1][0].text
    assert "an agent continues its turn without memory: this session of agent support is closed" in caplog.text


def test_a_cancelled_agent_leaves_the_record_whole(session: Session) -> None:
    """What was acknowledged is there, and nothing goes on behind the agent."""

    async def cancelled(after: float, ids: str) -> None:
        wanted = [("append_memory", {"file": "notes", "content": "line\n"})] * 5
        agent = create_agent(scripted(calls(*wanted, ids=ids)), middleware=[MemfilesMiddleware(session)])
        task = asyncio.create_task(agent.ainvoke({"messages": [{"role": "user", "content": "go"}]}))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for number, after in enumerate((0.0, 0.005, 0.01, 0.02)):
        asyncio.run(cancelled(after, f"run{number}"))
        record = session.manager.snapshot("u-notes")

        assert record.content == "line\n" * (record.revision - 1)


def test_without_the_extra_the_error_says_which() -> None:
    """For the tools and for the store; and ``import memfiles`` loads nothing of LangGraph's."""
    program = """
import sys; sys.modules.update({name: None for name in ("langchain", "langchain_core", "langgraph")})
import memfiles
for name in ("langgraph", "langgraph_store"):
    try:
        __import__(f"memfiles.adapters.{name}")
    except memfiles.ExtraMissing as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert [
        "agents of LangGraph need an extra: pip install 'memfiles[langgraph]'",
        "LangGraph's store needs an extra: pip install 'memfiles[langgraph]'",
    ] == done.stdout.splitlines()


def _graph(node: ToolNode) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    return graph.compile()
