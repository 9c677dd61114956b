"""Journal frames are read back whole or not at all; blocks are written past the page cache where possible."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import MemfilesError
from memfiles.records import file_changes as changes
from memfiles.records.keys import agent_folder, entry_path, entry_uid
from memfiles.records.record import Record
from memfiles.storage.atomic import Signature
from memfiles.storage.journal_frames import (
    BLOCK_BYTES,
    HEADER_BYTES,
    SCRUB_TOKEN_BYTES,
    SECTOR_BYTES,
    Base,
    BlockWriter,
    Frame,
    Version,
    encode_frame,
    encode_payload,
    encode_void,
    is_empty,
    journal_header,
    must_rewrite,
    read_frames,
    scrub_token_in,
)
from memfiles.storage.record_kinds import version_of
from tests.support.records import many_times, seeded, stamp

TOKEN = b"0123456789abcdef"


def version(path: str = "notes.json", *, revision: int = 2, data: bytes = b'{"content":"x"}\n') -> Version:
    return Version(path, revision, data, Signature(17, len(data), 1_700_000_000_123_456_789))


def frame(number: int, *versions: Version) -> bytes:
    return b"".join(encode_frame(number, encode_payload(versions)[0]))


def journal(*frames: bytes, room: int = 256) -> bytes:
    """A journal file with these frames and zeros behind them."""
    return journal_header() + b"".join(frames) + bytes(room)


def numbers(data: bytes) -> list[int]:
    return [found.number for found in read_frames(data)]


versions = st.builds(
    Version,
    path=st.text("abAZ09_", min_size=1, max_size=12).map("{}.json".format),
    revision=st.integers(1, 2**53 - 1),
    data=st.just(b""),
    staged=st.builds(Signature, st.integers(0, 2**63), st.just(0), st.integers(-(2**63), 2**63 - 1)),
)
bodies = st.binary(max_size=40)


@many_times
@given(st.lists(st.lists(st.tuples(versions, bodies), max_size=3), max_size=4), st.integers(1, 2**60))
def test_what_is_written_is_read_back(groups: list[list[tuple[Version, bytes]]], first: int) -> None:
    """Any bytes, any number of records a frame, numbered on from anywhere."""
    frames = [
        Frame(number, tuple(_with_body(found, body) for found, body in group))
        for number, group in enumerate(groups, first)
    ]
    data = journal(*(frame(one.number, *one.versions) for one in frames))

    assert frames == list(read_frames(data))


def _with_body(found: Version, body: bytes) -> Version:
    return Version(found.path, found.revision, body, found.staged._replace(size=len(body)))


def test_an_empty_journal_has_no_frames() -> None:
    """Nor has a file that is none."""

    assert [[], [], [], []] == [numbers(data) for data in (journal(), b"", b"something else", journal_header()[:10])]


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_torn_frame_ends_the_journal(lost: int) -> None:
    """What was promised before it counts; it was never acknowledged."""
    whole = frame(2, version("b.json"))
    kept = whole[: len(whole.rstrip(b"\0")) - lost]

    assert [1] == numbers(journal(frame(1, version()), kept, room=0))
    assert [1] == numbers(journal(frame(1, version()), kept.ljust(len(whole), b"\0")))
    assert [1] == numbers(journal(frame(1, version()), whole[:-lost], room=0))


@many_times
@given(st.data())
def test_a_damaged_byte_ends_the_journal(data: st.DataObject) -> None:
    """Wherever it is, in header, path, numbers or record."""
    good, second = frame(1, version()), frame(2, version("b.json"))
    position = data.draw(st.integers(0, len(second) - 1))
    damaged = bytearray(second)
    damaged[position] ^= data.draw(st.integers(1, 255))

    assert [1] == numbers(journal(good, bytes(damaged), frame(3, version("c.json"))))


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 100, BLOCK_BYTES, 3 * BLOCK_BYTES + 7])
def test_header_and_frames_fill_whole_blocks(size: int) -> None:
    """So that each is written directly, and without touching another."""
    several = [version(data=bytes(size)), version("b.json")]

    assert {0} == {len(data) % BLOCK_BYTES for data in (journal_header(), frame(1, *several), frame(2))}


def test_only_zeros_follow_the_records_of_a_frame() -> None:
    """Whoever wrote anything else there did not mean to be read like this."""
    payload, _ = encode_payload([version()])
    filled = b"".join(encode_frame(2, payload[:-1] + b"x"))

    assert [1] == numbers(journal(frame(1, version()), filled))


def test_frames_left_over_from_before_are_not_read() -> None:
    """After a checkpoint, new frames overwrite the old ones from the start; what follows them is older."""
    old = [frame(number, version(data=b"old")) for number in (1, 2, 3)]
    new = frame(4, version(data=b"new"))
    assert len(new) == len(old[0])

    assert [4] == numbers(journal(new, old[1], old[2]))


def test_a_voided_frame_keeps_its_place_and_says_nothing() -> None:
    """Its change failed after it was promised; those after it were acknowledged."""
    middle = frame(2, version("b.json"))
    data = journal(frame(1, version()), encode_void(2, len(middle)), frame(3, version("c.json")))

    assert [(1, ["notes.json"]), (2, []), (3, ["c.json"])] == [
        (found.number, [one.path for one in found.versions]) for found in read_frames(data)
    ]
    assert b"b.json" not in data


def test_a_frame_speaks_of_memory_files_and_of_entries() -> None:
    """Both are records."""
    entry = version(entry_path(agent_folder("Ada"), entry_uid("ada", "PUBLIC", "city")))
    (found,) = read_frames(journal(frame(1, version(), entry)))

    assert (version(), entry) == found.versions


@pytest.mark.parametrize(
    "path", ["../notes.json", "/etc/passwd", "a/../b.json", "notes", "notes.json\n", "entries/../notes.json", ""]
)
def test_a_frame_may_only_speak_of_records(path: str) -> None:
    """A journal that someone made up cannot write elsewhere."""

    assert [1] == numbers(journal(frame(1, version()), frame(2, version(path))))


def test_the_header_shows_which_scrub_request_was_answered() -> None:
    """And is as long as any."""

    assert TOKEN == scrub_token_in(journal_header(TOKEN))
    assert b"" == scrub_token_in(journal_header())
    assert [HEADER_BYTES] * 3 == [
        len(header) for header in (journal_header(), journal_header(TOKEN), journal_header(TOKEN, rewrite=True))
    ]
    assert len(TOKEN) == SCRUB_TOKEN_BYTES


def test_the_header_says_when_the_published_files_are_not_to_be_trusted() -> None:
    """A flush of them failed: whoever recovers writes them anew."""

    assert [False, True] == [must_rewrite(journal_header(TOKEN, rewrite=doubt)) for doubt in (False, True)]
    assert TOKEN == scrub_token_in(journal_header(TOKEN, rewrite=True))


def test_only_zeros_behind_the_header_are_nothing() -> None:
    """A journal that was emptied but not overwritten still holds content."""

    assert is_empty(journal())
    assert not is_empty(journal(encode_void(1, 40) + b"content"))


MANY = 300  # blocks: more than are written at once


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


def is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    try:
        return os.pread(reader, size, 0)
    finally:
        os.close(reader)


@pytest.mark.parametrize("directly", [True, False])
def test_parts_of_any_length_are_written_one_after_the_other(file: int, directly: bool) -> None:
    """Also more than fit into the buffer, and over what was there."""
    parts = [b"a", b"", b"b" * (MANY * BLOCK_BYTES), b"c" * (BLOCK_BYTES - 1)]
    blocks = BlockWriter(file, directly=directly)
    blocks.write([b"x" * (4 * BLOCK_BYTES)], offset=0)
    blocks.write(parts, offset=BLOCK_BYTES)

    assert b"x" * BLOCK_BYTES + b"".join(parts) == content(file)


def test_a_file_that_is_not_to_be_written_directly_is_left_as_it_is(file: int) -> None:
    """Without flushes the page cache is all that is wanted."""
    BlockWriter(file, directly=False)

    assert not is_direct(file)


def test_a_file_system_that_refuses_a_direct_write_is_written_through_the_cache(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some take the flag and refuse the write; they are asked once."""
    refused = []

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if is_direct(descriptor):
            refused.append(offset)
            raise OSError(errno.EINVAL, "refused")
        return real(descriptor, data, offset)

    real = os.pwrite
    blocks = BlockWriter(file, directly=True)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    monkeypatch.setattr(os, "pwrite", pwrite)
    blocks.write([b"a" * BLOCK_BYTES], offset=0)
    blocks.write([b"b" * BLOCK_BYTES], offset=BLOCK_BYTES)

    assert b"a" * BLOCK_BYTES + b"b" * BLOCK_BYTES == content(file)
    assert [0] == refused


def test_another_failure_is_the_caller_s(file: int) -> None:
    """Nothing is tried again that is not a matter of how it is written."""
    read_only = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        BlockWriter(read_only, directly=True).write([bytes(BLOCK_BYTES)], offset=0)
    os.close(read_only)


def test_what_a_short_write_left_is_written_next(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it was given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:BLOCK_BYTES], offset))
    data = bytes(range(256)) * (3 * BLOCK_BYTES // 256)
    BlockWriter(file, directly=True).write([data], offset=0)

    assert data == content(file)


def chain(versions: Sequence[Version], *, first: int = 1) -> list[bytes]:
    """A frame for each of these versions of one record, as one journal gets them."""
    frames: list[bytes] = []
    bases: dict[str, Base | None] = {}
    for number, each in enumerate(versions, first):
        payload, kept = encode_payload([each], bases=bases, block_bytes=SECTOR_BYTES)
        bases |= {base.version.path: base for base in kept}
        frames.append(b"".join(encode_frame(number, payload)))
    return frames


def lives(steps: Sequence[tuple[str, str]], *, content: str = "") -> list[Version]:
    """The versions of a memory file through appends, edits and undos."""
    record, found = seeded(content, cap=1 << 21), list[Version]()
    for op, text in [("append", "- first\n"), *steps]:
        with suppress(MemfilesError):  # nothing to undo, or no such text
            if (changed := after(record, op, text).record) is not None:
                record, made = changed, version_of(changed, replaces=None)
                signature = Signature(record.revision, len(made.data), 1)
                found.append(Version(made.path, made.revision, made.data, signature, made.sections))
    return found


def after(record: Record, op: str, text: str) -> changes.Decision:
    """What one step decides."""
    if op == "append":
        return changes.append(record, stamp(), text=text)
    if op == "edit":
        return changes.edit(record, stamp(), old=text[:1], new=text[1:])
    return changes.undo(record, stamp()) if op == "undo" else changes.replace_content(record, stamp(), content=text)


steps = st.lists(
    st.tuples(
        st.sampled_from(("append", "append", "edit", "replace", "undo")), st.text('ab-\n"\\é\U0001f600', max_size=9)
    ),
    max_size=30,
)


@many_times
@given(steps, st.sampled_from(["", "a note\n" * 200]))
def test_deltas_are_read_back_as_what_they_were_made_of(made: list[tuple[str, str]], content: str) -> None:
    """Byte for byte, whatever changed."""
    versions = lives(made, content=content)

    assert versions == [each for found in read_frames(journal(*chain(versions))) for each in found.versions]


def test_a_delta_holds_what_is_new() -> None:
    """The line, its change and what every change alters: one sector of a disk, also with a full history."""
    versions = lives([("append", f"- line {number}\n") for number in range(150)], content="a note\n" * 300)
    frames = chain(versions)

    assert {SECTOR_BYTES} == {len(each) for each in frames[2:]}
    assert len(frames[0]) > 2048 and len(versions[-1].data) > 10_000
    assert versions == [each for found in read_frames(journal(*frames)) for each in found.versions]


def test_a_delta_without_its_base_says_nothing() -> None:
    """Nor does what builds on it; other records and later whole versions are read."""
    one, two, three, four, five = lives([("append", f"- {number}\n") for number in range(4)], content="a note\n" * 99)
    frames = chain([one, two, three, four])
    other, whole = frame(5, version("b.json")), frame(6, five)
    without_base = journal(frame(1, version("c.json")), *frames[1:], other, whole)
    voided = journal(frames[0], encode_void(2, len(frames[1])), *frames[2:], other, whole)
    other_base = journal(frame(1, replace(one, data=one.data.replace(b"note", b"vote"))), *frames[1:], other, whole)

    assert ["c.json", "b.json", five.path] == [v.path for found in read_frames(without_base) for v in found.versions]
    assert [one, version("b.json"), five] == [v for found in read_frames(voided) for v in found.versions]
    assert [two.revision - 1, 2, five.revision] == [v.revision for f in read_frames(other_base) for v in f.versions]


def test_versions_that_are_large_or_of_another_revision_stand_whole() -> None:
    """A chain is short enough to be read back at a start, and has no gap."""
    one, two, three = lives([("append", "- 2\n"), ("append", "- 3\n")], content="a note\n" * 400)
    gap, large = chain([one, three]), lives([("append", "- 2\n")], content="a note\n" * 200_000)

    assert len(chain([one, two])[1]) < len(gap[1])
    assert len(chain(large)[1]) > 1_000_000
    assert [one, three] == [each for found in read_frames(journal(*gap)) for each in found.versions]


def test_a_journal_of_an_earlier_version_is_read() -> None:
    """It may have been left by a process that died before an upgrade."""
    body = b'{"content":"x"}\n'
    payload = struct.pack("<HQQQq", 10, len(body), 2, 17, 1_700_000_000_123_456_789) + b"notes.json" + body
    payload += bytes(-(33 + len(payload)) % BLOCK_BYTES)
    head = struct.pack("<4sBQQI", b"frm1", 1, 7, len(payload), zlib.crc32(payload))
    whole = head + struct.pack("<I", zlib.crc32(head)) + payload
    old = journal_header().replace(b"journal/3", b"journal/2") + whole + bytes(256)

    assert [Frame(7, (version(),))] == list(read_frames(old))
