"""The tool runner of Anthropic's SDK has the session's tools, and tells its model what each call came to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import ToolError

import memfiles
from memfiles.adapters.anthropic_tools import AsyncSessionTool, SessionTool, async_tools, tools
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Held, ScriptedClaude, opened, said_without

NOTED = ("append_memory", {"file": "notes", "content": "- Ada is on Pro.\n"})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path) as memory:
        yield memory


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


def runner(claude: ScriptedClaude, offered: list[SessionTool]) -> Any:
    """The vendor's own loop with these tools."""
    transport = httpx2.MockTransport(claude.answer)
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    asked: Any = {"model": "claude", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello."}]}
    return client.beta.messages.tool_runner(tools=offered, **asked)


def run(claude: ScriptedClaude, offered: list[SessionTool]) -> None:
    """One run of the vendor's own loop with these tools."""
    runner(claude, offered).until_done()


async def run_async(claude: ScriptedClaude, offered: list[AsyncSessionTool]) -> None:
    """As ``run``, with the asynchronous client."""
    transport = httpx2.MockTransport(claude.answer_later)
    client = anthropic.AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport))
    asked: Any = {"model": "claude", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello."}]}
    await client.beta.messages.tool_runner(tools=offered, **asked).until_done()


@pytest.mark.parametrize("given", [{}, {"strict": True, "examples": True}])
def test_the_api_is_sent_the_dialect_s_tools(session: Session, given: dict[str, Any]) -> None:
    """As they are, whatever was asked of the dialect."""
    claude = ScriptedClaude()
    run(claude, tools(session, **given))

    assert session.tools("anthropic", **given) == claude.requests[0]["tools"]


def test_results_and_errors_are_told_to_the_model(session: Session) -> None:
    """An error is marked as one and ends nothing."""
    claude = ScriptedClaude(
        [NOTED, ("append_memory", {"file": "playbook", "content": "x"})],
        [("read_memory", {"file": "notes"}), ("memory_get", {}), ("read_memory", {"file": "deals"})],
    )
    run(claude, tools(session))

    assert [
        {"tool_use_id": "toolu_0_0", "content": "Added to the end of notes. Now at revision 2: 17 of 1000 bytes"},
        {
            "tool_use_id": "toolu_0_1",
            "content": "playbook is read-only here; write to a file marked RW",
            "is_error": True,
        },
        {"tool_use_id": "toolu_1_0", "content": "- Ada is on Pro.\n"},
        {"tool_use_id": "toolu_1_1", "content": "memory_get: 'key' is missing", "is_error": True},
        {"tool_use_id": "toolu_1_2", "content": "unknown memory file 'deals'", "is_error": True},
    ] == [_short(block) for block in claude.results]


def _short(block: dict[str, Any]) -> dict[str, Any]:
    """A result without its type, and without how its text goes on."""
    text = block["content"]
    for end in (" used,", ": read it", ". Call it", ": use one"):
        text = text.partition(end)[0]
    return {key: value for key, value in block.items() if key != "type"} | {"content": text}


def test_the_history_says_who_and_in_which_run(session: Session) -> None:
    """But not by which call: the runner does not tell its tools."""
    run(ScriptedClaude([NOTED]), tools(session))
    by = session.manager.log("u-notes")[-1].by

    assert ("support", "monday", None) == (by.agent, by.session, by.call)


def test_a_run_keeps_its_tools_and_its_calls_follow_the_level(session: Session) -> None:
    """A tool that was offered can be called; the session judges what it may do now."""

    def raised() -> list[tuple[str, Any]]:
        session.raise_level("CONFIDENTIAL")
        return [NOTED, ("append_memory", {"file": "deals", "content": "- another\n"})]

    claude = ScriptedClaude(raised, [("read_memory", {"file": "deals"})])
    run(claude, tools(session))

    assert [True, False, False] == [result.get("is_error", False) for result in claude.results]
    assert "- secret deal\n- another\n" == claude.results[2]["content"]


def test_a_run_can_be_given_the_tools_of_a_level_that_rose(memory: memfiles.Memory) -> None:
    """In the way the SDK has for it; what could not be used before is offered and works."""
    session = memory.session("support", level="PUBLIC")
    claude = ScriptedClaude([("memory_list", {})], [("append_memory", {"file": "deals", "content": "- another\n"})])
    running = runner(claude, tools(session))
    for turn, _ in enumerate(running):
        if turn == 0:
            session.raise_level("CONFIDENTIAL")
            running.add_tools(*tools(session))
    added = [block["tool"]["definition"] for block in claude.requests[1]["messages"][-1]["content"]]

    assert "append_memory" not in [tool["name"] for tool in claude.requests[0]["tools"]]
    assert session.tools("anthropic") == added
    assert "- secret deal\n- another\n" == memory.manager.read("u-deals")


def test_the_asynchronous_runner_does_the_same(session: Session) -> None:
    """With the tools made for it."""
    claude = ScriptedClaude([NOTED, ("append_memory", {"file": "playbook", "content": "x"})])
    asyncio.run(run_async(claude, async_tools(session)))

    assert session.tools("anthropic") == claude.requests[0]["tools"]
    assert [False, True] == [result.get("is_error", False) for result in claude.results]
    assert "- Ada is on Pro.\n" == session.manager.read("u-notes")


def test_parallel_calls_lose_nothing(session: Session) -> None:
    """Forty appends at once are forty lines."""
    append = {tool.name: tool for tool in async_tools(session)}["append_memory"]

    async def all_of_them() -> None:
        await asyncio.gather(*(append.call({"file": "notes", "content": f"- {number}\n"}) for number in range(40)))

    asyncio.run(all_of_them())

    assert {f"- {number}" for number in range(40)} == set(session.manager.read("u-notes").splitlines())


def test_a_cancelled_run_leaves_the_record_whole(memory: memfiles.Memory, session: Session) -> None:
    """A change in its middle is carried out to its end before the run is over."""
    held, claude = Held(memory), ScriptedClaude([NOTED])

    async def cancelled() -> tuple[bool, bool]:
        running = asyncio.create_task(run_async(claude, async_tools(session)))
        await asyncio.to_thread(held.wait)
        running.cancel()
        await asyncio.wait([running], timeout=0.1)
        was_over = running.done()
        held.go_on.set()
        await asyncio.wait([running])
        return was_over, running.cancelled()

    assert (False, True) == asyncio.run(cancelled())
    assert "- Ada is on Pro.\n" == session.manager.read("u-notes")


def test_a_closed_session_has_no_tools_and_refuses_calls(session: Session) -> None:
    """In words, for those that were made before."""
    offered = tools(session)
    session.close()

    with pytest.raises(InvalidArgument, match="this session of agent support is closed"):
        tools(session)
    with pytest.raises(ToolError, match="This session is closed; its memory can no longer be used."):
        offered[0].call({"file": "notes"})


def test_without_the_extra_the_error_says_which() -> None:
    """And nothing of the vendor's is loaded by anything else."""
    program = (
        "import memfiles\ntry:\n    import memfiles.adapters.anthropic_tools\nexcept memfiles.ExtraMissing as error:\n"
        "    print(error)"
    )
    expected = "Anthropic's tool runner needs an extra: pip install 'memfiles[anthropic]'\n"

    assert expected == said_without("anthropic", program=program)
