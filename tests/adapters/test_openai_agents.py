"""An agent of the OpenAI Agents SDK has the session's tools and prompt as they are at every turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner
from agents.result import RunResultBase
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

import memfiles
from memfiles.adapters.openai_agents import instructions, tools
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Held, opened, said_without

QUIET = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")
FILE_TOOLS = ["read_memory", "append_memory", "edit_memory"]
ENTRY_TOOLS = ["memory_save", "memory_get", "memory_search", "memory_list", "memory_delete", "memory_update"]
DONE = [assistant_message("Done.")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path) as memory:
        yield memory


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


def agent_of(session: Session, *steps: Any) -> Agent[None]:
    model = ScriptedModel([*steps, DONE])
    return Agent(name="support", instructions=instructions(session, "Help."), tools=[*tools(session)], model=model)


async def run(agent: Agent[None], *, streamed: bool = False) -> RunResultBase:
    if not streamed:
        return await Runner.run(agent, "Hello.", run_config=QUIET)
    running = Runner.run_streamed(agent, "Hello.", run_config=QUIET)
    async for _ in running.stream_events():
        pass
    return running


def results_of(agent: Agent[None], *, streamed: bool = False) -> list[str]:
    """What the model was told of its calls in one run."""
    items: list[Any] = asyncio.run(run(agent, streamed=streamed)).to_input_list()
    return [str(item["output"]) for item in items if item.get("type") == "function_call_output"]


def append(text: str, *, id: str = "call_1", file: str = "notes") -> Any:
    return function_call("append_memory", {"file": file, "content": text}, call_id=id)


def offered(call: ModelCall) -> dict[str, Any]:
    """The files that each tool of a request names, None for one that names no files."""
    return {tool.name: tool.params_json_schema["properties"].get("file", {}).get("enum") for tool in call.tools}  # type: ignore[union-attr]


def test_the_model_is_offered_the_session_s_tools_as_openai_takes_them(session: Session) -> None:
    """Strict, with the descriptions and schemas of the dialect, which the SDK leaves as they are."""
    seen: list[Any] = []

    def asked(call: ModelCall) -> Any:
        seen.extend(vars(tool) for tool in call.tools)
        return DONE

    results_of(agent_of(session, ModelStep.respond(asked)))
    fields = {"name": "name", "description": "description", "parameters": "params_json_schema"}
    shapes = [{key: tool[field] for key, field in fields.items()} for tool in seen]

    assert session.tools("openai") == [{"type": "function", **shape, "strict": True} for shape in shapes]


def test_results_and_errors_are_texts_for_the_model(session: Session) -> None:
    """The run goes on after each of them, whatever was sent, and the history has the SDK's ids of the calls."""
    calls = [
        append("- Ada is on Pro.\n"),
        append("x", id="call_2", file="playbook"),
        function_call("read_memory", "{no JSON", call_id="call_3"),
        function_call("read_memory", {"file": "notes", "offset": None, "limit": None}, call_id="call_4"),
    ]
    said = results_of(agent_of(session, calls))

    assert "Added to the end of notes. Now at revision 2: 17 of 1000 bytes used, 983 left." == said[0]
    assert "playbook is read-only here; write to a file marked RW" == said[1]
    assert "the arguments are not JSON: " in said[2]
    assert "" == said[3].replace("- Ada is on Pro.\n", "")
    assert ["call_1"] == [change.by.call for change in session.manager.log("u-notes") if change.op == "append"]


def test_a_call_that_is_made_again_changes_nothing(session: Session) -> None:
    """By the SDK's id of the call: a run that is begun again from the same answer of the model adds nothing twice."""
    said = [results_of(agent_of(session, [append("- a\n")])) for _ in range(2)]

    assert "This call had already been carried out; nothing changed now." in said[1][0]
    assert "- a\n" == session.manager.read("u-notes")


def test_parallel_calls_are_made_in_the_order_of_the_model(session: Session) -> None:
    """Forty appends in one turn are forty lines, the first one first; also in another event loop."""
    for first in (0, 40):
        calls = [append(f"- {number}\n", id=f"call_{number}") for number in range(first, first + 40)]
        assert 40 == len(results_of(agent_of(session, calls)))

    assert [f"- {number}" for number in range(80)] == session.manager.read("u-notes").splitlines()


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_and_prompt_follow_the_level(session: Session, streamed: bool) -> None:
    """At the turn after it was raised: what can be read is named, and what cannot be used is not offered."""
    prompts: list[str] = []
    seen: list[dict[str, Any]] = []

    def asked(call: ModelCall) -> Any:
        seen.append(offered(call))
        prompts.append(call.system_instructions or "")
        session.raise_level(["CONFIDENTIAL", "RESTRICTED", "RESTRICTED"][len(seen) - 1])
        return [function_call("memory_list", {}, call_id=f"call_{len(seen)}")]

    results_of(agent_of(session, *[ModelStep.respond(asked)] * 3), streamed=streamed)
    readable, entries = ["deals", "notes", "playbook"], dict.fromkeys(ENTRY_TOOLS)

    assert [
        dict(zip(FILE_TOOLS, [["notes", "playbook"], ["notes"], ["notes"]], strict=True)) | entries,
        dict(zip(FILE_TOOLS, [readable, ["deals"], ["deals"]], strict=True)) | entries,
        {"read_memory": readable} | entries,
    ] == seen
    assert [
        ["- notes (RW, 0B of 1000B): Customers.", "- playbook (R, 9B): Refunds."],
        ["- deals (RW, 14B of 16384B): Deals.", "- notes (R, 0B): Customers.", "- playbook (R, 9B): Refunds."],
        ["- deals (R, 14B): Deals.", "- notes (R, 0B): Customers.", "- playbook (R, 9B): Refunds."],
    ] == [
        [line for line in prompt.splitlines() if line.startswith("- ") and "B" in line.split(":")[0]]
        for prompt in prompts
    ]
    assert all(prompt.startswith("Help.\n\n## Memory files available\n") for prompt in prompts)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_level_that_rises_before_the_call_is_made_ends_no_run(session: Session, streamed: bool) -> None:
    """The tool was offered, so it is called; the session judges the call."""

    def asked(_: ModelCall) -> Any:
        session.raise_level("RESTRICTED")
        return [append("- late\n")]

    said = results_of(agent_of(session, ModelStep.respond(asked)), streamed=streamed)

    assert ["notes is at level INTERNAL and this session is at RESTRICTED"] == [text.partition(":")[0] for text in said]
    assert "" == session.manager.read("u-notes")


def test_a_tool_that_is_withdrawn_can_be_called_in_vain(session: Session) -> None:
    """With the setting that the README names, the SDK answers the call and the run goes on."""

    def asked(_: ModelCall) -> Any:
        session.raise_level("RESTRICTED")
        return [function_call("memory_list", {}, call_id="call_1")]

    said = results_of(agent_of(session, ModelStep.respond(asked), [append("- late\n", id="call_2")]))

    assert ['{"memories":[],"next":null}', True] == [said[0], "append_memory" in said[1]]
    assert "" == session.manager.read("u-notes")


def test_without_turns_tools_follow_the_level_at_once(session: Session) -> None:
    """As in a realtime session, whose one context lasts."""
    context, agent = RunContextWrapper(None), agent_of(session)

    async def names() -> list[str]:
        return [tool.name for tool in await agent.get_all_tools(context)]

    assert FILE_TOOLS + ENTRY_TOOLS == asyncio.run(names())
    session.raise_level("RESTRICTED")
    assert FILE_TOOLS[:1] + ENTRY_TOOLS == asyncio.run(names())


def test_runs_that_share_an_agent_do_not_disturb_each_other(session: Session) -> None:
    """What one run was offered it can call, also when another asked meanwhile."""

    def asked(call: ModelCall) -> Any:
        return DONE if any(item.get("type") == "function_call_output" for item in call.input) else [append("- a\n")]

    agent = agent_of(session, *[ModelStep.respond(asked)] * 20)

    async def both() -> list[Any]:
        return await asyncio.gather(*(Runner.run(agent, f"Hello {n}.", run_config=QUIET) for n in range(5)))

    assert ["Done."] * 5 == [run.final_output for run in asyncio.run(both())]
    assert "- a\n" == session.manager.read("u-notes")


def test_a_cancelled_run_leaves_the_record_whole(memory: memfiles.Memory, session: Session) -> None:
    """The SDK does not wait for its tools, but a change in its middle is carried out to its end."""
    held, agent = Held(memory), agent_of(session, [append("- Ada is on Pro.\n")])

    async def cancelled() -> tuple[bool, set[bool]]:
        run = asyncio.create_task(Runner.run(agent, "Hello.", run_config=QUIET))
        await asyncio.to_thread(held.wait)
        run.cancel()
        await asyncio.wait([run])
        going_on = asyncio.all_tasks() - {asyncio.current_task()}
        held.go_on.set()
        await asyncio.wait(going_on)
        return run.cancelled(), {task.cancelled() for task in going_on}

    assert (True, {True}) == asyncio.run(cancelled())
    assert "- Ada is on Pro.\n" == session.manager.read("u-notes")


@pytest.mark.parametrize("closing", ["session", "memory"])
def test_a_run_goes_on_without_a_memory_that_was_closed(
    memory: memfiles.Memory, session: Session, closing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is told that there is none, and a call is refused in words; who looks for the reason finds it."""
    told: list[str] = []

    def asked(call: ModelCall) -> Any:
        told.append(call.system_instructions or "")
        return [function_call("memory_list", {}, call_id="call_1")]

    agent = agent_of(session, ModelStep.respond(asked))
    (session if closing == "session" else memory).close()
    said = results_of(agent)

    assert ["Help.\n\nNo memory is available at the moment."] == told
    assert [True] == ["closed" in text for text in said]
    assert "an agent continues its turn without memory" in caplog.text
    if closing == "session":
        with pytest.raises(InvalidArgument, match="this session of agent support is closed"):
            tools(session)


def test_without_the_extra_the_error_says_which() -> None:
    """And nothing of the vendor's is loaded by anything else."""
    program = (
        "import memfiles\ntry:\n    import memfiles.adapters.openai_agents\nexcept memfiles.ExtraMissing as error:\n"
        "    print(error)"
    )
    expected = "the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'\n"

    assert expected == said_without("agents", program=program)
    assert "False\n" == said_without(
        program="import sys, memfiles.tools.session, memfiles.memory\nprint('agents' in sys.modules)"
    )
