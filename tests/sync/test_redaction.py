"""A redaction that comes from another machine: afterwards no file of this one, and no object, holds the text."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles import Memory, RecordChanged
from memfiles.errors import MirrorUnavailable, StorageFailed
from memfiles.records.keys import user_file_path
from memfiles.records.record import decode
from memfiles.storage import quarantine
from memfiles.storage.record_store import NOTHING, ChangeSet, Records
from memfiles.sync import ledger
from memfiles.sync.mirror import ANY, Condition
from memfiles.sync.pack import INDEX, refresh_pack
from mirrors import DirectoryMirror
from mirrors.memory import MemoryMirror
from tests.support import ROOT
from tests.support.records import declared, files_of, files_under
from tests.support.saved import files_holding
from tests.sync.conftest import Opener, content_in, in_mirror, wait_for
from tests.sync.entry_machine import EntryMachine
from tests.sync.mirrors_for_tests import AbsentMirror

SECRET, ALICE = "swordfish", "alice"
AT = "2026-11-22T00:00:00.000Z"


def holding(memory: Memory, *texts: str) -> list[str]:
    """The files of a directory that hold one of these texts in their raw bytes, plain or escaped as in JSON."""
    needles = [form.encode() for text in texts for form in (text, json.dumps(text)[1:-1])]
    found = files_under(memory.manager.directory)
    return sorted(path for path, body in found.items() if any(needle in body for needle in needles))


def until_quiet(*memories: Memory) -> None:
    """Everyone pulls, which pushes as well, until nothing moves."""
    for _ in range(3):
        for memory in memories:
            memory.sync.pull(60)


def objects_holding(mirror: MemoryMirror, *texts: str) -> list[str]:
    stored = ((key, mirror.get(key)) for key, _ in list(mirror.list()))
    return [key for key, it in stored if it is not None and any(text.encode() in it.body for text in texts)]


def test_texts_redacted_offline_on_two_machines(open_machine: Opener, mirror: MemoryMirror) -> None:
    """One had pushed its text before; the other appended and redacted without ever having been seen."""
    away, behind = AbsentMirror(mirror, is_away=False), AbsentMirror(mirror, is_away=False)
    one, two = open_machine("one", through=away), open_machine("two", through=behind)
    until_quiet(one, two)
    away.is_away = True
    one.manager.append("notes", f"{ALICE}: likes tea\n")
    one.manager.redact("notes", ALICE)
    two.manager.append("notes", f"bob: {SECRET}\n")
    assert two.sync.flush(60)
    behind.is_away = True
    two.manager.redact("notes", SECRET)
    away.is_away = behind.is_away = False
    until_quiet(one, two)

    assert one.manager.read("notes") == two.manager.read("notes")
    assert ["[redacted]: likes tea", "bob: [redacted]"] == sorted(one.manager.read("notes").split("\n")[1:3])
    assert [[], []] == [holding(memory, SECRET, ALICE) for memory in (one, two)]
    assert [] == objects_holding(mirror, SECRET, ALICE)
    one.close()
    two.close()
    assert [[], []] == [holding(memory, SECRET, ALICE) for memory in (one, two)]


def test_it_leaves_everything_that_keeps_earlier_versions(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Journal, notes, losing copies and quarantine of a machine that only pulls; copies without the text stay."""
    one, two = open_machine("one"), open_machine("two")
    for number in range(3):
        one.manager.append("notes", f"{number}: {SECRET} über\n")
    until_quiet(one, two)
    two.manager.append("notes", f"two has {SECRET}\n")
    until_quiet(one, two)
    kept = {"escaped": json.dumps({"content": f"{SECRET} über"}), "broken": f"{{{SECRET} über", "other": "{}"}
    for why, body in kept.items():
        quarantine.keep_copy(files_of(two.manager).descriptor, "notes.json", body.encode(), reason=why, at=AT)
    text = f"{SECRET} über"
    assert {".state/mirror.sqlite", "notes.json"} <= {name.removesuffix("-wal") for name in holding(two, text)}
    one.manager.redact("notes", text)
    one.manager.redact("notes", f"has {SECRET}")
    until_quiet(one, two)

    assert [] == holding(two, text, f"has {SECRET}")
    assert ["other"] == [why for _, why in quarantine.Quarantine(files_of(two.manager).descriptor).listing()]
    assert [] == objects_holding(mirror, text)


def test_a_redaction_that_is_taken_over_during_a_wipe_is_wiped_as_well(tmp_path: Path, mirror: MemoryMirror) -> None:
    """It is noted before the change is made, which waits for the record: the index has the text until then."""
    files, path = [declared("plan", per="user")], user_file_path("ada", "plan")
    with (
        EntryMachine(tmp_path / "one", mirror, files=files) as one,
        EntryMachine(tmp_path / "two", mirror, files=files) as two,
    ):
        one.manager.append("plan", f"{SECRET} and more", user="ada")
        one.flush()
        two.pull()
        one.manager.redact("plan", SECRET, user="ada")
        one.flush()
        has_lock, is_wiped = threading.Event(), threading.Event()

        def keep(_: Records) -> tuple[None, ChangeSet]:
            has_lock.set()
            assert is_wiped.wait(60)
            return None, NOTHING

        keeping = threading.Thread(target=lambda: files_of(two.manager).change([path], keep))
        pulling = threading.Thread(target=two.pull)
        keeping.start()
        assert has_lock.wait(60)
        pulling.start()
        is_noted = wait_for(lambda: two.book.meta.state().must_wipe)
        two.sync._jobs.wipe()
        is_wiped.set()
        keeping.join()
        pulling.join()

        assert (True, "[redacted] and more") == (is_noted, two.manager.read("plan", user="ada"))
        assert [] == two.holding(SECRET)


def test_a_tombstone_that_came_just_before_a_close_cleans_the_kept_copies(tmp_path: Path, mirror: MemoryMirror) -> None:
    """It was written, and the notes on the mirror were closed before they had it: the next pull removes the text."""
    with EntryMachine(tmp_path / "one", mirror) as one, EntryMachine(tmp_path / "two", mirror) as two:
        one.save("plan", SECRET)
        record = one.record("plan")
        assert record is not None
        two.replica.keep(record.path, one.body("plan"), why="it lost in a merge", folder=quarantine.CONFLICTS)
        one.forget("plan")
        one.flush()
        two.subscribers.add(lambda _: two.book.close())
        with pytest.raises(StorageFailed, match="closed"):
            two.pull()
    with EntryMachine(tmp_path / "two", mirror) as two:
        had = two.holding(SECRET)
        two.pull()

        assert ([True], []) == ([name.startswith("conflicts/") for name in had], two.holding(SECRET))


def test_a_put_without_an_answer_does_not_bring_it_back(open_machine: Opener, mirror: MemoryMirror) -> None:
    """The old body is in the mirror or not: either way it is not sent again, and gives way."""

    class Mute(MemoryMirror):
        """Takes every put and loses the answer while it is told to."""

        loses = False

        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            version = mirror.put(key, body, when=when)
            if self.loses:
                raise MirrorUnavailable("the answer was lost")
            return version

        get, list, delete = mirror.get, mirror.list, mirror.delete

    mute = Mute()
    one, two = open_machine("one", through=mute), open_machine("two")
    until_quiet(one, two)
    mute.loses = True
    one.manager.append("notes", f"one: {SECRET}\n")
    one.sync.flush(60, insist=False)
    two.sync.pull(60)
    two.manager.redact("notes", SECRET)
    assert two.sync.flush(60)
    mute.loses = False
    until_quiet(one, two)

    assert "# notes\none: [redacted]\n" == one.manager.read("notes") == two.manager.read("notes") == content_in(mirror)
    assert ([], []) == (holding(one, SECRET), objects_holding(mirror, SECRET))


def test_a_push_that_meets_a_redaction_leaves_nothing_of_it(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Nobody pulls: the copies are merged since the mirror has another one, and the notes are wiped by the end."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", f"one: {SECRET}\n")
    until_quiet(one, two)
    one.manager.redact("notes", SECRET)
    assert one.sync.flush(60)
    two.manager.append("notes", "two\n")
    two.sync.push(60)

    assert ("# notes\none: [redacted]\ntwo\n", []) == (content_in(mirror), holding(two, SECRET))


def test_a_hand_edit_of_an_earlier_version_does_not_bring_it_back(open_machine: Opener) -> None:
    """An editor had the file open since before the redaction, and saves it whole."""
    memory = open_machine()
    memory.manager.append("notes", f"one: {SECRET}\n")
    path = memory.manager.directory / "notes.json"
    earlier = json.loads(path.read_bytes())
    memory.manager.redact("notes", SECRET)
    path.write_text(json.dumps({**earlier, "content": earlier["content"] + "by hand\n"}))
    memory.manager.notice("notes")

    assert "# notes\none: [redacted]\nby hand\n" == memory.manager.read("notes")
    assert [] == holding(memory, SECRET)


def test_a_redaction_that_comes_in_a_merge_is_told_as_one(open_machine: Opener) -> None:
    """The last operation in its history is that of another change."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", f"one: {SECRET}\n")
    assert one.sync.flush(60)
    two.sync.pull(60)
    told: list[RecordChanged] = []
    two.manager.subscribe(told.append)
    one.manager.redact("notes", SECRET)
    assert one.sync.flush(60)
    two.manager.append("notes", "two\n")
    two.sync.pull(60)

    assert "# notes\none: [redacted]\ntwo\n" == two.manager.read("notes")
    assert [("append", False), ("append", True)] == [(event.op, event.erased) for event in told]


def test_a_line_added_by_hand_is_no_rest_of_what_was_redacted(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Two machines redact what each made of a line, and one was edited by hand next to it while nothing ran."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", "customer: alice\n")
    until_quiet(one, two)
    two.close()
    path = two.manager.directory / "notes.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "content": record["content"] + "by hand\n"}))
    away = open_machine("two", through=AbsentMirror(mirror))
    away.manager.redact("notes", "customer: alice")
    away.close()
    one.manager.edit("notes", "alice", "bob in June")
    one.manager.redact("notes", "customer: bob in June")
    one.manager.append("notes", "later\n")
    two = open_machine("two")
    until_quiet(one, two)

    assert one.manager.read("notes") == two.manager.read("notes")
    assert ["# notes", "[redacted]", "by hand", "later"] == sorted(one.manager.read("notes").splitlines())


@pytest.mark.parametrize("is_scrubbed_late", [False, True])
def test_a_record_from_a_backup_does_not_bring_it_back(
    open_machine: Opener, mirror: MemoryMirror, is_scrubbed_late: bool
) -> None:
    """One record is copied back on the machine that redacted it: it is merged with what the mirror is known to have.

    Under load the redaction is pushed before ``redact`` removes the notes on the mirror's copy; then the mirror is
    asked.
    """
    one = open_machine("one")
    one.manager.append("notes", f"one: {SECRET}\n")
    assert one.sync.flush(60)
    path = one.manager.directory / "notes.json"
    backup = path.read_bytes()
    one.manager.redact("notes", SECRET)
    one.manager.append("notes", "two\n")
    assert one.sync.flush(60)
    one.close()
    path.write_bytes(backup)
    if is_scrubbed_late:
        ledger.scrub(path.parent, {"notes.json": 9})
    one = open_machine("one")
    one.manager.append("notes", "three\n")
    assert one.sync.flush(60)
    until_quiet(one)

    assert {"# notes", "one: [redacted]", "two", "three"} == set(one.manager.read("notes").splitlines())
    assert one.manager.read("notes") == content_in(mirror)
    assert ([], []) == (holding(one, SECRET), objects_holding(mirror, SECRET))


def test_declared_text_does_not_come_back_on_a_new_machine(open_machine: Opener, mirror: MemoryMirror) -> None:
    """It starts while the mirror is away, with the text that the workflow declares, and adds to it."""
    one = open_machine("one", content=f"declared {SECRET}")
    one.sync.flush(60)
    one.manager.redact("notes", SECRET)
    one.manager.append("notes", "\nmore\n")
    one.sync.flush(60)
    two = open_machine("two", content=f"declared {SECRET}", through=(away := AbsentMirror(mirror)))
    two.manager.append("notes", "\nnew\n")
    assert [] != holding(two, SECRET)
    away.is_away = False
    until_quiet(two, one)

    assert one.manager.read("notes") == two.manager.read("notes")
    assert {"declared [redacted]", "more", "new"} == set(two.manager.read("notes").split("\n")) - {""}
    assert ([], []) == (holding(two, SECRET), objects_holding(mirror, SECRET))


def test_what_a_broken_record_held_goes_when_the_mirror_replaces_it(open_machine: Opener, mirror: MemoryMirror) -> None:
    """The broken file is quarantined at the start, unless it holds what was redacted meanwhile."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", f"one: {SECRET}\n")
    until_quiet(one, two)
    two.close()
    one.manager.redact("notes", SECRET)
    assert one.sync.flush(60)
    path = two.manager.directory / "notes.json"
    path.write_bytes(path.read_bytes()[:-9])
    two = open_machine("two")
    until_quiet(two)

    assert ("# notes\none: [redacted]\n", []) == (two.manager.read("notes"), holding(two, SECRET))


@pytest.mark.parametrize("user", [None, "ada"])
def test_what_was_kept_of_a_record_goes_when_the_mirror_brings_it_back(
    tmp_path: Path, mirror: MemoryMirror, user: str | None
) -> None:
    """It was removed by hand, or is of another disk, and the one that comes knows of a redaction made meanwhile."""
    files = [declared("plan", per="user" if user else None)]
    path = user_file_path(user, "plan") if user else "plan.json"
    with EntryMachine(tmp_path / "one", mirror, files=files) as one:
        one.manager.append("plan", f"{SECRET} and more", user=user)
        one.flush()
        with EntryMachine(tmp_path / "two", mirror, files=files) as two:
            two.pull()
            body = (two.directory / path).read_bytes()
            two.replica.keep(path, body, why="it lost in a merge", folder=quarantine.CONFLICTS)
        (two.directory / path).unlink()
        one.manager.redact("plan", SECRET, user=user)
        one.flush()
    with EntryMachine(tmp_path / "two", mirror, files=files) as two:
        two.pull()

        assert ("[redacted] and more", []) == (two.manager.read("plan", user=user), two.holding(SECRET))


def test_a_pack_with_the_text_is_removed(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Also one that was written after the redaction, from an earlier listing, once a machine pulls."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", f"one: {SECRET}\n")
    until_quiet(one, two)
    one.manager.redact("notes", SECRET)
    assert one.sync.flush(60)
    mirror.put(INDEX, f"a pack with {SECRET}".encode())
    two.sync.pull(60)

    assert [] == objects_holding(mirror, SECRET)


class InterruptedPack(MemoryMirror):
    """Lets something happen before the part of a pack is put; nothing can be deleted once ``keeps_all`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None
        self.keeps_all = False

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        if key.endswith(".part"):
            self.meanwhile()
        return super().put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        if self.keeps_all:
            raise MirrorUnavailable("nothing can be deleted now")
        super().delete(key, when=when)


def test_a_pack_that_was_being_written_during_a_redaction_is_removed_in_the_end(tmp_path: Path) -> None:
    """The push of the redaction removes the earlier pack, and the mirror fails when the new one is to be removed."""
    mirror = InterruptedPack()
    with EntryMachine(tmp_path, mirror) as one:

        def redacted_and_pushed() -> None:
            one.manager.redact("notes", SECRET)
            assert one.flush()
            mirror.keeps_all = True

        one.manager.append("notes", f"one: {SECRET}\n")
        assert one.flush()
        mirror.meanwhile = redacted_and_pushed
        with suppress(MirrorUnavailable):
            refresh_pack(one.replica, mirror, one.book)
        assert objects_holding(mirror, SECRET)
        mirror.keeps_all = False
        one.pull()

        assert [] == objects_holding(mirror, SECRET)


PACKING = """
import os, sys
from pathlib import Path
from memfiles.storage import atomic
from memfiles.sync.pack import refresh_pack
from mirrors.directory import DirectoryMirror
from tests.sync.entry_machine import EntryMachine
move = atomic.move
atomic.move = lambda folder, path, *, to: os._exit(9) if to.endswith(".part") else move(folder, path, to=to)
mirror = DirectoryMirror(sys.argv[2])
with EntryMachine(Path(sys.argv[1]), mirror) as one:
    refresh_pack(one.replica, mirror, one.book)
"""


def test_a_part_of_a_pack_whose_upload_was_killed_loses_the_text_too(tmp_path: Path) -> None:
    """In a mirror that is a directory: the part had no name yet."""
    (tmp_path / "mirror").mkdir()
    mirror = DirectoryMirror(tmp_path / "mirror")
    with EntryMachine(tmp_path / "one", mirror) as one:
        one.manager.append("notes", f"one: {SECRET}\n")
        assert one.flush()
    places = [str(tmp_path / "one"), str(tmp_path / "mirror")]
    killed = subprocess.run([sys.executable, "-c", PACKING, *places], cwd=ROOT, check=False)
    left = files_holding(tmp_path / "mirror", SECRET)
    with EntryMachine(tmp_path / "one", mirror) as one:
        one.manager.redact("notes", SECRET)
        assert one.flush()

    assert (9, 2) == (killed.returncode, len(left))
    assert [] == files_holding(tmp_path / "mirror", SECRET)


def test_the_records_agree_on_the_pieces(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Every machine keeps the digest of every text, in the same bytes."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", "a text\nanother text\n")
    until_quiet(one, two)
    one.manager.redact("notes", "a text")
    two.manager.redact("notes", "another text")
    until_quiet(one, two)
    record = decode(in_mirror(mirror) or b"", uid="notes")

    assert ("memfiles/2", 2) == (record.format, len(record.redactions))
    assert {in_mirror(mirror)} == {Path(it.manager.directory / "notes.json").read_bytes() for it in (one, two)}
