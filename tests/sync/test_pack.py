"""The pack in a mirror: what it holds counts while the mirror lists the same, and it never does harm."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ANY, Condition, Mirror, Stored, check_key
from memfiles.sync.pack import (
    FOLDER,
    INDEX,
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
    read_pack,
    remove_pack,
    write_pack,
)
from mirrors import MemoryMirror
from tests.support.records import many_times


class Killed(BaseException):
    """The process ended here."""


@dataclass
class Counting(MemoryMirror):
    """Remembers the calls, and is killed before the one of that number."""

    killed_at: int | None = None
    calls: list[str] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def _count(self, call: str) -> None:
        if len(self.calls) == self.killed_at:
            raise Killed
        self.calls.append(call)

    def get(self, key: str) -> Stored | None:
        self._count(f"get {key}")
        return super().get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        if key == INDEX and self.meanwhile is not None:
            run, self.meanwhile = self.meanwhile, None
            run()
        self._count(f"put {key}")
        return super().put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._count(f"delete {key}")
        super().delete(key, when=when)


def filled(mirror: MemoryMirror, count: int = 10, *, text: bytes = b"") -> dict[str, Stored]:
    """The objects that were put into the mirror; with their size some of them fill a part."""
    bodies = {f"{number}.json": b"%d" % number + text for number in range(count)}
    return {key: Stored(body, mirror.put(key, body)) for key, body in bodies.items()}


def pack_keys(mirror: MemoryMirror) -> list[str]:
    return [key for key, _ in mirror.list(FOLDER)]


def packed(mirror: Mirror) -> dict[str, Stored]:
    return dict(read_pack(mirror, listed=dict(mirror.list())))


BIG = os.urandom(200_000)  # ten to a part


def test_what_was_packed_is_read() -> None:
    """With the versions under which the mirror has it."""
    mirror = MemoryMirror()
    records = filled(mirror, 25, text=BIG)

    assert write_pack(mirror, records.items())
    assert records == packed(mirror)
    assert 4 == len(pack_keys(mirror))


def test_without_a_pack_there_is_nothing_to_read() -> None:
    """And nothing is asked."""
    mirror = Counting()
    filled(mirror)
    mirror.calls.clear()

    assert ({}, []) == (packed(mirror), mirror.calls)


def test_reading_costs_a_request_for_each_part_and_one_more() -> None:
    """Given the list."""
    mirror = Counting()
    write_pack(mirror, filled(mirror, 1000).items())
    mirror.calls.clear()
    packed(mirror)

    assert 2 == len(mirror.calls)


def test_a_copy_that_is_out_of_date_is_not_read() -> None:
    """What changed or went after it was packed."""
    mirror = MemoryMirror()
    records = filled(mirror)
    write_pack(mirror, records.items())
    mirror.put("3.json", b"newer")
    mirror.delete("4.json")

    assert records.keys() - {"3.json", "4.json"} == packed(mirror).keys()


def test_the_pack_is_not_packed() -> None:
    """Whoever packs everything that is listed does not pack the earlier pack."""
    mirror = MemoryMirror()
    write_pack(mirror, filled(mirror).items())
    everything = [(key, stored) for key, _ in mirror.list() if (stored := mirror.get(key))]
    write_pack(mirror, everything)

    assert 10 == len(packed(mirror))


def test_the_next_pack_takes_the_place_of_the_earlier() -> None:
    """Its parts go when nothing names them any more."""
    mirror = MemoryMirror()
    write_pack(mirror, filled(mirror, 25, text=BIG).items())
    write_pack(mirror, filled(mirror, 3).items())

    assert (3, 2) == (len(packed(mirror)), len(pack_keys(mirror)))


def test_a_pack_can_be_removed() -> None:
    """The records stay; removing nothing is no error."""
    mirror = MemoryMirror()
    records = filled(mirror)
    write_pack(mirror, records.items())
    remove_pack(mirror)
    remove_pack(mirror)

    assert sorted(records) == [key for key, _ in mirror.list()]


def packed_at_each_kill() -> Iterator[tuple[int, Counting, dict[str, Stored]]]:
    """A mirror with a pack whose replacement was killed before each of its steps."""
    number = 0
    while True:
        mirror = Counting()
        write_pack(mirror, filled(mirror, 25, text=BIG).items())
        records = filled(mirror, 25, text=BIG[:-1])
        mirror.calls.clear()
        mirror.killed_at = number
        try:
            write_pack(mirror, records.items())
        except Killed:
            mirror.killed_at = None
            yield number, mirror, records
            number += 1
        else:
            return


@pytest.mark.slow
def test_killed_anywhere_the_pack_is_whole_or_seen_to_be_broken() -> None:
    """Nothing wrong is read from it, and the next write leaves nothing behind."""
    kills = 0
    for _, mirror, records in packed_at_each_kill():
        kills += 1
        assert packed(mirror).items() <= records.items()
        write_pack(mirror, records.items())
        assert (records, 4) == (packed(mirror), len(pack_keys(mirror)))

    assert kills >= 8


def test_of_two_writers_one_pack_stays() -> None:
    """The slower one gives way; what it left goes with the next write."""
    mirror = Counting()
    records = filled(mirror, 25, text=BIG)
    others = dict(list(records.items())[:12])
    mirror.meanwhile = partial(write_pack, mirror, others.items())

    assert not write_pack(mirror, records.items())
    assert others == packed(mirror)
    assert write_pack(mirror, records.items())
    assert (records, 4) == (packed(mirror), len(pack_keys(mirror)))


def test_the_parts_of_another_writer_stay() -> None:
    """They came after this one began, and are about to be named."""
    mirror = Counting()
    records = filled(mirror)
    theirs = next(encode_parts([("1.json", records["1.json"])]))
    mirror.meanwhile = partial(mirror.put, part_key(theirs), theirs)
    write_pack(mirror, records.items())

    assert part_key(theirs) in pack_keys(mirror)


def test_where_conditions_are_ignored_a_meeting_is_seen() -> None:
    """The index may name what the other writer removed: a broken pack, and no wrong record."""

    class Deaf(Counting):
        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            return super().put(key, body)

    mirror = Deaf()
    records = filled(mirror, 25, text=BIG)
    mirror.meanwhile = partial(write_pack, mirror, dict(list(records.items())[:12]).items())
    write_pack(mirror, records.items())

    assert packed(mirror).items() <= records.items()


def hostile(mirror: MemoryMirror, part: bytes, *, name: str | None = None) -> None:
    """Plant a pack whose only part has these bytes."""
    key = name or part_key(part)
    mirror.put(key, part)
    mirror.put(INDEX, encode_index([key]))


@pytest.mark.parametrize("spoil", ["cut", "changed", "missing", "another", "index"])
def test_a_damaged_pack_is_not_used(spoil: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is worth a warning that says what is wrong."""
    mirror = MemoryMirror()
    (part,) = encode_parts(filled(mirror).items())
    bodies = {"cut": part[:-1], "changed": part[:-1] + b"!", "another": b"another's"}
    hostile(mirror, bodies.get(spoil, part), name=part_key(part))
    if spoil == "missing":
        mirror.delete(part_key(part))
    if spoil == "index":
        mirror.put(INDEX, b'{"format": "memf')
    with caplog.at_level(logging.WARNING):
        assert {} == packed(mirror)

    assert ["stopped using the mirror's pack"] == [text.partition(":")[0] for text in caplog.messages]


@pytest.mark.parametrize("error", [MirrorUnavailable("down"), MirrorRefused("has 70000000000 bytes")])
def test_a_pack_that_cannot_be_got_is_not_used(error: MirrorUnavailable) -> None:
    """Whether the mirror is down or the object beyond its limit."""

    class Refusing(MemoryMirror):
        def get(self, key: str) -> Stored | None:
            raise error

    mirror = Refusing()
    hostile(mirror, next(encode_parts(filled(mirror).items())))

    assert {} == packed(mirror)


def test_a_pack_cannot_bring_what_the_mirror_does_not_list() -> None:
    """Nor other bytes under a listed version, nor a key that is none, nor one key twice."""
    mirror = MemoryMirror()
    records = filled(mirror)
    lies = [
        ("1.json", Stored(b"other bytes", records["1.json"].version)),
        ("ghost.json", Stored(b"1", "1")),
        ("../2.json", records["2.json"]),
        *[("3.json", records["3.json"])] * 3,
    ]
    hostile(mirror, next(encode_parts(lies)))

    assert [("3.json", records["3.json"])] == list(read_pack(mirror, listed=dict(mirror.list())))


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
