"""Origins in a mirrored directory: every change made there is stamped with its id, and nothing else is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.files.manager import MemoryManager
from memfiles.records.record import Origins, decode, encode
from mirrors import MemoryMirror
from tests.support.records import TickingClock, declared, records_in, rewrite, seeded
from tests.support.stores import place_of

HERE, THERE = "a" * 12, "b" * 12


def managed(directory: Path, mirror: MemoryMirror | None = None, *, origin: str | None = HERE) -> MemoryManager:
    find = None if origin is None else lambda: origin
    return MemoryManager(place_of(directory), mirror, durability="os", origin=find, now=TickingClock())


def origins(directory: Path) -> tuple[int, Origins]:
    """Revision and origins as they are on disk."""
    record = decode(records_in(directory)["notes.json"], uid="notes")
    return record.revision, record.origins


def mirrored() -> MemoryMirror:
    """A mirror with a record that another directory made."""
    mirror = MemoryMirror()
    mirror.put("notes.json", encode(seeded("theirs\n").stamped(THERE)))
    return mirror


def test_a_seed_and_every_write_are_stamped(tmp_path: Path) -> None:
    """Whatever the operation; the entry is always the revision."""
    with managed(tmp_path) as manager:
        manager.restore([declared(content="a\n")])
        found = [origins(tmp_path)]
        for write in (
            lambda: manager.append("notes", "b\n"),
            lambda: manager.edit("notes", "a", "c"),
            lambda: manager.undo("notes"),
            lambda: manager.redact("notes", "b"),
        ):
            write()
            found.append(origins(tmp_path))

    assert [(revision, {HERE: revision}) for revision in range(1, 6)] == found


def test_without_an_id_nothing_is_stamped(tmp_path: Path) -> None:
    """A directory without a mirror has records that say nothing of mirrors."""
    with managed(tmp_path, origin=None) as manager:
        manager.restore([declared()])
        manager.append("notes", "b\n")

    assert (2, {}) == origins(tmp_path)


def test_a_copy_from_the_mirror_is_taken_over_as_it_is(tmp_path: Path) -> None:
    """It is not a change made here: byte for byte what the mirror holds."""
    with managed(tmp_path, mirror := mirrored()) as manager:
        manager.restore([declared()])

    stored = mirror.get("notes.json")
    assert stored is not None and {"notes.json": stored.body} == records_in(tmp_path)


def test_a_write_on_a_copy_from_the_mirror_names_both(tmp_path: Path) -> None:
    """What the other directory did is included, and what was done here."""
    with managed(tmp_path, mirrored()) as manager:
        manager.restore([declared()])
        manager.append("notes", "ours\n")

    assert (2, {HERE: 2, THERE: 1}) == origins(tmp_path)


def test_new_metadata_are_a_change_made_here(tmp_path: Path) -> None:
    """On a copy from the mirror as on a local record."""
    with managed(tmp_path, mirrored()) as manager:
        manager.restore([declared(description="new")])
        found = [origins(tmp_path)]
        manager.restore([declared(description="newer")])

    assert [(2, {HERE: 2, THERE: 1}), (3, {HERE: 3, THERE: 1})] == [*found, origins(tmp_path)]


def test_a_record_that_does_not_change_is_not_stamped(tmp_path: Path) -> None:
    """A restore with an id for the first time rewrites nothing."""
    with managed(tmp_path, origin=None) as manager:
        manager.restore([declared()])
    with managed(tmp_path) as manager:
        manager.restore([declared()])

    assert (1, {}) == origins(tmp_path)


@pytest.mark.directory("only files can be changed by hand")
@pytest.mark.parametrize("is_open", [True, False])
def test_a_change_by_hand_is_a_change_made_here(tmp_path: Path, is_open: bool) -> None:
    """Whether it is noticed at once or at the next restore."""
    with managed(tmp_path) as manager:
        manager.restore([declared()])
        if is_open:
            rewrite(tmp_path / "notes.json", content="by hand")
            manager.notice("notes")
    if not is_open:
        rewrite(tmp_path / "notes.json", content="by hand")
        with managed(tmp_path) as manager:
            manager.restore([declared()])

    assert (2, {HERE: 2}) == origins(tmp_path)


@pytest.mark.directory("only files can be changed by hand")
def test_a_good_version_that_is_put_back_is_no_change(tmp_path: Path) -> None:
    """It may be another directory's: then nothing was done here that the mirror lacks."""
    with managed(tmp_path, mirrored()) as manager:
        manager.restore([declared()])
        (path := tmp_path / "notes.json").write_text("{")
        os.utime(path, ns=(time.time_ns() - 10**9,) * 2)
        manager.notice("notes")

    assert (1, {THERE: 1}) == origins(tmp_path)


def test_what_another_directory_did_can_be_committed_as_it_is(tmp_path: Path) -> None:
    """A sync takes over a newer version under the same lock as a write, and stamps nothing."""
    with managed(tmp_path, mirrored()) as manager:
        manager.restore([declared()])
        newer = replace(manager.snapshot("notes"), revision=7, history=(), origins={THERE: 7})
        manager._live.merge("notes.json", lambda _: (newer, False))

        assert (7, {THERE: 7}) == origins(tmp_path)
        assert newer == manager.snapshot("notes")


def test_an_id_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    """Before anything is written with it."""
    with pytest.raises(InvalidArgument, match="is not 12 hexadecimal digits"):
        managed(tmp_path, origin="HOST-1").restore([declared()])
