"""What the mirror last acknowledged: shared, derived, and clean after a redaction."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from memfiles.errors import StorageFailed
from memfiles.storage.atomic import Signature
from memfiles.sync import ledger as bookkeeping
from memfiles.sync.ledger import PATH, Acknowledged, Ledger, LedgerRow, LedgerSnapshot, UnansweredPut, peek

MIRROR = "file:///somewhere"
FS_IOC_GETVERSION = 0x80087601
SIGNATURE = Signature(1, 2, 3)
COPY = Acknowledged("a.json", "v1", b"body", 3, "digest", SIGNATURE)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Ledger]:
    book = Ledger(tmp_path, mirror=MIRROR)
    yield book
    book.close()


def stored_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (directory / ".state").iterdir())


def test_nothing_is_noted_at_first(book: Ledger) -> None:
    """A record that was never mirrored has an empty note."""

    assert LedgerRow() == book.find("a.json")
    assert {} == book.signatures()


def test_nothing_is_made_before_it_is_used(tmp_path: Path) -> None:
    """Making and closing the notes touches nothing."""
    Ledger(tmp_path, mirror=MIRROR).close()

    assert [] == list(tmp_path.iterdir())


def test_an_acknowledged_copy_is_noted(book: Ledger) -> None:
    """What the mirror acknowledged is found again, and what was on its way is not any more."""
    book.sending("a.json", b"body", version=None, revision=3)
    book.acknowledge(COPY)

    assert LedgerRow("v1", "digest", b"body") == book.find("a.json")
    assert {"a.json": SIGNATURE} == book.signatures()
    assert {"a.json": "v1"} == book.versions()
    assert {"a.json": "digest"} == book.digests()


def test_what_was_sent_is_known_after_a_kill(tmp_path: Path, book: Ledger) -> None:
    """Another process knows what this one sent and on top of what, and that the record is not settled."""
    book.acknowledge(COPY)
    book.sending("a.json", b"newer", version="v1", revision=4)
    other = Ledger(tmp_path, mirror=MIRROR)

    assert UnansweredPut(b"newer", "v1") == other.find("a.json").sent
    assert {} == other.signatures()
    assert {} == other.digests()


def test_a_copy_that_is_gone_is_to_be_put_again(book: Ledger) -> None:
    """Where the mirror lost its copy, nothing is settled, and the last known text stays the base of a merge."""
    book.acknowledge(COPY)
    book.gone("a.json")

    assert LedgerRow(body=b"body") == book.find("a.json")
    assert {} == book.versions()


def test_a_file_that_was_compared_before_its_copy_was_gone_is_to_be_put_again(book: Ledger) -> None:
    """A scan reads a file, and notes that it need not be read again after the mirror was found to have lost its copy.

    Nobody would push it then, also after a restart, and the status would say that nothing is pending.
    """
    book.acknowledge(replace(COPY, signature=None))
    compared = book.digests()
    book.gone("a.json")
    book.settle(dict.fromkeys(compared, SIGNATURE))

    assert {} == book.signatures()


def test_the_origin_is_one_for_all_processes_and_for_good(tmp_path: Path, book: Ledger) -> None:
    """Every process on a directory finds the same random id, also later."""
    origin = book.meta.origin()
    book.close()

    assert origin == Ledger(tmp_path, mirror="another").meta.origin()
    assert 12 == len(bytes.fromhex(origin).hex())
    assert origin != Ledger(tmp_path / "other", mirror=MIRROR).meta.origin()


def test_a_copy_of_a_directory_has_an_origin_of_its_own(tmp_path: Path) -> None:
    """Also one that takes the place of the first; a directory that gets another name keeps the one it has."""
    home, copy = tmp_path / "home", tmp_path / "copy"

    def origin(place: Path) -> str:
        book = Ledger(place, mirror=MIRROR)
        try:
            return book.meta.origin()
        finally:
            book.close()

    first = origin(home)
    shutil.copytree(home, copy)
    home.rename(tmp_path / "renamed")
    second = origin(copy)
    shutil.copytree(copy, home)

    assert first == origin(tmp_path / "renamed")
    assert 3 == len({first, second, origin(home)})
    assert second == origin(copy)


def test_a_directory_that_gets_another_mode_keeps_its_origin_where_files_have_generations() -> None:
    """Some systems set owners and modes at every start; one put back in its place has an origin of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, open(f"{folder}/any", "w") as file:  # not in memory
        place = Path(folder, "home")
        try:
            has_generations = bool(fcntl.ioctl(file, FS_IOC_GETVERSION, bytes(8)))
        except OSError:
            has_generations = False

        def origin() -> str:
            book = Ledger(place, mirror=MIRROR)
            try:
                return book.meta.origin()
            finally:
                book.close()

        first = origin()
        for path in place.rglob("*"):
            path.chmod(path.stat().st_mode)
        again = origin()
        shutil.copytree(place, f"{folder}/backup")
        shutil.rmtree(place)
        shutil.copytree(f"{folder}/backup", place)
        last = origin()

    assert has_generations == (first == again)
    assert again != last


def test_notes_on_another_mirror_count_for_nothing(tmp_path: Path, book: Ledger) -> None:
    """When the declared URL changes, everything is to be pushed there."""
    book.acknowledge(COPY)
    book.close()

    assert LedgerRow() == Ledger(tmp_path, mirror="file:///elsewhere").find("a.json")


def test_a_version_counts_while_its_keys_are_held(tmp_path: Path) -> None:
    """Also if two processes with different keys take turns; the rest of the note, the base of a merge, stays."""
    held = {name: Ledger(tmp_path, mirror=MIRROR, keys=name.split) for name in ("k1", "k1 k2", "k2 k1", "k2")}
    held["k1"].acknowledge(COPY)
    known = [held[name].find("a.json").version for name in ("k1", "k1 k2", "k2 k1", "k2")]
    lost = [held[name].find("a.json") for name in ("k1", "k2")]
    held["k1"].acknowledge(COPY)
    kept, dropped = (held[name].find("a.json").version for name in ("k1", "k2"))

    assert ["v1", "v1", "v1", ""] == known
    assert [LedgerRow("", "digest", b"body")] * 2 == lost
    assert ("v1", "") == (kept, dropped)
    assert {"a.json": ""} == held["k2"].versions()


def test_keys_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    """Nor do those of an earlier version of memfiles, which did not note them, count for the present ones."""
    Ledger(tmp_path, mirror=MIRROR).acknowledge(COPY)
    usable: list[str] = []
    book = Ledger(tmp_path, mirror=MIRROR, keys=lambda: usable)
    before = book.find("a.json").version
    usable.append("k1")

    assert ("v1", "") == (before, book.find("a.json").version)


def test_notes_from_before_a_power_cut_count_for_nothing(tmp_path: Path, book: Ledger) -> None:
    """Notes that were not closed before the machine started anew may be damaged in any way, and are dropped."""
    book.acknowledge(COPY)
    with closing(sqlite3.connect(tmp_path / PATH, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 'an earlier start' WHERE key = 'boot'")

    assert LedgerRow() == Ledger(tmp_path, mirror=MIRROR).find("a.json")


def test_notes_that_were_closed_survive_a_restart_of_the_machine(tmp_path: Path, book: Ledger) -> None:
    """A close brings them to the disk, and says so."""
    book.acknowledge(COPY)
    book.close()
    with closing(sqlite3.connect(tmp_path / PATH, isolation_level=None)) as connection:
        boots = connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchall()

    assert [(None,)] == boots
    assert "v1" == Ledger(tmp_path, mirror=MIRROR).find("a.json").version


def test_one_that_goes_on_after_another_closed_is_not_taken_for_closed(tmp_path: Path, book: Ledger) -> None:
    """Of two processes, the one that closes does not vouch for what the other notes later."""
    other = Ledger(tmp_path, mirror=MIRROR)
    other.meta.origin()
    book.meta.origin()
    book.close()
    other.acknowledge(COPY)
    with closing(sqlite3.connect(tmp_path / PATH, isolation_level=None)) as connection:
        boots = connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchall()

    assert [(None,)] != boots


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_damaged_notes_are_started_over(tmp_path: Path, book: Ledger, damage: bytes) -> None:
    """A file that is no database is replaced, and nothing is noted then."""
    book.acknowledge(COPY)
    book.close()
    (tmp_path / PATH).write_bytes(damage)
    again = Ledger(tmp_path, mirror=MIRROR)

    assert LedgerRow() == again.find("a.json")
    again.acknowledge(COPY)
    assert "v1" == again.find("a.json").version


@pytest.mark.parametrize("is_noticed_by_a_redaction", [True, False])
def test_what_was_to_be_wiped_is_not_lost_with_the_notes(
    tmp_path: Path, book: Ledger, is_noticed_by_a_redaction: bool
) -> None:
    """Nor what was to go from the pack of the mirror: nobody knows it any more, so it is done."""
    book.acknowledge(COPY)
    before = book.meta.state()
    book.close()
    (tmp_path / PATH).write_bytes(b"not a database" * 100)
    if is_noticed_by_a_redaction:
        bookkeeping.scrub(tmp_path, {"a.json": 4})
    after = Ledger(tmp_path, mirror=MIRROR).meta.state()

    assert (False, False) == (before.must_wipe, before.must_remove_pack)
    assert (not is_noticed_by_a_redaction, True) == (after.must_wipe, after.must_remove_pack)


def test_a_redaction_takes_the_text_out(tmp_path: Path, book: Ledger) -> None:
    """No file of the notes holds the text of the record from before it was redacted; the version stays known."""
    book.acknowledge(Acknowledged("a.json", "v1", b"a needle in it", 3, "digest", SIGNATURE))
    book.sending("a.json", b"needle again", version="v1", revision=4)
    bookkeeping.scrub(tmp_path, {"a.json": 5})

    assert b"needle" not in stored_bytes(tmp_path)
    assert LedgerRow("v1", "digest") == book.find("a.json")
    assert {"a.json": SIGNATURE} == book.signatures()


def test_an_acknowledgement_that_comes_after_a_redaction_brings_no_text(tmp_path: Path, book: Ledger) -> None:
    """A push that was under way when the record was redacted is noted without its text, and no other is begun."""
    book.acknowledge(COPY)
    bookkeeping.scrub(tmp_path, {"a.json": 5})

    assert not book.sending("a.json", b"a needle", version="v1", revision=4)
    book.acknowledge(Acknowledged("a.json", "v2", b"a needle", 4, "later"))
    assert b"needle" not in stored_bytes(tmp_path)
    assert "v2" == book.find("a.json").version
    book.acknowledge(Acknowledged("a.json", "v3", b"clean", 5, "clean"))
    assert b"clean" == book.find("a.json").body


def test_scrubbing_a_directory_without_notes_makes_none(tmp_path: Path) -> None:
    """Who has no mirror gets no notes by a redaction."""
    bookkeeping.scrub(tmp_path, {"a.json": 5})

    assert [] == list(tmp_path.iterdir())


def test_the_notes_are_private(tmp_path: Path, book: Ledger) -> None:
    """They hold text, so only the owner may read them."""
    old = os.umask(0)
    try:
        book.acknowledge(COPY)
    finally:
        os.umask(old)

    assert 0o600 == (tmp_path / PATH).stat().st_mode & 0o777


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # another test may have left a thread
def test_a_child_of_a_fork_opens_its_own(tmp_path: Path, book: Ledger) -> None:
    """A forked child notes what it does without disturbing its parent."""
    book.acknowledge(COPY)
    pid = os.fork()
    if pid == 0:
        book.acknowledge(Acknowledged("b.json", "v9", b"child", 1))
        os._exit(0)
    os.waitpid(pid, 0)
    book.acknowledge(Acknowledged("c.json", "v3", b"parent", 1))

    assert {"a.json": "v1", "b.json": "v9", "c.json": "v3"} == book.versions()


def test_a_directory_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    """What the system refuses is a ``StorageFailed``."""
    (tmp_path / ".state").write_text("in the way")

    with pytest.raises(StorageFailed, match="notes on the mirror"):
        Ledger(tmp_path, mirror=MIRROR).meta.origin()


def test_what_is_not_in_the_pack_is_counted(book: Ledger) -> None:
    """Every acknowledged copy counts until a pack holds it."""
    book.acknowledge(COPY, Acknowledged("b.json", "v1", b"b", 1))
    book.meta.packed(1, redactions=0)

    assert 1 == book.meta.state().unpacked
    assert ["a.json", "b.json"] == [path for path, _ in book.copies()]


def test_a_look_from_outside_sees_the_notes(tmp_path: Path, book: Ledger) -> None:
    """What needs no push is seen while the notes are open and after; of another mirror nothing is."""
    book.acknowledge(COPY)
    open_yet = peek(tmp_path, mirror=MIRROR)
    book.close()

    assert (
        LedgerSnapshot({"a.json": SIGNATURE}, {"a.json": "digest"}, None) == open_yet == peek(tmp_path, mirror=MIRROR)
    )
    assert LedgerSnapshot({}, {}, None) == peek(tmp_path, mirror="s3://another")


def test_a_look_from_outside_makes_nothing(tmp_path: Path) -> None:
    """Where there are no notes, or none that can be read, there are none afterwards."""
    assert LedgerSnapshot({}, {}, None) == peek(tmp_path, mirror=MIRROR)
    assert [] == list(tmp_path.iterdir())

    (tmp_path / ".state").mkdir()
    (tmp_path / PATH).write_bytes(b"no database")
    assert LedgerSnapshot({}, {}, None) == peek(tmp_path, mirror=MIRROR)
    assert b"no database" == (tmp_path / PATH).read_bytes()


def test_the_last_error_is_seen_until_all_goes_well(tmp_path: Path, book: Ledger) -> None:
    """An acknowledgement takes it back, whichever process gets it."""
    book.meta.note("last_error", "a.json: no answer")
    before = peek(tmp_path, mirror=MIRROR).last_error
    another = Ledger(tmp_path, mirror=MIRROR)
    another.acknowledge(COPY)
    another.close()

    assert ("a.json: no answer", None) == (before, peek(tmp_path, mirror=MIRROR).last_error)


@pytest.mark.slow
@pytest.mark.parametrize("is_ours", [True, False])
def test_what_was_forgotten_is_nowhere_in_the_file(tmp_path: Path, book: Ledger, is_ours: bool) -> None:
    """Not even where a row lay before it was moved: forgotten here, or elsewhere and heard of through the mirror."""
    chances = random.Random(0)
    names = [f"entries/a/{number}.json" for number in chances.sample(range(10**15), 2000)]
    for name in names:
        book.sending(name, b"", version=None, revision=1)
    chances.shuffle(names)
    for name in names:
        book.acknowledge(Acknowledged(name, "v", f"<{name}>".encode() * chances.randrange(14, 20), 1, "digest"))
    forgotten = names[::5]
    if is_ours:
        bookkeeping.scrub(tmp_path, dict.fromkeys(forgotten, 9))
    else:
        for name in forgotten:
            book.bury(name, revision=9)
        book.meta.wipe(lambda: None)
    found = stored_bytes(tmp_path)

    assert [] == [name for name in forgotten if f"<{name}>".encode() in found]
    assert len(names) - len(forgotten) == len(list(book.copies()))
    assert book.meta.state().must_remove_pack


def test_what_is_buried_during_a_wipe_is_wiped_by_the_next_one(book: Ledger) -> None:
    """The journals, the index and kept copies may have been cleaned before it; the second wipe leaves nothing to do."""
    book.bury("a.json", revision=2)
    book.meta.wipe(lambda: book.bury("b.json", revision=2))
    is_left = book.meta.state().must_wipe
    book.meta.wipe(lambda: None)

    assert (True, False) == (is_left, book.meta.state().must_wipe)


def test_notes_of_a_folder_are_told_from_the_others(book: Ledger) -> None:
    """What is asked of one folder of entries costs no look at the rest."""
    paths = ["a.json", "entries/a/1.json", "entries/a/2.json", "entries/a-b/3.json", "z.json"]
    book.acknowledge(*[Acknowledged(path, "v", b"body", 1, "digest", SIGNATURE) for path in paths])

    assert {"a.json", "z.json"} == set(book.signatures()) == set(book.digests())
    assert {"entries/a/1.json", "entries/a/2.json"} == set(book.signatures(under="entries/a"))
    assert {"entries/a-b/3.json"} == set(book.digests(under="entries/a-b"))


def test_that_all_entries_were_fetched_is_known_of_one_mirror(tmp_path: Path, book: Ledger) -> None:
    """Another mirror may have other entries."""
    before = book.meta.state().has_fetched_entries
    book.meta.note("entries_fetched", "yes")
    book.close()

    assert not before
    assert Ledger(tmp_path, mirror=MIRROR).meta.state().has_fetched_entries
    assert not Ledger(tmp_path, mirror="s3://another").meta.state().has_fetched_entries
