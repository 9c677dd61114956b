"""Watching: what a person or another program does to a record is noticed while the process runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from memfiles.files.manager import MemoryManager
from memfiles.records.record import encode
from memfiles.storage.entry_folders import Pause
from memfiles.storage.events import RecordChanged
from memfiles.storage.watcher import Watcher
from tests.conftest import unavailable
from tests.support.another_process import another_process
from tests.support.records import declared, files_under, put_fifo, put_folder, records_in, rewrite, seeded, wait_until

pytestmark = pytest.mark.slow
FILES = [declared("notes", content="# Notes\n", cap=1000), declared("plan"), declared("zebra")]
TRIES = 30
STILL_SAVING_SECONDS = 0.4  # a file that is left alone for half a second is taken for saved


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(tmp_path / "memory", durability="os") as manager:
        manager.restore(FILES)
        yield manager


@pytest.fixture
def told(manager: MemoryManager) -> Iterator[list[RecordChanged]]:
    """What the watched manager's subscriber is told, from after the first look at everything on."""
    with watching(manager) as told:
        yield told


@contextmanager
def watching(manager: MemoryManager) -> Iterator[list[RecordChanged]]:
    """Watch; what a subscriber is told, from after the first look at everything on."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    watcher = Watcher(manager.watched)
    try:
        settle(manager, told)
        told.clear()
        yield told
    finally:
        watcher.close()


def settle(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """Wait until a change that comes after all earlier ones, and is looked at after them, has been told."""
    with MemoryManager(manager.directory, durability="os") as other:
        other.restore([declared("zebra")])
        revision = other.append("zebra", "after all").revision
    wait_until(lambda: any(event.uid == "zebra" and event.revision == revision for event in told))


@pytest.fixture
def path(manager: MemoryManager) -> Path:
    """Where the record of the notes lies."""
    return manager.directory / "notes.json"


def summary(events: list[RecordChanged]) -> list[tuple[str, int, str, str]]:
    return [(event.uid, event.revision, event.op, event.origin) for event in events]


def quarantined(manager: MemoryManager) -> list[bytes]:
    kept = [manager.directory / one["path"] for one in manager.status()["quarantine"]]
    return [path.read_bytes() if path.is_file() and not path.is_symlink() else b"no file" for path in kept]


def later_content(path: Path, content: str) -> bytes:
    """The record with another content, as a program writes it that knows nothing of digests."""
    return json.dumps({**json.loads(path.read_bytes()), "content": content}).encode()


def replace_atomically(path: Path) -> None:
    """Through a temp file in the same folder, as most editors do."""
    temp = path.parent / "4913~"
    temp.write_bytes(later_content(path, "changed"))
    temp.replace(path)


def move_in(path: Path) -> None:
    """Through a file in another folder."""
    outside = path.parent.parent / "outside.json"
    outside.write_bytes(later_content(path, "changed"))
    outside.replace(path)


def keep_a_backup(path: Path) -> None:
    """The old file is moved away and a new one written at its path."""
    changed = later_content(path, "changed")
    path.rename(path.parent / "notes.json~")
    path.write_bytes(changed)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda path: rewrite(path, content="changed"),
    "replaced atomically": replace_atomically,
    "moved in from elsewhere": move_in,
    "written anew beside a backup": keep_a_backup,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_by_hand_becomes_a_revision(
    manager: MemoryManager, told: list[RecordChanged], path: Path, how: str
) -> None:
    """However it was saved; the digest and the revision in the file are put right, and callbacks are told."""
    CHANGES[how](path)
    wait_until(lambda: told)
    fields = json.loads(path.read_bytes())

    assert [("notes", 2, "external", "external")] == summary(told)
    assert ("changed", 2, "external") == (fields["content"], fields["revision"], fields["history"][-1]["op"])
    assert manager.snapshot("notes").is_intact
    assert "# Notes\n" == (manager.undo("notes") and manager.read("notes"))


def put_link(path: Path) -> None:
    link = path.parent / "link"
    link.symlink_to(path.parent.parent / "outside")
    link.replace(path)


BROKEN: dict[str, Callable[[Path], object]] = {
    "bad-json": lambda path: path.write_text("{ not JSON"),
    "over-its-cap": lambda path: rewrite(path, content="x" * 1001),
    "another-record": lambda path: path.write_bytes(encode(seeded("x", uid="other"))),
    "folder": put_folder,
    "fifo": put_fifo,
    "link": put_link,
}


def test_broken_edits_are_set_aside_and_the_last_good_records_put_back(
    manager: MemoryManager, told: list[RecordChanged]
) -> None:
    """Callbacks are told with a warning that says why and where it is."""
    manager.restore([*FILES, *(declared(uid, content=uid, cap=1000) for uid in BROKEN)])
    good = records_in(manager.directory)
    for uid, spoil in BROKEN.items():
        spoil(manager.directory / f"{uid}.json")
    wait_until(lambda: len(told) == len(BROKEN))

    assert sorted((uid, 1, "seed", "restored") for uid in BROKEN) == sorted(summary(told))
    assert all("what was there is in quarantine" in (event.warning or "") for event in told)
    assert (good, len(BROKEN)) == (records_in(manager.directory), len(quarantined(manager)))


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.rename(path.parent / "elsewhere")])
def test_a_record_that_is_gone_is_put_back(
    manager: MemoryManager, told: list[RecordChanged], path: Path, how: Callable[[Path], object]
) -> None:
    """Deleted or moved away."""
    good = path.read_bytes()
    how(path)
    wait_until(lambda: told)

    assert [("notes", 1, "seed", "restored")] == summary(told)
    assert (good, []) == (path.read_bytes(), quarantined(manager))


OTHER = """
import sys
from tests.support.records import declared
from memfiles.files.manager import MemoryManager
with MemoryManager(sys.argv[1], durability="os") as manager:
    manager.restore([declared("plan")])
    manager.append("plan", "theirs")
    input()
"""


def test_another_process_s_change_is_told(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """With its own operation."""
    with another_process(OTHER, manager.directory) as other:
        wait_until(lambda: told)
        other.tell()

    assert [("plan", 2, "append", "process")] == summary(told)


WITHOUT_POLL = """
import select, sys, threading
del select.poll
from memfiles.files.manager import MemoryManager
from memfiles.storage.watcher import Watcher
from tests.support.records import declared
told = threading.Event()
with MemoryManager(sys.argv[1], durability="os") as manager:
    manager.restore([declared("plan")])
    manager.subscribe(lambda event: told.set())
    watcher = Watcher(manager.watched)
    for _ in range(2):  # the first look at everything may find the first change
        print("watching")
        print(told.wait(25))
        told.clear()
    watcher.close()
"""


def test_changes_are_noticed_where_nothing_can_be_polled(manager: MemoryManager) -> None:
    """Eventlet takes ``poll`` out of the module ``select`` of the whole program."""
    with another_process(WITHOUT_POLL, manager.directory) as other:
        heard = [(other.hear(), manager.append("plan", "ours").revision, other.hear()) for _ in range(2)]

    assert [("watching", 2, "True"), ("watching", 3, "True")] == heard


def test_a_change_that_is_told_says_whether_text_was_erased(manager: MemoryManager) -> None:
    """Of several in quick succession only the last is told; it says so of one before it, and the next no more."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    manager.append("notes", "hunter2\n")
    with MemoryManager(manager.directory, durability="os") as other:
        other.restore([declared("notes")])
        other.append("notes", "more\n")
        manager.notice("notes")
        other.redact("notes", "hunter2")
        manager.read("notes")
        other.append("notes", "more\n")
        manager.notice("notes")
        with MemoryManager(manager.directory, durability="os") as late:
            late.restore([declared("notes")])
            late.subscribe(told.append)
            other.append("notes", "more\n")
            late.notice("notes")
        manager.read("notes")
        manager.notice("notes")
    manager.redact("notes", "more")

    assert [("append", False), ("append", False), ("append", True), *[("append", False)] * 2, ("redact", True)] == [
        (event.op, event.erased) for event in told
    ]


def test_own_changes_are_not_told_again_and_do_not_loop(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """Our commits give events as well; looking at them ends there."""
    for number in range(20):
        manager.append("notes", f"{number}\n")
    manager.append_many([("notes", "x"), ("plan", "x")])
    rewrite(path, content="changed")
    wait_until(lambda: len(told) == 23)
    inode = path.stat().st_ino
    settle(manager, told)

    assert {"local": 22, "external": 1} == {
        origin: sum(event.origin == origin for event in told) for origin in ("local", "external")
    }
    assert inode == path.stat().st_ino


def test_other_files_in_the_folder_are_nobody_s_business(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """Temp files, notes of a person, records that are not declared, folders."""
    folder = manager.directory
    for name in (".notes.json.tmp~", "notes.json.bak", "README.md", "undeclared.json", ".hidden.json", "notes.txt"):
        (folder / name).write_text("{ not a record")
        (folder / name).replace(folder / f"{name}2")
    (folder / "folder.json").mkdir()
    before = others_in(folder)
    settle(manager, told)

    assert (["zebra"], before) == ([event.uid for event in told], others_in(folder))


def others_in(folder: Path) -> dict[str, bytes]:
    """What lies in the folder itself and is not the record that was changed."""
    return {name: data for name, data in files_under(folder).items() if "/" not in name and name != "zebra.json"}


def write_slowly(manager: MemoryManager, changed: bytes) -> float:
    """Save in pieces with a look in between; the longest time (seconds) that the file was left alone meanwhile."""
    with (manager.directory / "notes.json").open("wb", buffering=0) as file:
        longest, last = 0.0, time.monotonic()
        for start in range(0, len(changed), 100):
            time.sleep(0.03)
            before = time.monotonic()
            file.write(changed[start : start + 100])
            longest, last = max(longest, time.monotonic() - last), before
            assert manager.read("notes") in ("# Notes\n", "x" * 600)
    return longest


def truncate_first(manager: MemoryManager, changed: bytes) -> float:
    """Save in two steps, the file closed and empty in between; for how long (seconds)."""
    path, begun = manager.directory / "notes.json", time.monotonic()
    path.write_bytes(b"")
    time.sleep(0.2)
    path.write_bytes(changed)
    return time.monotonic() - begun


@pytest.mark.parametrize("save", [write_slowly, truncate_first])
def test_a_save_in_steps_is_judged_when_it_is_done(
    tmp_path: Path, save: Callable[[MemoryManager, bytes], float]
) -> None:
    """Half a record is not quarantined while someone writes the other half; readers have the last good one."""
    for number in range(TRIES):
        with MemoryManager(tmp_path / f"{number}", durability="os") as manager:
            manager.restore(FILES)
            with watching(manager) as told:
                changed = later_content(manager.directory / "notes.json", "x" * 600)
                if save(manager, changed) > STILL_SAVING_SECONDS:
                    continue  # the machine stood still, and so did the save: another try
                wait_until(lambda: told)  # noqa: B023 (waited for here)

                assert [("notes", 2, "external", "external")] == summary(told)
                assert ("x" * 600, []) == (manager.read("notes"), quarantined(manager))
                return
    unavailable(f"each of {TRIES} saves took longer than {STILL_SAVING_SECONDS} seconds")
    pytest.fail(f"each of {TRIES} saves stood still for longer than {STILL_SAVING_SECONDS} s")


def test_a_broken_edit_keeps_what_another_process_wrote_before_it(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """Whoever watches knows the last good version, whoever wrote it."""
    with MemoryManager(manager.directory, durability="os") as other:
        other.restore(FILES)
        other.append("notes", "theirs\n")
    wait_until(lambda: told)
    path.write_text("{")
    wait_until(lambda: len(told) == 2)

    assert ("# Notes\ntheirs\n", "restored") == (manager.read("notes"), told[-1].origin)


def test_changes_from_before_the_watching_are_noticed(manager: MemoryManager, path: Path) -> None:
    """Everything is looked at once when the watching begins, so that nothing falls in between."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    rewrite(path, content="changed")
    watcher = Watcher(manager.watched)
    wait_until(lambda: told)
    watcher.close()

    assert [("notes", 2, "external", "external")] == summary(told)


def test_a_record_that_nobody_read_can_be_put_back_all_the_same(tmp_path: Path) -> None:
    """A start does not read unchanged records; watching does, to know what to put back."""
    many = [declared(f"file-{number}", content=f"{number}") for number in range(20)]
    for _ in range(2):
        with MemoryManager(tmp_path, durability="os") as manager:
            manager.restore(many)
    told: list[RecordChanged] = []
    with MemoryManager(tmp_path, durability="os") as manager:
        manager.restore(many)
        manager.subscribe(told.append)
        watcher = Watcher(manager.watched)
        wait_until(lambda: len(manager._live.known()) == 20, what="reading every record")
        (tmp_path / "file-7.json").unlink()
        wait_until(lambda: told)
        watcher.close()

        assert (["file-7"], "7") == ([event.uid for event in told], manager.read("file-7"))


class Endless:
    """Records of which a look never ends by itself."""

    is_deep, what = False, "endless"

    def __init__(self, folder: Path) -> None:
        self._folder, self.begun, self.ended = folder, Event(), Event()

    def folder(self) -> Path:
        """See ``Watched``."""
        return self._folder

    def record_at(self, path: str) -> str | None:
        """See ``Watched``."""
        return None

    def look(self, record: str) -> bool:
        """See ``Watched``."""
        return True

    def suspects(self, pause: Pause) -> Iterator[str]:
        """See ``Watched``."""
        try:
            while True:
                pause()
                self.begun.set()
        finally:
            self.ended.set()


def test_a_close_does_not_wait_for_a_look_at_very_many_files(tmp_path: Path) -> None:
    """At 100,000 entries it takes some seconds, as it makes way for everything else."""
    endless = Endless(tmp_path)
    watcher = Watcher(endless)
    assert endless.begun.wait(30)
    closing = Thread(target=watcher.close, daemon=True)
    closing.start()
    closing.join(30)

    assert (False, True) == (closing.is_alive(), endless.ended.is_set())


def test_a_memory_folder_behind_a_link_is_watched(manager: MemoryManager, tmp_path: Path) -> None:
    """It is the folder that is meant, not the link."""
    (tmp_path / "link").symlink_to(manager.directory)
    told: list[RecordChanged] = []
    with MemoryManager(tmp_path / "link", durability="os") as linked:
        linked.restore(FILES)
        linked.subscribe(told.append)
        watcher = Watcher(linked.watched)
        settle(linked, told)
        told.clear()
        rewrite(tmp_path / "memory" / "notes.json", content="changed")
        wait_until(lambda: told)
        watcher.close()

    assert ["external"] == [event.origin for event in told]
