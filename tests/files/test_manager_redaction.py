"""Redaction everywhere: after it, no file under the directory holds the text for this memory file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from memfiles.errors import InvalidArgument
from memfiles.files.manager import MemoryManager
from memfiles.storage.home import home_of
from memfiles.storage.store import with_files
from tests.conftest import unavailable
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.records import declared, files_under, rewrite, wait_until
from tests.support.saved import files_holding
from tests.support.stores import STORE, place_of, put_by_hand

TEXT = "Grüße von hunter2"
ESCAPED = json.dumps(TEXT)[1:-1]
FILES = [declared("notes", content="# Notes\n", cap=1 << 20), declared("plan")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore(FILES)
        yield manager


def holding(directory: Path, *texts: str) -> list[str]:
    """The files that hold one of these texts, records, journals, derived state and all."""
    return [path.rpartition("/")[2] for path in files_holding(directory, *texts)]


def test_the_text_is_gone_from_record_history_and_journal(manager: MemoryManager, tmp_path: Path) -> None:
    """Not only from what is live: the journal had it in every version since."""
    manager.append("notes", f"1 {TEXT}\n")
    manager.edit("notes", "von", "an")
    manager.append("notes", f"2 {TEXT}\n")
    assert (1 if STORE in os.environ else 2) == len(holding(tmp_path, TEXT))  # a directory has a journal
    redaction = manager.redact("notes", TEXT)

    assert [] == holding(tmp_path, TEXT)
    assert "# Notes\n1 Grüße an hunter2\n2 [redacted]\n" == manager.read("notes")
    assert (1, 2, 0, 5) == (
        redaction.in_content,
        redaction.in_history,
        redaction.copies_removed,
        redaction.receipt.revision,
    )


def test_nothing_is_left_for_grep(manager: MemoryManager, tmp_path: Path) -> None:
    """However often it was written, and however an edit cut it in two."""
    for number in range(5):
        manager.append("notes", f"{number} {TEXT}\n")
    manager.edit("notes", "Grüße von ", "")
    manager.replace("notes", f"all {TEXT} {TEXT}")
    manager.undo("notes", to_revision=3)
    manager.redact("notes", "hunter2")

    assert [] == holding(tmp_path, "hunter2", "unter2")


def test_it_stays_gone_after_a_restart(tmp_path: Path) -> None:
    """Nothing replays it, and no undo knows it."""
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore(FILES)
        manager.append("notes", TEXT)
        manager.append("notes", "\n")
        manager.redact("notes", TEXT)
    with MemoryManager(place_of(tmp_path)) as manager:
        manager.restore(FILES)
        manager.undo("notes", to_revision=2)

        assert "# Notes\n[redacted]" == manager.read("notes")
        assert [] == holding(tmp_path, TEXT)


def test_quarantined_copies_that_hold_it_are_removed(manager: MemoryManager, tmp_path: Path) -> None:
    """In whatever form of JSON someone wrote it; other copies, and those of other files, stay."""
    for content in (f'{{"content": "{TEXT}', f'{{"content": "{ESCAPED}', "{ nothing of it"):
        put_by_hand(tmp_path, "notes.json", content.encode())
        manager.append("notes", "x")
    put_by_hand(tmp_path, "plan.json", f"{{ {TEXT}".encode())
    manager.append("plan", "x")
    redaction = manager.redact("notes", TEXT)

    assert 2 == redaction.copies_removed
    kept = [name.partition("/")[2] for name in files_under(tmp_path) if name.startswith("quarantine/")]
    assert {"notes", "plan"} == {name.partition(".")[0] for name in kept if not name.endswith(".reason.json")}
    assert ["plan"] == [name.partition(".")[0] for name in holding(tmp_path, TEXT, ESCAPED)]


@pytest.mark.directory("only files can be changed by hand")
def test_what_lies_broken_or_changed_by_hand_at_its_path_is_reached(manager: MemoryManager, tmp_path: Path) -> None:
    """Although no good version of the record ever held it."""
    for spoil in (
        lambda path: path.write_text(f'{{"content": "{TEXT}'),
        lambda path: rewrite(path, content=TEXT, description=TEXT),
    ):
        spoil(tmp_path / "notes.json")
        manager.redact("notes", TEXT)

        assert [] == holding(tmp_path, TEXT, ESCAPED)


def test_nothing_to_take_out_is_no_revision(manager: MemoryManager) -> None:
    """The journals are cleaned all the same: an earlier attempt may have been interrupted."""
    redaction = manager.redact("notes", TEXT)

    assert (0, 0, 1) == (redaction.in_content, redaction.in_history, redaction.receipt.revision)


def test_the_text_may_not_be_empty(manager: MemoryManager) -> None:
    """Nor anything but text."""
    with pytest.raises(InvalidArgument):
        manager.redact("notes", 7)  # type: ignore[arg-type]


OTHER = """
import sys
from tests.support.records import declared
from memfiles.files.manager import MemoryManager
with MemoryManager(sys.argv[1]) as manager:
    manager.restore([declared("notes", cap=1 << 20), declared("plan")])
    for number in range(3):
        manager.append("notes", sys.argv[2])
    print("written")
    input()
    print(manager.append("notes", "later").revision)
    input()
"""


@pytest.mark.slow
def test_another_process_cleans_its_journal_too(manager: MemoryManager, tmp_path: Path) -> None:
    """A redaction returns when every living process has answered; they go on working."""
    with another_process(OTHER, place_of(tmp_path), TEXT) as other:
        assert "written" == other.hear()
        assert "notes.json" in holding(tmp_path, TEXT)
        manager.redact("notes", TEXT)

        assert [] == holding(tmp_path, TEXT)
        other.tell()
        assert "6" == other.hear()
        assert [] == holding(tmp_path, TEXT)
        other.tell()

    assert [] == holding(tmp_path, TEXT)


def test_a_killed_process_leaves_nothing_of_it(manager: MemoryManager, tmp_path: Path) -> None:
    """Its journal is replayed and removed before the redaction returns."""
    with another_process(OTHER, place_of(tmp_path), TEXT) as other:
        assert "written" == other.hear()
        other.process.kill()
        other.process.wait()
        manager.redact("notes", TEXT)

    assert [] == holding(tmp_path, TEXT)


KILLED = """
import os, sys
from memfiles.files import manager as module
from tests.support.records import declared
module.erase = lambda _, lost, __: os._exit(9) if lost else 0  # the record lost it, and nothing else was done
manager = module.MemoryManager(sys.argv[1])
manager.restore([declared("notes", cap=1 << 20), declared("plan")])
manager.append("notes", "1 hunter2, 2 hunter3")
manager.place.kept.keep("notes.json", b"hunter3", reason="it is torn", at="2026-11-22T00:00:00Z", folder="quarantine")
manager.redact("notes", "hunter3")
"""


@pytest.mark.directory("a record in a store can be read by whoever can change it")
def test_what_a_killed_redaction_left_stays_noted_while_nobody_can_tell_what_it_was(
    manager: MemoryManager, tmp_path: Path
) -> None:
    """The record tells it, and cannot be read just when the next redaction asks: the next start removes the copy."""
    if not hasattr(fcntl, "F_SETLEASE"):
        unavailable("only Linux can keep others from opening a file")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    home, record = home_of(tmp_path), tmp_path / "notes.json"
    with_files(manager.records).recover()  # type: ignore[union-attr]
    manager.checkpoint()
    copies = home.kept.listing()

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    manager.subscribe(lambda change: leased.append(_leased(record)) if change.origin == "local" else None)
    leased: list[int] = []
    try:
        manager.redact("notes", "2, ")
    finally:
        os.close(leased[0])
        signal.signal(signal.SIGIO, before)

    assert (9, copies) == (killed.returncode, home.kept.listing())
    assert ["notes.json"] == [*home.notes.noted_forgets()]
    with MemoryManager(tmp_path) as later:
        later.restore(FILES)
    assert ([], []) == (holding(tmp_path, "hunter3"), home.kept.listing())


KILLED_TOO = """
import os, sys
from memfiles.files import manager as module
from tests.support.records import declared
module.erase = lambda *_: os._exit(9)  # the record lost it, and nothing else was done
manager = module.MemoryManager(sys.argv[1])
manager.restore([declared("notes", cap=1 << 20), declared("plan")])
print("opened")
input()
manager.place.kept.keep("notes.json", b"hunter3", reason="it is torn", at="2026-11-22T00:00:00Z", folder="quarantine")
manager.redact("notes", "hunter3")
"""


def test_a_redaction_leaves_the_note_of_one_that_began_after_it(manager: MemoryManager, tmp_path: Path) -> None:
    """That one was killed before it removed what it took out from the kept copies: the next start does it."""
    kept = home_of(place_of(tmp_path)).kept
    manager.append("notes", f"hunter3, {TEXT}")
    kept.keep("notes.json", TEXT.encode(), reason="it is torn", at="2026-11-22T00:00:00Z", folder="quarantine")
    with ExitStack() as running:
        other = running.enter_context(another_process(OTHER, place_of(tmp_path), TEXT))
        dying = running.enter_context(another_process(KILLED_TOO, place_of(tmp_path)))
        threads = running.enter_context(ThreadPoolExecutor())
        assert ("written", "opened") == (other.hear(), dying.hear())
        os.kill(other.pid, signal.SIGSTOP)
        redacted = threads.submit(manager.redact, "notes", TEXT)
        wait_until(lambda: not kept.listing())  # it waits until the other process has looked at its journal
        dying.tell()
        dying.process.wait(60)
        os.kill(other.pid, signal.SIGCONT)
        redacted.result(60)
        assert (9, 1) == (dying.process.returncode, len(kept.listing()))
        with MemoryManager(place_of(tmp_path)) as later:
            later.restore(FILES)

    assert ([], {}) == (kept.listing(), home_of(place_of(tmp_path)).notes.noted_forgets())


def _leased(path: Path) -> int:
    """Change a file, and keep others from opening it until this descriptor is closed."""
    path.write_bytes(path.read_bytes())
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return descriptor
