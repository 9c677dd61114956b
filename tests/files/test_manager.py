"""The manager: what can be done with memory files, each call with one meaning and one kind of result."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from memfiles.errors import (
    FileNotDeclared,
    InvalidArgument,
    RevisionConflict,
    RevisionUnknown,
    SecretRefused,
    SizeExceeded,
)
from memfiles.files.manager import MemoryManager
from memfiles.records.record import Actor
from memfiles.storage.events import RecordChanged
from tests.support.another_process import another_process
from tests.support.records import TickingClock, declared, files_under
from tests.support.stores import STORE, place_of, put_by_hand

FILES = [declared("notes", content="# Notes\n", cap=100), declared("plan"), declared("rules", content="- Be kind.\n")]


def open_manager(directory: Path, **settings: Any) -> MemoryManager:
    """A restored manager; nothing is flushed, because no test here cuts the power."""
    manager = MemoryManager(place_of(directory), durability="os", now=TickingClock(), **settings)
    manager.restore(FILES)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with open_manager(tmp_path / "memory") as manager:
        yield manager


def records_of(manager: MemoryManager) -> dict[str, object]:
    """The versions of all records; of a directory every file as well, the journal and what is temporary included."""
    files = files_under(manager.directory) if STORE not in os.environ else {}
    return {**files, **{f"version of {path}": manager.records.signature(path) for path in manager.records.paths()}}


@pytest.mark.parametrize(("operation", "most"), [("append", 160), ("edit", 165)])
@pytest.mark.directory("what one change costs there")
def test_a_warm_change_calls_few_functions(tmp_path: Path, operation: str, most: int) -> None:
    """Half of its time is spent in Python. The calls are counted, as the time itself depends on the machine."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    with MemoryManager(place_of(tmp_path), now=TickingClock()) as manager:
        manager.restore(FILES)
        for number in range(4):
            manager.append("plan", f"v{number} ")
        ways: dict[str, Callable[[str, str], object]] = {
            "append": manager.append,
            "edit": partial(manager.edit, new="a line"),
        }
        change = ways[operation]
        change("plan", "v0")
        sys.setprofile(note)
        try:
            change("plan", "v1")
        finally:
            sys.setprofile(None)

    assert most >= len(called), called


def test_nothing_touches_the_disk_before_restore(tmp_path: Path) -> None:
    """A manager that is only made, or closed at once, is no trace."""
    MemoryManager(place_of(tmp_path / "memory")).close()

    assert [] == list(tmp_path.iterdir())


CALLS: dict[str, Callable[[MemoryManager], object]] = {
    "card": lambda manager: manager.card("notes"),
    "read": lambda manager: manager.read("notes"),
    "snapshot": lambda manager: manager.snapshot("notes"),
    "append": lambda manager: manager.append("notes", "x"),
    "append_many": lambda manager: manager.append_many([("notes", "x")]),
    "edit": lambda manager: manager.edit("notes", "# ", ""),
    "replace": lambda manager: manager.replace("notes", "x"),
    "log": lambda manager: manager.log("notes"),
    "diff": lambda manager: manager.diff("notes", 1, 1),
    "undo": lambda manager: manager.undo("notes", to_revision=1),
    "redact": lambda manager: manager.redact("notes", "Notes"),
    "notice": lambda manager: manager.notice("notes"),
    "status": lambda manager: manager.status(),
    "checkpoint": lambda manager: manager.checkpoint(),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_needs_a_restored_open_manager(tmp_path: Path, call: str) -> None:
    """Before ``restore`` and after ``close`` it says so; in between it works."""
    manager = MemoryManager(place_of(tmp_path / "memory"), durability="os")
    with pytest.raises(InvalidArgument, match="the manager is not restored yet: call restore"):
        CALLS[call](manager)
    manager.restore(FILES)
    CALLS[call](manager)
    manager.close()
    manager.close()
    with pytest.raises(InvalidArgument, match="the manager is closed: open the memory again, or call restore"):
        CALLS[call](manager)

    assert [] == manager.uids()


def test_a_closed_manager_can_be_restored_again(tmp_path: Path) -> None:
    """And goes on where it was."""
    manager = open_manager(tmp_path)
    manager.append("notes", "x")
    manager.close()
    manager.restore(FILES)

    assert "# Notes\nx" == manager.read("notes")
    manager.close()


@pytest.mark.parametrize(
    "call", [name for name in CALLS if name not in ("notice", "status", "checkpoint", "append_many")]
)
def test_a_file_that_is_no_longer_declared_is_not_there(tmp_path: Path, call: str) -> None:
    """Its record still lies in the directory, and nobody may see or change it."""
    open_manager(tmp_path).close()
    with MemoryManager(place_of(tmp_path), durability="os") as manager:
        manager.restore([declared("plan")])
        before = files_under(tmp_path)
        with pytest.raises(FileNotDeclared, match="no memory file 'notes' is declared"):
            CALLS[call](manager)

        assert before == files_under(tmp_path)


@pytest.mark.parametrize("uid", ["other", "../notes", "", "NOTES", "notes.json", "a" * 500, None, 7])
def test_any_unknown_uid_is_the_same_error(manager: MemoryManager, uid: Any) -> None:
    """Reading and writing do not differ, and no path is built from it."""
    for call in (
        lambda: manager.read(uid),
        lambda: manager.append(uid, "x"),
        lambda: manager.append_many([(uid, "x")]),
    ):
        with pytest.raises(FileNotDeclared) as error:
            call()
        assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["x"]])
def test_text_must_be_text(manager: MemoryManager, text: Any) -> None:
    """Everywhere where text is taken; nothing is written."""
    before = records_of(manager)
    for call in (
        lambda: manager.append("notes", text),
        lambda: manager.append_many([("plan", "x"), ("notes", text)]),
        lambda: manager.edit("notes", text, "x"),
        lambda: manager.edit("notes", "# ", text),
        lambda: manager.replace("notes", text),
        lambda: manager.redact("notes", text),
    ):
        with pytest.raises(InvalidArgument, match="the text must be a string, not"):
            call()

    assert before == records_of(manager)


def test_text_must_be_unicode_that_can_be_stored(manager: MemoryManager) -> None:
    """A lone surrogate has no UTF-8; a pair that was cut in two is told where."""
    for call in (
        lambda: manager.append("notes", "ab\ud83d"),
        lambda: manager.edit("notes", "ab\ud83d", "x"),
        lambda: manager.redact("notes", "ab\ud83d"),
    ):
        with pytest.raises(InvalidArgument, match="a lone surrogate at character 2"):
            call()


@pytest.mark.parametrize("label", [7, b"c1", "\ud83d", "x" * 1025])
def test_who_calls_must_be_storable_too(manager: MemoryManager, label: Any) -> None:
    """What could not be read back would spoil the record for good; what is too long would fill its history."""
    for call in (
        lambda: manager.append("notes", "x", call_id=label),
        lambda: manager.append("notes", "x", by=Actor(agent=label)),
        lambda: manager.append_many([("notes", "x")], by=Actor(session=label)),
    ):
        with pytest.raises(InvalidArgument):
            call()

    assert 1 == manager.card("notes").revision


def test_a_write_is_on_disk_when_it_returns(manager: MemoryManager, tmp_path: Path) -> None:
    """Another manager on the same directory sees it at once, with everything about it."""
    receipt = manager.append("notes", "- Bob\n", call_id="c1", by=Actor("support", "run-1"))
    with open_manager(tmp_path / "memory") as other:
        record = other.snapshot("notes")

    assert ("# Notes\n- Bob\n", 2, Actor("support", "run-1", "c1")) == (
        record.content,
        record.revision,
        record.history[-1].by,
    )
    assert (2, 14, 100, 86) == (receipt.revision, receipt.size_bytes, receipt.max_size_bytes, receipt.bytes_left)


def test_a_refused_write_changes_nothing(manager: MemoryManager) -> None:
    """Neither the disk nor what is read."""
    before = records_of(manager)
    with pytest.raises(SizeExceeded):
        manager.append("notes", "x" * 101)
    with pytest.raises(RevisionConflict):
        manager.append("notes", "x", expected_revision=7)
    with pytest.raises(SecretRefused):
        manager.append("notes", "the token is ghp_" + "R4nd0mQx7Lk2Vb9Tz5Wc8Yh3Jm6Np1Sd0Fg4")

    assert before == records_of(manager)
    assert ("# Notes\n", 1) == (manager.read("notes"), manager.card("notes").revision)


def test_log_diff_and_undo_work_on_the_history(manager: MemoryManager) -> None:
    """Newest first; what was undone stays in the log."""
    manager.append("notes", "- Bob\n")
    manager.edit("notes", "Bob", "Ann")

    assert "-- Bob\n+- Ann\n" in manager.diff("notes", 2, 3)
    assert (4, 3) == ((receipt := manager.undo("notes")).revision, receipt.undone_revision)
    assert "# Notes\n- Bob\n" == manager.read("notes")
    assert ["undo", "edit", "append", "seed"] == [change.op for change in manager.log("notes")]
    with pytest.raises(RevisionUnknown):
        manager.diff("notes", 1, 9)


def test_every_verb_takes_the_name_of_a_file_or_its_uid(tmp_path: Path) -> None:
    """As the command line and the tools do; a name that a deploy changed no longer leads anywhere."""
    files = [replace(declared("notes-1", content="# Notes\n"), name="notes"), declared("notes-2")]
    with MemoryManager(place_of(tmp_path), durability="os") as manager:
        manager.restore(files)
        manager.append("notes", "- Bob\n")
        manager.append_many([("notes", "- Ann\n"), ("notes-1", "- Zoe\n")])
        manager.edit("notes", "Bob", "Ida")
        manager.redact("notes", "Ann")
        manager.undo("notes", to_revision=1)

        assert manager.snapshot("notes") is manager.snapshot("notes-1")
        assert "notes-1" == manager.card("notes").uid
        assert manager.diff("notes", 1, 2) == manager.diff("notes-1", 1, 2) != ""
        assert "# Notes\n" == manager.read("notes")
        manager.restore([replace(files[0], name="renamed"), files[1]])
        assert manager.log("renamed") == manager.log("notes-1")
        with pytest.raises(FileNotDeclared):
            manager.read("notes")


def test_a_replay_is_known_to_the_next_process(tmp_path: Path) -> None:
    """Its answer got lost in a restart; the write did not, and does not happen twice."""
    with open_manager(tmp_path) as manager:
        first = manager.append("notes", "- Bob\n", call_id="c1")
        manager.append("notes", "- Ann\n", call_id="c2")
    with open_manager(tmp_path) as manager:
        before = files_under(tmp_path)
        again = manager.append("notes", "- Bob\n", call_id="c1")

        assert (first.revision, first.size_bytes, True) == (again.revision, again.size_bytes, again.replayed)
        assert before == files_under(tmp_path)


@pytest.mark.parametrize("given", [{"call_id": ""}, {"by": Actor("support", call="")}])
def test_an_empty_call_id_is_none(manager: MemoryManager, given: dict[str, Any]) -> None:
    """As in a session: a caller without an id may say the same line twice, and the second is no repetition."""
    receipts = [manager.append("notes", "- Bob\n", **given) for _ in range(2)]

    assert [False, False] == [receipt.replayed for receipt in receipts]
    assert "# Notes\n- Bob\n- Bob\n" == manager.read("notes")
    assert [None, None] == [change.by.call for change in manager.log("notes")[:2]]


def test_many_appends_happen_together(manager: MemoryManager) -> None:
    """To several files, also several times to one, with receipts in the order of the appends."""
    receipts = manager.append_many([("plan", "a"), ("notes", "b"), ("plan", "c")])

    assert ["ac", "# Notes\nb"] == [manager.read("plan"), manager.read("notes")]
    assert [("plan", 2, 1), ("notes", 2, 9), ("plan", 3, 2)] == [
        (one.uid, one.revision, one.size_bytes) for one in receipts
    ]


def test_many_appends_happen_all_or_not_at_all(manager: MemoryManager) -> None:
    """Also those that would have fitted, before the one that does not."""
    before = records_of(manager)
    with pytest.raises(SizeExceeded):
        manager.append_many([("plan", "a"), ("notes", "x" * 60), ("notes", "x" * 60)])
    with pytest.raises(FileNotDeclared):
        manager.append_many([("plan", "a"), ("other", "b")])

    assert before == records_of(manager)
    assert [] == manager.append_many([]) == manager.append_many(iter(()))


def test_equal_appends_of_one_call_all_happen(manager: MemoryManager) -> None:
    """They are no replay of each other; the same call made again is one of all of them, with the same receipts."""
    twice, by = [("plan", "x\n"), ("notes", "y\n"), ("plan", "x\n")], Actor(call="c1")
    first = manager.append_many(twice, by=by)
    again = manager.append_many(twice, by=by)

    assert "x\nx\n" == manager.read("plan")
    assert [replace(receipt, replayed=True) for receipt in first] == again


def test_two_managers_on_one_directory_see_each_others_changes(manager: MemoryManager, tmp_path: Path) -> None:
    """In one process as in two: neither overwrites what it has not seen."""
    with open_manager(tmp_path / "memory") as other:
        for number in range(5):
            manager.append("plan", f"a{number} ")
            other.append("plan", f"b{number} ")

        assert "a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 " == manager.read("plan") == other.read("plan")
        assert 11 == manager.card("plan").revision


OTHER = """
import sys
from tests.support.records import declared
from memfiles.files.manager import MemoryManager
with MemoryManager(sys.argv[1], durability="os") as manager:
    manager.restore([declared("plan")])
    manager.append("plan", sys.argv[2])
    print("done")
    input()
"""


@pytest.mark.slow
@pytest.mark.directory("a stat is of a file")
def test_a_read_notices_another_process_with_one_stat(manager: MemoryManager) -> None:
    """As long as nothing changed, that is all a read asks of the system."""
    assert "" == manager.read("plan")
    with another_process(OTHER, manager.directory, "theirs") as other:
        assert "done" == other.hear()
        assert "theirs" == manager.read("plan")
        manager.append("plan", ", ours")
        asked = asked_of_the_system(lambda: manager.read("plan"))
        other.tell()

    assert ["stat"] == asked


def asked_of_the_system(call: Callable[[], object]) -> list[str]:
    """The functions of the operating system that a call uses, without patching any of them."""
    asked: list[str] = []
    functions = {getattr(os, name) for name in ("stat", "lstat", "fstat", "open", "read", "listdir", "scandir")}

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function in functions:
            asked.append(function.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return asked


def test_whoever_subscribed_is_told_once_the_change_is_done(manager: MemoryManager) -> None:
    """With no lock held: a callback may read and change files itself, the same one too."""
    told: list[RecordChanged] = []

    def answer(event: RecordChanged) -> None:
        told.append(event)
        if event.revision < 4:
            manager.append(event.uid, "again\n")

    leave = manager.subscribe(answer)
    manager.append("notes", "once\n")
    leave()
    manager.append("notes", "unheard\n")

    assert [(2, "append", "local"), (3, "append", "local"), (4, "append", "local")] == [
        (event.revision, event.op, event.origin) for event in told
    ]
    assert "# Notes\nonce\nagain\nagain\nunheard\n" == manager.read("notes")


def test_status_shows_files_orphans_and_quarantine(tmp_path: Path) -> None:
    """As a JSON object."""
    open_manager(tmp_path).close()
    put_by_hand(tmp_path, "plan.json", b"{")
    with MemoryManager(place_of(tmp_path), durability="os") as manager:
        manager.restore([declared("plan")])
        status = manager.status()

    assert [str(place_of(tmp_path)), "os", ["notes.json", "rules.json"]] == [
        status[what] for what in ("directory", "durability", "orphans")
    ]
    assert ["plan"] == [file["uid"] for file in status["files"]]
    assert "Invalid JSON" in status["quarantine"][0]["reason"]


@pytest.mark.directory("only files can be changed by hand")
def test_status_says_which_file_cannot_be_read(tmp_path: Path) -> None:
    """One that was damaged before anybody read it, as a start knows it from its cache."""
    files = [declared(f"note-{number}") for number in range(20)]
    for _ in range(2):
        with MemoryManager(place_of(tmp_path), durability="os") as manager:
            manager.restore(files)
            time.sleep(0.1)  # a file that changed just now is read, whatever the cache says
    with MemoryManager(place_of(tmp_path), durability="os") as manager:
        manager.restore(files)
        put_by_hand(tmp_path, "note-7.json", b"{")
        status = manager.status()

    assert (19, ["note-7"]) == (len(status["files"]), list(status["problems"]))


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    """A typo must not turn the flushes off."""
    with pytest.raises(InvalidArgument, match="use 'fsync' or 'os'"):
        MemoryManager(place_of(tmp_path), durability="none")  # type: ignore[arg-type]
