"""An agent begins its run whatever has befallen its memory: the prompt leaves out what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles import Memory, StorageFailed
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
    mend(memory.workflow.directory)
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


def test_the_host_still_learns_of_it(memory: Memory) -> None:
    """Who asks for the entries themselves is told that they cannot be read."""
    session = memory.session("support")
    session.system_prompt()
    entries_away(memory.workflow.directory)

    with pytest.raises(StorageFailed):
        memory.entries.hydrate(session)
    assert "storage_failed" == session.call("memory_search", {"query": "needle"}).code


def test_a_prompt_comes_without_the_files_that_cannot_be_read(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """Here because the manager was closed before the session; the entries' rules are still told."""
    session = memory.session("support")
    memory.manager.close()
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        texts = [session.system_prompt() for _ in range(3)]

    assert [(False, True)] * 3 == [(CARD in text, GUIDANCE in text) for text in texts]
    assert 1 == caplog.text.count("the prompt of agent support lacks memory files: the manager is closed")
