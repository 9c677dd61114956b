"""A notebook in entries: texts with versions, and operations that are made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.adapters.shapes.notebook import (
    REMEMBERED,
    Notebook,
    NotebookChange,
    NotebookOperation,
)
from memfiles.errors import InvalidArgument, LevelDenied, RevisionConflict
from memfiles.tools.session import Session
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 3000}
agents:
  support: {level: INTERNAL}
"""
MAIN = "main/MEMORY.md"
ADA = NotebookOperation.of("op-ada", "ada")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path / "one", WORKFLOW) as memory:
        yield memory.session("support", run="monday")


@pytest.fixture
def notebook(session: Session) -> Notebook:
    return Notebook(session)


def revision(done: NotebookChange) -> int:
    assert done.revision is not None
    return done.revision


def test_a_text_is_written_over_the_version_that_was_read(notebook: Notebook) -> None:
    """And over no other; 0 is what is not there."""
    first = notebook.put(MAIN, "one", expected=0)
    second = notebook.put(MAIN, "two", expected=revision(first))
    for expected in (0, revision(first), -1, 99):
        with pytest.raises(RevisionConflict):
            notebook.put(MAIN, "three", expected=expected)
        with pytest.raises(RevisionConflict):
            notebook.remove(MAIN, expected=expected)
    found = notebook.find(MAIN)

    assert found is not None
    assert ("two", revision(second), None) == (found.content, found.revision, found.operation)
    assert [False, True] == [first.existed, second.existed]


def test_a_version_never_comes_back(notebook: Notebook) -> None:
    """What was deleted and written again is at another one, so that an old reader's change is refused."""
    first = notebook.put(MAIN, "one", expected=0)
    removed = notebook.remove(MAIN, expected=revision(first))
    again = notebook.put(MAIN, "one", expected=0)

    assert (None, True, False) == (removed.revision, removed.existed, again.existed)
    assert revision(again) > revision(first)
    with pytest.raises(RevisionConflict):
        notebook.put(MAIN, "two", expected=revision(first))


def test_what_is_not_there_can_be_removed_as_such(notebook: Notebook) -> None:
    """Nothing is done, and nothing is expected to be there."""
    assert NotebookChange(None, existed=False) == notebook.remove(MAIN, expected=0)
    with pytest.raises(RevisionConflict, match="does not exist any more"):
        notebook.remove(MAIN, expected=3)


def test_an_operation_is_made_once(tmp_path: Path) -> None:
    """By whichever process, and also after others changed the text; the receipt is the first one's."""
    with opened(tmp_path / "one", WORKFLOW) as memory:
        notebook = Notebook(memory.session("support"))
        made = notebook.put(MAIN, "one", expected=0, operation=ADA)
        notebook.put(MAIN, "two", expected=revision(made))
    with opened(tmp_path / "one", WORKFLOW) as memory:
        notebook = Notebook(memory.session("support"))
        again = notebook.put(MAIN, "one", expected=0, operation=ADA)
        known = notebook.outcome_of("op-ada")
        text = notebook.find(MAIN)

    assert (False, True) == (made.replayed, again.replayed)
    assert (1, False, ADA) == (again.revision, again.existed, again.operation)
    assert again == known
    assert text is not None
    assert ("two", None) == (text.content, text.operation)


def test_a_removal_is_made_once(tmp_path: Path) -> None:
    """The next process knows by the history of the deleted entry."""
    with opened(tmp_path / "one", WORKFLOW) as memory:
        notebook = Notebook(memory.session("support"))
        made = notebook.put(MAIN, "one", expected=0)
        notebook.remove(MAIN, expected=revision(made), operation=ADA)
    with opened(tmp_path / "one", WORKFLOW) as memory:
        again = Notebook(memory.session("support")).remove(MAIN, expected=revision(made), operation=ADA)

    assert NotebookChange(None, existed=True, operation=ADA, replayed=True) == again


def test_an_operation_that_failed_was_not_made(notebook: Notebook) -> None:
    """Its id can be used again."""
    notebook.put(MAIN, "one", expected=0)
    with pytest.raises(RevisionConflict):
        notebook.put(MAIN, "two", expected=0, operation=ADA)

    assert None is notebook.outcome_of("op-ada")
    assert not notebook.put(MAIN, "two", expected=1, operation=ADA).replayed


def test_an_id_with_other_arguments_is_answered_with_what_it_was(notebook: Notebook) -> None:
    """Nothing is changed, and the caller can tell that it was another operation."""
    notebook.put(MAIN, "one", expected=0, operation=ADA)
    other = notebook.put(MAIN, "two", expected=1, operation=NotebookOperation.of("op-ada", "bob"))

    found = notebook.find(MAIN)

    assert found is not None
    assert (ADA, "op-ada", "one") == (other.operation, found.operation, found.content)


def test_operations_that_leave_no_trace_are_remembered_for_a_while(notebook: Notebook) -> None:
    """Such as the same text again, or a removal of nothing; this process knows the last of them."""
    for number in range(REMEMBERED + 1):
        notebook.remove(f"main/{number}.md", expected=0, operation=NotebookOperation.of(f"op-{number}", "x"))

    assert None is notebook.outcome_of("op-0", key="main/0.md")
    assert all(notebook.outcome_of(f"op-{number}", key="main/0.md") for number in (1, REMEMBERED))


def test_it_is_the_session_s_entries(session: Session, notebook: Notebook) -> None:
    """Every other surface sees them under their keys; the main text is pinned, and what is deleted can come back."""
    entries = session.entries
    assert entries is not None
    notebook.put(MAIN, "one", expected=0)
    notebook.put("main/ada.md", "two", expected=0)
    entries.save(session, "bob:plan", "three")
    listed = {entry.key: entry.pinned for entry in entries.list(session).memories}
    notebook.remove("main/ada.md", expected=1)
    entries.restore(session, "main/ada.md")

    assert {MAIN: True, "main/ada.md": False, "bob:plan": False} == listed
    assert [(MAIN, "one"), ("main/ada.md", "two")] == list(notebook.texts("main/"))
    assert ["bob:plan"] == [key for key, _ in notebook.texts("b")]


def test_many_texts_come_in_their_order(notebook: Notebook) -> None:
    """However many there are."""
    names = [f"main/{number:03}.md" for number in range(230)]
    for name in reversed(names):
        notebook.put(name, name, expected=0)

    assert [(name, name) for name in names] == list(notebook.texts("main/"))


def test_a_text_below_the_session_s_level_is_only_read(session: Session, notebook: Notebook) -> None:
    """No write-down, and no second text that would hide it."""
    notebook.put(MAIN, "internal", expected=0)
    session.raise_level("CONFIDENTIAL")
    found = notebook.find(MAIN)

    assert found is not None
    assert "internal" == found.content
    with pytest.raises(LevelDenied):
        notebook.put(MAIN, "confidential", expected=found.revision)
    with pytest.raises(LevelDenied):
        notebook.remove(MAIN, expected=found.revision)


def test_it_needs_entries(tmp_path: Path) -> None:
    """The error says what to declare."""
    with (
        opened(tmp_path, "memory: {files: []}\nagents: {support: {}}\n") as memory,
        pytest.raises(InvalidArgument, match="add `entries: {}`"),
    ):
        Notebook(memory.session("support"))
