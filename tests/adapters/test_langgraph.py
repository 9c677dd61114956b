"""An agent of LangChain and LangGraph works with a session's tools and prompt as they are at every moment."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode

import memfiles
from memfiles.adapters.langgraph import MemfilesMiddleware, RecallMiddleware, tools
from memfiles.tools.dialects import null_for_not_given
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Answer, Call, Script, append
from tests.adapters.exam import ToolExam

NOTE = append("- again\n", id="call_0")


class Scripted(GenericFakeChatModel):
    """A model that plays a script, and keeps the system message of each turn."""

    script: Any
    offered: list[str] = []
    told: list[Any] = []

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        """The same, with other tools."""
        return self.model_copy(update={"offered": [each.name for each in tools]})

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        system = [message for message in messages if isinstance(message, SystemMessage)]
        self.told.append(system[0].content if system else None)
        wanted = self.script.next_calls(self.offered, system[0].text if system else "")
        return ChatResult(generations=[ChatGeneration(message=calling(wanted))])


def scripted(script: Script) -> Scripted:
    return Scripted(messages=iter([]), script=script, told=[])


def calling(wanted: Sequence[tuple[str, Any, str]]) -> AIMessage:
    """A message of a model that makes these calls at once, or says that it is done."""
    calls: list[Any] = [{"name": name, "args": sent, "id": id, "type": "tool_call"} for name, sent, id in wanted]
    return AIMessage("" if calls else "done", tool_calls=calls)


async def run(agent: Any, way: str, *, thread: str = "", goes_on: bool = False) -> list[ToolMessage]:
    """What the tools answered."""
    asked = None if goes_on else {"messages": [{"role": "user", "content": "go"}]}
    which: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 99}
    done = agent.invoke(asked, which) if way == "invoke" else await agent.ainvoke(asked, which)
    return [message for message in done["messages"] if isinstance(message, ToolMessage)]


class TestLangGraph(ToolExam):
    module = "memfiles.adapters.langgraph"
    vendors = ("langchain", "langchain_core", "langgraph")
    extra_error = "agents of LangGraph need an extra: pip install 'memfiles[langgraph]'"
    ways = ("ainvoke", "invoke")
    keeps_order = False

    async def arun(self, session: Session, script: Script, way: str) -> list[Answer]:
        agent = create_agent(scripted(script), middleware=[MemfilesMiddleware(session)])
        return [Answer(message.text, message.status == "error") for message in await run(agent, way)]

    def test_the_tools_are_those_of_the_session(self, session: Session) -> None:
        """Their schemas are ours, word by word, and take null for what is not given."""
        shown = [convert_to_openai_tool(each)["function"] for each in tools(session)]

        assert [
            (each.name, each.description, null_for_not_given(each.parameters)["properties"])
            for each in session.definitions()
        ] == [(each["name"], each["description"], each["parameters"]["properties"]) for each in shown]

    def test_a_result_is_of_its_call_and_carries_its_data(self, session: Session, way: str) -> None:
        """The receipt, or the code of an error, for the program; also of a tool that does not exist."""
        calls = [append(f"{number:02}\n", id=f"call_{number}") for number in range(20)]
        script = Script([*calls, Call("memory_get", {"key": "k"}), append("x", file="deals"), Call("never", {})])
        agent = create_agent(scripted(script), middleware=[MemfilesMiddleware(session)])
        *answers, got, refused, unknown = asyncio.run(run(agent, way))

        assert [f"call_{number}" for number in range(20)] == [answer.tool_call_id for answer in answers]
        assert {number + 2 for number in range(20)} == {answer.artifact["data"]["revision"] for answer in answers}
        assert {"found": False, "key": "k"} == got.artifact["data"]
        assert ["file_not_declared", "error"] == [refused.artifact["code"], unknown.status]

    def test_a_run_goes_on_from_its_checkpoint(self, session: Session, way: str) -> None:
        """It was lost after the call, whose result is as the first time."""
        lost = iter([True])

        class Losing(AgentMiddleware[Any, Any, Any]):
            def wrap_tool_call(self, request: Any, handler: Any) -> Any:
                return self._lose(handler(request))

            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                return self._lose(await handler(request))

            def _lose(self, done: Any) -> Any:
                if next(lost, False):
                    raise ConnectionError("the machine went away")
                return done

        middleware = [Losing(), MemfilesMiddleware(session)]
        agent = create_agent(scripted(Script([NOTE])), middleware=middleware, checkpointer=InMemorySaver())
        with pytest.raises(ConnectionError):
            asyncio.run(run(agent, way, thread="one"))
        (answer,) = asyncio.run(run(agent, way, thread="one", goes_on=True))

        assert answer.artifact["data"]["replayed"]
        assert "- again\n" == session.manager.read("u-notes")
        assert "call_0" == session.manager.log("u-notes")[0].by.call

    def test_tools_of_others_stay(self, memory: memfiles.Memory, way: str) -> None:
        """Beside those of a session, which come and go with its level."""

        @tool
        def other() -> str:
            """Another tool."""
            return "other"

        session = memory.session("late")

        def raised(level: str, call: Call) -> list[Call]:
            session.raise_level(level)
            return [call]

        script = Script(
            lambda: raised("CONFIDENTIAL", Call("other", {})), lambda: raised("RESTRICTED", Call("memory_list", {}))
        )
        agent = create_agent(scripted(script), [other], middleware=[MemfilesMiddleware(session)])
        answers = asyncio.run(run(agent, way))

        assert ["success", "success"] == [answer.status for answer in answers]
        assert [[], ["read_memory", "append_memory", "edit_memory"], ["read_memory"]] == [
            [name for name in names if name.endswith("_memory")] for names in script.offered
        ]
        assert {"other"} == {names[0] for names in script.offered}

    def test_an_agent_without_tools_gets_them(self, open_memory: Any, way: str) -> None:
        """Where the workflow declares files alone, none of which the session can use at first."""
        files = "files: [{uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: x}]"
        memory = open_memory(
            f"memory:\n  {files}\nagents:\n  late: {{level: INTERNAL, memory: [{{id: u-deals, mode: rw}}]}}\n"
        )
        session = memory.session("late")

        def raised() -> list[Call]:
            session.raise_level("CONFIDENTIAL")
            return [append("y", file="deals")]

        script = Script(raised)
        self.run(session, script, way)

        assert [[], ["read_memory", "append_memory", "edit_memory"]] == script.offered
        assert "xy" == memory.manager.read("u-deals")

    def test_the_prompt_goes_behind_what_the_system_message_holds(self, session: Session) -> None:
        """Blocks stay as they are, with all that is said of them."""
        block = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
        told = []
        for system in (SystemMessage([block]), SystemMessage("Be kind."), None):
            model = scripted(Script())
            agent = create_agent(model, system_prompt=system, middleware=[MemfilesMiddleware(session)])
            asyncio.run(run(agent, "invoke"))
            told += model.told
        prompt = session.system_prompt()

        assert [[block, {"type": "text", "text": prompt}], f"Be kind.\n\n{prompt}", prompt] == told

    def test_a_middleware_does_not_keep_itself(self, session: Session) -> None:
        """It goes as soon as nobody uses it, and a copy of it does not call the original."""
        recall = RecallMiddleware(session)
        other, gone = copy(recall), weakref.ref(recall)
        del recall

        assert (None, session) == (gone(), other._session)

    def test_a_tool_can_be_called_by_hand(self, session: Session) -> None:
        """Then it gives the text."""
        read = next(each for each in tools(session) if each.name == "read_memory")

        assert "Be kind.\n" == read.invoke({"file": "playbook"})
        assert "Be kind.\n" == asyncio.run(read.ainvoke({"file": "playbook"}))

    @pytest.mark.parametrize(
        "state", [MessagesState, Annotated[list[AnyMessage], add_messages]], ids=["state", "messages"]
    )
    def test_a_tool_node_of_a_graph(self, session: Session, state: Any) -> None:
        """Whatever its state is; and that the tools look at it is shown to nobody who traces their calls."""
        shown: list[Any] = []

        class Tracer(BaseCallbackHandler):
            def on_tool_start(self, *_: Any, inputs: dict[str, Any] | None = None, **__: Any) -> None:
                shown.append(inputs)

        graph = StateGraph(state)
        graph.add_node("tools", ToolNode(tools(session)))
        graph.add_edge(START, "tools")
        node, call = graph.compile(), calling([NOTE])
        result = ToolMessage("Done.", tool_call_id="call_0")
        for messages in ([call], [call], [call, result, call], [call, result, call]):
            sent: Any = {"messages": messages} if state is MessagesState else messages
            node.invoke(sent, {"callbacks": [Tracer()]})

        assert ["call_0#2", "call_0"] == [change.by.call for change in session.manager.log("u-notes")[:-1]]
        assert [NOTE.arguments] * 4 == shown

    def test_a_tool_node_answers_errors(self, session: Session) -> None:
        """Without ``create_agent``, too."""
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(tools(session)))
        graph.add_edge(START, "tools")
        wanted = [("read_memory", {"file": name}, name) for name in ("playbook", "x")]
        done = graph.compile().invoke({"messages": [calling(wanted)]})

        assert [("Be kind.\n", "success"), ("x", "error")] == [
            (answer.text, answer.status) if answer.status == "success" else (answer.tool_call_id, answer.status)
            for answer in done["messages"][1:]
        ]
