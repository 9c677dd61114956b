"""An agent begins its run whatever has befallen its memory: the prompt leaves out what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles import InvalidArgument, Memory, StorageFailed
from tests.support.workflows import opened

WORKFLOW = """\
name: desk
memory:
  files: [{uid: notes-1, name: notes, description: Customers.}]
  entries: {}
agents:
  support: {memory: [{id: notes-1, mode: rw}]}
"""
GUIDANCE = "memory_save"
CARD = "- notes (RW, 0B of 16384B): Customers."


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory with an entry."""
    memory = opened(tmp_path, WORKFLOW)
    memory.entries.save(memory.session("support"), "plan", "a needle")
    yield memory
    if isinstance(memory.workflow.place, Path):
        mend(memory.workflow.place)
    memory.close()


def entries_away(directory: Path) -> None:
    """A file lies where the folder of entries was."""
    (directory / "entries").rename(directory / "away")
    (directory / "entries").write_text("in the way")


def mend(directory: Path) -> None:
    """Put everything back."""
    if (directory / "away").exists():
        (directory / "entries").unlink()
        (directory / "away").rename(directory / "entries")


@pytest.mark.directory("a file lies in the way of its folder")
def test_a_prompt_comes_without_the_entries_that_cannot_be_read(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """The card and the rules are there; it is logged once, and when all is well again the entries are back."""
    session = memory.session("support")
    before = session.system_prompt()
    entries_away(memory.workflow.directory)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        during = [session.system_prompt() for _ in range(3)]
    mend(memory.workflow.directory)

    assert [(True, True, False)] * 3 == [(CARD in text, GUIDANCE in text, "needle" in text) for text in during]
    assert 1 == len([text for text in caplog.messages if "the prompt of agent support lacks entries" in text])
    assert before == session.system_prompt()


@pytest.mark.directory("a file lies in the way of its folder")
def test_a_search_that_fails_recalls_nothing(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """No turn ends because of it; it is noted, logged once, and when all is well again there is something."""
    session = memory.session("support")
    before = session.recall("needle")
    entries_away(memory.workflow.directory)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        during = [session.recall("needle") for _ in range(3)]
        prompt = session.system_prompt(query="needle")
    mend(memory.workflow.directory)

    assert [("", (), "memory could not be searched")] * 3 == [(str(each), each.keys, each.note) for each in during]
    assert "memory could not be searched" == during[0].data["note"]
    assert (True, True, False) == (CARD in prompt, GUIDANCE in prompt, "| a needle" in prompt)
    assert 1 == len([text for text in caplog.messages if "lacks what was recalled" in text])
    assert "| a needle" in before.text == session.recall("needle").text


def test_a_prompt_for_a_question_has_the_recall_in_place_of_the_entries(memory: Memory) -> None:
    """And with no bytes for either it has neither, so that it stays the same while entries are saved."""
    session = memory.session("support")
    memory.entries.save(session, "other", "Nothing to do with it.")
    with_entries, without = session.system_prompt(), session.system_prompt(budget_bytes=0)
    asked = session.system_prompt(query="needle")
    memory.entries.save(session, "third", "And more.")

    assert with_entries.startswith(f"{without}\n\n## Saved memory\n")
    assert asked == f"{without}\n\n{session.recall('needle')}"
    assert "| Nothing to do with it." not in asked
    assert without == session.system_prompt(budget_bytes=0)
    assert len(session.system_prompt(query="needle", budget_bytes=300).encode()) <= len(without.encode()) + 302


def test_a_workflow_without_entries_recalls_nothing(tmp_path: Path) -> None:
    """And what cannot be asked is refused; so is a closed session."""
    with opened(tmp_path, WORKFLOW.replace("  entries: {}\n", "")) as memory:
        session = memory.session("support")
        assert ("", [], None) == (
            str(session.recall("x")),
            session.recall("x").data["entries"],
            session.recall("x").note,
        )
        session.close()
        with pytest.raises(InvalidArgument, match="closed"):
            session.recall("x")


@pytest.mark.parametrize("given", [{"query": None}, {"include": "key"}, {"budget_bytes": -1}])
def test_a_recall_that_cannot_be_asked_is_refused(memory: Memory, given: dict[str, Any]) -> None:
    """The host is told, as of any wrong argument."""
    with pytest.raises(InvalidArgument):
        memory.session("support").recall(**{"query": "needle", **given})


@pytest.mark.directory("a file lies in the way of its folder")
def test_the_host_still_learns_of_it(memory: Memory) -> None:
    """Who asks for the entries themselves is told that they cannot be read."""
    session = memory.session("support")
    session.system_prompt()
    entries_away(memory.workflow.directory)

    with pytest.raises(StorageFailed):
        memory.entries.hydrate(session)
    with pytest.raises(StorageFailed):
        memory.entries.recall(session, "needle")
    assert "storage_failed" == session.call("memory_search", {"query": "needle"}).code


def test_a_prompt_comes_without_the_files_that_cannot_be_read(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """Here because the manager was closed before the session; the entries' rules are still told."""
    session = memory.session("support")
    memory.manager.close()
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        texts = [session.system_prompt() for _ in range(3)]

    assert [(False, True)] * 3 == [(CARD in text, GUIDANCE in text) for text in texts]
    assert 1 == caplog.text.count("the prompt of agent support lacks memory files: the manager is closed")
