"""Odd ways to the same end: what was changed without a mirror, saved in a bad moment, put back or refused."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from memfiles import MemoryManager
from memfiles.errors import InvalidArgument, MirrorRefused, MirrorUnavailable
from memfiles.records.record import MAX_HISTORY_CHANGES
from memfiles.sync.mirror import ANY, Condition, Stored
from memfiles.sync.pack import INDEX
from mirrors.memory import MemoryMirror
from tests.sync.conftest import Opener, content_in, in_mirror, on_disk
from tests.sync.mirrors_for_tests import AbsentMirror, RepeatingMirror

pytestmark = pytest.mark.slow

MUCH_TIME = 60.0  # seconds


class MeddlingMirror(MemoryMirror):
    """Calls ``meddle`` once, in the middle of a get."""

    def __init__(self) -> None:
        super().__init__()
        self.meddle: Callable[[], object] | None = None

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        found = super().get(key)
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return found


class PickyMirror(MemoryMirror):
    """Refuses the keys that ``refuses`` says, and to delete anything."""

    def __init__(self, refuses: Callable[[str], bool] = lambda key: False) -> None:
        super().__init__()
        self._refuses = refuses

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        if self._refuses(key):
            raise MirrorRefused("too large for this store")
        return super().put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """Refused."""
        raise MirrorRefused("not allowed to delete")


def test_what_was_changed_while_no_mirror_was_declared_is_kept(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Changes that no directory's id speaks of are merged with what the mirror got meanwhile."""
    one, two = open_machine("one"), open_machine("two")
    one.sync.flush(60)
    two.sync.pull(60)
    one.close()
    with MemoryManager(one.manager.directory) as manager:
        manager.restore(one.workflow)
        manager.append("notes", "- offline\n")
    two.manager.append("notes", "- by two\n")
    two.sync.flush(60)
    one = open_machine("one")
    one.sync.pull(60)

    assert "# notes\n- by two\n- offline\n" == one.manager.read("notes") == content_in(mirror)


@pytest.mark.parametrize("line", ["- offline\n", "- by one\n"])
def test_what_two_machines_changed_in_one_millisecond_is_kept(
    open_machine: Opener, mirror: MemoryMirror, line: str
) -> None:
    """Also if no directory's id speaks of one of them, and if both lines have as many bytes."""
    one, two = open_machine("one"), open_machine("two")
    one.sync.flush(60)
    two.sync.pull(60)
    one.close()
    with MemoryManager(one.manager.directory, now=lambda: "2026-11-21T09:00:00.000Z") as manager:
        manager.restore(one.workflow)
        manager.append("notes", line)
    two.close()
    with MemoryManager(two.manager.directory, now=lambda: "2026-11-21T09:00:00.000Z") as manager:
        manager.restore(two.workflow)
        manager.append("notes", "- by two\n")
    two, one = open_machine("two"), open_machine("one")
    for each in (two, one, two):
        each.sync.flush(60)
        each.sync.pull(60)

    assert {"# notes", "- by two", line.strip()} == {*one.manager.read("notes").splitlines()}
    assert one.manager.read("notes") == two.manager.read("notes") == content_in(mirror)


def test_a_hand_edit_in_the_middle_of_a_pull_is_kept(open_machine: Opener) -> None:
    """What a person saves while the mirror's copy is on its way is merged with it."""
    mirror = MeddlingMirror()
    one, two = open_machine("one", through=mirror), open_machine("two", through=mirror)
    one.sync.flush(60)
    two.sync.pull(60)
    two.manager.append("notes", "- by two\n")
    two.sync.flush(60)
    path = one.manager.directory / "notes.json"

    def save() -> None:
        new = path.with_name("saved.tmp")
        new.write_text(path.read_text("utf-8").replace("# notes\\n", "# notes\\n- by hand\\n"), "utf-8")
        new.replace(path)

    mirror.meddle = save
    one.sync.pull(60)

    assert {"# notes", "- by hand", "- by two"} == set(one.manager.read("notes").splitlines())


@pytest.mark.parametrize("count", [0, 1, 2 * MAX_HISTORY_CHANGES])
def test_a_copy_that_was_put_twice_is_known(open_machine: Opener, mirror: MemoryMirror, count: int) -> None:
    """Also if another machine merged the first of both, and wrote so much that the history does not say so."""
    repeating = RepeatingMirror(mirror)
    one, two = open_machine("one", through=repeating), open_machine("two")
    one.sync.flush(60)
    two.sync.pull(60)
    lines = [f"- by two {number}" for number in range(count)]

    def merge() -> None:
        two.sync.pull(60)
        for line in lines:
            two.manager.append("notes", f"{line}\n")
        two.sync.flush(60)

    repeating.between = merge
    one.manager.append("notes", "- by one\n")
    one.sync.flush(60)
    two.sync.pull(60)

    assert ["# notes", "- by one", *sorted(lines)] == sorted(one.manager.read("notes").splitlines())
    assert one.manager.read("notes") == two.manager.read("notes") == content_in(mirror)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_directory_that_was_put_back_loses_nothing(
    open_machine: Opener, mirror: MemoryMirror, *, is_away: bool
) -> None:
    """After a backup was put back, what is written is merged, also if the mirror's history is far beyond it.

    So it is if the first push got no answer, and what was pushed may be there or not.
    """
    one = open_machine("one")
    one.manager.append("notes", "- before\n")
    one.close()
    backup = one.manager.directory.parent / "backup"
    shutil.copytree(one.manager.directory, backup)
    one = open_machine("one")
    for number in range(120):
        one.manager.append("notes", f"- {number}\n")
    one.close()
    shutil.rmtree(one.manager.directory)
    shutil.copytree(backup, one.manager.directory)
    absent = AbsentMirror(mirror, is_away=is_away)
    one = open_machine("one", through=absent)
    one.manager.append("notes", "- after\n")
    one.sync.flush(1)
    absent.is_away = False
    one.sync.flush(60)
    lines = one.manager.read("notes").splitlines()

    assert 1 == lines.count("- after")
    assert {f"- {number}" for number in range(120)} < set(lines)
    assert on_disk(one) == in_mirror(mirror)


@pytest.mark.parametrize("count", [1, 5])
def test_a_record_that_was_put_back_undoes_nothing(open_machine: Opener, mirror: MemoryMirror, count: int) -> None:
    """The notes on the mirror tell what it has: an older file is merged with that, not put over it."""
    one = open_machine("one")
    one.manager.append("notes", "- before\n")
    one.close()
    path = one.manager.directory / "notes.json"
    backup = path.read_bytes()
    one = open_machine("one")
    one.manager.append("notes", "- meanwhile\n")
    one.manager.append("notes", "- later\n")
    one.close()
    path.write_bytes(backup)
    one = open_machine("one")
    for number in range(count):
        one.manager.append("notes", f"- {number}\n")
    assert one.sync.flush(60)
    wanted = ["# notes", "- before", "- meanwhile", "- later", *(f"- {number}" for number in range(count))]

    assert sorted(wanted) == sorted(one.manager.read("notes").splitlines())
    assert on_disk(one) == in_mirror(mirror)


def test_a_record_that_is_being_saved_is_not_taken_for_done(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A flush waits for a record that cannot be read just now, until the last good version was put back."""
    memory = open_machine()
    memory.manager.append("notes", "- acknowledged\n")
    (memory.manager.directory / "notes.json").write_text("{ half")

    assert memory.sync.flush(60)
    assert "# notes\n- acknowledged\n" == content_in(mirror)


def test_a_broken_record_is_mended_at_close(open_machine: Opener) -> None:
    """What only this process knows the last good version of is put back before it ends."""
    memory = open_machine()
    memory.manager.append("notes", "- acknowledged\n")
    (memory.manager.directory / "notes.json").write_text("{ half")
    memory.close()

    assert b"- acknowledged" in on_disk(memory)


def test_a_record_that_is_refused_holds_up_no_other(open_machine: Opener) -> None:
    """Of many records one is refused for itself: all others are pushed, and nobody waits for that one."""
    mirror = PickyMirror(lambda key: key == "file-07.json")
    uids = tuple(f"file-{number:02}" for number in range(40))
    memory = open_machine(through=mirror, uids=uids)
    memory.manager.append_many([(uid, "- x\n") for uid in uids])
    begun = time.monotonic()
    memory.sync.close(2 * MUCH_TIME)

    assert time.monotonic() - begun < MUCH_TIME
    assert {uid for uid in uids if uid != "file-07"} == {key.removesuffix(".json") for key, _ in mirror.list()}


def test_a_redaction_needs_no_leave_to_delete(open_machine: Opener) -> None:
    """Where nothing may be deleted the redacted version is put nevertheless."""
    mirror = PickyMirror()
    memory = open_machine(through=mirror)
    memory.manager.append("notes", "- a needle\n")
    memory.sync.flush(60)
    memory.manager.redact("notes", "needle")

    assert memory.sync.flush(60)
    assert b"needle" not in (in_mirror(mirror) or b"needle")


def test_a_pack_that_cannot_be_removed_is_told_once(open_machine: Opener, caplog: pytest.LogCaptureFixture) -> None:
    """Each push after a redaction tries to remove the pack, and the first failure is logged."""
    mirror = PickyMirror()
    mirror.put(INDEX, b"an earlier pack")
    memory = open_machine(through=mirror)
    memory.manager.append("notes", "- a needle\n")
    memory.sync.flush(60)
    memory.manager.redact("notes", "needle")
    for number in range(3):
        memory.manager.append("notes", f"- {number}\n")
        assert memory.sync.flush(60)

    assert 1 == caplog.text.count("cannot be removed")


def test_a_record_from_before_its_redaction_can_be_put_back(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A person who restores a record of a lower revision than the redaction is not stopped from mirroring it."""
    memory = open_machine()
    memory.manager.append("notes", "- x\n")
    earlier = on_disk(memory)
    memory.manager.redact("notes", "x")
    memory.sync.flush(60)
    memory.close()
    (memory.manager.directory / "notes.json").write_bytes(earlier)
    for key, _ in list(mirror.list()):
        mirror.delete(key)
    memory = open_machine()
    memory.manager.append("notes", "- again\n")

    assert memory.sync.flush(60)
    assert on_disk(memory) == in_mirror(mirror)


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_redaction_with_damaged_notes(open_machine: Opener, damage: bytes) -> None:
    """Notes that cannot be read are removed by a redaction, since they may hold anything."""
    memory = open_machine()
    memory.manager.append("notes", "- a needle\n")
    memory.close()
    (memory.manager.directory / ".state/mirror.sqlite").write_bytes(damage)
    with MemoryManager(memory.manager.directory) as manager:
        manager.restore(memory.workflow)
        manager.redact("notes", "needle")
    files = [path for path in memory.manager.directory.rglob("*") if path.is_file()]

    assert [] == [path.name for path in files if b"needle" in path.read_bytes()]


def test_a_closed_memory_does_not_wait(open_machine: Opener) -> None:
    """A pull after the close is refused at once."""
    memory = open_machine()
    memory.close()

    with pytest.raises(InvalidArgument, match="closed"):
        memory.sync.pull(60)


def test_a_listing_that_fails_is_an_error_of_the_pull(open_machine: Opener) -> None:
    """A mirror that cannot be listed fails the pull that asked for it."""

    class Blind(MemoryMirror):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            raise MirrorUnavailable("cannot be listed")

    memory = open_machine(through=Blind())

    with pytest.raises(MirrorUnavailable, match="cannot be listed"):
        memory.sync.pull(60)


def test_a_redaction_that_meets_another_change_keeps_no_text(open_machine: Opener, mirror: MemoryMirror) -> None:
    """While the mirror takes nothing, its copy with the text is merged, and not kept in the notes."""
    absent = AbsentMirror(mirror, is_away=False)
    one, two = open_machine("one", through=absent), open_machine("two")
    one.manager.append("notes", "- a needle\n")
    one.sync.flush(60)
    two.sync.pull(60)
    for number in range(5):
        two.manager.append("notes", f"- {number}\n")
    two.sync.flush(60)
    one.manager.redact("notes", "needle")
    absent.takes_nothing = True
    for _ in range(2):
        one.sync.pull(1)
    one.close()
    files = [path for path in one.manager.directory.rglob("*") if path.is_file()]

    assert [] == [path.name for path in files if b"needle" in path.read_bytes()]


@pytest.mark.parametrize("revision", [2**48, 2**48 + 1, 2**53 - 2])
def test_a_revision_that_nobody_got_to_stops_nobody(open_machine: Opener, mirror: MemoryMirror, revision: int) -> None:
    """A copy above 2**48 is kept in quarantine and replaced; up to that it is taken, and there is room for changes."""
    one = open_machine("one")
    one.manager.append("notes", "- mine and private\n")
    one.sync.flush(60)
    forged = json.loads(in_mirror(mirror) or b"")
    mirror.put("notes.json", json.dumps({**forged, "revision": revision, "history": []}).encode())
    one.sync.pull(60)
    kept = one.manager.status()["quarantine"]
    one.manager.append("notes", "- more\n")
    one.manager.redact("notes", "private")
    one.sync.flush(60)
    two = open_machine("two")
    two.manager.append("notes", "- from two\n")
    two.sync.flush(60)
    one.sync.pull(60)
    one.close()
    one = open_machine("one")

    lines = "# notes\n- mine and [redacted]\n- more\n- from two\n"
    assert lines == one.manager.read("notes") == two.manager.read("notes") == content_in(mirror)
    assert (revision > 2**48) == (len(kept) == 1)
