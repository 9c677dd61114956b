"""A session says who is calling at which level; the level rises, never falls, and counts at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.callers import SessionProvenance
from memfiles.errors import InvalidArgument
from memfiles.files.manager import MemoryManager
from memfiles.records.levels import Levels
from memfiles.records.record import Actor
from memfiles.tools.session import Session
from memfiles.workflow.workflow import MemoryFile
from tests.support.stores import place_of

FILES = [
    MemoryFile(uid="u-notes", name="notes", description="Customers.", level="INTERNAL"),
    MemoryFile(uid="u-deals", name="deals", description="Deals.", level="CONFIDENTIAL"),
]
REFS = [{"id": "u-notes", "mode": "rw"}, {"id": "u-deals", "mode": "rw"}]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(place_of(tmp_path / "memory"), durability="os") as manager:
        manager.restore(FILES)
        yield manager


@pytest.fixture
def session(manager: MemoryManager) -> Session:
    return session_at("INTERNAL", manager)


def session_at(level: str, manager: MemoryManager, **provenance: Any) -> Session:
    given = SessionProvenance(**{"agent": "support", **provenance})
    return Session(given, refs=REFS, manager=manager, levels=Levels(), level=level)


def files_of(tools: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {tool["name"]: tool["input_schema"]["properties"]["file"]["enum"] for tool in tools}


def test_the_system_prompt_is_the_index_card_of_what_is_visible(session: Session) -> None:
    """A file above the session's level is not mentioned."""
    expected = (
        "## Memory files available\n"
        "Read with read_memory(file). Change RW files with append_memory or edit_memory.\n"
        "- notes (RW, 0B of 16384B): Customers."
    )

    assert expected == session.system_prompt()


def test_a_raised_level_counts_for_the_very_next_call(session: Session) -> None:
    """Card, tools and calls of the same session follow at once: more to read, and no write-down."""
    before = session.call("append_memory", {"file": "notes", "content": "x"}).code
    session.raise_level("CONFIDENTIAL")
    after = [session.call("append_memory", {"file": name, "content": "x"}).code for name in ("notes", "deals")]

    assert (None, ["level_denied", None]) == (before, after)
    assert {"read_memory": ["deals", "notes"], "append_memory": ["deals"], "edit_memory": ["deals"]} == files_of(
        session.tools("anthropic")
    )
    assert "- deals (RW, 1B of 16384B): Deals.\n- notes (R, 1B): Customers." in session.system_prompt()


@pytest.mark.parametrize(
    ("to", "expected"), [("PUBLIC", "INTERNAL"), ("INTERNAL", "INTERNAL"), ("RESTRICTED", "RESTRICTED")]
)
def test_a_level_never_falls(session: Session, to: str, expected: str) -> None:
    """Raising to a lower level changes nothing; the level now in force is returned."""

    assert (expected, expected) == (session.raise_level(to), session.level)


def test_of_many_threads_that_raise_the_highest_wins(session: Session) -> None:
    """No order of events lets the level fall."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(session.raise_level, ["CONFIDENTIAL", "RESTRICTED", "PUBLIC", "INTERNAL"] * 50))

    assert session.level == "RESTRICTED"


def test_an_undeclared_level_is_refused(manager: MemoryManager, session: Session) -> None:
    """At the start and later, with the declared ones."""
    for attempt in (lambda: session_at("SECRET", manager), lambda: session.raise_level("SECRET")):
        with pytest.raises(InvalidArgument, match="'SECRET' is not declared; use one of PUBLIC, INTERNAL"):
            attempt()

    assert session.level == "INTERNAL"


def test_every_dialect_is_offered(session: Session) -> None:
    """The same tools in each vendor's shape, and a clear error for another."""

    dialects = ("anthropic", "bedrock", "gemini", "mcp", "openai", "openai-chat")

    assert [3] * 6 == [len(session.tools(dialect)) for dialect in dialects]
    with pytest.raises(InvalidArgument, match=f"unknown dialect 'grok'; use one of {', '.join(dialects)}"):
        session.tools("grok")


def test_options_reach_the_dialect(session: Session) -> None:
    """Strict and examples are the caller's choice."""
    (tool, *_) = session.tools("anthropic", strict=True, examples=True)

    assert {"strict", "input_examples"} <= set(tool)


def test_changes_carry_the_session(manager: MemoryManager) -> None:
    """The run stands in the history, with the agent and the call."""
    session = session_at("INTERNAL", manager, run="evt-1", channel="email", thread="t-1")
    session.call("append_memory", {"file": "notes", "content": "x"}, call_id="toolu_01")

    assert Actor(agent="support", session="evt-1", call="toolu_01") == manager.log("u-notes")[0].by


@pytest.mark.parametrize("call_id", ["call_" + "A" * 5000, "\u00e9" * 200])
def test_a_very_long_call_id_is_kept_as_its_digest(manager: MemoryManager, session: Session, call_id: str) -> None:
    """Gateways pack kilobytes into call ids; the record stays small and a replay is still found. Bytes count."""
    for _ in range(2):
        session.call("append_memory", {"file": "notes", "content": "x"}, call_id=call_id)

    assert manager.read("u-notes") == "x"
    assert [71] == [len(change.by.call) for change in manager.log("u-notes") if change.by.call]


def test_an_empty_call_id_is_none(manager: MemoryManager, session: Session) -> None:
    """Two calls without an id are two calls."""
    for _ in range(2):
        session.call("append_memory", {"file": "notes", "content": "x"}, call_id="")

    assert manager.read("u-notes") == "xx"


@pytest.mark.parametrize("call_id", ["a\nb", "a\0", "\ud800", 7])
def test_a_call_id_that_cannot_be_recorded_is_an_error_result(
    manager: MemoryManager, session: Session, call_id: Any
) -> None:
    """It is refused before anything is written."""
    result = session.call("append_memory", {"file": "notes", "content": "x"}, call_id=call_id)

    assert (True, "invalid_argument") == (result.is_error, result.code)
    assert manager.read("u-notes") == ""


@pytest.mark.parametrize("what", ["agent", "run", "channel", "thread"])
@pytest.mark.parametrize("label", ["", "a\nb", "x" * 256, "\ud800", 7])
def test_labels_that_cannot_be_recorded_are_refused(manager: MemoryManager, what: str, label: Any) -> None:
    """Whoever opens a session learns it at once, not at the first write."""
    with pytest.raises(InvalidArgument, match=f"^{what} "):
        session_at("INTERNAL", manager, **{what: label})


def test_a_closed_session_answers_every_call_with_an_error(session: Session) -> None:
    """Nothing is raised into a loop that is still running; closing again is fine."""
    session.close()
    session.close()
    result = session.call("read_memory", {"file": "notes"})

    assert (True, "session_closed") == (result.is_error, result.code)


def test_a_closed_session_tells_the_host(session: Session) -> None:
    """The prompt and the tools are the host's business: an empty answer would hide the mistake."""
    session.close()
    for use in (session.system_prompt, lambda: session.tools("anthropic")):
        with pytest.raises(InvalidArgument, match="session of agent support is closed"):
            use()


def test_threads_may_share_a_session(manager: MemoryManager, session: Session) -> None:
    """Parallel tool calls of one turn lose nothing."""

    def append(number: int) -> bool:
        line = f"- {number}\n"
        return session.call("append_memory", {"file": "notes", "content": line}, call_id=f"c{number}").is_error

    with ThreadPoolExecutor(8) as pool:
        errors = list(pool.map(append, range(100)))

    assert not any(errors)
    assert sorted(f"- {number}" for number in range(100)) == sorted(manager.read("u-notes").splitlines())
