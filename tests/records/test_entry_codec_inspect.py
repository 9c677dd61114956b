"""What can be told of a record's bytes without knowing which record they should be."""

from __future__ import annotations

import json

from memfiles.records.entry_codec import Inspection, encode_entry, inspect
from memfiles.records.record import encode
from tests.support.records import seeded
from tests.support.saved import buried, saved


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
