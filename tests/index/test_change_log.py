"""The change log on a full disk, and when it has grown large: nobody is locked out, and no change is missed."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import astuple

import memfiles
from memfiles import Memory, StorageFailed
from memfiles.index import change_log
from memfiles.index.change_log import (
    HEADER_BYTES,
    PATH,
    Announcements,
    ChangeLog,
    LinesRead,
    done_line,
    intent_line,
)
from memfiles.index.index import Index
from memfiles.storage.entry_folders import ComparedFolders
from tests.support.another_process import another_process
from tests.support.workflows import opened

ENTRY, OTHER = (f"entries/support/{digit * 40}.json" for digit in "01")
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
    lines, end, is_whole, _ = log.read(HEADER_BYTES, but="b")

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


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "LARGEST", 2000)


@pytest.fixture
def both(directory: int, short: None) -> Iterator[tuple[Announcements, Announcements]]:
    """Two processes with the log open, of which the second has announced a change and many others that are over."""
    one, two = Announcements(directory), Announcements(directory)
    for each in (one, two):
        each.open().share()
    two.intend([ENTRY])
    for _ in range(30):
        two.finish(two.intend([OTHER]))
    yield one, two
    one.close()
    two.close()


def read_by(one: Announcements, offset: int) -> LinesRead:
    return one.read(one.open(), offset, intents={})


def test_a_large_log_is_replaced_by_what_is_under_way(
    both: tuple[Announcements, Announcements], tmp_path: Path
) -> None:
    """Whoever replaces it has read all of it; whoever begins with the new one learns what others are changing."""
    one, _ = both
    replaced = read_by(one, HEADER_BYTES)
    again = read_by(one, HEADER_BYTES)

    assert (61, (tmp_path / PATH).stat().st_size) == (len(replaced.lines), replaced.end)
    assert [(True, (ENTRY,))] == [(line.is_intent, line.paths) for line in again.lines if line.token]
    assert (False, False) == (one.is_incomplete, one.has_news())


@pytest.mark.parametrize("at", ["before", "after"])
def test_who_writes_while_the_log_is_replaced_is_heard(both: tuple[Announcements, Announcements], at: str) -> None:
    """The line is in the old log when that is read for the last time, or else in the new one as well."""
    one, two = both
    (token,) = two.open_intents
    if at == "before":
        two.finish(token)
    replaced = read_by(one, HEADER_BYTES)
    if at == "after":
        assert two.log is not None
        two._append(two.log, done_line(token))  # it was asked where the log is just before that was replaced
    heard = [*replaced.lines, *read_by(one, replaced.end).lines]

    assert [token] == [line.token for line in heard if line.token == token and not line.is_intent]
    assert (False, [False, False]) == (one.has_news(), [one.is_incomplete, two.is_incomplete])


@pytest.mark.parametrize("is_lost", [False, True])
def test_only_who_missed_lines_verifies_all_records(
    both: tuple[Announcements, Announcements], tmp_path: Path, is_lost: bool
) -> None:
    """However often it was replaced meanwhile, somebody has read all of it, unless it was removed once."""
    one, two = both
    for turn in range(3):
        for _ in range(30):
            one.finish(one.intend([OTHER]))
        read_by(one, HEADER_BYTES)
        if is_lost and turn == 1:
            (tmp_path / PATH).unlink()
    two.finish(two.intend([OTHER]))

    assert is_lost == two.is_incomplete


SAVING = """
import sys, memfiles
from memfiles.index import change_log
change_log.LARGEST = 2000
with memfiles.open(sys.argv[1], watch=False) as memory, open(sys.argv[2], "a", buffering=1) as done:
    session = memory.session("support")
    for number in range(150):
        memory.entries.save(session, f"{sys.argv[3]}-{number}", "saved")
        print(f"{sys.argv[3]}-{number}", file=done)
        if number % 7 == int(sys.argv[3]):
            memory.entries.search(session, "saved")
print("saved")
"""


def keys_of(memory: Memory) -> Iterator[str]:
    page = memory.entries.list(session := memory.session("support"), limit=100)
    yield from (entry.key for entry in page.memories)
    while page.next:
        page = memory.entries.list(session, limit=100, cursor=page.next)
        yield from (entry.key for entry in page.memories)


@pytest.mark.slow
def test_no_change_is_missed_while_the_log_is_replaced_again_and_again(
    memory: Memory, tmp_path: Path, short: None
) -> None:
    """Three processes save, and a fourth sees every save at once, without comparing all records."""
    session, done, sizes = memory.session("support"), tmp_path / "done", set[int]()
    memory.entries.save(session, "first", "a")
    memory.entries.search(session, "a")
    done.touch()
    index = memory.entries.repository._listener
    assert isinstance(index, Index)
    index._maintenance.compared = ComparedFolders()
    with ExitStack() as stack:
        workflow = memory.workflow.path or ""
        workers = [stack.enter_context(another_process(SAVING, workflow, done, str(it))) for it in range(3)]
        is_over = are_compared = False
        while not is_over:
            is_over = all(worker.process.poll() is not None for worker in workers)
            saved = set(done.read_text().splitlines())
            assert set() == saved - set(keys_of(memory))
            if "-149" not in done.read_text():  # nobody closes yet: then a new log is begun if the others are idle
                are_compared |= index._maintenance.compared.are_all
            sizes.add((tmp_path / ".memory" / PATH).stat().st_size)
        assert ["saved"] * 3 == [worker.hear() for worker in workers]

    assert (450, False) == (len(saved), are_compared)
    assert max(sizes) < 20_000


KILLED = """
import os, signal, sys, memfiles
from memfiles.storage import atomic
publish = atomic.publish
def late(*given, **named):
    print("announced")
    input()
    publish(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
with memfiles.open(sys.argv[1], watch=False) as memory:
    session = memory.session("support")
    memory.entries.save(session, "color", "azure")
    memory.entries.search(session, "azure")
    atomic.publish = late
    memory.entries.save(session, "color", "crimson")
"""


def test_nobody_is_alone_while_a_process_has_a_log_that_was_replaced(
    memory: Memory, tmp_path: Path, short: None
) -> None:
    """One that closes or opens the new log does not forget what the other has announced in the old one."""
    path, session = memory.workflow.path or "", memory.session("support")
    log = tmp_path / ".memory" / PATH
    with another_process(KILLED, path) as other:
        assert "announced" == other.hear()
        before = log.stat().st_ino
        for number in range(60):
            memory.entries.save(session, "plan", f"saved {number}")
        memory.entries.list(session)
        assert log.stat().st_ino != before
        memory.close()
        with memfiles.open(path, watch=False) as later:
            session = later.session("support")
            assert ["plan"] == [match.found.key for match in later.entries.search(session, "saved").matches]
            other.tell()
            assert -signal.SIGKILL == other.process.wait()
            assert ["color"] == [match.found.key for match in later.entries.search(session, "crimson").matches]

    assert HEADER_BYTES == log.stat().st_size  # once it is dead, the next one is alone
