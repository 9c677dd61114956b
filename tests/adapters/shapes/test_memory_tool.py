"""What Anthropic's memory tool says of a session's memory, command by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

from memfiles.adapters.anthropic_memory import MemoryTool
from memfiles.adapters.shapes.memory_tool import lines_with, listing, name_of, names_of, numbered, readable
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.memory_desk import calls, said_by
from tests.support.records import files_under

SCRIPT: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "create", "path": "/memories/plan.md", "file_text": "one\ntwo\nthree\nfour\nfive\nsix\n"},
    {"command": "create", "path": "/memories/plan.md", "file_text": "again"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "view", "path": "/memories/plan.md", "view_range": [2, 3]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [5, -1]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [0, 99]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [50, 60]},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "four", "new_str": "4\n4b"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "nothing", "new_str": "x"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "e\n", "new_str": "x"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "six\n", "new_str": ""},
    {"command": "str_replace", "path": "/memories/none.md", "old_str": "a", "new_str": "x"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 0, "insert_text": "zero"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 2, "insert_text": "in between\n"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 8, "insert_text": "the end\n\n"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 99, "insert_text": "x"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": -1, "insert_text": "x"},
    {"command": "insert", "path": "/memories/none.md", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "create", "path": "/memories/empty.md", "file_text": "-"},
    {"command": "view", "path": "/memories/empty.md"},
    {"command": "create", "path": "/memories/bare.md", "file_text": "no line feed"},
    {"command": "insert", "path": "/memories/bare.md", "insert_line": 1, "insert_text": "second"},
    {"command": "view", "path": "/memories/bare.md"},
    {"command": "create", "path": "/memories/people/ada.md", "file_text": "é\n"},
    {"command": "view", "path": "/memories/people/ada.md"},
    {"command": "str_replace", "path": "/memories/people", "old_str": "a", "new_str": "x"},
    {"command": "insert", "path": "/memories/people", "insert_line": 0, "insert_text": "x"},
    {"command": "rename", "old_path": "/memories/plan.md", "new_path": "/memories/old/plan.md"},
    {"command": "rename", "old_path": "/memories/bare.md", "new_path": "/memories/empty.md"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/x"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "view", "path": "/memories/old/plan.md"},
    {"command": "delete", "path": "/memories/old/plan.md"},
    {"command": "view", "path": "/memories/old/plan.md"},
    {"command": "create", "path": "/memories/old/plan.md", "file_text": "anew\n"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/elsewhere"},
    {"command": "view", "path": "/memories/../etc/passwd"},
    {"command": "view", "path": "/memories/old/plan.md"},
]


def test_it_says_what_the_vendor_s_own_tool_says(with_entries: Session, tmp_path: Path) -> None:
    """Word for word, results and errors, where the workflow lets the model make texts of its own."""
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))

    assert [said_by(vendors, **command) for command in SCRIPT] == calls(with_entries, *SCRIPT)


def test_a_blank_entry_is_refused(with_entries: Session) -> None:
    """Where the vendor's own tool makes an empty file: only a declared file may be empty."""
    path = "/memories/new.md"
    created, viewed = calls(
        with_entries, {"command": "create", "path": path, "file_text": " "}, {"command": "view", "path": path}
    )

    assert "error: the content is blank: say what to remember, or delete the entry" == created
    assert "does not exist" in viewed


def test_a_declared_file_is_read_and_written_under_its_name(files_alone: Session) -> None:
    """An empty one can be created, as a model does; what is there can be changed, and deleting empties it."""
    path = "/memories/notes"
    results = calls(
        files_alone,
        {"command": "create", "path": path, "file_text": "- Ada is on Free\n"},
        {"command": "create", "path": path, "file_text": "again"},
        {"command": "insert", "path": path, "insert_line": 1, "insert_text": "- Bob is on Pro"},
        {"command": "str_replace", "path": path, "old_str": "Ada is on Free", "new_str": "Ada is on Pro"},
        {"command": "view", "path": path},
        {"command": "delete", "path": path},
        {"command": "view", "path": path},
    )

    assert [
        "File created successfully at: /memories/notes",
        "error: File /memories/notes already exists",
        "The file /memories/notes has been edited.",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\t- Ada is on Pro\n     2\t- Bob is on Pro\n     3\t",
        "Here's the content of /memories/notes with line numbers:\n"
        "     1\t- Ada is on Pro\n     2\t- Bob is on Pro\n     3\t",
        "Successfully deleted the content of /memories/notes; the file is declared, so it stays, empty",
        "Here's the content of /memories/notes with line numbers:\n     1\t",
    ] == results
    assert ["edit", "edit", "append", "append"] == [change.op for change in files_alone.manager.log("u-notes")][:4]
    assert {"support"} == {change.by.agent for change in files_alone.manager.log("u-notes")[:4]}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            {"command": "create", "path": "/memories/new", "file_text": "x"},
            "none can be created; the files are: news, notes, play",
        ),
        ({"command": "create", "path": "/memories/deals", "file_text": "x"}, "there is no memory file 'deals'"),
        (
            {"command": "insert", "path": "/memories/playbook", "insert_line": 0, "insert_text": "x"},
            "is read-only here",
        ),
        ({"command": "str_replace", "path": "/memories/playbook", "old_str": "kind", "new_str": "x"}, "read-only here"),
        ({"command": "delete", "path": "/memories/playbook"}, "playbook is read-only here"),
        ({"command": "delete", "path": "/memories/news"}, "is at level PUBLIC and this session is at INTERNAL"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/n"}, "its name is declared"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/news"}, "already exists"),
        ({"command": "create", "path": "/memories/notes", "file_text": "x" * 101}, "101 bytes"),
        ({"command": "create", "path": "/memories/notes", "file_text": "AKIAIOSFODNN7EXAMPL3"}, "aws"),
        ({"command": "create", "path": "/memories/notes"}, "'file_text' is missing. Call it as memory create(path, f"),
        ({"command": "view"}, "'path' is missing"),
        ({"command": "view", "path": 7}, "'path' must be text, not int"),
        ({"command": "view", "path": "/memories/notes", "view_range": [1]}, "'view_range'"),
        ({"command": "view", "path": "/memories/notes", "colour": "x"}, "'colour' is not an argument"),
        ({"command": "view", "path": "/memoriesque"}, "Path must start with /memories"),
        ({"command": "view", "path": "/memories/\ud800"}, "half of a surrogate pair"),
        ({"command": "str_replace", "path": "/memories/notes", "old_str": ""}, "'old_str'"),
        (
            {"command": "str_replace", "path": "/memories/playbook", "old_str": "x" * 1_000_000},
            "did not appear verbatim",
        ),
        ({"command": "format", "path": "/memories"}, "unknown command 'format': use one of view, create"),
        ({"path": "/memories"}, "memory: 'command' is missing: use one of view, create"),
        ({}, "use one of view, create, str_replace, insert, delete, rename"),
    ],
)
def test_what_is_not_allowed_is_a_tool_error_that_says_why(
    files_alone: Session, command: dict[str, Any], why: str
) -> None:
    """And it changes nothing."""
    before = [files_alone.manager.snapshot(uid) for uid in files_alone.manager.uids()]
    with pytest.raises(ToolError) as refused:
        MemoryTool(files_alone).call(command)

    assert why.lower() in str(refused.value).lower()
    assert len(str(refused.value)) < 500
    assert before == [files_alone.manager.snapshot(uid) for uid in files_alone.manager.uids()]


@pytest.mark.parametrize("sent", [None, "view", 7, [], {"command": ["view"]}])
def test_what_is_no_command_is_a_tool_error(files_alone: Session, sent: object) -> None:
    """Whatever a model sends."""
    with pytest.raises(ToolError, match="use one of view, create"):
        MemoryTool(files_alone).call(sent)


def test_names_that_are_obviously_meant_are_understood(files_alone: Session) -> None:
    """And a null means "not given"."""
    results = calls(
        files_alone,
        {"command": "create", "file_path": "/memories/notes", "content": "one\n"},
        {"command": "str_replace", "path": "/memories/notes", "old_string": "one\n", "new_string": None},
        {"command": "insert", "path": "/memories/notes", "line": 0.0, "text": "two"},
        {"command": "view", "path": "/memories/notes", "view_range": None},
    )

    assert "Here's the content of /memories/notes with line numbers:\n     1\ttwo\n     2\t" == results[-1]


@pytest.mark.parametrize(
    "view_range", ["1", ["1", "2"], [True, 2], [1.5, 2], [1, 2, 3], {"start": 1}, 5, "[1", "[" * 9999]
)
def test_a_range_that_is_none_is_told_how_to_write_one(files_alone: Session, view_range: object) -> None:
    """It is made of numbers, so nobody is told to write texts."""
    with pytest.raises(ToolError) as refused:
        MemoryTool(files_alone).call({"command": "view", "path": "/memories/playbook", "view_range": view_range})

    assert "memory view: 'view_range' must be two line numbers such as [1, 20]" in str(refused.value)


@pytest.mark.parametrize("view_range", ["[1, 1]", [1, 1], [1.0, 1.0], [], "[]", [-5, -1]])
def test_a_range_is_understood_as_models_write_it(files_alone: Session, view_range: object) -> None:
    """Also as JSON text; and an empty one is none, as the vendor's tool has it."""
    shown = MemoryTool(files_alone).call({"command": "view", "path": "/memories/playbook", "view_range": view_range})

    assert "     1\tBe kind." in shown


def test_a_refusal_is_in_the_audit_log(files_alone: Session, tmp_path: Path) -> None:
    """Like that of every other surface, once."""
    calls(files_alone, {"command": "delete", "path": "/memories/playbook"})
    kept = files_under(tmp_path).items()
    lines = b"".join(body for path, body in kept if "/audit/" in path).splitlines()
    told = [json.loads(line) for line in lines if b"refused" in line]

    assert [("memory", "read_only", "support")] == [(line["op"], line["code"], line["agent"]) for line in told]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1536, "1.5K"),
        (1024**2, "1M"),
        (5 * 1024**3, "5G"),
        (1024**4, "1024G"),
    ],
)
def test_a_size_is_readable(size: int, shown: str) -> None:
    """In the largest unit that leaves it at 1 or more."""

    assert shown == readable(size)


def test_lines_are_numbered_from_the_first() -> None:
    """Six wide, as the vendor's own tool does."""

    assert "     9\ta\n    10\t" == numbered(["a", ""], first=9)


def test_a_listing_counts_what_lies_below_once() -> None:
    """A folder's bytes are those of its texts."""
    sizes = {"a.md": 1, "b/": 5, "b/c": 2, "b/d/": 3}

    assert "6B\t/m\n1B\t/m/a.md\n5B\t/m/b/\n2B\t/m/b/c\n3B\t/m/b/d/" == listing(sizes, path="/m")


@pytest.mark.parametrize(
    ("text", "wanted", "lines"),
    [
        ("a\nb\na", "a", [1, 3]),
        ("aa", "a", [1, 1]),
        ("aaa", "aa", [1, 1]),
        ("\n\n\n", "\n\n", [1, 2]),
        ("a\na\nb", "a\n", [1, 2]),
        ("x", "a", []),
        ("\n\nab\n", "b\n", [3]),
    ],
)
def test_the_lines_in_which_a_text_begins(text: str, wanted: str, lines: list[int]) -> None:
    """Counted from 1, once for each occurrence."""

    assert lines == list(lines_with(text, wanted))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/memories", ""),
        ("/memories/", ""),
        ("/memories/a.md", "a.md"),
        ("/memories/notes/a.md", "notes/a.md"),
        ("/memories/notes/", "notes"),
        ("/memories//notes///a.md", "notes/a.md"),
        ("/memories/./notes/./a.md", "notes/a.md"),
        ("/memories/notes/../a.md", "a.md"),
        ("/memories/notes/..", ""),
        ("/memories/%2e%2e/a", "%2e%2e/a"),
        ("/memories/..\\a", "..\\a"),
        ("/memories/.hidden", ".hidden"),
        ("/memories/ä b", "ä b"),
    ],
)
def test_what_a_path_means(path: str, name: str) -> None:
    """As on a disk; what is not a slash or a whole part of dots is a letter like any other."""

    assert name == name_of(path)


@pytest.mark.parametrize("path", ["/memories/..", "/memories/../etc/passwd", "/memories/a/../../b", "/memories/./.."])
def test_nothing_leads_out(path: str) -> None:
    """In the vendor's words."""
    with pytest.raises(InvalidArgument, match="would escape /memories directory"):
        name_of(path)


@pytest.mark.parametrize("path", ["", "/", "memories", "/memoriesque", "/etc/passwd", "C:\\memories", "/Memories/a"])
def test_other_roots_are_refused(path: str) -> None:
    """Also one that only begins alike."""
    with pytest.raises(InvalidArgument, match="Path must start with /memories, got: "):
        name_of(path)


def test_the_very_text_is_looked_for_first() -> None:
    """An entry may be called what no file can be; a refused path may be one as well."""

    assert ["https://a//b/", "https:/a/b"] == list(names_of("/memories/https://a//b/"))
    assert ["a"] == list(names_of("/memories/a"))
    assert "../a" == next(names_of("/memories/../a"))
