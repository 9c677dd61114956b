"""Tools follow what the session may touch, do what they say, and never raise into the agent's loop."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.entries.callers import SessionProvenance
from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.files.manager import MemoryManager
from memfiles.records.levels import Levels
from memfiles.records.record import Actor, Record
from memfiles.tools.results import ToolResult
from memfiles.tools.session import Session, line_range, tools
from memfiles.tools.visibility import VisibleFile
from memfiles.workflow.workflow import MemoryFile
from tests.support.stores import place_of

NOTES = "# Customers\n- Ada: Pro\n- Bob: Free\n- Cy: Free\n"
FILES = [
    MemoryFile(uid="u-notes", name="notes", level="INTERNAL", max_size_bytes=100, content=NOTES),
    MemoryFile(uid="u-faq", name="faq", level="INTERNAL", content="a\nb\u2028c\r\nd"),
    MemoryFile(uid="u-handbook", name="handbook", level="PUBLIC"),
    MemoryFile(uid="u-audit", name="audit", level="RESTRICTED", content="secret plans"),
]
REFS = [
    {"id": "u-notes", "mode": "rw"},
    {"id": "u-faq", "mode": "r"},
    {"id": "u-handbook", "mode": "rw"},
    {"id": "u-audit", "mode": "rw"},
]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(place_of(tmp_path / "memory"), durability="os") as manager:
        manager.restore(FILES)
        yield manager


@pytest.fixture
def toolset(manager: MemoryManager) -> Session:
    return session_of(manager)


def session_of(manager: MemoryManager, *, refs: list[dict[str, str]] = REFS, level: str = "INTERNAL") -> Session:
    return Session(SessionProvenance("support", run="run-1"), refs=refs, manager=manager, levels=Levels(), level=level)


def enums(toolset: Session) -> dict[str, list[str]]:
    return {tool.name: tool.parameters["properties"]["file"]["enum"] for tool in toolset.definitions()}


def test_tools_list_what_may_be_touched(toolset: Session) -> None:
    """Reading lists every visible file, writing those that are RW and at the session's level."""

    assert enums(toolset) == {
        "read_memory": ["faq", "handbook", "notes"],
        "append_memory": ["notes"],
        "edit_memory": ["notes"],
    }


def test_without_a_writable_file_there_are_no_tools_for_writing(manager: MemoryManager) -> None:
    """A session above all its files only reads."""

    assert enums(session_of(manager, level="CONFIDENTIAL")) == {"read_memory": ["faq", "handbook", "notes"]}


def test_without_a_readable_file_there_are_no_tools(manager: MemoryManager) -> None:
    """Hidden files offer nothing."""

    assert enums(session_of(manager, refs=REFS[:2], level="PUBLIC")) == {}


def test_a_redeployed_file_shows_at_once(manager: MemoryManager, toolset: Session) -> None:
    """The tools are made anew from the live files."""
    manager.restore([replace(FILES[0], name="customers")])

    assert enums(toolset)["read_memory"] == ["customers"]


def test_reading_returns_the_raw_text(toolset: Session) -> None:
    """Nothing is added to the text; what it is about stands in the data."""
    about = {"name": "notes", "revision": 1, "size_bytes": 46, "max_size_bytes": 100}

    assert ToolResult(NOTES, data=about) == toolset.call("read_memory", {"file": "notes"})


@pytest.mark.parametrize(
    ("offset", "limit", "text", "last"),
    [
        (2, 1, "- Ada: Pro\n", 2),
        (3, None, "- Bob: Free\n- Cy: Free\n", 4),
        (None, 2, "# Customers\n- Ada: Pro\n", 2),
        (4, 99, "- Cy: Free\n", 4),
    ],
)
def test_reading_a_range_of_lines(
    toolset: Session, offset: int | None, limit: int | None, text: str, last: int
) -> None:
    """``offset`` is the first line, from 1, ``limit`` how many; the data says where the lines stand."""
    result = toolset.call("read_memory", {"file": "notes", "offset": offset, "limit": limit})

    assert text == result.text
    assert result.data is not None
    assert (offset or 1, last, 4) == tuple(result.data[key] for key in ("first_line", "last_line", "lines"))


def test_only_a_line_feed_ends_a_line(toolset: Session) -> None:
    """Other separators are text, so that the pieces of a file always add up to the file."""
    pieces = [toolset.call("read_memory", {"file": "faq", "offset": line, "limit": 1}).text for line in (1, 2, 3)]

    assert pieces == ["a\n", "b\u2028c\r\n", "d"]


def test_reading_past_the_end_names_the_end(toolset: Session) -> None:
    """The model learns how many lines there are."""
    result = toolset.call("read_memory", {"file": "notes", "offset": 10**5000})

    assert ("notes has 4 lines: pass an offset from 1 to 4", "invalid_argument") == (result.text, result.code)


def test_an_empty_file_reads_as_nothing(toolset: Session) -> None:
    """Also as a range from line 1."""

    assert ["", ""] == [toolset.call("read_memory", {"file": "handbook", "offset": line}).text for line in (None, 1)]


def test_appending_adds_exactly_and_returns_the_receipt(manager: MemoryManager, toolset: Session) -> None:
    """The text lands at the end as it is; the numbers are in the text and in the data."""
    result = toolset.call("append_memory", {"file": "notes", "content": "- Di"})

    assert NOTES + "- Di" == manager.read("u-notes")
    assert result.text == "Added to the end of notes. Now at revision 2: 50 of 100 bytes used, 50 left."
    assert result.data is not None
    assert ("notes", 2, 50, 100) == tuple(
        result.data[key] for key in ("name", "revision", "size_bytes", "max_size_bytes")
    )


def test_editing_replaces_and_tells_the_line(manager: MemoryManager, toolset: Session) -> None:
    """One match is replaced without further words."""
    result = toolset.call("edit_memory", {"file": "notes", "old_string": "Ada: Pro", "new_string": "Ada: Max"})

    assert manager.read("u-notes") == NOTES.replace("Ada: Pro", "Ada: Max")
    assert result.text.startswith("Replaced the text at line 2 of notes. Now at revision 2")


def test_an_ambiguous_edit_replaces_the_first_and_says_so(manager: MemoryManager, toolset: Session) -> None:
    """Two customers are on Free: the model is told which one it changed."""
    result = toolset.call("edit_memory", {"file": "notes", "old_string": "Free", "new_string": "Pro"})

    assert manager.read("u-notes") == NOTES.replace("Free", "Pro", 1)
    assert result.text.startswith("Replaced the first of 2 matches in notes, the one at line 3;")


def test_an_edit_to_nothing_deletes(manager: MemoryManager, toolset: Session) -> None:
    """An empty ``new_string`` is how text is removed."""
    toolset.call("edit_memory", {"file": "notes", "old_string": "- Bob: Free\n", "new_string": ""})

    assert manager.read("u-notes") == NOTES.replace("- Bob: Free\n", "")


def test_a_nearly_full_file_is_warned_of(toolset: Session) -> None:
    """From 80 % of the cap every write says so."""
    result = toolset.call("append_memory", {"file": "notes", "content": "x" * 40})

    assert "86 of 100 bytes used, 14 left. Warning: 86 % of the cap" in result.text


def test_what_would_not_fit_is_refused_with_the_numbers(manager: MemoryManager, toolset: Session) -> None:
    """A megabyte is refused like any other text, in a short sentence, and nothing changes."""
    result = toolset.call("append_memory", {"file": "notes", "content": "x" * 1_000_000})

    assert (True, "size_exceeded") == (result.is_error, result.code)
    assert all(number in result.text for number in ("1000046", "100", "46"))
    assert len(result.text) < 400
    assert manager.read("u-notes") == NOTES


def test_text_that_does_not_occur_is_answered_with_the_nearest_line(toolset: Session) -> None:
    """The model can correct itself without reading the file again."""
    result = toolset.call("edit_memory", {"file": "notes", "old_string": "- Bob: Fee", "new_string": "x"})

    assert result.code == "edit_no_match"
    assert "line 3: '- Bob: Free'" in result.text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"file": "faq", "content": "x"}, "read_only"),
        ({"file": "handbook", "content": "x"}, "level_denied"),
        ({"file": "audit", "content": "x"}, "file_not_declared"),
        ({"file": "nothing", "content": "x"}, "file_not_declared"),
        ({"file": "notes"}, "invalid_argument"),
        ({"file": "notes", "content": "x", "level": "PUBLIC"}, "invalid_argument"),
        ({"file": "notes", "content": "\ud800"}, "invalid_argument"),
        ("not json", "invalid_argument"),
    ],
)
def test_a_refused_write_is_an_error_with_a_stable_code(
    manager: MemoryManager, toolset: Session, arguments: object, code: str
) -> None:
    """Nothing is raised and nothing changes."""
    before = [manager.snapshot(uid) for uid in manager.uids()]
    result = toolset.call("append_memory", arguments)

    assert (True, code) == (result.is_error, result.code)
    assert before == [manager.snapshot(uid) for uid in manager.uids()]


@pytest.mark.parametrize("asked", ["audit", "u-audit"])
@pytest.mark.parametrize(
    ("tool", "texts"),
    [
        ("read_memory", {}),
        ("append_memory", {"content": "x"}),
        ("edit_memory", {"old_string": "secret", "new_string": ""}),
    ],
)
def test_a_hidden_file_cannot_be_told_from_none(
    manager: MemoryManager, tool: str, texts: dict[str, str], asked: str
) -> None:
    """Referenced but hidden, not referenced, or made up: the same answer."""
    with_it, without_it = (session_of(manager, refs=refs) for refs in (REFS, REFS[:3]))
    answers = [
        toolset.call(tool, {"file": name, **texts}).text.replace(name, "X")
        for toolset in (with_it, without_it)
        for name in (asked, "made-up")
    ]

    assert ["unknown memory file 'X': use one of faq, handbook, notes"] * 4 == answers


def test_a_session_whose_files_are_all_hidden_looks_like_one_without_files(manager: MemoryManager) -> None:
    """Every call gets the same answer from both."""
    calls = [("read_memory", {"file": "audit"}), ("append_memory", {"file": "audit", "content": "x"}), ("other", {})]
    hidden, none = (session_of(manager, refs=refs) for refs in (REFS[3:], []))

    assert [none.call(*call) for call in calls] == [hidden.call(*call) for call in calls]


@pytest.mark.parametrize("name", ["delete_memory", "", None, 7, ["read_memory"], "READ_MEMORY", "x" * 10_000])
def test_an_unknown_tool_is_answered_with_the_known_ones(toolset: Session, name: Any) -> None:
    """A model that invents a tool is told which there are."""
    result = toolset.call(name, {})

    assert (True, "unknown_tool") == (result.is_error, result.code)
    assert result.text.endswith(": use one of read_memory, append_memory, edit_memory")
    assert len(result.text) < 250


def test_the_first_answer_is_given_again_for_the_same_call(manager: MemoryManager, toolset: Session) -> None:
    """A framework that repeats a call by its id changes nothing the second time."""
    call = {"file": "notes", "content": "- Di\n"}
    first, second = (toolset.call("append_memory", call, call_id="toolu_01") for _ in range(2))

    assert NOTES + "- Di\n" == manager.read("u-notes")
    assert second.text == f"This call had already been carried out; nothing changed now. {first.text}"


def test_the_history_tells_who_changed_what(manager: MemoryManager, toolset: Session) -> None:
    """Agent, run and call id are captured, not asked for."""
    toolset.call("append_memory", {"file": "notes", "content": "x"}, call_id="toolu_01")

    assert Actor(agent="support", session="run-1", call="toolu_01") == manager.log("u-notes")[0].by


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["notes", "u-faq", "audit"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ARGUMENT_NAMES = st.sampled_from(["file", "path", "content", "old_string", "new_str", "offset", "limit", "x"])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(
    name=st.sampled_from(["read_memory", "append_memory", "edit_memory"]) | ANY_JSON,
    arguments=st.dictionaries(ARGUMENT_NAMES, ANY_JSON) | ANY_JSON,
    call_id=st.none() | st.text() | st.integers(),
)
def test_no_call_whatever_raises(toolset: Session, name: Any, arguments: Any, call_id: Any) -> None:
    """Whatever a model or a framework sends, there is an answer, and never the one for the unforeseen."""

    assert toolset.call(name, arguments, call_id=call_id).code != "internal"


class BrokenSession(Session):
    """A session in which every question fails in an unforeseen way."""

    def __init__(self, manager: MemoryManager, error: BaseException) -> None:
        super().__init__(SessionProvenance("support"), refs=REFS, manager=manager, levels=Levels(), level="PUBLIC")
        self.error = error

    def files(self) -> list[VisibleFile]:
        raise self.error

    def actor(self, call_id: str | None) -> Actor:
        raise self.error

    def refused(self, tool: str, error: MemfilesError) -> None:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("/etc/passwd"), RecursionError(), MemoryError(), OSError(5, "I/O")])
def test_the_unforeseen_is_an_error_result_too(
    manager: MemoryManager, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The model gets a general sentence, the log the traceback."""
    with caplog.at_level(logging.ERROR, logger="memfiles"):
        result = BrokenSession(manager, error).call("read_memory", {"file": "notes"})

    assert (True, "internal") == (result.is_error, result.code)
    assert "passwd" not in result.text
    assert [type(error)] == [record.exc_info[0] for record in caplog.records if record.exc_info]


def test_an_interrupt_is_not_swallowed(manager: MemoryManager) -> None:
    """A person who presses Ctrl-C stops the program, not the tool call."""
    with pytest.raises(KeyboardInterrupt):
        BrokenSession(manager, KeyboardInterrupt()).call("read_memory", {"file": "notes"})


def test_pieces_of_any_length_add_up_to_the_text(manager: MemoryManager) -> None:
    """Reading by ranges loses and doubles nothing."""
    record: Record = manager.snapshot("u-notes")
    pieces = [line_range(record, offset=start, limit=3)[0] for start in (1, 4)]

    assert "".join(pieces) == NOTES


def test_tools_of_references_have_a_vendors_shape(manager: MemoryManager) -> None:
    """``memfiles.tools`` needs no session: the modes decide."""
    shapes = tools(REFS, manager, "anthropic")

    assert [["audit", "faq", "handbook", "notes"], ["audit", "handbook", "notes"], ["audit", "handbook", "notes"]] == [
        shape["input_schema"]["properties"]["file"]["enum"] for shape in shapes
    ]
    assert json.dumps(shapes) == json.dumps(tools(REFS[::-1], manager, "anthropic"))


def test_tools_of_an_unknown_dialect_are_refused(manager: MemoryManager) -> None:
    """The known ones are listed."""
    with pytest.raises(InvalidArgument, match="anthropic, bedrock, gemini, mcp, openai, openai-chat"):
        tools(REFS, manager, "grok")
