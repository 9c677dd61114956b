"""Frames: what is read back from a journal is what was promised in it, whole, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.records.keys import agent_folder, entry_path, entry_uid
from memfiles.storage.atomic import Signature
from memfiles.storage.journal_frames import (
    BLOCK_BYTES,
    HEADER_BYTES,
    SCRUB_TOKEN_BYTES,
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
from tests.support.records import many_times

TOKEN = b"0123456789abcdef"


def version(path: str = "notes.json", *, revision: int = 2, data: bytes = b'{"content":"x"}\n') -> Version:
    return Version(path, revision, data, Signature(17, len(data), 1_700_000_000_123_456_789))


def frame(number: int, *versions: Version) -> bytes:
    return b"".join(encode_frame(number, encode_payload(versions)))


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
    staged=st.builds(Signature, st.integers(0, 2**63), st.just(0), st.integers(0, 2**63)),
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
    payload = encode_payload([version()])
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
