"""A session's memory is a folder of texts: what lies where, what may be put there, and what may be deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memfiles.adapters.shapes.folder import MemoryFolder
from memfiles.errors import FileNotDeclared, LevelDenied, ReadOnly
from memfiles.tools.session import Session
from tests.adapters.memory_desk import Opening
from tests.support.records import files_under

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 100}
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, content: "one\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret\\n"}
agents:
  support: {level: INTERNAL, memory: [{id: u-notes, mode: rw}, {id: u-deals, mode: rw}]}
"""


@pytest.fixture
def session(open_memory: Opening) -> Session:
    return open_memory(WORKFLOW).session("support", run="monday")


@pytest.fixture
def folder(session: Session) -> MemoryFolder:
    return MemoryFolder(session)


def test_all_texts_are_there_by_name(folder: MemoryFolder) -> None:
    """Or those whose names begin alike; hidden files are among none."""
    for name in ("people/ada", "people/old/bob", "plan"):
        folder.put(name, "text")

    assert {"notes": 4, "people/ada": 4, "people/old/bob": 4, "plan": 4} == {
        name: listed.size_bytes for name, listed in folder.texts().items()
    }
    assert {"people/ada": "text", "people/old/bob": "text"} == {
        name: listed.content for name, listed in folder.texts("people/").items()
    }


def test_a_text_is_put_whether_it_is_there_or_not(folder: MemoryFolder, session: Session) -> None:
    """Into a declared file, an entry, or a new entry."""
    for text in ("first", "second"):
        for name in ("notes", "plan"):
            folder.put(name, text)

    assert "second" == session.manager.read("u-notes")
    assert ["second", "second"] == [listed.content for listed in folder.texts().values()]


def test_without_entries_none_is_made(open_memory: Opening) -> None:
    """The error names the files there are."""
    folder = MemoryFolder(open_memory(WORKFLOW.replace("  entries: {max_entries: 100}\n", "")).session("support"))

    assert ["notes"] == list(folder.texts())
    with pytest.raises(FileNotDeclared, match="none can be created; the files are: notes"):
        folder.put("plan", "text")
    assert 0 == folder.delete("plan")


def test_what_is_deleted_is_what_has_the_name_and_what_lies_below_it(folder: MemoryFolder) -> None:
    """And nothing that only begins alike."""
    for name in ("people", "people/ada", "people/old/bob", "peoples"):
        folder.put(name, "text")

    assert 3 == folder.delete("people")
    assert 0 == folder.delete("people")
    assert ["notes", "peoples"] == list(folder.texts())


def test_a_folder_goes_in_one_change(folder: MemoryFolder, session: Session) -> None:
    """Whoever hears of the first of its texts finds none of them any more."""
    for name in ("people/ada", "people/bob", "people/old/eve"):
        folder.put(name, "text")
    left: list[list[str]] = []
    session.manager.subscribe(lambda _: left.append(list(folder.texts("people"))))
    folder.delete("people")

    assert [[], [], []] == left


def test_nothing_is_deleted_where_something_has_to_stay(folder: MemoryFolder, session: Session, tmp_path: Path) -> None:
    """A declared file, or what is at a lower level; the refusal is in the audit log."""
    folder.put("people/ada", "text")
    session.raise_level("CONFIDENTIAL")
    folder.put("people/bob", "text")
    with pytest.raises(LevelDenied, match="'people/ada' is at level INTERNAL and this session is at CONFIDENTIAL"):
        folder.delete("people")
    for name in ("notes", ""):
        with pytest.raises(ReadOnly, match="is declared in the workflow and stays"):
            folder.delete(name)
    kept = files_under(tmp_path).items()
    lines = b"".join(body for path, body in kept if "/audit/" in path).splitlines()

    assert ["deals", "notes", "people/ada", "people/bob"] == list(folder.texts())
    assert ["level_denied", "read_only", "read_only"] == [
        line["code"] for line in map(json.loads, lines) if "code" in line
    ]


def test_the_children_of_a_folder_are_told_apart_from_what_lies_below(folder: MemoryFolder) -> None:
    """A folder among them ends in a slash, and is no text; a text and a folder may have one name."""
    for name in ("a", "a/b", "a/c/d"):
        folder.put(name, "text")
    children = {at: [(name, listed is None) for name, listed in folder.children(at).items()] for at in ("", "a", "x")}

    assert {
        "": [("a", False), ("a/", True), ("notes", False)],
        "a": [("a/b", False), ("a/c/", True)],
        "x": [],
    } == children


def test_hidden_texts_are_not_listed_with_their_sizes(folder: MemoryFolder) -> None:
    """Those with a dot at the beginning of any part, and no others."""
    for name in (".a", "a/.b/c", "a.b", "a./b"):
        folder.put(name, "text")

    assert {"a./": 4, "a./b": 4, "a.b": 4, "notes": 4} == folder.sizes("")
