"""The change log on a full disk: no process is locked out, and the next change works as usual."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import astuple

import memfiles
from memfiles import Memory, StorageFailed
from memfiles.index.change_log import HEADER_BYTES, PATH, ChangeLog, done_line, intent_line
from tests.support.workflows import opened

ENTRY = "entries/support/" + "0" * 40 + ".json"
WORKFLOW = "name: desk\nmemory: {files: [], entries: {}}\nagents: {support: {}}\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """As on a full disk: no file of this process can grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, HEADER_BYTES - 1])
def test_a_log_that_cannot_be_begun_keeps_nobody_out(directory: int, room: int) -> None:
    """It is closed and its lock released, and the next process begins it."""
    with no_file_beyond(room), pytest.raises(StorageFailed, match="cannot be written"):
        ChangeLog(directory)
    log = ChangeLog(directory)

    assert (True, HEADER_BYTES) == (log.is_alone, log.size())
    log.close()


def test_a_log_that_cannot_be_begun_again_keeps_nobody_out(directory: int) -> None:
    """The same at the end of the last process."""
    log = ChangeLog(directory)
    with no_file_beyond(0), pytest.raises(StorageFailed):
        log.empty()
    log.close()
    log = ChangeLog(directory)

    assert (True, HEADER_BYTES) == (log.is_alone, log.size())
    log.close()


@pytest.mark.parametrize("room", [0, 5])
def test_a_line_that_cannot_be_written_as_a_whole(tmp_path: Path, directory: int, room: int) -> None:
    """Half a line would be read as another one, so the log is removed, and all processes verify all records."""
    log = ChangeLog(directory)
    with no_file_beyond(HEADER_BYTES + room):
        log.append(intent_line("a:0", [ENTRY]))

    assert (None, False) == (log.size(), (tmp_path / PATH).exists())
    log.close()


def test_whole_lines_are_read_as_they_were_written(directory: int) -> None:
    """Those of others, from where one left off."""
    log = ChangeLog(directory)
    log.append(intent_line("a:0", [ENTRY]))
    log.append(done_line("a:0"))
    lines, end, is_whole = log.read(HEADER_BYTES, but="b")

    assert [("a:0", True, (ENTRY,)), ("a:0", False, ())] == [astuple(line) for line in lines]
    assert (True, log.size()) == (is_whole, end)
    log.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


def test_the_next_save_works_when_there_is_room_again(memory: Memory) -> None:
    """The first save finds a full disk and is refused; no process waits after it."""
    session = memory.session("support")
    with no_file_beyond(0), pytest.raises(StorageFailed):
        memory.entries.save(session, "plan", "a")
    memory.entries.save(session, "plan", "b")
    with memfiles.open(memory.workflow.path or "", watch=False) as other:
        other.entries.save(other.session("support"), "other", "c")

    assert ["other", "plan"] == [entry.key for entry in memory.entries.list(session).memories]


def test_a_save_that_cannot_be_called_over_is_made(memory: Memory, tmp_path: Path) -> None:
    """What was committed is acknowledged: a log that cannot be written only costs verifying all records."""
    session = memory.session("support")
    memory.entries.save(session, "first", "a")
    index = memory.entries.repository._listener
    assert index is not None
    token = index.intend([ENTRY])
    (tmp_path / ".memory" / PATH).unlink()
    with no_file_beyond(0):
        index.put([], token, before=[])

    assert ["first"] == [entry.key for entry in memory.entries.list(session).memories]
