"""Restore with a mirror: local record over mirror copy over declared content, and a mirror that fails no start."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.files.manager import MemoryManager
from memfiles.files.restore_report import RestoreReport
from memfiles.files.restorer import Restorer
from memfiles.records.file_changes import append
from memfiles.records.record import Record, encode
from memfiles.storage.home import home_of
from memfiles.sync.mirror import ANY, Condition, Stored
from memfiles.workflow.workflow import MemoryFile
from mirrors import MemoryMirror
from tests.support.records import TickingClock, declared, records_in, seeded, stamp
from tests.support.stores import place_of, put_by_hand


class AskedMirror:
    """Remembers what it was asked for, and may be down."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.inner = MemoryMirror()
        self.is_down = is_down
        self.asked: list[str] = []

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        raise AssertionError("a restore asks for the files it needs")

    def get(self, key: str) -> Stored | None:
        self.asked.append(key)
        if self.is_down:
            raise MirrorUnavailable("nobody at home")
        return self.inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        raise AssertionError("a restore writes nothing to the mirror")

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        raise AssertionError("a restore deletes nothing from the mirror")


def mirrored(**contents: str) -> AskedMirror:
    """A mirror with a record for each uid, at revision 2."""
    mirror = AskedMirror()
    for uid, content in contents.items():
        mirror.inner.put(f"{uid}.json", encode(remote(uid, content)))
    return mirror


def remote(uid: str, content: str) -> Record:
    record = append(seeded("", uid=uid), stamp("remote"), text=content).record
    assert record is not None
    return record


def managed(directory: Path, mirror: AskedMirror | None = None) -> MemoryManager:
    return MemoryManager(place_of(directory), mirror, durability="os", now=TickingClock())


def restored(directory: Path, *files: MemoryFile, mirror: AskedMirror | None = None) -> RestoreReport:
    """The report of a restore by a process that then goes away; its plan said the same."""
    with managed(directory, mirror) as manager:
        plan = manager.plan(files)
        report = manager.restore(files)
    assert plan == report
    return report


def read(directory: Path, uid: str) -> str:
    with managed(directory) as manager:
        manager.restore([declared(uid)])
        return manager.read(uid)


def test_the_mirror_is_asked_only_for_files_without_a_usable_record(tmp_path: Path) -> None:
    """Whatever else lies in the directory or in the mirror."""
    restored(tmp_path, declared("kept"), declared("broken"), declared("orphan"))
    put_by_hand(tmp_path, "broken.json", b"{")
    mirror = mirrored(kept="remote", broken="remote", missing="remote", orphan="remote", other="remote")
    with managed(tmp_path, mirror) as manager:
        manager.restore([declared("kept"), declared("broken"), declared("missing")])

    assert ["broken.json", "missing.json"] == sorted(mirror.asked)


def test_a_local_record_wins_over_the_mirror(tmp_path: Path) -> None:
    """Whatever its revision: it is the merge's business, later, to bring them together."""
    restored(tmp_path, declared("notes", content="local"))

    assert "kept" == restored(tmp_path, declared("notes"), mirror=mirrored(notes="remote"))["notes"].status
    assert "local" == read(tmp_path, "notes")


def test_the_mirror_wins_over_the_declared_content(tmp_path: Path) -> None:
    """A new machine goes on where the old one was: the same bytes, history and all."""
    report = restored(tmp_path, declared("notes", content="seed"), mirror=mirrored(notes="remote"))

    assert "hydrated" == report["notes"].status
    assert encode(remote("notes", "remote")) == records_in(tmp_path)["notes.json"]


def test_a_copy_from_the_mirror_gets_the_declared_metadata(tmp_path: Path) -> None:
    """Also a cap that it is over."""
    report = restored(tmp_path, declared("notes", cap=3), mirror=mirrored(notes="remote"))
    with managed(tmp_path) as manager:
        manager.restore([declared("notes", cap=3)])

        assert (3, "remote") == (manager.card("notes").max_size_bytes, manager.read("notes"))
    assert ("hydrated", True) == (report["notes"].status, report["notes"].over_cap)


def test_without_a_copy_in_the_mirror_the_file_is_seeded(tmp_path: Path) -> None:
    """The mirror answered: there is none."""

    assert "seeded" == restored(tmp_path, declared("notes"), mirror=AskedMirror())["notes"].status


def test_a_mirror_that_is_down_does_not_fail_the_start(tmp_path: Path) -> None:
    """The file is seeded and marked, to be reconciled when the mirror answers."""
    down = AskedMirror(is_down=True)
    report = restored(tmp_path, declared("notes", content="seed"), mirror=down)
    with managed(tmp_path) as manager:
        manager.restore([declared("notes")])

        assert (True, "seed") == (manager.card("notes").provisional, manager.read("notes"))
    assert ("provisional", "the mirror did not answer: nobody at home") == (
        report["notes"].status,
        report["notes"].detail,
    )


def test_a_mirror_that_is_down_is_no_matter_when_all_is_there(tmp_path: Path) -> None:
    """It is not even asked."""
    restored(tmp_path, declared("notes"))
    down = AskedMirror(is_down=True)

    assert ("kept", []) == (restored(tmp_path, declared("notes"), mirror=down)["notes"].status, down.asked)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "Invalid JSON"),
        (encode(seeded("x", uid="other")), "the record of 'other'"),
        (encode(replace(seeded("x"), content="changed on the way")), "its digest is wrong"),
    ],
)
def test_a_copy_that_cannot_be_used_is_not_used(tmp_path: Path, body: bytes, why: str) -> None:
    """The report says why the file was seeded."""
    mirror = AskedMirror()
    mirror.inner.put("notes.json", body)
    report = restored(tmp_path, declared("notes", content="seed"), mirror=mirror)

    assert ("seeded", "seed") == (report["notes"].status, read(tmp_path, "notes"))
    assert why in (report["notes"].detail or "")


@pytest.mark.parametrize(
    ("mirror", "origin"),
    [(None, "seeded"), (mirrored(notes="remote"), "hydrated"), (AskedMirror(is_down=True), "provisional")],
)
def test_an_unreadable_record_falls_down_the_same_chain(
    tmp_path: Path, mirror: AskedMirror | None, origin: str
) -> None:
    """It is in quarantine; the report says why and where the content came from."""
    restored(tmp_path, declared("notes"))
    put_by_hand(tmp_path, "notes.json", b'{"half a rec')
    report = restored(tmp_path, declared("notes", content="seed"), mirror=mirror)
    kept = home_of(place_of(tmp_path)).kept

    assert "quarantined" == report["notes"].status
    assert "Invalid JSON" in (detail := report["notes"].detail or "") and f"its content is now {origin}" in detail
    assert [b'{"half a rec'] == [kept.read(note.kept) for note in kept.notes("quarantine")]


def test_the_mirror_is_asked_for_all_files_in_one_go(tmp_path: Path) -> None:
    """Each of them once, though the locks come later; a plan asks as well."""
    mirror = mirrored(one="1", two="2")
    with managed(tmp_path, mirror) as manager:
        manager.restore([declared(uid) for uid in ("one", "two", "three")])

    assert ["one.json", "three.json", "two.json"] == sorted(mirror.asked)


def test_a_file_that_changed_before_its_lock_was_held_is_not_fetched_again(tmp_path: Path) -> None:
    """Another process that made the record meanwhile is in the right; what was fetched is still known."""

    class Meddling(AskedMirror):
        def get(self, key: str) -> Stored | None:
            if key == "one.json" and key not in self.asked:
                restored(tmp_path, declared("one", content="theirs"))
                put_by_hand(tmp_path, "two.json", b"{")
            return super().get(key)

    mirror = Meddling()
    for uid in ("one", "two"):
        mirror.inner.put(f"{uid}.json", encode(remote(uid, "remote")))
    with managed(tmp_path, mirror) as manager:
        report = manager.restore([declared("one"), declared("two")])

        assert ("theirs", "remote") == (manager.read("one"), manager.read("two"))
    assert ("kept", "quarantined") == (report["one"].status, report["two"].status)
    assert ["one.json", "two.json"] == sorted(mirror.asked)


def test_other_files_in_the_directory_suppress_nothing(tmp_path: Path) -> None:
    """Neither someone's notes nor the records of an earlier deploy."""
    restored(tmp_path, declared("earlier"))
    for name in ("README.md", "notes.json.bak", "Notes.txt"):
        (tmp_path / name).write_text("not ours")
    (tmp_path / "entries").mkdir()
    report = restored(tmp_path, declared("notes"), mirror=mirrored(notes="remote", earlier="remote"))

    assert ("hydrated", ("earlier",)) == (report["notes"].status, report.orphans)


def test_what_was_hydrated_is_known_with_its_version(tmp_path: Path) -> None:
    """The mirror has acknowledged these bytes; whoever keeps the two in step need not ask again."""
    mirror = mirrored(notes="remote", renamed="remote")
    with managed(tmp_path, mirror) as manager:
        manager.restore([declared("notes"), declared("renamed", description="new"), declared("seeded")])

        assert {path: mirror.inner.get(path) for path in ("notes.json", "renamed.json")} == manager.hydrated
        manager.restore([declared("notes")])
        assert {} == manager.hydrated


def test_the_very_bytes_of_the_mirror_are_stored(tmp_path: Path) -> None:
    """Also where someone else laid them out; the two homes are then the same."""
    mirror = AskedMirror()
    body = json.dumps(json.loads(encode(remote("notes", "remote"))) | {"more": 1}, indent=2).encode()
    mirror.inner.put("notes.json", body)
    report = restored(tmp_path, declared("notes"), mirror=mirror)

    assert ("hydrated", body) == (report["notes"].status, records_in(tmp_path)["notes.json"])


def test_a_mirror_that_refuses_does_not_fail_the_start(tmp_path: Path) -> None:
    """No access, no bucket, an object beyond the limit: seeded, marked, and said why, by name."""

    class Refusing(AskedMirror):
        def get(self, key: str) -> Stored | None:
            if key == "big.json":
                raise MirrorRefused("big.json has 70000000000 bytes in the store")
            return super().get(key)

    mirror = Refusing()
    mirror.inner = mirrored(notes="remote").inner
    report = restored(tmp_path, declared("notes"), declared("big", content="seed"), mirror=mirror)

    assert ("hydrated", "provisional") == (report["notes"].status, report["big"].status)
    assert "the mirror refused: big.json has 70000000000 bytes in the store" == report["big"].detail


def test_a_mirror_that_is_down_is_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many files it concerns."""
    files = [declared(f"f{number}") for number in range(20)]
    with managed(tmp_path, AskedMirror(is_down=True)) as manager, caplog.at_level(logging.WARNING):
        manager.restore(files)

    (line,) = caplog.messages
    assert "no answer for 20 of 20 files" in line and line.endswith("nobody at home")


@pytest.mark.slow
def test_a_mirror_that_hangs_does_not_hold_up_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for all files they are seeded, as with a mirror that is down."""

    class Hanging(AskedMirror):
        def get(self, key: str) -> Stored | None:
            if key != "quick.json":
                over.wait(60)
            return super().get(key)

    mirror, over = Hanging(), threading.Event()
    mirror.inner = mirrored(quick="remote").inner
    monkeypatch.setattr("memfiles.sync.downloads.DEADLINE_SECONDS", 1.5)
    restorer = Restorer(mirror, now=TickingClock(), lowest_level="PUBLIC")
    report = restorer.plan(home_of(tmp_path), [declared("quick"), declared("slow"), declared("other")])
    over.set()

    assert ["hydrated", "provisional", "provisional"] == [row.status for row in report.files]
    assert "1 of 3 answers came in time" in (report["slow"].detail or "")
