"""The MCP server, asked by the official client in this process, in both eras of the protocol."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_stack
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, TextContent

from tests.server.mcp_clients import ERAS, WORKFLOW, Offer, client_of, in_loop, offered, text_of
from tests.support.records import files_of, held
from tests.support.saved import without_ids
from tests.support.workflows import write_workflow

READING = ["read_memory", "memory_get", "memory_search", "memory_list"]
ENTRY = "memory://entries/customers%2FAda%20L"


@pytest.fixture
def offer(tmp_path: Path) -> Iterator[Offer]:
    with offered(tmp_path) as offer:
        yield offer


@pytest.mark.parametrize("era", ERAS)
def test_the_tools_are_the_session_s(offer: Offer, era: str) -> None:
    """Names, schemas and annotations are those of the session's tools in the dialect of MCP."""

    async def listed() -> list[dict[str, Any]]:
        async with client_of(offer, era) as client:
            tools = (await client.list_tools()).tools
            return [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools]

    expected = offer.session.tools("mcp")
    assert expected == in_loop(listed)
    assert {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False} == expected[
        0
    ]["annotations"]


@pytest.mark.parametrize("era", ERAS)
def test_a_call_of_a_tool(offer: Offer, era: str) -> None:
    """The text is the tool's; the structured content says all of it, since clients show models nothing else."""

    async def called() -> list[Any]:
        async with client_of(offer, era) as client:
            read = await client.call_tool("read_memory", {"file": "notes"})
            saved = await client.call_tool("memory_save", {"key": "k", "content": "c"})
            return [text_of(read), read.structured_content, read.is_error, without_ids(saved.structured_content)]

    about = {"name": "notes", "revision": 1, "size_bytes": 8, "max_size_bytes": 16384}
    saved = {"saved": True, "key": "k", "level": "INTERNAL", "revision": 1, "evicted": []}
    assert ["# Notes\n", {"text": "# Notes\n", **about}, False, saved] == in_loop(called)


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("append_memory", {"file": "rules", "content": "x"}, "read_only"),
        ("append_memory", {"file": "notes", "content": "x" * 20_000}, "size_exceeded"),
        ("append_memory", {"file": "deals", "content": "x"}, "file_not_declared"),
        ("append_memory", {"file": 7}, "invalid_argument"),
        ("memory_save", {"key": "k", "content": "c", "level": "RESTRICTED"}, "invalid_argument"),
        ("sell_memory", {}, "unknown_tool"),
        ("edit_memory", {"path": "notes", "old_str": "nothing", "new_str": "x"}, "edit_no_match"),
    ],
)
def test_a_call_that_fails_tells_the_model(offer: Offer, tool: str, arguments: dict[str, Any], code: str) -> None:
    """Whatever is wrong with a call is a result with the tool's own sentence, and no error of the protocol."""

    async def called() -> tuple[Any, ...]:
        async with client_of(offer) as client:
            result = await client.call_tool(tool, arguments)
            return result.is_error, text_of(result), result.structured_content, (result.meta or {})["memfiles/code"]

    assert (True, offer.session.call(tool, arguments).text, None, code) == in_loop(called)


@pytest.mark.parametrize("era", ERAS)
def test_the_prompt_is_the_system_prompt(offer: Offer, era: str) -> None:
    """The index card and what else a model is told of its memory, as it is at the moment of asking."""

    async def asked() -> list[str]:
        async with client_of(offer, era) as client:
            prompt, _ = (await client.list_prompts()).prompts
            offer.session.call("append_memory", {"file": "notes", "content": "- new\n"})
            messages = (await client.get_prompt(prompt.name)).messages
            return [part.content.text for part in messages if isinstance(part.content, TextContent)]

    told = in_loop(asked)
    assert [offer.session.system_prompt()] == told
    assert "- notes (RW, 14B of 16384B): What is known." in told[0]


@pytest.mark.parametrize("era", ERAS)
def test_a_prompt_recalls_for_a_question(offer: Offer, era: str) -> None:
    """The block for one turn, as the user's message; it says so if there is nothing."""
    offer.session.call("memory_save", {"key": "plan", "content": "Ada is on Pro."})

    async def asked() -> list[Any]:
        async with client_of(offer, era) as client:
            _, prompt = (await client.list_prompts()).prompts
            found = [await client.get_prompt(prompt.name, {"query": query}) for query in ("Ada's plan?", "zz")]
            with pytest.raises(MCPError, match="needs the argument 'query'"):
                await client.get_prompt(prompt.name)
            return [(message.role, message.content.text) for each in found for message in each.messages]  # type: ignore[union-attr]

    assert [
        ("user", str(offer.session.recall("Ada's plan?"))),
        ("user", "Memory holds nothing about this."),
    ] == in_loop(asked)


def test_another_prompt_is_refused(offer: Offer) -> None:
    """The names of those that there are, are told."""

    async def asked() -> None:
        async with client_of(offer) as client:
            with pytest.raises(MCPError, match="use memory or recall"):
                await client.get_prompt("nothing")

    in_loop(asked)


def test_read_only(tmp_path: Path) -> None:
    """No tool that changes anything is offered, and none can be called."""

    async def tried() -> tuple[list[str], bool, str, str]:
        with offered(tmp_path, read_only=True) as offer:
            async with client_of(offer) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                refused = await client.call_tool("append_memory", {"file": "notes", "content": "x"})
                read = await client.call_tool("read_memory", {"file": "notes"})
                return names, refused.is_error, text_of(refused), text_of(read)

    names, is_refused, why, content = in_loop(tried)
    assert (READING, True, "# Notes\n") == (names, is_refused, content)
    assert f"use one of {', '.join(READING)}" in why


def test_read_only_speaks_of_nothing_that_changes(tmp_path: Path) -> None:
    """A model is not told to save, append or edit, for which it has no tool."""

    async def told() -> str:
        with offered(tmp_path, read_only=True) as offer:
            offer.session.call("memory_save", {"key": "plan", "content": "On Pro."})
            async with client_of(offer, "legacy") as client:
                (message,) = (await client.get_prompt("memory")).messages
                return str(message.content.model_dump()["text"]) + str(client.instructions)

    text = in_loop(told)
    assert "- notes (R, 8B): What is known." in text
    assert "| On Pro." in text
    assert set() == {word for word in ("append", "edit_", "memory_save", "Save ", "RW") if word in text}


def test_who_has_nothing_to_change_is_not_told_to_save(tmp_path: Path) -> None:
    """Also where it is the workflow that lets an agent only read."""
    write_workflow(tmp_path, WORKFLOW.replace("  entries: {}\n", "").replace("mode: rw", "mode: r"))

    async def told() -> str | None:
        with offered(tmp_path) as offer:
            async with client_of(offer, "legacy") as client:
                return client.instructions

    assert "It is read-only here." in (in_loop(told) or "")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("listing", ["tools", "resources", "resource_templates", "prompts"])
def test_a_cursor_that_is_none_of_ours_is_an_error_of_the_protocol(offer: Offer, era: str, listing: str) -> None:
    """It is not taken for a key behind which to go on, which would skip entries in silence."""

    async def asked() -> list[int]:
        codes = []
        async with client_of(offer, era) as client:
            for cursor in ("garbage", "memory://files/notes", "memory://entries/a b", "\x00", "x" * 100_000):
                with pytest.raises(MCPError) as told:
                    await getattr(client, f"list_{listing}")(cursor=cursor)
                codes.append(told.value.error.code)
        return codes

    assert [INVALID_PARAMS] * 5 == in_loop(asked)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_200_calls_at_once_lose_nothing(offer: Offer, era: str) -> None:
    """Every call that was answered is in the record, once."""

    async def called() -> list[bool]:
        answers: list[bool] = []

        async def append(client: Client, number: int) -> None:
            line = {"file": "notes", "content": f"- {number}\n"}
            answers.append((await client.call_tool("append_memory", line)).is_error)

        async with client_of(offer, era) as client, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(append, client, number)
        return answers

    answers = in_loop(called)
    lines = offer.memory.manager.read("notes-1").splitlines()
    assert [False] * 200 == answers
    assert {"# Notes", *(f"- {number}" for number in range(200))} == set(lines)
    assert (201, 201) == (len(lines), offer.memory.manager.card("notes-1").revision)


def _waits_for_a_record() -> bool:
    """Whether a thread other than this one is in the code that takes the lock of a record."""
    others = (frame for number, frame in sys._current_frames().items() if number != threading.get_ident())
    return any(line.filename.endswith("storage/locks.py") for frame in others for line in extract_stack(frame))


@pytest.mark.directory("it holds the lock of a file")
@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_call_leaves_the_record_whole(offer: Offer, era: str) -> None:
    """What was cancelled while it waited for the record is made as a whole or not at all, and the client served on."""

    async def append(client: Client, scope: anyio.CancelScope) -> None:
        with scope:
            await client.call_tool("append_memory", {"file": "notes", "content": "- a\n"})

    async def cancelled() -> bool:
        async with client_of(offer, era) as client:
            async with anyio.create_task_group() as tasks:
                with held(files_of(offer.memory.manager), "notes-1.json"):
                    tasks.start_soon(append, client, scope := anyio.CancelScope())
                    with anyio.fail_after(60):
                        while not _waits_for_a_record():
                            await anyio.sleep(0.001)
                    scope.cancel()
            return (await client.call_tool("append_memory", {"file": "notes", "content": "- b\n"})).is_error

    assert not in_loop(cancelled)
    assert offer.memory.manager.read("notes-1") in {"# Notes\n- a\n- b\n", "# Notes\n- b\n- a\n", "# Notes\n- b\n"}
