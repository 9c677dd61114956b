"""Pieces: a redacted text is found by its keyed digest, whatever its size, and the record does not hold it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import SizeExceeded
from memfiles.records.record import Record, decode, encode
from memfiles.records.redactions import MAX_PIECES, NONCE_BYTES, Cleaner, lacking, piece_of, reveal, united_pieces
from tests.support.records import many_times, redact, seeded, stamp

texts = st.text(st.sampled_from("ab \nü日"), min_size=1, max_size=60)


def nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


@many_times
@given(texts, texts, texts)
def test_a_text_of_any_size_is_found(before: str, text: str, after: str) -> None:
    """Short ones by more bits of each byte; wherever it stands, and only if it stands there."""
    wanted, other = text.encode(), (text + "x").encode()
    pieces = [piece_of(wanted, known=(), nonce=nonce()), piece_of(other, known=(), nonce=nonce())]

    assert {pieces[0]: wanted} == reveal(pieces, [before.encode(), (before + text + after).encode()])


@pytest.mark.parametrize("size", [*range(1, 30), 1000])
def test_a_text_at_either_end_is_found(size: int) -> None:
    """The hint of a text does not reach beyond it."""
    text = os.urandom(size)
    piece = piece_of(text, known=(), nonce=nonce())

    for content in (text, b"x" + text, text + b"x"):
        assert {piece: text} == reveal([piece], [content])


def test_a_record_keeps_to_one_key() -> None:
    """Then a scan translates a content once; the ids are random."""
    first = piece_of(b"one", known=(), nonce=nonce())
    second = piece_of(b"two", known=[first], nonce=nonce())

    assert (first.key, True) == (second.key, first.id != second.id)
    assert piece_of(b"one", known=(), nonce=nonce()).mac != first.mac


def test_pieces_are_united_by_their_ids() -> None:
    """In one order, each once."""
    one, two = sorted((piece_of(b"x", known=(), nonce=nonce()) for _ in range(2)), key=lambda piece: piece.id)

    assert (one, two) == united_pieces([two, one], [one])
    assert (two,) == lacking([one], [one, two])


def redacted(count: int) -> Record:
    record = seeded("".join(f"word-{number:03}\n" for number in range(count)), cap=1 << 20)
    for number in range(count):
        record = redact(record, stamp(), text=f"word-{number:03}")[0] or record
    return record


def test_a_record_with_pieces_is_read_back() -> None:
    """Its format says that earlier versions do not know it, and its bytes hold nothing of the text."""
    record = redacted(3)
    data = encode(record)

    assert record == decode(data, uid=record.uid)
    assert (data, b'"memfiles/2"') == (encode(decode(data, uid=record.uid)), data[10:22])
    assert b"word" not in data


def test_a_record_takes_so_many_redactions() -> None:
    """The next one is refused with a remedy; a text that is not there is still just not there."""
    record = redacted(2)
    pieces = tuple(replace(record.redactions[0], id=f"{number:016x}") for number in range(MAX_PIECES))
    full = replace(seeded("a secret"), redactions=pieces, format="memfiles/2")

    with pytest.raises(SizeExceeded, match="256 is the most; nothing was changed. Declare a new file"):
        redact(full, stamp(), text="secret")
    assert redact(full, stamp(), text="nothing")[0] is None


@pytest.mark.parametrize(
    ("texts", "content", "expected"),
    [
        (["ice", "alice"], "alice, ice", "[redacted], [redacted]"),
        (["e"], "[redacted] e", "[redacted] "),
        (["red"], "[redacted] red", "[redacted] "),
        (["]a"], "[redacted]a ]a", " [redacted]"),
        (["a["], "aa[redacted]", "a"),
        (["b [redacted]"], "a b [redacted] c", "a [redacted] c"),
        (["ab"], "aabb", "a[redacted]b"),
    ],
)
def test_the_marker_is_not_text(texts: list[str], content: str, expected: str) -> None:
    """It is not redacted itself; half of one goes with the text that it would be cut by."""
    clean = Cleaner([text.encode() for text in texts])

    assert expected.encode() == clean(content.encode()) == clean(clean(content.encode()))
