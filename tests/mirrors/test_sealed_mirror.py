"""Sealed mirrors: what lies below them, what they refuse, and what becomes of an answer that was lost."""

from __future__ import annotations

import json
import secrets

import pytest

from memfiles.errors import CopyRefused, InvalidArgument, MirrorConflict, MirrorRefused
from memfiles.records.record import FORMAT, FORMAT_2
from memfiles.sync.mirror import ABSENT, ANY, BODY_MAX_BYTES, Condition, Stored, equals, get_many, shortcomings_of
from mirrors import HttpMirror, MemoryMirror, MirrorKeys, SealedMirror
from mirrors.sealed.envelope import OVERHEAD_MAX_BYTES, is_sealed
from mirrors.sealed.mirror import FORMATS, UnsealedMirror, guarded
from mirrors.service import Service
from mirrors.urls import parse_url
from tests.mirrors.older_service import KEY, OlderService, serving

NEW, OLD = secrets.token_hex(32), secrets.token_hex(32)
KEYS = MirrorKeys.parse(f"{NEW},{OLD}", source="the test")
BODY = b'{"content": "Bob"}\n'


@pytest.fixture
def bucket() -> MemoryMirror:
    """What an untrusted store holds."""
    return MemoryMirror()


@pytest.mark.parametrize("encrypt", [False, True])
def test_the_store_holds_envelopes(bucket: MemoryMirror, encrypt: bool) -> None:
    """Signed under the object's own key; a version is that of the envelope."""
    mirror = SealedMirror(bucket, KEYS, encrypt=encrypt)
    version = mirror.put("a.json", BODY)
    below = bucket.get("a.json")

    assert Stored(BODY, version) == mirror.get("a.json")
    assert below is not None and below.version == version
    assert (True, not encrypt) == (is_sealed(below.body), b"Bob" in below.body)


def test_an_object_that_does_not_verify_is_refused_and_no_other(bucket: MemoryMirror) -> None:
    """Alone it is an error; among many it is the answer for its key."""
    mirror = SealedMirror(bucket, KEYS)
    mirror.put("a.json", BODY)
    bucket.put("b.json", BODY)
    with pytest.raises(CopyRefused, match="b.json: the mirror's object is not signed"):
        mirror.get("b.json")
    answers = dict(get_many(mirror, ["a.json", "b.json", "c.json"]))

    assert [Stored, CopyRefused, type(None)] == [type(answers[key]) for key in ("a.json", "b.json", "c.json")]


@pytest.mark.parametrize("is_signed", [False, True])
def test_a_record_of_a_later_format_is_refused(bucket: MemoryMirror, is_signed: bool) -> None:
    """However it is written; the formats of this version are not, nor is what is not a record."""
    mirror = SealedMirror(bucket, KEYS) if is_signed else UnsealedMirror(bucket)
    known = [b'{"format":"memfiles/1"}', b'{\n "format": "memfiles/2"}', b'{"memfiles/9"', b'["memfiles/9"]']
    for number, body in enumerate(known):
        mirror.put(f"{number}.json", body)
    for number, body in enumerate([b'{"format":"memfiles/3"}', b'{"type": "file",\n "format" : "memfiles/1.5"}']):
        version = mirror.put(f"later-{number}.json", body)
        with pytest.raises(CopyRefused, match=f"later-{number}.json: .* has the format 'memfiles/") as refused:
            mirror.get(f"later-{number}.json")
        assert version == refused.value.version

    assert (FORMAT, FORMAT_2) == FORMATS
    assert known == [mirror.get(f"{number}.json").body for number in range(len(known))]  # type: ignore[union-attr]


@pytest.mark.parametrize("encrypt", [False, True])
def test_an_answer_that_was_lost_is_recognised(bucket: MemoryMirror, encrypt: bool) -> None:
    """The envelopes differ from put to put, the opened bodies do not; sealed by an older key they are the same, too."""
    mirror = SealedMirror(bucket, KEYS, encrypt=encrypt)
    version = mirror.put("a.json", BODY, when=ABSENT)
    by_old = bucket.put("b.json", MirrorKeys.parse(OLD, source="x").seal("b.json", BODY, encrypt=encrypt))

    assert version == mirror.put("a.json", BODY, when=ABSENT) == mirror.put("a.json", BODY, when=equals("stale"))
    assert by_old == mirror.put("b.json", BODY, when=ABSENT)
    with pytest.raises(MirrorConflict):
        mirror.put("a.json", b"other", when=ABSENT)


def test_what_is_refused_is_not_overwritten(bucket: MemoryMirror) -> None:
    """Neither as a first put nor over the version that was there before."""
    mirror = SealedMirror(bucket, KEYS)
    version = mirror.put("a.json", BODY)
    bucket.put("a.json", b"planted")
    for when in (ABSENT, equals(version)):
        with pytest.raises(MirrorConflict):
            mirror.put("a.json", b"2", when=when)
    planted = bucket.get("a.json")

    assert planted is not None and planted.body == b"planted"


def test_a_body_that_leaves_no_room_is_refused(bucket: MemoryMirror) -> None:
    """What is put is within the limit of the store, with its envelope."""
    with pytest.raises(InvalidArgument, match="no room for a signature"):
        SealedMirror(bucket, KEYS).put("a.json", bytes(BODY_MAX_BYTES - OVERHEAD_MAX_BYTES + 1))
    assert [] == list(bucket.list())


def test_without_a_key_a_sealed_object_is_refused(bucket: MemoryMirror) -> None:
    """All else is passed on as it is."""
    plain = UnsealedMirror(bucket)
    SealedMirror(bucket, KEYS).put("a.json", BODY)
    version = plain.put("b.json", BODY)
    with pytest.raises(CopyRefused, match=r"declares no key for it; set memory\.mirror\.key"):
        plain.get("a.json")
    answers = dict(get_many(plain, ["a.json", "b.json"]))

    assert isinstance(answers["a.json"], CopyRefused)
    assert Stored(BODY, version) == answers["b.json"] == plain.get("b.json") == bucket.get("b.json")
    plain.delete("b.json", when=equals(version))
    assert ["a.json"] == [key for key, _ in plain.list()]


def test_the_keys_are_read_at_the_first_call(bucket: MemoryMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are missing or weak, every call is refused with the reason; nothing is put unsigned."""
    mirror = guarded(bucket, key="env:DESK_KEY", encrypt=False)
    monkeypatch.delenv("DESK_KEY", raising=False)
    with pytest.raises(MirrorRefused, match="DESK_KEY is not set"):
        mirror.put("a.json", BODY)
    monkeypatch.setenv("DESK_KEY", "hunter2")
    with pytest.raises(MirrorRefused, match="has 7 characters"):
        mirror.put("a.json", BODY)
    before = list(bucket.list())
    monkeypatch.setenv("DESK_KEY", NEW)
    mirror.put("a.json", BODY)

    assert ([], BODY) == (before, KEYS.open("a.json", bucket.get("a.json").body))  # type: ignore[union-attr]


def test_a_service_that_keeps_content_only_says_so() -> None:
    """An envelope is not a record, so it is refused before anything is sent."""
    with serving(OlderService(creates=True)) as service:
        mirror = SealedMirror(HttpMirror(Service(parse_url(service.url), key=KEY)), KEYS)
        record = json.dumps({"uid": "notes-1", "content": "Bob"}).encode()
        with pytest.raises(InvalidArgument, match="keeps content only"):
            mirror.put("notes-1.json", record)

        assert {} == service.files


def test_the_promises_that_the_store_breaks_are_told() -> None:
    """As of the store below."""

    class Weak(MemoryMirror):
        def shortcomings(self, key: str) -> tuple[str, ...]:
            return (f"forgetful at {key}",)

    assert ("forgetful at a",) == shortcomings_of(SealedMirror(Weak(), KEYS), "a")
    assert ("forgetful at a",) == shortcomings_of(UnsealedMirror(Weak()), "a")


def test_a_race_that_is_lost_is_a_conflict(bucket: MemoryMirror) -> None:
    """Someone else's object, put between our look and our put, is not taken for ours."""

    class Racing(MemoryMirror):
        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            if when != ANY:
                super().put(key, KEYS.seal(key, b"theirs", encrypt=False))
            return super().put(key, body, when=when)

    mirror = SealedMirror(Racing(), KEYS)
    with pytest.raises(MirrorConflict):
        mirror.put("a.json", b"ours", when=ABSENT)
    found = mirror.get("a.json")
    assert found is not None and found.body == b"theirs"
