"""Lines of the audit that wait, and a log that cannot be written: nobody fails or waits, and losses are reported."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from memfiles.storage.events import AuditEvent, AuditLog
from memfiles.storage.home import MemoryHome
from tests.storage.audit_logs import DENIED, SAVED, Months, logged, ops, put
from tests.support.another_process import another_process
from tests.support.records import PATIENCE_SECONDS


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
    return AuditLog(cast("MemoryHome", SimpleNamespace(audit=pages, reading=None)), now=Months())


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
