"""HttpMirror: what a record becomes on the older service, and what comes back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from memfiles.errors import InvalidArgument, MirrorConflict, MirrorRefused, MirrorUnavailable
from memfiles.records.record import decode
from memfiles.sync.mirror import ABSENT, equals
from mirrors import HttpMirror
from mirrors.http import open_url
from tests.mirrors.older_service import KEY, OlderService, error, serving

RECORD = {"format": "memfiles/1", "type": "file", "uid": "notes-1", "revision": 7, "content": "# Notes\n"}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[OlderService]:
    """A service with two memory files."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", KEY)
    with serving(OlderService()) as running:
        running.declare("notes-1", "old", description="What we know.", maxSizeBytes=4096, label="notes")
        running.declare("rules", "Be kind.\n", label="not a name!")
        yield running


@pytest.fixture
def mirror(service: OlderService) -> HttpMirror:
    return open_url(service.url)


def body(content: str, **more: object) -> bytes:
    return json.dumps({**RECORD, "content": content, **more}).encode()


def test_what_comes_back_is_a_record(mirror: HttpMirror) -> None:
    """Intact, with the service's metadata, and without a past."""
    stored = mirror.get("notes-1.json")
    assert stored is not None
    record = decode(stored.body, uid="notes-1")

    assert record.is_intact
    assert ("notes", "What we know.", 4096, "old") == (
        record.name,
        record.description,
        record.max_size_bytes,
        record.content,
    )
    assert (1, ()) == (record.revision, record.history)


def test_a_label_that_is_no_name_is_replaced_by_the_uid(mirror: HttpMirror) -> None:
    """A record has a name that a model can be shown."""
    stored = mirror.get("rules.json")

    assert stored is not None
    assert "rules" == decode(stored.body, uid="rules").name


def test_only_the_content_of_a_record_is_kept(service: OlderService, mirror: HttpMirror) -> None:
    """It is sent alone; the record that comes back is the service's object with it."""
    version = mirror.put("notes-1.json", body("new\n"))
    stored = mirror.get("notes-1.json")

    assert stored is not None
    assert "new\n" == service.files["notes-1"]["content"]
    assert ("new\n", 1, version) == (decode(stored.body, uid="notes-1").content, 1, stored.version)


def test_the_same_content_is_the_same_body(service: OlderService, mirror: HttpMirror) -> None:
    """A record with another past and the same content is there already, and nothing is sent."""
    version = mirror.put("notes-1.json", body("new\n"))
    service.requests.clear()

    assert version == mirror.put("notes-1.json", body("new\n", revision=9), when=ABSENT)
    assert ["GET"] == [method for method, _, _ in service.requests]


def test_conditions_are_looked_at_by_reading(
    service: OlderService, mirror: HttpMirror, caplog: pytest.LogCaptureFixture
) -> None:
    """The service has none of its own, which is said once."""
    with caplog.at_level(logging.WARNING, "memfiles.mirror"):
        seen = mirror.put("notes-1.json", body("1"))
        service.files["notes-1"]["content"] = "by hand"
        for when in (equals(seen), ABSENT):
            with pytest.raises(MirrorConflict):
                mirror.put("notes-1.json", body("2"), when=when)

    assert "by hand" == service.files["notes-1"]["content"]
    assert 1 == sum("no conditional writes" in message for message in caplog.messages)


def test_a_record_without_content_empties_the_file(service: OlderService, mirror: HttpMirror) -> None:
    """A tombstone takes the content away, which is what it is for."""
    mirror.put("notes-1.json", json.dumps({"type": "tombstone", "uid": "notes-1"}).encode())

    assert "" == service.files["notes-1"]["content"]


def test_nothing_can_be_deleted(service: OlderService, mirror: HttpMirror) -> None:
    """What is there is a refusal that says what to do instead; what is not there is deleted already."""
    mirror.delete("unknown.json")
    mirror.delete("entries/a/b.json")
    with pytest.raises(MirrorRefused, match="put a record without content"):
        mirror.delete("rules.json")

    assert "rules" in service.files


@pytest.mark.parametrize(
    ("key", "put"),
    [
        ("entries/support/e-1.json", body("x")),
        ("notes-1.txt", body("x")),
        ("notes-1.json", b"no JSON"),
        ("notes-1.json", b"[" * 100_000),
        ("notes-1.json", b"[]"),
        ("notes-1.json", body("x", uid="rules")),
        ("notes-1.json", json.dumps({**RECORD, "content": 1}).encode()),
    ],
)
def test_what_is_no_record_of_that_file_is_refused(mirror: HttpMirror, key: str, put: bytes) -> None:
    """The service keeps nothing else."""
    with pytest.raises(InvalidArgument):
        mirror.put(key, put)

    assert None is mirror.get("entries/support/e-1.json")


def test_a_file_the_service_does_not_know(mirror: HttpMirror) -> None:
    """Its own words are in the message."""
    with pytest.raises(MirrorRefused, match="404 not_found: no memory file unknown"):
        mirror.put("unknown.json", body("x", uid="unknown"))


def test_objects_that_are_no_memory_files_are_left_out(service: OlderService, mirror: HttpMirror) -> None:
    """The array may hold what we cannot use; the rest of it is good."""
    service.files["1"] = {"id": "../up", "content": "x"}
    service.files["2"] = {"id": 5, "content": "x"}
    service.files["3"] = {"id": "c", "content": None}
    service.files["4"] = {"uid": "newer", "name": "newer", "content": "x", "max_size_bytes": True}

    assert ["newer.json", "notes-1.json", "rules.json"] == [key for key, _ in mirror.list()]


@pytest.mark.parametrize("answer", [b"{}", b"null", b"no JSON", b'[{"id": "a", "content": "\\ud800"}]', b"[" * 100_000])
def test_an_answer_that_cannot_be_right(service: OlderService, mirror: HttpMirror, answer: bytes) -> None:
    """It is no empty list."""
    service.answers.append((200, {}, answer))
    with pytest.raises(MirrorUnavailable):
        list(mirror.list())


def test_a_put_that_did_not_take(service: OlderService, mirror: HttpMirror) -> None:
    """The success of something that is not the service is found out."""
    service.answers.extend([(200, {}, b"[]"), (200, {}, b"{}")])
    with pytest.raises(MirrorUnavailable, match="now holds different content"):
        mirror.put("notes-1.json", body("x"))


def test_a_wrong_key_is_a_refusal(service: OlderService, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the service's words, and without the key."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", "hushhush")
    with pytest.raises(MirrorRefused, match="401 unauthorized: the key is not valid") as caught:
        list(open_url(service.url).list())

    assert "hush" not in str(caught.value)


def test_an_error_of_the_service_passes(service: OlderService, mirror: HttpMirror) -> None:
    """It may be asked again."""
    service.answers.append(error(500, "out of\nmemory", "internal"))
    with pytest.raises(MirrorUnavailable, match="500 internal: out of memory") as caught:
        mirror.get("notes-1.json")

    assert caught.value.transient
