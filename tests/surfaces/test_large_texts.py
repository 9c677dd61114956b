"""Texts far over every cap are refused on each surface before the secrets gate looks at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import MemfilesError
from memfiles.secrets.gate import gate
from tests.cli.command_line import run
from tests.server.mcp_clients import Offer, client_of, in_loop, offered

pytestmark = pytest.mark.slow

HUGE = "the password of nobody, and no token; " * 500_000  # 19 MB
REFUSED = {"size_exceeded", "invalid_argument"}
Call = Callable[[Offer], str | None]


def _code(call: Callable[[], Any]) -> str | None:
    """The code of the error that this ends with."""
    try:
        answer = call()
    except MemfilesError as error:
        return error.code
    return str(answer.code)


def _over_mcp(offer: Offer) -> str | None:
    async def called() -> str:
        async with client_of(offer) as client:
            result = await client.call_tool("append_memory", {"file": "notes", "content": HUGE})
            return "size_exceeded" if result.is_error and "over its cap" in str(result.content) else str(result)

    return in_loop(called)


def _tool(name: str, **arguments: Any) -> Call:
    return lambda offer: offer.session.call(name, arguments).code


def _of_files(verb: str, *arguments: Any) -> Call:
    return lambda offer: _code(lambda: getattr(offer.memory.manager, verb)(*arguments))


def _of_entries(content: str, **facets: Any) -> Call:
    return lambda offer: _code(lambda: offer.memory.entries.save(offer.session, "k", content, **facets))


CALLS: dict[str, Call] = {
    "append": _of_files("append", "notes-1", HUGE),
    "several appends": _of_files("append_many", [("notes-1", HUGE)]),
    "edit": _of_files("edit", "notes-1", "Notes", HUGE),
    "replace": _of_files("replace", "notes-1", HUGE),
    "save": _of_entries(HUGE),
    "a source": _of_entries("c", source=HUGE),
    "a category": _of_entries("c", category=HUGE),
    "append_memory": _tool("append_memory", file="notes", content=HUGE),
    "edit_memory": _tool("edit_memory", file="notes", old_string="Notes", new_string=HUGE),
    "memory_save": _tool("memory_save", key="k", content=HUGE),
    "the command line": lambda _: str(run("--json", "append", "notes", stdin=HUGE).error["code"]),
    "MCP": _over_mcp,
}


@pytest.fixture(scope="module")
def gate_seconds() -> float:
    """The processor time that the gate takes for the text."""
    begun = time.process_time()
    gate(HUGE, policy="warn")
    return time.process_time() - begun


@pytest.mark.parametrize("name", CALLS)
def test_a_huge_text_is_refused_unread(
    name: str, tmp_path: Path, gate_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a fraction of the processor time of the gate, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with offered(tmp_path) as offer:
        before = offer.memory.manager.read("notes-1")
        begun = time.process_time()
        code = CALLS[name](offer)
        took = time.process_time() - begun
        after = offer.memory.manager.read("notes-1")

    assert code in REFUSED
    assert took < gate_seconds / 2
    assert before == after
