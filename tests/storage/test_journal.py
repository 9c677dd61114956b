"""The journal's states: what is durable survives, what failed never counts, and no frame follows a failed write."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from memfiles.storage import atomic
from memfiles.storage.journal import FOLDER, FramePosition, Journal
from memfiles.storage.journal_frames import SECTOR_BYTES, Version, must_rewrite, read_frames, scrub_token_in
from memfiles.storage.record_store import Sections

BODY = b'{"content":"x"}\n'


@pytest.fixture
def directory(tmp_path: Path) -> int:
    (tmp_path / FOLDER).mkdir()
    return atomic.Descriptor.of_directory(tmp_path)


@pytest.fixture
def journal(directory: int) -> Iterator[Journal]:
    numbers = count(1)
    journal = Journal(directory, new_id=lambda: f"j{next(numbers)}")
    yield journal
    journal.close()


def append(journal: Journal, directory: int, path: str = "a.json") -> None:
    """Stage, journal and publish one version, as a transaction does."""
    version = Version(path, 1, BODY, atomic.stage(directory, path, BODY, flush=False))
    try:
        with journal.turn:
            journal.append([[version]])
        atomic.publish(directory, path)
    finally:
        atomic.drop_temp(directory, path)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).iterdir())


def paths_in(folder: Path, name: str) -> list[str]:
    frames = read_frames((folder / FOLDER / name).read_bytes())
    return [version.path for frame in frames for version in frame.versions]


def failing(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Have the next use of a system call fail, as on a failing disk."""
    real = getattr(os, call)

    def fail(*_: object) -> None:
        monkeypatch.setattr(os, call, real)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)


def test_there_is_no_file_before_the_first_frame(journal: Journal, directory: int, tmp_path: Path) -> None:
    """A process that only reads makes none."""
    before = (journal.name, journal.is_dirty, files(tmp_path))
    append(journal, directory)

    assert ("", False, []) == before
    assert ("j1.journal", True, ["j1.journal"]) == (journal.name, journal.is_dirty, files(tmp_path))


def test_a_checkpoint_leaves_no_byte_of_the_frames(journal: Journal, directory: int, tmp_path: Path) -> None:
    """The header shows the token of the request, and the file takes frames again."""
    append(journal, directory)
    done = journal.checkpoint(scrub_token=b"0123456789abcdef")
    data = (tmp_path / FOLDER / journal.name).read_bytes()
    append(journal, directory, "b.json")

    assert done
    assert (b"0123456789abcdef", False) == (scrub_token_in(data), BODY in data)
    assert ["b.json"] == paths_in(tmp_path, journal.name)


def test_a_frame_that_was_voided_is_not_read_back(journal: Journal, directory: int, tmp_path: Path) -> None:
    """Those around it are."""
    versions = [Version(path, 1, BODY, atomic.Signature(1, len(BODY), 1)) for path in ("a.json", "b.json", "c.json")]
    with journal.turn:
        positions = journal.append([[version] for version in versions])
        journal.void(positions[1])

    assert ["a.json", "c.json"] == paths_in(tmp_path, journal.name)


def test_a_failed_frame_does_not_count_and_the_next_goes_to_a_new_file(
    journal: Journal, directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed flush left on the disk is unknown; the old file goes once all it names is flushed."""
    append(journal, directory)
    failing(monkeypatch, "fdatasync")
    with pytest.raises(OSError, match="Input/output error"):
        append(journal, directory, "failed.json")
    after_failure = paths_in(tmp_path, "j1.journal")
    append(journal, directory, "b.json")

    assert ["a.json"] == after_failure
    assert ["j2.journal"] == files(tmp_path)
    assert ["b.json"] == paths_in(tmp_path, "j2.journal")


def test_a_file_whose_checkpoint_failed_takes_no_more_frames(
    journal: Journal, directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first blocks may be torn: a frame behind them might never be read back."""
    append(journal, directory)
    failing(monkeypatch, "pwrite")
    with pytest.raises(OSError, match="Input/output error"):
        journal.checkpoint()
    append(journal, directory, "b.json")

    assert ["j2.journal"] == files(tmp_path)
    assert ["b.json"] == paths_in(tmp_path, "j2.journal")


def test_a_file_is_left_for_recovery_if_published_files_cannot_be_flushed(
    journal: Journal, directory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its frames, and says that the files must be written anew: the next flush may succeed for nothing."""
    append(journal, directory)
    failing(monkeypatch, "fsync")
    with pytest.raises(OSError, match="Input/output error"):
        journal.checkpoint()
    done = journal.checkpoint()

    assert (False, "", ["j1.journal"]) == (done, journal.name, files(tmp_path))
    assert must_rewrite((tmp_path / FOLDER / "j1.journal").read_bytes())
    assert ["a.json"] == paths_in(tmp_path, "j1.journal")
    assert not journal.close()


def test_a_clean_close_leaves_nothing_and_takes_nothing_more(journal: Journal, directory: int, tmp_path: Path) -> None:
    """A thread that is still writing must not make another file."""
    append(journal, directory)
    done = journal.close()

    with pytest.raises(OSError, match="the memory was closed"):
        append(journal, directory, "b.json")
    assert (True, []) == (done, files(tmp_path))


def test_a_file_that_was_left_is_not_ours_any_more(journal: Journal, directory: int, tmp_path: Path) -> None:
    """Whoever recovers replays it; a frame in it can no longer be voided."""
    append(journal, directory)
    with journal.turn:
        position = journal.append([[Version("b.json", 1, BODY, atomic.Signature(1, len(BODY), 1))]])[0]
        journal.leave()
        with pytest.raises(OSError, match="given up"):
            journal.void(position)

    assert ["a.json", "b.json"] == paths_in(tmp_path, "j1.journal")
    assert not journal.close()


def test_a_forked_child_leaves_the_file_to_its_parent(journal: Journal, directory: int, tmp_path: Path) -> None:
    """It is neither flushed nor removed."""
    append(journal, directory)
    journal.abandon()

    assert journal.close()
    assert ["a.json"] == paths_in(tmp_path, "j1.journal")


def grown(count: int, *, lines: int = 99) -> list[Version]:
    """Versions of a record of so many lines, to which something is appended each time."""
    found = []
    for revision in range(1, count + 1):
        content = b'{"content":"' + b"a line of a note " * (lines + revision)
        middle, history = b'",\n"history":[\n', b",\n".join(b'{"revision":%d}' % n for n in range(1, revision + 1))
        data = content + middle + history + b"]}\n"
        sections = Sections(len(content), len(content) + len(middle))
        found.append(Version("a.json", revision, data, atomic.Signature(revision, len(data), revision), sections))
    return found


def appended(journal: Journal, *versions: Version) -> list[FramePosition]:
    with journal.turn:
        return [position for each in versions for position in journal.append([[each]])]


def versions_in(folder: Path, journal: Journal) -> list[Version]:
    frames = read_frames((folder / FOLDER / journal.name).read_bytes())
    return [version for frame in frames for version in frame.versions]


@pytest.mark.parametrize("end", ["checkpoint", "void"])
def test_a_version_stands_whole_if_the_one_before_is_gone(journal: Journal, tmp_path: Path, end: str) -> None:
    """A checkpoint overwrites it; a failed change voids it."""
    one, two, three, four = grown(4)
    whole, delta = appended(journal, one, two)
    if end == "checkpoint":
        journal.checkpoint()
    else:
        with journal.turn:
            journal.void(delta)
    again, then = appended(journal, three, four)

    assert delta.length == then.length < min(whole.length, again.length)
    assert [three, four] == [each for each in versions_in(tmp_path, journal) if each is not one and each.revision > 1]


def test_a_full_file_is_emptied_and_no_delta_is_left_without_its_base(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever frame it is that finds no room."""
    monkeypatch.setattr("memfiles.storage.journal.CAPACITY", 16 * 1024)
    for version in grown(100):
        appended(journal, version)

        assert version == versions_in(tmp_path, journal)[-1]


def test_what_is_kept_for_deltas_is_bounded(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that, versions stand whole."""
    one, two, three = grown(3)
    monkeypatch.setattr("memfiles.storage.journal.BASES_BYTES", len(one.data) + 10)
    lengths = [at.length for at in appended(journal, one, replace(one, path="b.json"), replace(two, path="b.json"))]

    assert lengths[1] == lengths[2] > SECTOR_BYTES
    assert appended(journal, replace(three, path="b.json"))[0].length == lengths[1]
    assert [1, 1, 2, 3] == [each.revision for each in versions_in(tmp_path, journal)]


def test_where_sectors_cannot_be_written_alone_frames_fill_larger_blocks(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page cache writes whole pages, and some disks have larger sectors."""
    write = os.pwrite

    def refuse(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) % 4096:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", refuse)
    one, two = grown(2)

    assert [4096, 4096] == [at.length for at in appended(journal, one, two)]
    assert [one, two] == versions_in(tmp_path, journal)


@pytest.mark.parametrize("is_full", [False, True], ids=["room", "full disk"])
def test_a_file_begins_small_and_grows(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """A few changes are worth no 4 MiB on the disk; where there is no room for more, a full file is emptied."""
    monkeypatch.setattr("memfiles.storage.journal.BEGINNING", 8 * 1024)
    write, sizes = os.pwrite, list[int]()

    def write_where_there_is_room(descriptor: int, data: bytes, offset: int) -> int:
        if is_full and offset >= 8 * 1024:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write_where_there_is_room)
    versions = grown(40)
    for version in versions:
        appended(journal, version)
        sizes.append((tmp_path / FOLDER / journal.name).stat().st_size)

        assert version == versions_in(tmp_path, journal)[-1]

    kilobytes = [8] if is_full else [8, 16, 24, 32]
    assert [each * 1024 for each in kilobytes] == sorted(set(sizes))
    assert is_full or versions == versions_in(tmp_path, journal)


@pytest.mark.parametrize("others", [0, 6], ids=["first", "after others"])
def test_a_file_grows_before_a_frame_that_does_not_fit(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Else each version of a large note would stand whole, as a full file is emptied before the next frame."""
    monkeypatch.setattr("memfiles.storage.journal.BEGINNING", 8 * 1024)
    monkeypatch.setattr("memfiles.storage.journal.CAPACITY", 64 * 1024)
    flushed = list[set[str]]()
    monkeypatch.setattr("memfiles.storage.journal.sync_published", lambda _, paths: flushed.append(set(paths)))
    small, large = grown(others), [replace(each, path="large.json") for each in grown(2, lines=1200)]
    appended(journal, *small)
    whole, delta = appended(journal, *large)

    assert [*small, *large] == versions_in(tmp_path, journal)
    assert ([], 32 * 1024) == (flushed, (tmp_path / FOLDER / journal.name).stat().st_size)
    assert delta.length < 1024 < 8 * 1024 < whole.length


def test_a_frame_larger_than_the_file_stays_whole_until_what_it_names_is_flushed(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Growth writes zeros, and not into a frame that a power cut would need."""
    monkeypatch.setattr("memfiles.storage.journal.CAPACITY", 8 * 1024)
    one, *later = grown(3)
    large = replace(one, path="large.json", data=bytes(20_000))
    flushed = list[set[str]]()
    monkeypatch.setattr("memfiles.storage.journal.sync_published", lambda _, paths: flushed.append(set(paths)))
    appended(journal, large)
    before = versions_in(tmp_path, journal)
    appended(journal, one, *later)

    assert [large] == before
    assert ([{"large.json"}], [one, *later]) == (flushed, versions_in(tmp_path, journal))


def test_a_void_that_a_power_cut_tears_takes_no_other_frame_with_it(journal: Journal, tmp_path: Path) -> None:
    """Its flush may fail, and what was appended with the voided frame is acknowledged all the same."""
    one, _, other = grown(3)
    voided, kept = replace(one, path="voided.json"), replace(other, path="kept.json")
    with journal.turn:
        position, _ = journal.append([[voided], [kept]])
        before = (tmp_path / FOLDER / journal.name).read_bytes()
        journal.void(position)
    after = (tmp_path / FOLDER / journal.name).read_bytes()
    read = list[list[Version]]()
    for old in range(position.offset, position.offset + position.length, SECTOR_BYTES):
        torn = after[:old] + before[old : old + SECTOR_BYTES] + after[old + SECTOR_BYTES :]
        read.append([version for frame in read_frames(torn) for version in frame.versions])

    assert position.length > SECTOR_BYTES
    assert [[voided, kept], *([[kept]] * (len(read) - 1))] == read
