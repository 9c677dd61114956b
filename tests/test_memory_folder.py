"""A session's memory is a folder of texts, within what the workflow declares."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from memory_desk import ENTRIES, FILES, Opening, calls, opening, said_by

from memfiles.adapters.anthropic_memory import MemoryTool
from memfiles.session import Session


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Opening]:
    with opening(tmp_path) as opened:
        yield opened


@pytest.fixture
def session(open_memory: Opening) -> Session:
    """Of a workflow that declares memory files alone."""
    return open_memory(FILES).session("support", run="monday")


@pytest.fixture
def with_entries(open_memory: Opening) -> Session:
    return open_memory(ENTRIES).session("support", run="monday")


def test_a_folder_is_listed_as_by_the_vendor_s_own_tool(open_memory: Opening, tmp_path: Path) -> None:
    """Two levels deep with sizes; a folder's own size is that of what it holds, not of the disk's blocks."""
    session = open_memory("memory: {durability: os, entries: {}}\nagents: {a: {}}\n").session("a")
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))
    texts = {"a.md": "x" * 1536, "b.md": "", "people/ada.md": "x" * 2048, "people/far/away.md": "x" * 10}
    for name, text in texts.items():
        for tool in (vendors, MemoryTool(session)):
            said_by(tool, "create", path=f"/memories/{name}", file_text=text or "y")
    shown = {
        path: [said_by(tool, "view", path=path).splitlines() for tool in (vendors, MemoryTool(session))]
        for path in ("/memories", "/memories/people")
    }

    def files(lines: list[str]) -> list[str]:
        return [line for line in lines if line.endswith(".md")]

    for theirs, ours in shown.values():
        assert theirs[0] == ours[0]
        assert [line.split("\t")[1] for line in theirs[1:]] == [line.split("\t")[1] for line in ours[1:]]
        assert files(theirs) == files(ours)
    assert "3.5K\t/memories" == shown["/memories"][1][1]


def test_the_folder_lists_what_the_session_may_see(session: Session) -> None:
    """A file above its level is not there, and asking for it tells nothing."""
    listed, hidden, never = calls(
        session,
        {"command": "view", "path": "/memories"},
        {"command": "view", "path": "/memories/deals"},
        {"command": "view", "path": "/memories/never"},
    )

    assert (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n"
        "18B\t/memories\n9B\t/memories/news\n0B\t/memories/notes\n9B\t/memories/playbook"
    ) == listed
    assert hidden.replace("deals", "never") == never


def test_a_declared_file_goes_before_an_entry_of_its_name(with_entries: Session) -> None:
    """It is listed once, and what the model writes under its name goes into the file."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "notes", "an entry")
    results = calls(
        with_entries,
        {"command": "view", "path": "/memories/notes"},
        {"command": "create", "path": "/memories/notes", "file_text": "a file"},
        {"command": "view", "path": "/memories"},
    )

    assert "an entry" not in results[0]
    assert "a file" == with_entries.manager.read("u-notes")
    assert 1 == results[2].count("/memories/notes")


def test_an_entry_keeps_what_is_said_of_it(with_entries: Session) -> None:
    """Through a change and a new name."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "plan", "Ada is on Free", tags=["ada"], importance=0.75, pinned=True, kind="note")
    calls(
        with_entries,
        {"command": "str_replace", "path": "/memories/plan", "old_str": "Free", "new_str": "Pro"},
        {"command": "rename", "old_path": "/memories/plan", "new_path": "/memories/customers/ada"},
    )
    found = entries.get(with_entries, "customers/ada")

    assert found is not None
    assert ("Ada is on Pro", ("ada",), 0.75, True, "note") == (
        found.content,
        found.tags,
        found.importance,
        found.pinned,
        found.kind,
    )
    assert None is entries.get(with_entries, "plan")


def test_an_entry_of_a_lower_level_is_read_and_not_changed(with_entries: Session) -> None:
    """No write-down, and no second text under the same name."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "plan", "Ada is on Free")
    with_entries.raise_level("CONFIDENTIAL")
    path = "/memories/plan"
    view, *refused = calls(
        with_entries,
        {"command": "view", "path": path},
        {"command": "str_replace", "path": path, "old_str": "Free", "new_str": "Pro"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/other"},
    )

    assert view.endswith("Ada is on Free")
    why = (
        "error: 'plan' is at level INTERNAL and this session is at CONFIDENTIAL: a session changes only what is at its "
        "own level"
    )
    assert [why] * 3 == refused
    assert None is entries.get(with_entries, "other")


def test_of_many_writers_at_once_none_overwrites_another(session: Session) -> None:
    """Who comes too late is told so, and what was acknowledged is there."""
    tool = MemoryTool(session)

    def insert(number: int) -> bool:
        said = said_by(tool, "insert", path="/memories/notes", insert_line=0, insert_text=f"{number:02}")
        return not said.startswith("error: ")

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(insert, range(24)))

    assert sorted(f"{number:02}" for number in range(24) if done[number]) == sorted(
        session.manager.read("u-notes").split()
    )
