"""Watched entry files: changes by a person or another program are noticed while the process runs."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.index.database import LARGE
from memfiles.records.entry_codec import encode_entry
from memfiles.records.marks import EntryRecord
from memfiles.storage.events import RecordChanged, Subscribers, utc_now
from memfiles.storage.store import Store
from memfiles.storage.watcher import Watcher
from tests.support.another_process import another_process
from tests.support.records import no_thread_starts, rewrite, wait_until
from tests.support.saved import Visitor, entries_in, saved

pytestmark = [pytest.mark.directory("it changes files by hand, and counts what reads them"), pytest.mark.slow]
SOMEBODY = Visitor()
OLD = (0, 0)


@dataclass
class Desk:
    """Entries that are watched, and what the subscriber is told of them."""

    directory: Path
    entries: Entries
    told: list[RecordChanged]

    def path(self, key: str = "color") -> Path:
        """Where the record of a key lies."""
        return self.directory / saved(key).path

    def found(self, query: str) -> list[tuple[str, str]]:
        """The keys and contents that a search finds."""
        return [(match.found.key, match.found.content) for match in self.entries.search(SOMEBODY, query).matches]

    def summary(self) -> list[tuple[str, int, str, str]]:
        """What the subscriber was told."""
        return [(event.name, event.revision, event.op, event.origin) for event in self.told]

    def quarantined(self) -> list[str]:
        """What was set aside."""
        return [path.name for path in (self.directory / "quarantine").glob("*") if "reason" not in path.name]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Two entries, one of them read by nobody since, watched."""
    told: list[RecordChanged] = []
    subscribers = Subscribers()
    subscribers.add(told.append)
    store = Store(tmp_path / "memory", now=lambda: "2026-11-21T10:00:00.000Z", durability="os")
    entries = Entries(store, rules=EntryRules(), subscribers=subscribers)
    entries.save(SOMEBODY, "color", "azure sky")
    entries.save(SOMEBODY, "zebra", "striped")
    watching = Watcher(entries.files)
    desk = Desk(tmp_path / "memory", entries, told)
    settle(desk)
    told.clear()
    yield desk
    watching.close()
    entries.close()
    store.close()


def settle(desk: Desk) -> None:
    """Wait until a change that comes after all earlier ones, and is looked at after them, has been told."""
    before = desk.entries.get(SOMEBODY, "zebra")
    assert before is not None
    rewrite(desk.path("zebra"), content=f"after {before.content}")
    wait_until(lambda: any(event.name == "zebra" and event.revision > before.revision for event in desk.told))


def replace_atomically(path: Path) -> None:
    temp = path.parent / "4913~"
    temp.write_text(json.dumps({**json.loads(path.read_bytes()), "content": "crimson dusk"}))
    temp.replace(path)


def keep_a_backup(path: Path) -> None:
    changed = json.dumps({**json.loads(path.read_bytes()), "content": "crimson dusk"})
    path.rename(path.parent / "backup~")
    path.write_text(changed)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda path: rewrite(path, content="crimson dusk"),
    "replaced atomically": replace_atomically,
    "written anew beside a backup": keep_a_backup,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_by_hand_becomes_a_revision_and_is_found(desk: Desk, how: str) -> None:
    """However it was saved; the digest is put right, callbacks are told, and no search finds what was there."""
    CHANGES[how](desk.path())
    wait_until(lambda: any(event.revision == 2 for event in desk.told))
    fields = json.loads(desk.path().read_bytes())

    assert ("color", 2, "external", "external") == desk.summary()[-1]
    assert ("crimson dusk", 2, "external") == (fields["content"], fields["revision"], fields["history"][-1]["op"])
    assert ([("color", "crimson dusk")], []) == (desk.found("crimson"), desk.found("azure"))
    assert [] == desk.quarantined()


def test_a_label_changed_by_hand_is_a_revision_as_well(desk: Desk) -> None:
    """Although the content and its digest are as they were."""
    rewrite(desk.path(), tags=["paint"])
    wait_until(lambda: desk.told)
    found = desk.entries.get(SOMEBODY, "color")

    assert found is not None
    assert (("paint",), 2) == (found.tags, found.revision)


@pytest.mark.parametrize("agent", ["support", "newcomer"])
def test_a_file_that_is_put_there_is_found(desk: Desk, agent: str) -> None:
    """By the next search; in a folder of an agent that saved nothing yet, too."""
    entry = saved("dropped", "fell from heaven", agent=agent)
    path = desk.directory / entry.path
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_entry(entry))
    wait_until(lambda: desk.entries.search(Visitor(agent), "heaven").matches)

    wait_until(lambda: desk.told)
    assert [("dropped", 1, "save", "process")] == desk.summary()


def test_what_was_changed_before_is_found_where_no_thread_can_be_started(tmp_path: Path) -> None:
    """Also in a folder of so many files that a search leaves them to the thread that watches."""
    found, path = list[str](), tmp_path / "memory" / saved("key-0").path
    for content in ("azure sky", "crimson dusk"):
        store = Store(tmp_path / "memory", now=utc_now, durability="os")
        entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
        if not path.exists():
            store.make_folders([saved("key-0").path])
            for entry in (saved(f"key-{number}", "grey sky") for number in range(LARGE + 1)):
                (store.directory / entry.path).write_bytes(encode_entry(entry))
            entries.search(SOMEBODY, "sky")
        rewrite(path, content=content)
        with no_thread_starts():
            watching = Watcher(entries.files)
        found += [match.found.content for match in entries.search(SOMEBODY, "azure crimson").matches]
        watching.close()
        entries.close()
        store.close()

    assert ["azure sky", "crimson dusk"] == found


def test_a_folder_that_is_moved_in_is_looked_at_as_a_whole(desk: Desk, tmp_path: Path) -> None:
    """As when a backup is put back."""
    entry = saved("dropped", "fell from heaven", agent="newcomer")
    outside = tmp_path / "outside" / entry.path
    outside.parent.mkdir(parents=True)
    outside.write_bytes(encode_entry(entry))
    shutil.move(outside.parent, desk.directory / "entries")

    wait_until(lambda: desk.entries.search(Visitor("newcomer"), "heaven").matches)


def test_a_folder_that_is_moved_away_and_back_is_followed(desk: Desk, tmp_path: Path) -> None:
    """Its entries are gone, which is told before the next sweep is due, and come back, and it is watched again."""
    folder = desk.path().parent
    folder.rename(tmp_path / "away")
    wait_until(lambda: ("color", 1, "remove", "external") in desk.summary(), seconds=15)
    assert [] == desk.found("azure")
    (tmp_path / "away").rename(folder)
    wait_until(lambda: desk.found("azure"), seconds=15)
    rewrite(desk.path(), content="crimson dusk")
    wait_until(lambda: desk.summary()[-1] == ("color", 2, "external", "external"), seconds=15)

    assert [("color", "crimson dusk")] == desk.found("crimson")


def put_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    os.utime(path, OLD)


def put_broken(path: Path) -> None:
    """In a way in which nobody can be in the middle of saving it."""
    temp = path.parent / "temp"
    temp.write_text("{ not JSON")
    os.utime(temp, OLD)
    temp.replace(path)


BROKEN: dict[str, Callable[[Path], object]] = {
    "bad JSON": lambda path: path.write_text("{ not JSON"),
    "another's record": lambda path: path.write_bytes(encode_entry(saved("zebra"))),
    "a higher level": lambda path: rewrite(path, level="RESTRICTED"),
    "too large": lambda path: rewrite(path, content="x" * 70_000),
    "a FIFO": put_fifo,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_edit_is_set_aside_and_the_last_good_record_put_back(desk: Desk, how: str) -> None:
    """Callbacks are told with a warning that says why; a search goes on finding it."""
    good = desk.path().read_bytes()
    BROKEN[how](desk.path())
    wait_until(lambda: desk.told)

    assert [("color", 1, "save", "restored")] == desk.summary()
    assert "what was there is in quarantine" in (desk.told[0].warning or "")
    assert (good, 1) == (desk.path().read_bytes(), len(desk.quarantined()))
    assert [("color", "azure sky")] == desk.found("azure")


def test_what_is_broken_and_was_never_known_is_set_aside(desk: Desk) -> None:
    """There is nothing to put back, nobody is told, and nothing else suffers."""
    put_broken(desk.path("stranger"))
    wait_until(lambda: desk.quarantined())
    settle(desk)

    assert (False, ["zebra"]) == (desk.path("stranger").exists(), [event.name for event in desk.told])


def test_a_removed_file_is_an_entry_that_is_gone(desk: Desk) -> None:
    """It is not put back, for whoever removes it means it; nor is there a tombstone: a mirror may bring it back."""
    desk.path().unlink()
    wait_until(lambda: desk.told)

    assert [("color", 1, "remove", "external")] == desk.summary()
    assert (None, []) == (desk.entries.get(SOMEBODY, "color"), desk.found("azure"))
    assert 1 == desk.entries.save(SOMEBODY, "color", "new").revision


OTHER = """
import sys
from pathlib import Path
from tests.support.saved import Visitor, entries_in
with entries_in(Path(sys.argv[1])) as entries:
    entries.save(Visitor(), "color", "theirs")
    entries.save(Visitor(), "other", "theirs as well")
"""


def test_changes_of_other_processes_are_told(desk: Desk) -> None:
    """Once each, of a key that nobody here knew as well."""
    with another_process(OTHER, desk.directory):
        wait_until(lambda: len(desk.told) == 2)
    settle(desk)

    assert [("color", 2, "save", "process"), ("other", 1, "save", "process")] == sorted(desk.summary())[:2]
    assert {("color", "theirs"), ("other", "theirs as well")} == set(desk.found("theirs"))


def test_an_entry_that_was_forgotten_elsewhere_and_saved_anew_is_told_as_erased(tmp_path: Path) -> None:
    """However late somebody looks; a save over another one erases nothing, nor does a move."""
    told: list[RecordChanged] = []
    (subscribers := Subscribers()).add(told.append)
    with (
        entries_in(tmp_path / "memory", subscribers=subscribers) as entries,
        entries_in(tmp_path / "memory") as others,
    ):
        entries.save(SOMEBODY, "color", "azure sky")
        others.save(SOMEBODY, "color", "crimson dusk")
        entries.repository.notice(saved("color").path)
        others.forget(SOMEBODY, key="color")
        others.save(SOMEBODY, "color", "green")
        entries.repository.notice(saved("color").path)
        entries.relocate(SOMEBODY, {"color": "colour"})
        entries.forget(SOMEBODY, key="colour")

    found = [(event.op, event.erased) for event in told]
    assert [("save", False), ("save", False), ("save", True)] == found[:3]
    assert {("move", False)} == {each for each in found if each[0] == "move"}
    assert {("forget", True)} == {each for each in found if each[0] == "forget"}


def test_our_own_changes_are_not_told_again(desk: Desk) -> None:
    """Saves, deletes, forgetting, and the end of a run: each gives events, and looking at them ends there."""
    inside = Visitor(run="evt-1")
    desk.entries.save(SOMEBODY, "color", "green")
    desk.entries.save(inside, "talk", "of the run", category="conversation")
    desk.entries.delete(SOMEBODY, "color")
    desk.entries.forget(SOMEBODY, key="color")
    desk.entries.end_run(inside)
    settle(desk)

    assert {"local"} == {event.origin for event in desk.told if event.name != "zebra"}
    assert 6 == sum(event.name != "zebra" for event in desk.told)  # the mark, and what is known of the id


def test_temp_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    """By a start, by its first search, and by the watching."""
    with another_process(OTHER, tmp_path):
        pass
    path = tmp_path / saved("color").path
    left = path.parent / f".{path.name}.tmp"
    left.write_text("half a rec")
    store = Store(tmp_path, now=lambda: "2026-11-21T10:00:00.000Z", durability="os")
    is_left_by_start = left.exists()
    left.write_text("half a rec")
    entries = Entries(store, rules=EntryRules(), subscribers=Subscribers())
    was_there = left.exists()
    found = entries.search(SOMEBODY, "theirs").matches
    is_there = left.exists()
    left.write_text("half a rec")
    watching = Watcher(entries.files)
    wait_until(lambda: not left.exists())
    watching.close()
    entries.close()
    store.close()

    assert (False, True, 2, False) == (is_left_by_start, was_there, len(found), is_there)


def test_the_watching_survives_that_all_entries_are_removed(desk: Desk) -> None:
    """The folder included: what is saved into a new one is watched again."""
    shutil.rmtree(desk.directory / "entries")
    wait_until(lambda: desk.told)
    found = desk.found("azure")
    desk.entries.save(SOMEBODY, "color", "azure again")
    rewrite(desk.path(), content="crimson dusk")
    # at the latest the next look at everything finds it, also where no event tells of it
    wait_until(lambda: desk.summary()[-1] == ("color", 2, "external", "external"), seconds=45)

    assert [] == found


class TellingStore:
    """A store that says when somebody begins to wait for a record."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.waiting = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def change(self, *args: Any, **options: Any) -> Any:
        """As of the store, and told before."""
        if threading.current_thread() is not threading.main_thread():
            self.waiting.set()
        return self._inner.change(*args, **options)


def test_a_change_of_ours_that_is_noticed_while_it_is_made_is_told_once(tmp_path: Path) -> None:
    """Whoever watches may see the file before this process has called its change done."""
    told: list[tuple[str, str]] = []
    subscribers = Subscribers()
    subscribers.add(lambda change: told.append((change.op, change.origin)))
    inner = Store(tmp_path, now=utc_now, durability="os")
    store: Any = TellingStore(inner)
    entries = Entries(store, rules=EntryRules(), subscribers=subscribers)
    entry = saved("color", "blue")
    watcher = threading.Thread(target=lambda: entries.repository.notice(entry.path))

    def decide(_: object) -> tuple[None, list[EntryRecord]]:
        watcher.start()
        assert store.waiting.wait(20)
        return None, [entry]

    entries.repository.change([entry.path], decide)
    watcher.join()
    entries.close()
    inner.close()

    assert [("save", "local")] == told


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_what_another_process_made_is_told_once_also_if_it_was_read_before_it_was_noticed(
    tmp_path: Path, reads: int
) -> None:
    """A question that is answered between a change and the look at it swallows no news of the change."""
    told: list[tuple[str, str, str]] = []
    subscribers = Subscribers()
    subscribers.add(lambda change: told.append((change.op, change.name, change.origin)))
    stores = [Store(tmp_path, now=utc_now, durability="os") for _ in range(2)]
    ours = Entries(stores[0], rules=EntryRules(), subscribers=subscribers)
    theirs = Entries(stores[1], rules=EntryRules(), subscribers=Subscribers())
    theirs.save(Visitor(), "color", "blue")

    for _ in range(reads):
        assert ours.get(Visitor(), "color") is not None
    for _ in range(2):
        assert ours.files.look(saved("color").path)
    ours.close()
    theirs.close()
    for store in stores:
        store.close()

    assert [("save", "color", "process")] == told
