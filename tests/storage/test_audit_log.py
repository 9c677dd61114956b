"""The log of the audit: one line an event, in a file a month, from every thread and process."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memfiles.errors import EntryNotFound, SecretRefused
from memfiles.records.keys import id_path
from memfiles.records.record import Actor
from memfiles.storage.audit_reader import AuditFiles
from memfiles.storage.events import AuditEvent, AuditLog, RecordChanged
from tests.storage.audit_logs import CHANGED, DENIED, SAVED, Months, lines, logged, ops, put
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.records import wait_until


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
    assert log.blank_runs({ada, "c" * 40}, str)
    lines = [json.loads(line) for line in month.read_text().splitlines()]

    assert [("", "", ""), ("", "c2", None), ("of ada", "c3", "Bob"), (None, None, "grace")] == [
        (line.get("run"), line.get("call"), line.get("actor")) for line in lines
    ]
    assert before == month.stat().st_size


def test_threads_note_at_the_same_time_for_whom_it_was_blanked(tmp_path: Path) -> None:
    """As processes do, each for another tombstone; a folder in the place of the note is replaced, damage is skipped."""
    (tmp_path / ".state/blanked/deep").mkdir(parents=True)
    tombstones = [id_path(f"{number:032x}") for number in range(200)]
    AuditFiles(tmp_path).blank(tombstones[:1], str)
    with (tmp_path / ".state/blanked").open("ab") as note:
        note.write(b"\xff\0 of a damaged disk")
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda path: AuditFiles(tmp_path).blank([path], str), tombstones):
            pass

    assert {*tombstones} == AuditFiles(tmp_path).blanked()


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


@pytest.mark.slow
def test_a_thread_that_imports_multiprocessing_disturbs_no_line(tmp_path: Path) -> None:
    """Its module is there before it has what is asked of it: a client of S3 imports it in the background."""
    program = """
import sys, threading
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
print("done")
input()
go_on.set()
"""
    with another_process(program, tmp_path) as other:
        assert "done" == other.hear()
        wait_until(lambda: (tmp_path / "audit").exists() and ops(tmp_path))
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
