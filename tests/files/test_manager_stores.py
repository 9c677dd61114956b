"""The manager on each store: the same calls have the same results, and nothing above asks which store it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memfiles.errors import EditNoMatch, InvalidArgument, RevisionConflict, SizeExceeded
from memfiles.files.manager import MemoryManager
from memfiles.records.keys import record_path
from memfiles.records.record import Actor
from memfiles.storage.events import RecordChanged
from memfiles.storage.record_store import ChangeSet, NewVersion
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.records import TickingClock, declared
from tests.support.saved import files_holding

FILES = [declared("notes", content="# Notes\n", cap=200), declared("plan"), declared("rules", content="- Be kind.\n")]
Opening = Callable[[], MemoryManager]

APPEND = """
import sys
from memfiles.files.manager import MemoryManager
from tests.support.records import declared
with MemoryManager(sys.argv[1]) as manager:
    manager.restore([declared("shared", cap=1 << 20)])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        manager.append("shared", f"{sys.argv[2]} {number}\\n")
"""


@pytest.fixture
def manage(where: str) -> Iterator[Opening]:
    """``manage()`` is another restored manager of the same place."""
    opened: list[MemoryManager] = []

    def manage() -> MemoryManager:
        opened.append(MemoryManager(where, now=TickingClock()))
        opened[-1].restore(FILES)
        return opened[-1]

    yield manage
    for manager in opened:
        manager.close()


def test_a_restore_seeds_once_and_keeps_what_was_written(where: str, manage: Opening) -> None:
    """The plan says what the restore does; a file that is no longer declared stays, and is reported."""
    plan = MemoryManager(where).plan(FILES)
    first = manage()
    first.append("plan", "- Ship it.\n")
    again = MemoryManager(where).plan([*FILES[1:], declared("new")])

    assert ["seeded"] * 3 == [row.status for row in plan.files]
    assert (["kept", "kept", "seeded"], ("notes",)) == ([row.status for row in again.files], again.orphans)
    assert "- Ship it.\n" == manage().read("plan")


def test_the_verbs_of_a_file(manage: Opening) -> None:
    """Append, edit, replace, undo, log, diff and the errors of each."""
    manager = manage()
    by = Actor("support", "run-1")
    receipt = manager.append("notes", "- Bob is on Free.\n", by=by, call_id="c1")
    again = manager.append("notes", "- Bob is on Free.\n", by=by, call_id="c1")
    manager.edit("notes", "Free", "Pro")
    manager.append_many([("plan", "a"), ("notes", "b"), ("plan", "c")])
    with pytest.raises(EditNoMatch):
        manager.edit("notes", "Zoe", "Ann")
    with pytest.raises(SizeExceeded):
        manager.append_many([("plan", "d"), ("notes", "x" * 200)])
    with pytest.raises(RevisionConflict):
        manager.append("notes", "x", expected_revision=1)

    assert (2, 2, True) == (receipt.revision, again.revision, again.replayed)
    assert ("# Notes\n- Bob is on Pro.\nb", "ac") == (manager.read("notes"), manager.read("plan"))
    assert 5 == manager.undo("notes", to_revision=2).revision
    assert "# Notes\n- Bob is on Free.\n" == manager.read("notes")
    assert ["undo", "append", "edit", "append", "seed"] == [change.op for change in manager.log("notes")]
    assert "+- Bob is on Free." in manager.diff("notes", 1, 2)


def test_two_managers_see_each_other_s_changes(manage: Opening) -> None:
    """Neither overwrites what it has not seen."""
    one, other = manage(), manage()
    for number in range(5):
        one.append("plan", f"a{number} ")
        other.append("plan", f"b{number} ")

    assert "a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 " == one.read("plan") == other.read("plan")
    assert 11 == one.card("plan").revision


def test_a_redaction_leaves_the_text_nowhere(manage: Opening, request: pytest.FixtureRequest, where: str) -> None:
    """Out of content, history and kept copies, for every manager."""
    one, other = manage(), manage()
    one.append("notes", "the door opens with swordfish\n")
    other.append("notes", "- more\n")
    for path, body in (("notes.json", b"swordfish"), ("notes.json", b"trout"), ("rules.json", b"trout")):
        for folder in ("quarantine", "conflicts"):
            one.place.kept.keep(path, body, reason="why", at="2026-11-22T00:00:00.000Z", folder=folder)
    redacted = other.redact("notes", "swordfish")
    kept = [(note.path, one.place.kept.read(note.kept)) for note in one.place.kept.notes("conflicts")]

    assert (1, 2, True) == (redacted.in_content, redacted.copies_removed, "swordfish" not in one.read("notes"))
    assert all("swordfish" not in str(change) for change in one.log("notes"))
    assert [("notes.json", b"trout"), ("rules.json", b"trout")] == kept
    assert 2 == len(one.status()["quarantine"])
    if where.startswith("postgresql"):
        server: PostgresServer = request.getfixturevalue("server")
        assert [] == server.pages_holding(b"swordfish")
    else:
        assert [] == files_holding(Path(where), "swordfish")


def test_a_record_that_cannot_be_read_is_put_aside(manage: Opening) -> None:
    """The file starts again with its declared content, and the bytes are kept with the reason."""
    first = manage()
    first.append("rules", "- Be brief.\n")
    _break(first, "rules", b"no record")
    manager = manage()
    (kept,) = manager.status()["quarantine"]

    assert "- Be kind.\n" == manager.read("rules")
    assert ("quarantine/rules.json", True) == (kept["path"][:21], "Invalid JSON" in kept["reason"])
    assert ([], 1) == (manager.status()["orphans"], manager.records.kept.remove("rules.json"))
    assert [] == manager.status()["quarantine"]


def test_subscribers_hear_of_own_changes_and_those_found(manage: Opening) -> None:
    """Of another manager's change when it is noticed."""
    one, other = manage(), manage()
    heard: list[RecordChanged] = []
    one.subscribe(heard.append)
    one.append("plan", "a")
    other.append("plan", "b")
    assert one.notice("plan")

    assert [("plan.json", 2, "local"), ("plan.json", 3, "process")] == [
        (event.path, event.revision, event.origin) for event in heard
    ]


@pytest.mark.slow
def test_processes_append_to_one_file(where: str) -> None:
    """Eight at the same time: every line is there, once, and nobody is sent away because the others are faster."""
    command = [sys.executable, "-c", APPEND, where]
    workers = [
        subprocess.Popen(
            [*command, f"w{each}", "120"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for each in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None and "ready\n" == worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=120)
    with MemoryManager(where) as manager:
        manager.restore([declared("shared", cap=1 << 20)])
        found = manager.read("shared").splitlines()

    assert [0] * 8 == [worker.returncode for worker in workers]
    assert sorted(f"w{each} {number}" for each in range(8) for number in range(120)) == sorted(found)


@pytest.mark.slow
def test_what_needs_files_says_so(server: PostgresServer) -> None:
    """Without a memory directory, an error, and no directory made of the URL."""
    with MemoryManager(server.url(server.workspace())) as manager:
        manager.restore(FILES)
        with pytest.raises(InvalidArgument, match="memory directory"):
            _ = manager.directory
        with pytest.raises(InvalidArgument, match="memory directory"):
            manager.watched.folder()


def _break(manager: MemoryManager, uid: str, data: bytes) -> None:
    """Put other bytes in the place of a record, behind the manager's back."""
    path = record_path(uid)
    with closing(manager.place.open(now=TickingClock())) as store:
        store.change(
            [path],
            lambda records: (None, ChangeSet([NewVersion(path, 9, data, records.signature(path))])),
        )
