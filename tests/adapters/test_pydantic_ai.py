"""A pydantic-ai agent uses a session's memory, and nothing that goes wrong in the memory ends its run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, RunContext, RunUsage, TextPart, ToolCallPart
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

import memfiles
from memfiles.adapters.pydantic_ai import MemoryToolset, memory_instructions
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Answer, Call, Held, Script, append
from tests.adapters.exam import ToolExam

pytestmark = pytest.mark.usefixtures("loops")


def model_of(script: Script) -> FunctionModel:
    """A model that plays a script, at once or as a stream."""

    def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = script.next_calls((tool.name for tool in info.function_tools), info.instructions or "")
        return ModelResponse(parts=[ToolCallPart(*call) for call in calls] or [TextPart("done")])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                sent = part.args if isinstance(part.args, str) else part.args_as_json_str()
                yield {index: DeltaToolCall(part.tool_name, sent, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    return FunctionModel(answer, stream_function=stream)


def agent_of(session: Any, script: Script, **settings: Any) -> Agent[Any, str]:
    toolsets = [MemoryToolset(session)]
    return Agent(model_of(script), toolsets=toolsets, instructions=memory_instructions(session), **settings)


def returned(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    """What came back to the model."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


@dataclass
class Deps:
    session: Session


async def awaited(context: RunContext[Deps]) -> Session:
    return context.deps.session


class TestPydanticAI(ToolExam):
    module = "memfiles.adapters.pydantic_ai"
    vendors = ("pydantic_ai",)
    extra_error = "memory for pydantic-ai needs an extra: pip install 'memfiles[pydantic-ai]'"
    ways = ("run", "stream")
    takes_text = True

    async def arun(self, session: Session, script: Script, way: str) -> list[Answer]:
        agent = agent_of(session, script)
        if way == "stream":
            async with agent.run_stream("Go.") as streamed:
                assert "done" == await streamed.get_output()
                messages = streamed.all_messages()
        else:
            messages = (await agent.run("Go.")).all_messages()
        return [Answer(str(part.content), part.outcome == "failed") for part in returned(messages)]

    def test_a_tool_is_described_as_the_session_does(self, session: Session) -> None:
        """And says whether it only reads; a result has its data, the receipt, which the model is not sent."""
        shown: list[AgentInfo] = []

        def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            shown.append(info)
            return ModelResponse(parts=[ToolCallPart(*append("- Ada\n")[:2]) if len(shown) == 1 else TextPart("done")])

        ran = Agent(FunctionModel(answer), toolsets=[MemoryToolset(session)]).run_sync("Go.")
        (receipt,) = [cast("dict[str, Any]", part.metadata) for part in returned(ran.all_messages())]
        tools = shown[0].function_tools

        assert [(each.name, each.description) for each in session.definitions()] == [
            (each.name, each.description) for each in tools
        ]
        assert (2, 6) == (receipt["revision"], receipt["size_bytes"])
        assert {"read_memory", "memory_get", "memory_search", "memory_list"} == {
            tool.name for tool in tools if (tool.metadata or {})["read_only"]
        }

    def test_a_program_may_have_a_session_of_its_own_class(self, session: Session) -> None:
        """Whose prompt and tools are those that the agent gets."""

        class Own(Session):
            def system_prompt(self, **options: Any) -> str:
                return "Own."

            def definitions(self) -> list[ToolDefinition]:
                return super().definitions()[:1]

        shown: list[AgentInfo] = []

        def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            shown.append(info)
            return ModelResponse(parts=[TextPart("done")])

        session.__class__ = Own
        memory = memory_instructions(session)
        Agent(FunctionModel(answer), toolsets=[MemoryToolset(session)], instructions=memory).run_sync("Go.")

        assert ("Own.", ["read_memory"]) == (shown[0].instructions, [it.name for it in shown[0].function_tools])

    def test_a_tool_of_the_host_can_raise_the_level(self, session: Session) -> None:
        """It counts for the next call of the same step."""
        agent: Agent[Any, str] = agent_of(session, Script([Call("meet", {}), append("x")]))

        @agent.tool_plain(sequential=True)
        def meet() -> str:
            return session.raise_level("CONFIDENTIAL")

        met, refused = returned(agent.run_sync("Go.").all_messages())

        assert ("CONFIDENTIAL", "failed") == (met.content, refused.outcome)
        assert "notes is at level INTERNAL" in str(refused.content)
        assert "" == session.manager.read("u-notes")

    def test_a_refusal_costs_none_of_the_retries(self, session: Session) -> None:
        """After which the framework would end the run."""
        answers = self.run(session, Script(*[[append("x", file="playbook")]] * 4))

        assert [True] * 4 == [answer.is_error for answer in answers]

    def test_agents_at_once_lose_nothing(self, session: Session) -> None:
        """Runs of one toolset side by side in one loop."""
        toolset: MemoryToolset[None] = MemoryToolset(session)
        lines = {name: [f"{name}{number}\n" for number in range(5)] for name in "abcd"}

        async def program() -> None:
            scripts = [Script(*([append(line)] for line in each)) for each in lines.values()]
            await asyncio.gather(*(Agent(model_of(script), toolsets=[toolset]).run("Go.") for script in scripts))

        asyncio.run(program())

        assert sorted(sum(lines.values(), [])) == sorted(session.manager.read("u-notes").splitlines(keepends=True))

    def test_a_run_goes_on_from_its_messages(self, session: Session) -> None:
        """It was lost after a call, which has a result there or not: what was carried out is not, what was not is."""
        call = ToolCallPart(*append("- Ada\n")[:2], "c")
        asked: list[ModelMessage] = [ModelRequest.user_text_prompt("Go."), ModelResponse(parts=[call])]

        def go_on(messages: list[ModelMessage]) -> list[ModelMessage]:
            agent = Agent(model_of(Script()), toolsets=[MemoryToolset(session)])
            return agent.run_sync(message_history=messages).all_messages()

        done = go_on(asked)
        go_on(asked)
        for _ in range(2):
            go_on([*done[:3], ModelResponse(parts=[call])])

        assert ["c#2", "c"] == [change.by.call for change in session.manager.log("u-notes")[:-1]]
        assert "- Ada\n- Ada\n" == session.manager.read("u-notes")

    def test_where_the_context_has_no_messages(self, session: Session) -> None:
        """As in an activity of Temporal, in which the context has ids alone: the call is made under its own."""

        class InActivity(RunContext[None]):
            def __getattribute__(self, name: str) -> Any:
                if name == "messages":
                    raise UserError("'messages' is not available in an activity")
                return super().__getattribute__(name)

        async def called() -> object:
            context = InActivity(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c")
            toolset: MemoryToolset[None] = MemoryToolset(session)
            name, sent, _ = append("- again\n")
            return await toolset.call_tool(name, sent, context, (await toolset.get_tools(context))[name])

        asyncio.run(called())

        assert ["c"] == [change.by.call for change in session.manager.log("u-notes")[:-1]]

    def test_a_cancelled_run_makes_no_call_that_waits(self, memory: memfiles.Memory, session: Session) -> None:
        """The one that has begun is carried out before the run ends; the one behind it is not made."""
        held = Held(memory)
        script = Script([append("- Ada\n"), append("- Bob\n")])

        async def program() -> bool:
            running = asyncio.create_task(agent_of(session, script).run("Go."))
            await asyncio.to_thread(held.wait)
            running.cancel()
            await asyncio.wait([running], timeout=0.1)
            was_done = running.done()
            held.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await running
            return was_done

        assert False is asyncio.run(program())
        assert ("- Ada\n", 2) == (session.manager.read("u-notes"), session.manager.snapshot("u-notes").revision)

    def test_a_memory_that_is_gone_leaves_other_tools(self, session: Session) -> None:
        """The run goes on with those."""
        script = Script([Call("finish", {}), Call("read_memory", {"file": "notes"})])
        agent: Agent[Any, str] = agent_of(session, script)

        @agent.tool_plain(sequential=True)
        def finish() -> None:
            session.close()

        ran = agent.run_sync("Go.")

        assert ("done", "failed") == (ran.output, returned(ran.all_messages())[1].outcome)
        assert ["finish"] == script.offered[1]

    @pytest.mark.parametrize("session_of", [lambda context: context.deps.session, awaited])
    def test_the_session_may_come_from_the_run_s_dependencies(self, memory: memfiles.Memory, session_of: Any) -> None:
        """One agent serves many; each run has its own session."""
        for name in ("ada", "bob"):
            script = Script([Call("memory_save", {"key": name, "content": "x"})])
            deps = Deps(memory.session("support", run=name))
            agent_of(session_of, script, deps_type=Deps).run_sync("Go.", deps=deps)

        found = {entry.key for entry in memory.entries.list(memory.session("support")).memories}
        assert {"ada", "bob"} == found
        assert "- notes (RW" in script.prompts[0]

    def test_it_can_be_wrapped_like_any_toolset(self, session: Session) -> None:
        """Under other names, and with approval asked for what is not read-only."""
        toolset = MemoryToolset[None](session, id="memory").prefixed("my")
        script = Script([Call("my_read_memory", {"file": "playbook"})])
        ran = Agent(model_of(script), toolsets=[toolset]).run_sync("Go.")

        assert [("success", "Be kind.\n")] == [(part.outcome, part.content) for part in returned(ran.all_messages())]
        assert "memory" == MemoryToolset[None](session, id="memory").id

    def test_the_framework_s_own_test_model_can_call_every_tool(self, session: Session) -> None:
        """It makes up arguments from the schemas, so these can be read by whoever does."""
        ran = Agent(TestModel(), toolsets=[MemoryToolset(session)]).run_sync("Go.")

        assert len(session.definitions()) == len(returned(ran.all_messages()))

    def test_an_unknown_tool_ends_the_run_as_the_framework_has_it(self, session: Session) -> None:
        """That is known to be so, and the README says it: such a call never comes to the memory."""
        unknown = [[Call("never", {})]] * 3
        with pytest.raises(UnexpectedModelBehavior, match="'never' exceeded max retries"):
            self.run(session, Script(*unknown))
        assert "done" == agent_of(session, Script(*unknown), retries=5).run_sync("Go.").output
