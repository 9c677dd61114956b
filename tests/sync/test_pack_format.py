"""The bytes of a pack: what is read back is what was written, or nothing."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.sync.mirror import Stored, check_key
from memfiles.sync.pack import (
    FOLDER,
    INDEX_MAX_BYTES,
    PART_MAX_BYTES,
    PARTS_MAX,
    RECORD_MAX_BYTES,
    PackDamaged,
    decode_index,
    decode_part,
    encode_index,
    encode_parts,
    part_key,
)
from tests.support.records import many_times


def stored(body: bytes, version: str = "") -> Stored:
    return Stored(body, version or hashlib.sha256(body).hexdigest())


def unpacked(parts: list[bytes]) -> dict[str, Stored]:
    return {key: record for part in parts for key, record in decode_part(part_key(part), part)}


RECORDS = {f"{number}.json": stored(b"%d" % number * 100) for number in range(20)}


@many_times
@given(
    st.dictionaries(
        st.text("abc-/é🙂", min_size=1, max_size=20).map(lambda text: f"k{text.replace('/', '_')}.json"),
        st.tuples(st.binary(max_size=300), st.text("0123456789abcdef-", min_size=1, max_size=40)),
    )
)
def test_what_is_packed_comes_back(records: dict[str, tuple[bytes, str]]) -> None:
    """Keys, bodies and versions, whatever they are."""
    given_records = {key: Stored(body, "v" + version) for key, (body, version) in records.items()}

    assert given_records == unpacked(list(encode_parts(given_records.items())))


def test_parts_keep_to_their_limit() -> None:
    """Thousands of records are some parts, none of them too big to be fetched in one go."""
    records = {f"{number}.json": stored(b"%04d" % number * 512) for number in range(3000)}
    parts = list(encode_parts(records.items()))

    assert 4 == len(parts)
    assert max(map(len, parts)) <= PART_MAX_BYTES
    assert records == unpacked(parts)


def test_a_big_record_is_left_out() -> None:
    """It is fetched by itself as quickly."""
    records = {"big.json": stored(b"1" * (RECORD_MAX_BYTES + 1)), "small.json": stored(b"1")}

    assert ["small.json"] == list(unpacked(list(encode_parts(records.items()))))


def test_nothing_makes_no_part() -> None:
    """And an index that names none."""

    assert [] == list(encode_parts([]))
    assert [] == decode_index(encode_index([]))


def test_the_names_are_keys() -> None:
    """Every store takes them."""
    (part,) = encode_parts(RECORDS.items())

    assert part_key(part) == check_key(part_key(part))
    assert [part_key(part)] == decode_index(encode_index([part_key(part)]))


@pytest.mark.parametrize("place", [0, 20, 100, -1])
def test_a_changed_bit_damages_a_part(place: int) -> None:
    """Anywhere."""
    (part,) = encode_parts(RECORDS.items())
    changed = bytearray(part)
    changed[place] ^= 1
    with pytest.raises(PackDamaged):
        decode_part(part_key(part), bytes(changed))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"memfiles-pack/2\n",
        b"memfiles-pack/1\n\x01",
        b"memfiles-pack/1\n\x01\x00\x01\x00\xff\xff\xff\xffab",
        b"memfiles-pack/1\n\x01\x00\x01\x00\x00\x00\x00\x00\xffb",
        b"memfiles-pack/1\n" + bytes(PART_MAX_BYTES),
    ],
    ids=["empty", "foreign", "cut", "too long", "no text", "huge"],
)
def test_a_part_that_was_made_up_is_damaged(data: bytes) -> None:
    """Also under the name that belongs to its bytes."""
    with pytest.raises(PackDamaged):
        decode_part(part_key(data), data)


def test_a_cut_part_is_damaged() -> None:
    """At every length, also under a name that fits."""
    (part,) = encode_parts([("a.json", stored(b"body"))])
    for length in range(len(part)):
        with pytest.raises(PackDamaged):
            decode_part(part_key(part), part[:length])
    for length in range(len(b"memfiles-pack/1\n") + 1, len(part)):
        with pytest.raises(PackDamaged):
            decode_part(part_key(part[:length]), part[:length])


def test_what_is_no_key_is_left_out() -> None:
    """Nobody can be made to fetch or write it."""
    parts = list(encode_parts([("../a.json", stored(b"1")), ("a.json", stored(b"2"))]))

    assert {"a.json": stored(b"2")} == unpacked(parts)


@pytest.mark.parametrize("digest", ["md5", "sha256"])
def test_a_body_that_is_not_its_versions_is_left_out(digest: str) -> None:
    """Where versions are digests, as the others show, one that is not belongs to other bytes."""

    def versioned(body: bytes) -> Stored:
        return Stored(body, hashlib.new(digest, body).hexdigest())

    lie = Stored(b"other bytes", versioned(b"2").version)

    assert {"a.json": versioned(b"1")} == unpacked(list(encode_parts([("a.json", versioned(b"1")), ("b.json", lie)])))


def test_a_store_with_other_versions_is_believed() -> None:
    """With encryption by KMS, no ETag is the MD5 of its body, though it looks like one."""
    records = {
        key: Stored(record.body, hashlib.md5(record.body + b"key").hexdigest()) for key, record in RECORDS.items()
    }

    assert records == unpacked(list(encode_parts(records.items())))


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": "memfiles-pack/2", "parts": []}',
        b'{"format": "memfiles-pack/1"}',
        b'{"format": "memfiles-pack/1", "parts": "a"}',
        b'{"format": "memfiles-pack/1", "parts": ["../../customer.json"]}',
        b'{"format": "memfiles-pack/1", "parts": [1]}',
        b"[" * 100_000,
        json.dumps({"format": "memfiles-pack/1", "parts": ["0" * 64] * (PARTS_MAX + 1)}).encode(),
        b" " * (INDEX_MAX_BYTES + 1),
    ],
    ids=range(11),
)
def test_an_index_that_is_none_is_damaged(index: bytes) -> None:
    """Half of one, another's, one that names what is no part, one too many."""
    with pytest.raises(PackDamaged):
        decode_index(index)


def test_a_part_named_twice_is_fetched_once() -> None:
    """However often an index repeats itself."""
    key = f"{FOLDER}{'0' * 64}.part"

    assert [key] == decode_index(encode_index([key, key]))
