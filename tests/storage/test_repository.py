"""The record repository: reads are fresh, hand edits become revisions, broken files are repaired, events come once."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import RecordCorrupt, RevisionConflict, StorageFailed
from memfiles.files.manager import MemoryManager
from memfiles.records.record import encode
from memfiles.storage import repository as repository_module
from memfiles.storage.atomic import Signature
from memfiles.storage.events import RecordChanged, Subscribers, utc_now
from memfiles.storage.record_kinds import ENTRY_KIND
from memfiles.storage.record_store import CommitHook, Decide
from memfiles.storage.repository import RecordRepository
from memfiles.storage.store import Store
from tests.support.records import TickingClock, declared, files_under, put_fifo, put_folder, records_in, rewrite, seeded
from tests.support.saved import Visitor, entries_in, saved

FILES = [declared("notes", content="# Notes\n", cap=100), declared("plan")]


def restored(directory: Path) -> MemoryManager:
    manager = MemoryManager(directory, durability="os", now=TickingClock())
    manager.restore(FILES)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with restored(tmp_path) as manager:
        yield manager


@pytest.fixture
def told(manager: MemoryManager) -> list[RecordChanged]:
    """What a subscriber is told, in order."""
    told: list[RecordChanged] = []
    manager.subscribe(told.append)
    return told


@pytest.fixture
def path(manager: MemoryManager) -> Path:
    """Where the record of the notes lies."""
    return manager.directory / "notes.json"


def summary(events: list[RecordChanged]) -> list[tuple[int, str, str]]:
    return [(event.revision, event.op, event.origin) for event in events]


def quarantined(manager: MemoryManager) -> list[Path]:
    return [manager.directory / kept["path"] for kept in manager.status()["quarantine"]]


def let_time_pass(path: Path) -> None:
    """As if the file had been left alone since a while ago."""
    moment = time.time_ns() - 10**9
    os.utime(path, ns=(moment, moment), follow_symlinks=False)


def test_a_read_shows_a_change_by_hand_at_once_and_writes_nothing(manager: MemoryManager, path: Path) -> None:
    """It is a revision to come; writing it is not a reader's business."""
    rewrite(path, content="by hand")
    before = files_under(manager.directory)

    assert ("by hand", 2) == (manager.read("notes"), manager.card("notes").revision)
    assert before == files_under(manager.directory)


@pytest.mark.parametrize("read_first", [False, True])
def test_a_noticed_change_by_hand_is_a_revision(
    manager: MemoryManager, told: list[RecordChanged], path: Path, read_first: bool
) -> None:
    """Digest and revision in the file are put right; a read in between takes nothing away from it."""
    rewrite(path, content="by hand")
    if read_first:
        manager.read("notes")
    manager.notice("notes")
    fields = json.loads(path.read_bytes())

    assert [(2, "external", "external")] == summary(told)
    assert ("by hand", 2, True) == (fields["content"], fields["revision"], manager.snapshot("notes").is_intact)
    assert "# Notes\n" == (manager.undo("notes") and manager.read("notes"))


def test_noticing_again_does_nothing(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """Neither for a change that is told nor for one of our own."""
    rewrite(path, content="by hand")
    manager.notice("notes")
    manager.append("notes", "x")
    before = (path.stat().st_ino, len(told))

    assert [True, True] == [manager.notice(uid) for uid in ("notes", "not declared")]
    assert before == (path.stat().st_ino, len(told))


def test_a_write_stands_on_a_change_by_hand(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """Both are in the history and both are told, in their order."""
    rewrite(path, content="by hand\n")
    with pytest.raises(RevisionConflict, match="at revision 2, not 1"):
        manager.append("notes", "x", expected_revision=1)
    manager.append("notes", "x")

    assert ("by hand\nx", 3) == (manager.read("notes"), manager.card("notes").revision)
    assert [(2, "external", "external"), (3, "append", "local")] == summary(told)


def test_what_is_declared_cannot_be_changed_by_hand(manager: MemoryManager, path: Path) -> None:
    """Name, description, cap and level come from the workflow, and are put right in the file."""
    rewrite(path, level="PUBLIC", max_size_bytes=10**9, description="Mine.")
    manager.notice("notes")
    fields = json.loads(path.read_bytes())

    assert ("INTERNAL", 100, "What is known.", 2) == tuple(
        fields[name] for name in ("level", "max_size_bytes", "description", "revision")
    )


def test_another_layout_is_no_change(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """An editor that only reformats the file made no revision."""
    rewrite(path)
    manager.notice("notes")

    assert ([], 1, "# Notes\n") == (told, manager.card("notes").revision, manager.read("notes"))


def test_an_old_copy_put_back_is_a_change_by_hand(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """From a backup, say: its content is the newest now, and the revision goes on."""
    shutil.copy(path, manager.directory / "backup")
    manager.append("notes", "x")
    shutil.copy(manager.directory / "backup", path)
    manager.notice("notes")

    assert ("# Notes\n", 3) == (manager.read("notes"), manager.card("notes").revision)
    assert (3, "external", "external") == summary(told)[-1]


def test_a_file_over_its_cap_may_be_made_smaller_by_hand(tmp_path: Path) -> None:
    """As with any other edit; not larger, though."""
    restored(tmp_path).close()
    with MemoryManager(tmp_path, durability="os") as manager:
        manager.restore([declared("notes", cap=4)])
        rewrite(tmp_path / "notes.json", content="# Note")
        manager.notice("notes")
        rewrite(tmp_path / "notes.json", content="# Notes")
        let_time_pass(tmp_path / "notes.json")
        manager.notice("notes")

        assert "# Note" == manager.read("notes")
        assert "to 7 bytes, over its cap of 4" in manager.status()["quarantine"][0]["reason"]


def test_another_manager_s_change_is_told_once(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """Whether it was read before it was noticed or not."""
    with restored(manager.directory) as other:
        other.append("notes", "theirs\n")
        manager.read("notes")
        for _ in range(2):
            manager.notice("notes")
        other.append("notes", "again\n")
        manager.append("notes", "ours\n")
        manager.notice("notes")

    assert [(2, "append", "process"), (3, "append", "process"), (4, "append", "local")] == summary(told)


def test_a_change_by_hand_is_one_revision_for_two_managers(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """Both read it; the first to notice writes it, the other is told of a process's change."""
    with restored(manager.directory) as other:
        rewrite(path, content="by hand")
        assert "by hand" == manager.read("notes") == other.read("notes")
        other.notice("notes")
        manager.notice("notes")

        assert 2 == manager.card("notes").revision == other.card("notes").revision
    assert [(2, "external", "process")] == summary(told)


def test_what_another_manager_mended_is_no_change_by_hand(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """Although this one had read a change by hand before the file broke, and the other had not."""
    with restored(manager.directory) as other:
        rewrite(path, content="by hand")
        manager.read("notes")
        path.unlink()
        manager.read("notes")
        other.notice("notes")
        manager.notice("notes")

    assert ("# Notes\n", 1, []) == (manager.read("notes"), manager.card("notes").revision, told)


def test_own_changes_are_told_once_whoever_else_looks(manager: MemoryManager, told: list[RecordChanged]) -> None:
    """Threads that read and notice all the while neither go back in time nor take our changes for another's."""
    done, went_back = threading.Event(), []

    def look() -> None:
        latest = 0
        while not done.is_set():
            revision = manager.card("plan").revision
            went_back.extend([revision] if revision < latest else [])
            latest = revision
            manager.notice("plan")

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        manager.append("plan", "x")
    done.set()
    for thread in threads:
        thread.join()

    assert [] == went_back
    assert [(revision, "append", "local") for revision in range(2, 102)] == summary(told)


def test_without_changes_nothing_is_written(manager: MemoryManager) -> None:
    """Reading, looking and refused changes leave every record the file it was."""
    before = records_in(manager.directory)
    for uid in manager.uids():
        manager.read(uid)
        manager.log(uid)
        manager.notice(uid)

    assert before == records_in(manager.directory)


def put_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "plan.json")


BROKEN: dict[str, Callable[[Path], object]] = {
    "half a record": lambda path: path.write_text('{"format": "memf'),
    "nothing in it": lambda path: path.write_text(""),
    "another record": lambda path: path.write_bytes(encode(seeded("x", uid="other"))),
    "over the cap": lambda path: rewrite(path, content="x" * 101),
    "a folder": put_folder,
    "a FIFO": put_fifo,
    "a link": put_link,
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_set_aside_and_the_last_good_record_put_back(
    manager: MemoryManager, told: list[RecordChanged], path: Path, what: str
) -> None:
    """Everyone is told, with the reason."""
    manager.append("notes", "- Bob\n")
    good = path.read_bytes()
    BROKEN[what](path)
    let_time_pass(path)

    assert manager.notice("notes")
    assert (good, 1, "# Notes\n- Bob\n") == (path.read_bytes(), len(quarantined(manager)), manager.read("notes"))
    assert (2, "append", "restored") == summary(told)[-1]
    assert "in quarantine, and the last good version was put back" in (told[-1].warning or "")


def test_a_deleted_record_is_put_back(manager: MemoryManager, told: list[RecordChanged], path: Path) -> None:
    """At once: nobody is in the middle of anything. There is nothing to set aside."""
    good = path.read_bytes()
    path.unlink()
    manager.notice("notes")

    assert (good, [], [(1, "seed", "restored")]) == (path.read_bytes(), quarantined(manager), summary(told))
    assert "it is gone; the last good version was put back" in (told[-1].warning or "")


@pytest.mark.parametrize("what", BROKEN)
def test_a_read_of_a_broken_file_gives_the_last_good_record(
    manager: MemoryManager, path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """And leaves the file alone: someone may be saving it. One warning says so, not one a read."""
    BROKEN[what](path)
    before = files_under(manager.directory)
    with caplog.at_level(logging.WARNING, logger="memfiles"):
        contents = [manager.read("notes") for _ in range(3)]

    assert ["# Notes\n"] * 3 == contents
    assert 1 == caplog.text.count("the last good version is used")
    assert before == files_under(manager.directory)


def test_a_file_that_may_be_in_the_middle_of_being_saved_is_not_judged(manager: MemoryManager, path: Path) -> None:
    """Whoever asks is told to look again; when the saving is done, it is a change by hand."""
    path.write_text('{"half": ')

    assert (False, []) == (manager.notice("notes"), quarantined(manager))
    path.write_bytes(encode(seeded("# Saved\n", cap=100)))
    assert (True, "# Saved\n", []) == (manager.notice("notes"), manager.read("notes"), quarantined(manager))


class StoreInUse(Store):
    """A store of which another process changes a record first, and an editor truncates its file just before a read."""

    is_used = False

    def change(self, paths: Iterable[str], decide: Decide[Any], *, hook: CommitHook | None = None) -> Any:
        for path in (self.directory / each for each in paths if self.is_used):
            rewrite(path, content="by another process")
            let_time_pass(path)
        return super().change(paths, decide, hook=hook)

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        if self.is_used and b"by another process" in (self.directory / path).read_bytes():
            (self.directory / path).write_bytes(b"")
        return super().find(path)


def test_a_file_is_not_judged_by_the_age_of_the_version_that_someone_overwrites(tmp_path: Path) -> None:
    """The one that was left alone is gone; what is there now is a moment old."""
    store = StoreInUse(tmp_path, now=utc_now, durability="os")
    repository = RecordRepository(store, ENTRY_KIND, now=utc_now, subscribers=Subscribers())
    entry = saved("k", "v")
    repository.change([entry.path], lambda _: (None, [entry]))
    rewrite(tmp_path / entry.path, content="by hand")
    store.is_used = True
    is_done = repository.notice(entry.path)
    store.close()

    assert (False, b"") == (is_done, (tmp_path / entry.path).read_bytes())


def test_a_broken_file_from_the_future_is_not_waited_for(manager: MemoryManager, path: Path) -> None:
    """A copied time of change says nothing about when someone was saving."""
    path.write_text("{")
    os.utime(path, (time.time() + 3600, time.time() + 3600))

    assert (True, 1) == (manager.notice("notes"), len(quarantined(manager)))


def test_a_write_over_a_broken_file_stands_on_the_last_good_record(
    manager: MemoryManager, told: list[RecordChanged], path: Path
) -> None:
    """What was there is in quarantine first; that it was broken is told first."""
    path.write_text("{")
    manager.append("notes", "x")

    assert ("# Notes\nx", [b"{"]) == (manager.read("notes"), [kept.read_bytes() for kept in quarantined(manager)])
    assert [(1, "seed", "restored"), (2, "append", "local")] == summary(told)


def test_a_change_by_hand_that_was_read_and_then_broken_is_not_lost(manager: MemoryManager, path: Path) -> None:
    """The last good version is the one that was read last, also if nobody had written it yet."""
    rewrite(path, content="by hand")
    manager.read("notes")
    path.write_text("{")
    let_time_pass(path)
    manager.notice("notes")

    assert ("by hand", 2) == (manager.read("notes"), manager.card("notes").revision)
    assert manager.snapshot("notes").is_intact


def test_a_restore_in_a_running_process_mends_from_memory(manager: MemoryManager, path: Path) -> None:
    """The process knows the last good version, which no seed and no mirror does; and what was there before."""
    manager.append("notes", "- Bob\n")
    path.write_text("{")
    manager.restore(FILES)
    rewrite(path, content="by hand")
    manager.restore(FILES)
    manager.undo("notes")

    assert "# Notes\n- Bob\n" == manager.read("notes")


def test_what_nobody_has_read_yet_cannot_be_mended_from_memory(tmp_path: Path) -> None:
    """With many unchanged files a start reads none: then it is an error, and the file is left for the next start."""
    many = [declared(f"file-{number}") for number in range(20)]
    for _ in range(2):
        with MemoryManager(tmp_path, durability="os") as manager:
            manager.restore(many)
    with MemoryManager(tmp_path, durability="os") as manager:
        manager.restore(many)
        (tmp_path / "file-1.json").write_text("{")
        for call in (manager.read, manager.notice, lambda uid: manager.append(uid, "x")):
            with pytest.raises(RecordCorrupt, match="Invalid JSON"):
                call("file-1")

        assert "{" == (tmp_path / "file-1.json").read_text()


def test_too_many_open_files_is_no_broken_record(manager: MemoryManager, path: Path) -> None:
    """The record is good; the system cannot say so now. Nothing is set aside, and the next call works."""
    rewrite(path, content="by hand")
    let_time_pass(path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        for call in (manager.read, manager.notice, lambda uid: manager.append(uid, "x")):
            with pytest.raises(StorageFailed):
                call("notes")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert ("by hand", True, []) == (manager.read("notes"), manager.notice("notes"), quarantined(manager))


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "saves"), [(40, 160), (320, 320)])
def test_what_is_remembered_of_entries_is_bounded_by_its_size_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, saves: int
) -> None:
    """A history takes three times as much there as on the disk, and a prompt keeps its blocks; the first ones go."""
    monkeypatch.setattr(repository_module, "KNOWN_BYTES_MAX", most := 4 * 2**20)
    with entries_in(tmp_path / "memory") as entries:
        tracemalloc.start()
        for number in range(saves):
            entries.save(Visitor(), f"note-{number % keys}", f"{number} words " * 1_300)
        assert keys == len(entries.hydrate(Visitor(), budget_bytes=2**26).keys)
        known = entries.repository.known()
        count = len(known)
        del known
        before = tracemalloc.get_traced_memory()[0]
        entries.repository.drop_cached(list(entries.repository.known()))
        freed = before - tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()

    assert (True, True) == (0.5 * most < freed < 1.1 * most, 10 < count < keys), (freed, count)


def test_our_own_changes_of_more_than_is_remembered_are_not_told_again(tmp_path: Path) -> None:
    """A watcher looks at all of them, once most are forgotten; one that was changed since is told."""
    origins: list[tuple[str, str]] = []
    subscribers = Subscribers()
    subscribers.add(lambda event: origins.append((event.name, event.origin)), foreign_only=True)
    store = Store(tmp_path, now=utc_now, durability="os")
    repository = RecordRepository(store, ENTRY_KIND, now=utc_now, subscribers=subscribers)
    entries = [saved(f"k{number}", "x" * 60_000) for number in range(640)]
    repository.change([entry.path for entry in entries], lambda _: (None, entries))
    rewrite(tmp_path / entries[0].path, content="by hand")
    for entry in entries:
        repository.notice(entry.path)
    known = len(repository.known())
    store.close()

    assert ([("k0", "external")], True) == (origins, known < 600)
