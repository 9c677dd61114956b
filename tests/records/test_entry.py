"""Entries and tombstones, and their form on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import RecordCorrupt
from memfiles.records.entry import MAX_ENTRY_BYTES, Entry, Provenance, Retired
from memfiles.records.entry_codec import Inspection, decode_entry, encode_entry, inspect
from memfiles.records.marks import tombstones_in
from memfiles.records.record import encode
from tests.support.records import LATER, many_times, seeded
from tests.support.saved import buried, resaved, saved

FULL = saved(
    "user:name",
    "Ann",
    run="r-1",
    tags=("people", "names"),
    category="conversation",
    kind="fact",
    confidence=0.75,
    importance=1.0,
    pinned=True,
    links=("user:mail",),
    provenance=Provenance("support", "ada", "evt-1", "r-1", "email", "t-9", "toolu_1", "tool", 17),
    expires_at=LATER,
    successes=2,
    failures=1,
    retired=Retired("evicted", LATER, "plan-1"),
    forgotten=("0123456789ab",),
)


def changed(entry: Entry, **fields: Any) -> bytes:
    """The entry's bytes with some fields of the JSON object changed."""
    return json.dumps({**json.loads(encode_entry(entry)), **fields}).encode()


@pytest.mark.parametrize("entry", [saved(), FULL, resaved(FULL, "Bob", at=LATER), saved(agent="@workspace")])
def test_an_entry_survives_its_form_on_disk(entry: Entry) -> None:
    """What is read is what was written, and is written the same again."""
    data = encode_entry(entry)

    assert entry == decode_entry(data, path=entry.path)
    assert data == encode_entry(decode_entry(data, path=entry.path))


LATER_LIFE = saved(forgotten=("0123456789ab",))


@pytest.mark.parametrize("entry", [saved(given_id="a" * 32), saved(given_id="a" * 32, aliases=("b" * 32, "c" * 40))])
def test_an_id_survives_its_form_on_disk(entry: Entry) -> None:
    """Only a record with an id of its own has the format that earlier builds do not read."""
    data = encode_entry(entry)

    assert (entry, "memfiles/2") == (decode_entry(data, path=entry.path), json.loads(data)["format"])
    assert ("memfiles/1", saved().uid) == (json.loads(encode_entry(saved()))["format"], saved().id)
    assert len({saved().id, LATER_LIFE.id, saved(forgotten=("0123456789ab", "0" * 12)).id}) == 3


def test_a_tombstone_survives_its_form_on_disk() -> None:
    """Who, when and why are kept."""
    tombstone = replace(buried(FULL), moved=(FULL.path,))

    assert tombstone == decode_entry(encode_entry(tombstone), path=FULL.path)


def test_a_tombstone_has_nothing_of_what_was_forgotten() -> None:
    """Neither the content nor the key, which may say as much."""
    data = encode_entry(buried(saved("the king has ears", "donkey's")))

    assert not [word for word in (b"king", b"donkey") if word in data]


@many_times
@given(
    key=st.text(min_size=1, max_size=60), content=st.text(max_size=200), tags=st.lists(st.text(min_size=1, max_size=9))
)
def test_any_text_survives(key: str, content: str, tags: list[str]) -> None:
    """Keys and contents are stored exactly, whatever they are made of."""
    try:
        entry = saved(key, content, tags=tuple(tags[:9]))
    except ValueError:
        return
    except Exception as error:
        assert "key" in str(error)
        return

    assert entry == decode_entry(encode_entry(entry), path=entry.path)


SPOILED: dict[str, Callable[[], bytes]] = {
    "another key": lambda: changed(saved(), key="colour"),
    "another level": lambda: changed(saved(), level="PUBLIC"),
    "another agent": lambda: changed(saved(), agent="sales"),
    "another run": lambda: changed(saved(), run="r-2"),
    "no type": lambda: encode_entry(saved()).replace(b'"type":"entry",', b""),
    "a later format": lambda: changed(saved(), format="memfiles/2"),
    "an id in the earlier format": lambda: changed(saved(), id="a" * 32),
    "aliases out of order": lambda: changed(saved(given_id="a" * 32), aliases=["c" * 32, "b" * 32]),
    "its id among the aliases": lambda: changed(saved(given_id="a" * 32), aliases=["a" * 32]),
    "a lone surrogate": lambda: encode_entry(saved()).replace(b'"blue"', b'"\\ud800"'),
    "a confidence of 2": lambda: changed(saved(), confidence=2),
    "no such kind": lambda: changed(saved(), kind="rumour"),
    "a duplicate key": lambda: (
        encode_entry(saved()).replace(b'"run"', b'"key"').replace(b'"tags"', b'"key":"color",\n"tags"')
    ),
    "no JSON": lambda: b"{",
    "empty": lambda: b"",
    "an array": lambda: b"[]",
    "a history that does not lead here": lambda: changed(saved(), revision=9),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_not_the_entry_asked_for_is_refused(what: str) -> None:
    """Nothing is believed that does not belong where it lies, and no error shows the content."""
    with pytest.raises(RecordCorrupt) as error:
        decode_entry(SPOILED[what](), path=saved().path)

    assert "blue" not in str(error.value)


def test_an_entry_says_what_it_is() -> None:
    """Recovery tells entries from memory files by their beginning alone."""

    assert [True, True, False] == [
        inspect(data) is not None for data in (encode_entry(FULL), encode_entry(buried(FULL)), b"{}")
    ]


def test_a_content_changed_by_hand_shows() -> None:
    """The digest is the content's, unless someone changed the content with an editor."""
    found = decode_entry(changed(saved(), content="green"), path=saved().path)

    assert isinstance(found, Entry)
    assert not found.text.is_intact


def test_only_so_many_tombstones_are_remembered() -> None:
    """A key that is forgotten again and again does not grow without end."""
    tombstone = buried(saved(forgotten=tuple(f"{number:012x}" for number in range(8))), id="a" * 12)

    assert 8 == len(tombstones_in(tombstone))
    assert "a" * 12 == tombstones_in(tombstone)[-1]


def test_the_largest_content_is_within_what_a_record_may_have() -> None:
    """An entry is something remembered, not a document."""

    assert 64 * 1024 == MAX_ENTRY_BYTES


def damaged(data: bytes) -> bytes:
    """The record with another content than its digest says."""
    return json.dumps({**json.loads(data), "content": "y"}).encode()


def test_every_type_of_record_can_be_looked_at() -> None:
    """A start needs the revision of what it finds, and whether a power cut damaged it."""
    entry = saved(content="x")
    bodies = [encode(seeded("x")), encode_entry(entry), encode_entry(buried(entry))]

    assert [Inspection(1, True), Inspection(1, True), Inspection(2, True)] == [inspect(body) for body in bodies]


def test_a_damaged_record_shows() -> None:
    """A content that is not the one of the digest was not written by memfiles."""
    bodies = [damaged(encode(seeded("x"))), damaged(encode_entry(saved(content="x")))]

    assert [Inspection(1, False), Inspection(1, False)] == [inspect(body) for body in bodies]


def test_what_is_no_record_tells_nothing() -> None:
    """Neither half a record nor another program's file has a revision."""

    assert [None, None, None] == [inspect(body) for body in (b"{", b"", encode_entry(saved())[:-40])]
