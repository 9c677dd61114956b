"""A pydantic-ai agent uses a session's memory, and nothing that goes wrong in the memory ends its run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

import memfiles
from memfiles.adapters.agent_calls import NO_MEMORY
from memfiles.adapters.pydantic_ai import MemoryToolset, memory_instructions
from memfiles.tools.session import Session

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 50}
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, max_size_bytes: 1000}
    - {uid: u-play, name: playbook, description: Refunds., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret deal\\n"}
agents:
  support: {level: INTERNAL, memory: [{id: u-notes, mode: rw}, {id: u-play, mode: r}, {id: u-deals, mode: r}]}
"""
Call = tuple[str, Any]

pytestmark = pytest.mark.usefixtures("loops")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    path = tmp_path / "workflow.yaml"
    path.write_text(WORKFLOW)
    with memfiles.open(path, watch=False) as opened:
        yield opened


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


@dataclass
class Script:
    """Stands in for a model: makes these calls, those of one step together, and keeps what it was shown."""

    steps: list[list[Call]]
    shown: list[AgentInfo] = field(default_factory=list)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step, number = len(self.shown), iter(range(100))
        self.shown.append(info)
        if step >= len(self.steps):
            return ModelResponse(parts=[TextPart("done")])
        calls = [
            ToolCallPart(name, sent, tool_call_id=f"call_{step}_{next(number)}") for name, sent in self.steps[step]
        ]
        return ModelResponse(parts=calls)

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    def tools(self) -> list[list[str]]:
        """The names of the tools that were offered, step by step."""
        return [[tool.name for tool in info.function_tools] for info in self.shown]


def agent_of(session: Any, script: Script, **settings: Any) -> Agent[Any, str]:
    model = FunctionModel(script.answer, stream_function=script.stream)
    return Agent(model, toolsets=[MemoryToolset(session)], instructions=memory_instructions(session), **settings)


def results(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """What came back to the model, and how it went."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [(part.outcome, str(part.content)) for part in parts if isinstance(part, ToolReturnPart)]


def ran(session: Any, *steps: list[Call], **settings: Any) -> list[tuple[str, str]]:
    return results(agent_of(session, Script(list(steps)), **settings).run_sync("Go.").all_messages())


def test_files_and_entries_are_used_through_the_agent_s_tools(session: Session) -> None:
    """The tools are the session's, with its words; the prompt is its prompt."""
    script = Script(
        [
            [("read_memory", {"file": "playbook"})],
            [("append_memory", {"file": "notes", "content": "- Ada\n"})],
            [("memory_save", {"key": "ada:plan", "content": "Pro"})],
            [("memory_get", {"key": "ada:plan"})],
        ]
    )
    prompt = session.system_prompt()
    messages = agent_of(session, script).run_sync("Go.").all_messages()
    texts = [text for _, text in results(messages)]

    assert [tool.name for tool in session.definitions()] == script.tools()[0]
    assert session.definitions()[0].description == script.shown[0].function_tools[0].description
    assert prompt == script.shown[0].instructions
    assert "Be kind.\n" == texts[0]
    assert texts[1].startswith("Added to the end of notes. Now at revision 2")
    assert '"content":"Pro"' in texts[3].replace(" ", "")
    assert "- Ada\n" == session.manager.read("u-notes")


def test_the_prompt_is_rendered_for_every_request(session: Session) -> None:
    """What one step wrote stands in the instructions of the next."""
    script = Script([[("append_memory", {"file": "notes", "content": "- Ada\n"})]])
    agent_of(session, script).run_sync("Go.")

    assert ["(RW, 0B of 1000B)" in str(info.instructions) for info in script.shown] == [True, False]
    assert "notes (RW, 6B of 1000B)" in str(script.shown[1].instructions)


def test_the_tools_follow_the_level(session: Session) -> None:
    """Raised by a tool of the host's, it counts for the next call; and at the next step other tools are offered."""
    script = Script([[("meet", {}), ("append_memory", {"file": "notes", "content": "x"})]])
    agent: Agent[Any, str] = agent_of(session, script)

    @agent.tool_plain(sequential=True)
    def meet() -> str:
        return session.raise_level("CONFIDENTIAL")

    (_, level), (outcome, said) = results(agent.run_sync("Go.").all_messages())

    assert ("CONFIDENTIAL", "failed") == (level, outcome)
    assert "notes is at level INTERNAL and this session is at CONFIDENTIAL" in said
    assert ["append_memory" in names for names in script.tools()] == [True, False]
    assert "deals (R" in str(script.shown[1].instructions)
    assert "" == session.manager.read("u-notes")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (("append_memory", {"file": "playbook", "content": "x"}), "playbook is read-only here"),
        (("append_memory", {"file": "notes", "content": "x" * 1001}), "over its cap of 1000"),
        (("append_memory", {"file": "notes"}), "'content' is missing"),
        (("append_memory", '{"file": "notes", "content": '), "the arguments are not JSON"),
        (("append_memory", "[1]"), "the arguments must be one JSON object, not list"),
        (("read_memory", {"file": "deals"}), "deals"),
        (("memory_save", {"key": "k", "content": "AKIAIOSFODNN7EXAMPL3"}), "aws"),
        (("memory_delete", {"key": "never"}), "there is no entry"),
    ],
)
def test_a_refused_call_is_a_failed_result_that_says_why(session: Session, call: Call, why: str) -> None:
    """However often it is made: it costs none of the retries, after which the framework would end the run."""
    refused = ran(session, *[[call]] * 4)

    assert ["failed"] * 4 == [outcome for outcome, _ in refused]
    assert all(why.lower() in text.lower() for _, text in refused)


def test_calls_made_at_once_are_carried_out_in_their_order(session: Session) -> None:
    """The framework runs them side by side; nothing is lost or swapped."""
    lines = [f"- {number:02}\n" for number in range(20)]
    done = ran(session, [("append_memory", {"file": "notes", "content": line}) for line in lines])

    assert ["success"] * 20 == [outcome for outcome, _ in done]
    assert "".join(lines) == session.manager.read("u-notes")


def test_agents_at_once_lose_nothing(session: Session) -> None:
    """Runs of one toolset side by side in one loop."""
    toolset: MemoryToolset[None] = MemoryToolset(session)

    def agent(name: str) -> Agent[None, str]:
        lines = [f"{name}{number}\n" for number in range(5)]
        script = Script([[("append_memory", {"file": "notes", "content": line})] for line in lines])
        return Agent(FunctionModel(script.answer), toolsets=[toolset])

    async def program() -> None:
        await asyncio.gather(*(agent(name).run("Go.") for name in "abcd"))

    asyncio.run(program())

    assert sorted(f"{name}{n}" for name in "abcd" for n in range(5)) == sorted(
        session.manager.read("u-notes").splitlines()
    )


def test_a_call_that_is_made_again_is_not_carried_out_twice(session: Session) -> None:
    """A run that was lost after the call goes on from its messages, with the same id."""
    sent = {"file": "notes", "content": "- Ada\n"}
    asked: list[ModelMessage] = [ModelRequest.user_text_prompt("Go.")]
    lost = [*asked, ModelResponse(parts=[ToolCallPart("append_memory", sent, "call_7")])]

    def again() -> str:
        model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("done")]))
        agent = Agent(model, toolsets=[MemoryToolset(session)])
        return results(agent.run_sync(message_history=lost).all_messages())[0][1]

    first, second = again(), again()

    assert "This call had already been carried out; nothing changed now. " + first == second
    assert "- Ada\n" == session.manager.read("u-notes")
    assert "call_7" == session.manager.log("u-notes")[-1].by.call


def test_a_streamed_run_does_the_same(session: Session) -> None:
    """Arguments arrive in pieces there."""
    script = Script([[("append_memory", {"file": "notes", "content": "- Ada\n"}), ("read_memory", {"file": "deals"})]])

    async def program() -> tuple[str, list[tuple[str, str]]]:
        async with agent_of(session, script).run_stream("Go.") as streamed:
            return await streamed.get_output(), results(streamed.all_messages())

    output, done = asyncio.run(program())

    assert ("done", ["success", "failed"]) == (output, [outcome for outcome, _ in done])
    assert "- Ada\n" == session.manager.read("u-notes")


class Held:
    """A session whose calls wait until they may go on."""

    def __init__(self, session: Session) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.definitions, self.system_prompt = session.definitions, session.system_prompt
        self._session = session

    def call(self, name: str, arguments: object, *, call_id: str | None) -> Any:
        self.begun.set()
        assert self.may_end.wait(30)
        return self._session.call(name, arguments, call_id=call_id)


def test_a_cancelled_run_leaves_the_record_whole(session: Session) -> None:
    """The call that has begun is carried out before the run ends; the one that waits behind it is not made."""
    held = Held(session)
    calls: list[Call] = [("append_memory", {"file": "notes", "content": f"- {name}\n"}) for name in ("Ada", "Bob")]

    async def program() -> bool:
        run = asyncio.create_task(agent_of(cast(Session, held), Script([calls])).run("Go."))
        assert await asyncio.to_thread(held.begun.wait, 30)
        run.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        was_done = run.done()
        held.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        return was_done

    assert False is asyncio.run(program())
    assert ("- Ada\n", 2) == (session.manager.read("u-notes"), session.manager.snapshot("u-notes").revision)


def test_a_memory_that_is_gone_does_not_end_the_run(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Without tools and without a prompt it goes on, and the log says why."""
    script = Script([[("finish", {}), ("read_memory", {"file": "notes"})]])
    agent: Agent[Any, str] = agent_of(session, script)

    @agent.tool_plain(sequential=True)
    def finish() -> None:
        session.close()

    run = agent.run_sync("Go.")

    assert ("done", "failed") == (run.output, results(run.all_messages())[1][0])
    assert (["finish"], NO_MEMORY) == (script.tools()[1], script.shown[1].instructions)
    assert "this session of agent support is closed" in caplog.text


@dataclass
class Deps:
    session: Session


async def awaited(context: RunContext[Deps]) -> Session:
    return context.deps.session


@pytest.mark.parametrize("session_of", [lambda context: context.deps.session, awaited])
def test_the_session_may_come_from_the_run_s_dependencies(memory: memfiles.Memory, session_of: Any) -> None:
    """One agent serves many; each run has its own session."""
    script = Script([])
    for run in ("ada", "bob"):
        session = memory.session("support", run=run)
        script.steps, script.shown = [[("memory_save", {"key": run, "content": "x"})]], []
        agent_of(session_of, script, deps_type=Deps).run_sync("Go.", deps=Deps(session))

    found = {entry.key for entry in memory.entries.list(memory.session("support")).memories}
    assert {"ada", "bob"} == found
    assert "- notes (RW" in str(script.shown[0].instructions)


def test_a_result_carries_its_data_for_the_program(session: Session) -> None:
    """The receipt of a write, which the model is not sent; and a tool says whether it only reads."""
    script = Script([[("append_memory", {"file": "notes", "content": "- Ada\n"})]])
    parts = [p for m in agent_of(session, script).run_sync("Go.").all_messages() for p in m.parts]
    (receipt,) = [part.metadata for part in parts if isinstance(part, ToolReturnPart)]
    read_only = {tool.name for tool in script.shown[0].function_tools if (tool.metadata or {})["read_only"]}

    assert (2, 6) == (receipt["revision"], receipt["size_bytes"])
    assert {"read_memory", "memory_get", "memory_search", "memory_list"} == read_only


def test_it_can_be_wrapped_like_any_toolset(session: Session) -> None:
    """Under other names, and with approval asked for what is not read-only."""
    script = Script([[("my_read_memory", {"file": "playbook"})]])
    toolset = MemoryToolset[None](session, id="memory").prefixed("my")
    run = Agent(FunctionModel(script.answer), toolsets=[toolset]).run_sync("Go.")

    assert [("success", "Be kind.\n")] == results(run.all_messages())
    assert "memory" == MemoryToolset[None](session, id="memory").id


def test_the_framework_s_own_test_model_can_call_every_tool(session: Session) -> None:
    """It makes up arguments from the schemas, so these can be read by whoever does."""
    run = Agent(TestModel(), toolsets=[MemoryToolset(session)]).run_sync("Go.")

    assert len(session.definitions()) == len(results(run.all_messages()))


def test_an_unknown_tool_ends_the_run_as_the_framework_has_it(session: Session) -> None:
    """That is known to be so, and the README says it: such a call never comes to the memory."""
    with pytest.raises(UnexpectedModelBehavior, match="'never' exceeded max retries"):
        ran(session, *[[("never", {})]] * 3)
    assert "done" == agent_of(session, Script([[("never", {})]] * 3), retries=5).run_sync("Go.").output


def output_of(program: str) -> str:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    return run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout


def test_without_the_extra_the_error_says_which() -> None:
    """And nothing of the framework is loaded by anything else."""
    program = (
        "import sys; sys.modules['pydantic_ai'] = None\nimport memfiles\n"
        "try:\n    import memfiles.adapters.pydantic_ai\nexcept memfiles.ExtraMissing as error:\n    print(error)"
    )

    assert "memory for pydantic-ai needs an extra: pip install 'memfiles[pydantic-ai]'\n" == output_of(program)
    assert "False\n" == output_of("import memfiles, sys; print('pydantic_ai' in sys.modules)")
