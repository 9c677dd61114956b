"""Change events: who is told of them, and what the audit log keeps."""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from memfiles.errors import EntryNotFound, SecretRefused
from memfiles.records.record import Actor
from memfiles.storage.events import (
    AuditEvent,
    AuditLog,
    RecordChanged,
    Subscribers,
    utc_now,
)
from memfiles.storage.home import MemoryHome
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.records import PATIENCE_SECONDS


def test_it_is_now() -> None:
    """The text is the present moment in UTC, to the millisecond, and of one shape."""
    before = datetime.now(UTC)
    texts = [utc_now() for _ in range(1000)]
    after = datetime.now(UTC)

    assert [] == [text for text in texts if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)]
    assert sorted(texts) == texts
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= datetime.fromisoformat(texts[0])
    assert datetime.fromisoformat(texts[-1]) <= after


ONE = RecordChanged("notes", "notes", 2, "append", "local")
TWO = RecordChanged("notes", "notes", 3, "append", "process")


def test_everyone_is_told_of_every_change_in_order() -> None:
    """In the order in which they subscribed."""
    subscribers, told = Subscribers(), list[tuple[str, int]]()
    subscribers.add(lambda event: told.append(("a", event.revision)))
    subscribers.add(lambda event: told.append(("b", event.revision)))
    subscribers.tell([ONE, TWO])

    assert [("a", 2), ("b", 2), ("a", 3), ("b", 3)] == told


def test_whoever_leaves_is_told_nothing_more() -> None:
    """Leaving twice is leaving once, and takes nobody else along."""
    subscribers, told = Subscribers(), list[str]()
    leave = subscribers.add(lambda event: told.append("a"))
    subscribers.add(lambda event: told.append("b"))
    leave()
    leave()
    subscribers.tell([ONE])

    assert ["b"] == told


def test_the_same_callback_may_subscribe_twice() -> None:
    """Each subscription ends by itself."""
    subscribers, told = Subscribers(), list[RecordChanged]()
    leave = subscribers.add(told.append)
    subscribers.add(told.append)
    subscribers.tell([ONE])
    leave()
    subscribers.tell([TWO])

    assert [ONE, ONE, TWO] == told


def test_a_callback_that_raises_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The change has happened; the traceback is kept."""
    subscribers, told = Subscribers(), list[RecordChanged]()

    def fail(event: RecordChanged) -> None:
        raise ZeroDivisionError("in the callback")

    subscribers.add(fail)
    subscribers.add(told.append)
    with caplog.at_level(logging.ERROR, logger="memfiles"):
        subscribers.tell([ONE])

    assert [ONE] == told
    assert "in the callback" in caplog.text


def test_a_callback_may_leave_or_subscribe_while_it_is_told() -> None:
    """Who is told of an event is settled when it is told."""
    subscribers, told = Subscribers(), list[str]()

    def once(event: RecordChanged) -> None:
        told.append("once")
        leave()
        subscribers.add(lambda event: told.append("later"))

    leave = subscribers.add(once)
    subscribers.tell([ONE])
    subscribers.tell([TWO])

    assert ["once", "later"] == told


BY = Actor("support", "run-1", "toolu_1")
CHANGED = RecordChanged("u", "the key", 3, "save", "local", None, "entries/a/u.json", "INTERNAL", BY)


def logged(directory: Path) -> list[AuditEvent]:
    """The events in the log, month by month, without their times."""
    told = [
        json.loads(line)
        for file in sorted((directory / "audit").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [AuditEvent(**{name: value for name, value in event.items() if name != "at"}) for event in told]


def test_a_change_is_logged_with_who_made_it(tmp_path: Path) -> None:
    """But not with the key, which may say as much as the content."""
    (log := AuditLog(tmp_path)).record_change(CHANGED)
    log.close()
    expected = AuditEvent("save", path=CHANGED.path, level="INTERNAL", agent="support", run="run-1", call="toolu_1")

    assert [expected] == logged(tmp_path)
    assert "the key" not in "".join(path.read_text() for path in (tmp_path / "audit").iterdir())


def test_a_change_of_another_process_is_logged_there(tmp_path: Path) -> None:
    """Every change stands in the log once."""
    (log := AuditLog(tmp_path)).record_change(RecordChanged("u", "k", 3, "save", "process"))
    log.close()

    assert [] == logged(tmp_path)


def test_a_refusal_is_logged(tmp_path: Path) -> None:
    """With the code of the error, never with its text."""
    AuditLog(tmp_path).record_refusal(SecretRefused("hunter2"), "save", by=Actor("a"), level="PUBLIC")

    assert [AuditEvent("save", "refused", level="PUBLIC", agent="a", code="secret_refused")] == logged(tmp_path)


def test_what_is_not_there_is_no_refusal(tmp_path: Path) -> None:
    """Otherwise the log would tell hidden keys from unknown ones."""
    AuditLog(tmp_path).record_refusal(EntryNotFound("k"), "delete", by=Actor("a"), level="PUBLIC")

    assert [] == logged(tmp_path)


SAVED = AuditEvent("save", path="entries/support/1f.json", level="INTERNAL", agent="support", run="r1", call="c1")
DENIED = AuditEvent("delete", "refused", agent="a\nb", code="level_denied", count=3)


class Months:
    """A clock whose month is set by hand."""

    def __init__(self, month: str = "2026-11") -> None:
        self.month = month

    def __call__(self) -> str:
        return f"{self.month}-21T09:00:00.000Z"


def put(log: AuditLog, event: AuditEvent) -> None:
    """Log an event, and write it at once."""
    log.record(event)
    log.flush()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    """A log in ``tmp_path``."""
    log = AuditLog(tmp_path, now=Months())
    yield log
    log.close()


def lines(directory: Path, name: str = "2026-11.jsonl") -> list[str]:
    """The lines of a month's file."""
    return (directory / "audit" / name).read_text().splitlines()


def ops(directory: Path) -> list[str]:
    """What was done."""
    return [event.op for event in logged(directory)]


def test_a_line_says_who_did_what(tmp_path: Path, log: AuditLog) -> None:
    """A line holds the time and what is known of the event, and nothing that is not."""
    put(log, SAVED)
    put(log, DENIED)

    assert [
        '{"at":"2026-11-21T09:00:00.000Z","op":"save","outcome":"ok","path":"entries/support/1f.json",'
        '"level":"INTERNAL","agent":"support","run":"r1","call":"c1"}',
        '{"at":"2026-11-21T09:00:00.000Z","op":"delete","outcome":"refused","agent":"a\\nb","code":"level_denied",'
        '"count":3}',
    ] == lines(tmp_path)


def test_what_names_a_forgotten_user_is_blanked(tmp_path: Path) -> None:
    """Her runs also where no user is named; another user's lines stay, and that of the operator who forgot her."""
    log, ada, bob = AuditLog(tmp_path), "a" * 40, "b" * 40
    put(log, AuditEvent("save", run="of ada", call='c"1', user=ada, actor="Ada Lovelace", agent="support"))
    put(log, AuditEvent("save", run="of ada", call="c2", agent="support"))
    put(log, AuditEvent("save", run="of ada", call="c3", user=bob, actor="Bob"))
    put(log, AuditEvent("forget-user", user=ada, actor="grace"))
    (month,) = (tmp_path / "audit").iterdir()
    before = month.stat().st_size
    assert log.blank_runs({ada, "c" * 40})
    lines = [json.loads(line) for line in month.read_text().splitlines()]

    assert [("", "", ""), ("", "c2", None), ("of ada", "c3", "Bob"), (None, None, "grace")] == [
        (line.get("run"), line.get("call"), line.get("actor")) for line in lines
    ]
    assert before == month.stat().st_size


def test_nothing_is_made_before_the_first_event(tmp_path: Path) -> None:
    """A log that logs nothing leaves no trace."""
    AuditLog(tmp_path).close()

    assert [] == os.listdir(tmp_path)


def test_only_the_owner_may_read_it(tmp_path: Path, log: AuditLog) -> None:
    """Folder 0700 and file 0600 whatever the umask is, also for a file that was opened wider."""
    (tmp_path / "audit").mkdir(mode=0o700)
    (tmp_path / "audit" / "2026-11.jsonl").touch(mode=0o666)
    before = os.umask(0)
    try:
        put(log, SAVED)
        put(AuditLog(tmp_path, now=Months("2026-12")), SAVED)
    finally:
        os.umask(before)

    assert [0o700, 0o600, 0o600] == [
        stat.S_IMODE((tmp_path / "audit" / name).stat().st_mode) for name in ("", "2026-11.jsonl", "2026-12.jsonl")
    ]


def test_a_month_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Events go into the file of their month."""
    clock = Months()
    log = AuditLog(tmp_path, now=clock)
    for month, op in (("2026-11", "a"), ("2026-12", "b"), ("2027-01", "c"), ("2026-12", "d")):
        clock.month = month
        put(log, AuditEvent(op))

    assert ["2026-11.jsonl", "2026-12.jsonl", "2027-01.jsonl"] == sorted(os.listdir(tmp_path / "audit"))
    assert ["a", "b", "d", "c"] == ops(tmp_path)


@pytest.mark.parametrize("remove", [False, True])
def test_a_file_that_was_moved_or_deleted_is_begun_anew(tmp_path: Path, log: AuditLog, remove: bool) -> None:
    """After a rotation by hand the next event stands in a new file, also when the folder went as well."""
    put(log, AuditEvent("a"))
    file = tmp_path / "audit" / "2026-11.jsonl"
    if remove:
        file.unlink()
        file.parent.rmdir()
    else:
        file.rename(tmp_path / "old.jsonl")
    put(log, AuditEvent("b"))

    assert ["b"] == ops(tmp_path)


def test_a_fork_logs_as_well(tmp_path: Path) -> None:
    """A child writes its own lines and not those of its parent, even if a thread was in the log when it was forked."""
    program = """
import os, sys
from memfiles.storage.events import AuditEvent, AuditLog
log = AuditLog(sys.argv[1])
log.record(AuditEvent("parent"))
with log._lines._lock:
    if os.fork() == 0:
        log.record(AuditEvent("child"))
        log.flush()
        os._exit(0)
os.wait()
log.record(AuditEvent("parent"))
print("done")
"""
    with another_process(program, tmp_path) as other:
        assert "done" == other.hear()
    assert ["child", "parent", "parent"] == ops(tmp_path)


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_process_of_multiprocessing_logs_to_its_end(tmp_path: Path, opened: str) -> None:
    """It is forked, and ends without a close; whether the log was opened before the fork or after it."""
    program = """
import multiprocessing, sys
from memfiles.storage.events import AuditEvent, AuditLog
if sys.argv[2] == "before":
    log = AuditLog(sys.argv[1])
    log.record(AuditEvent("parent"))
def work():
    global log
    if sys.argv[2] == "after":
        log = AuditLog(sys.argv[1])
    log.record(AuditEvent("child"))
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print("done")
"""
    with another_process(program, tmp_path, opened) as other:
        assert "done" == other.hear()
    assert {"before": ["child", "parent"], "after": ["child"]}[opened] == ops(tmp_path)


def test_a_thread_that_imports_multiprocessing_disturbs_no_line(tmp_path: Path) -> None:
    """Its module is there before it has what is asked of it: a client of S3 imports it in the background."""
    program = """
import sys, threading, time
from memfiles.storage.events import AuditEvent, AuditLog
begun, go_on = threading.Event(), threading.Event()
def pause(frame, event, argument):
    if frame.f_globals.get("__name__") == "multiprocessing.util" and not begun.is_set():
        begun.set()
        go_on.wait()
def work():
    sys.setprofile(pause)
    import multiprocessing.util
threading.Thread(target=work, daemon=True).start()
begun.wait()
log = AuditLog(sys.argv[1])
log.record(AuditEvent("save"))
time.sleep(1.5)
print("done")
input()
go_on.set()
"""
    with another_process(program, tmp_path) as other:
        assert "done" == other.hear()
        assert ["save"] == ops(tmp_path)
        other.tell()


@pytest.mark.slow
def test_eight_processes_write_whole_lines(tmp_path: Path) -> None:
    """Every line of eight processes with two threads each is whole, and none is lost."""
    program = """
import sys, threading
from memfiles.storage.events import AuditEvent, AuditLog
log = AuditLog(sys.argv[1])
input()
def work(thread):
    for number in range(250):
        log.record(AuditEvent("save", agent=f"{sys.argv[2]}-{thread}", path="x" * (number * 7 % 600), count=number))
threads = [threading.Thread(target=work, args=[thread]) for thread in range(2)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path, str(number)], stdin=subprocess.PIPE,
                         env=environment)
        for number in range(8)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [0] * 8 == [process.wait(60) for process in processes]
    counts: dict[str | None, list[int | None]] = {}
    for event in logged(tmp_path):
        counts.setdefault(event.agent, []).append(event.count)

    assert (16, [list(range(250))]) == (len(counts), [*map(list, {tuple(seen) for seen in counts.values()})])


def test_threads_share_a_log(tmp_path: Path, log: AuditLog) -> None:
    """Threads that log at the same time, while the month changes under them, lose no line."""
    clock = Months()
    shared = AuditLog(tmp_path, now=clock)

    def work() -> None:
        for number in range(100):
            clock.month = "2026-12" if clock.month == "2026-11" else "2026-11"
            shared.record(AuditEvent("a"))
            if not number % 7:
                shared.flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()

    assert 400 == len(ops(tmp_path))


def _link_file(root: Path, outside: Path) -> None:
    (root / "audit").mkdir()
    (root / "audit" / "2026-11.jsonl").symlink_to(outside / "file")
    (outside / "file").touch()


def _link_folder(root: Path, outside: Path) -> None:
    (root / "audit").symlink_to(outside)


def _fifo(root: Path, outside: Path) -> None:
    (root / "audit").mkdir()
    os.mkfifo(root / "audit" / "2026-11.jsonl")


def _no_directory(root: Path, outside: Path) -> None:
    root.rmdir()


@pytest.mark.parametrize("spoil", [_link_file, _link_folder, _fifo, _no_directory])
def test_a_log_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: object
) -> None:
    """Nothing is followed or waited for, the caller goes on, and there is one warning however many events."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    spoil(root, outside)  # type: ignore[operator]
    log = AuditLog(root, now=Months())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            put(log, SAVED)

    assert 1 == len(caplog.records)
    assert "operations continue without it" in caplog.text
    assert 0 == sum(path.stat().st_size for path in outside.iterdir())


def test_it_goes_on_when_the_trouble_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once events can be logged again they are, and the next trouble is told again."""
    (tmp_path / "audit").write_text("")
    log = AuditLog(tmp_path, now=Months())
    put(log, AuditEvent("lost"))
    (tmp_path / "audit").unlink()
    put(log, AuditEvent("kept"))
    (tmp_path / "audit").rename(tmp_path / "away")
    (tmp_path / "audit").write_text("")
    put(log, AuditEvent("lost"))

    assert 2 == len(caplog.records)
    assert ["kept"] == [event.op for event in _in_folder(tmp_path, "away")]


def _in_folder(root: Path, name: str) -> list[AuditEvent]:
    (root / "audit").unlink()
    (root / name).rename(root / "audit")
    return logged(root)


def test_half_a_surrogate_pair_does_not_fail_the_caller(tmp_path: Path, log: AuditLog) -> None:
    """What UTF-8 cannot hold costs the line and nothing else."""
    put(log, AuditEvent("save", agent="\ud800"))
    put(log, SAVED)

    assert ["save"] == ops(tmp_path)


def written(directory: Path) -> list[str]:
    """What was done, as far as it is in the file of this month."""
    return ops(directory) if (directory / "audit").exists() else []


@pytest.mark.slow
def test_a_line_waits_for_a_second_at_most(tmp_path: Path, log: AuditLog) -> None:
    """Then it is written, with all that came meanwhile, by one write."""
    for op in ("save", "update"):
        log.record(AuditEvent(op))
    before, until = written(tmp_path), time.monotonic() + PATIENCE_SECONDS
    while len(written(tmp_path)) < 2 and time.monotonic() < until:
        time.sleep(0.01)

    assert ([], ["save", "update"]) == (before, written(tmp_path))


@pytest.mark.parametrize(
    "event",
    [
        DENIED,
        AuditEvent("append", "failed"),
        *(AuditEvent(op) for op in ("forget", "redact", "purge", "export", "forget-user", "export-user")),
        AuditEvent("save", user="0" * 40),
    ],
    ids=lambda event: f"{event.op}-{event.outcome}",
)
def test_what_must_not_be_lost_is_written_at_once(tmp_path: Path, log: AuditLog, event: AuditEvent) -> None:
    """After the lines that waited; and what names a user, so that forgetting the user finds it."""
    log.record(SAVED)
    log.record(event)

    assert ["save", event.op] == written(tmp_path)


def test_many_lines_are_few_writes(tmp_path: Path, log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as 64 KiB wait they are written."""
    write, sizes = os.write, list[int]()

    def note(file: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(file, data)

    monkeypatch.setattr(os, "write", note)
    for _ in range(2000):
        log.record(SAVED)

    assert (True, True) == (len(sizes) >= 2, all(64 * 1024 <= size < 65 * 1024 for size in sizes)), sizes
    log.close()
    assert 2000 == len(ops(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "del log", "os.kill(os.getpid(), 9)"], ids=["exit", "dropped", "killed"])
def test_what_an_end_leaves_of_the_lines_that_wait(tmp_path: Path, end: str) -> None:
    """All of them, but for a kill: it takes those of the last second, and no refusal."""
    program = f"""
import os, sys, time
from memfiles.storage.events import AuditEvent, AuditLog
log = AuditLog(sys.argv[1])
log.record(AuditEvent("early"))
while not os.path.exists(os.path.join(sys.argv[1], "audit")):
    time.sleep(0.01)
log.record(AuditEvent("denied", "refused"))
log.record(AuditEvent("late"))
{end}
print("ended")
"""
    with another_process(program, tmp_path) as other:
        other.hear() if "kill" not in end else other.process.wait(PATIENCE_SECONDS)
    assert ["early", "denied", *(["late"] if "kill" not in end else [])] == ops(tmp_path)


class HeldPages:
    """Pages whose first append takes until it is let through, or raises what it is given then."""

    def __init__(self) -> None:
        """Nothing was appended yet."""
        self.appended: list[list[str]] = []
        self.is_held = True
        self.begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def append(self, month: str, lines: bytes, *, is_hurried: bool = False) -> None:
        """See ``AuditPages``."""
        if self.is_held:
            self.is_held = False
            self.begun.put(None)
            if (error := self.answers.get(timeout=PATIENCE_SECONDS)) is not None:
                raise error
        self.appended.append([json.loads(line)["op"] for line in lines.splitlines()])

    def let_go(self) -> None:
        """See ``AuditPages``."""


def log_on(pages: HeldPages) -> AuditLog:
    """The log of a home with these pages."""
    return AuditLog(cast("MemoryHome", SimpleNamespace(audit=pages)), now=Months())


def of_user(op: str) -> AuditEvent:
    """An event whose line is written at once."""
    return AuditEvent(op, user="0" * 40)


def test_a_slow_store_makes_nobody_wait_for_the_lines_of_others() -> None:
    """While a line is written, one that may wait does; those to be written at once are then written together."""
    log = log_on(pages := HeldPages())
    first = threading.Thread(target=log.record, args=[of_user("first")])
    first.start()
    pages.begun.get(timeout=PATIENCE_SECONDS)
    plain = threading.Thread(target=log.record, args=[AuditEvent("plain")], daemon=True)
    plain.start()
    plain.join(PATIENCE_SECONDS / 10)
    is_waiting = plain.is_alive()
    others = [threading.Thread(target=log.record, args=[of_user("other")]) for _ in range(3)]
    for other in others:
        other.start()
    while not is_waiting and len(log._lines._waiting) < 4:
        time.sleep(0.001)
    pages.answers.put(None)
    for thread in (first, plain, *others):
        thread.join(PATIENCE_SECONDS)

    assert (False, [["first"], ["plain", "other", "other", "other"]]) == (is_waiting, pages.appended)
    log.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("full")], ids=["interrupt", "failure"])
def test_an_interrupt_while_lines_are_written_leaves_them_to_the_next(error: BaseException) -> None:
    """They come before those of others, in the order of the changes; those that cannot be written are lost."""
    log, raised = log_on(pages := HeldPages()), list[BaseException]()

    def record() -> None:
        log.record(AuditEvent("first"))
        try:
            log.record(of_user("second"))
        except KeyboardInterrupt as interrupt:
            raised.append(interrupt)

    thread = threading.Thread(target=record)
    thread.start()
    pages.begun.get(timeout=PATIENCE_SECONDS)
    log.record(AuditEvent("third"))
    pages.answers.put(error)
    thread.join(PATIENCE_SECONDS)
    log.close()

    expected = ["first", "second", "third"] if isinstance(error, KeyboardInterrupt) else ["third"]
    assert (isinstance(error, KeyboardInterrupt), [expected]) == (bool(raised), pages.appended)
