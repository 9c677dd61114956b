"""The record: what it holds, its one canonical JSON form, and everything that is refused when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import RecordCorrupt
from memfiles.records import cached_property
from memfiles.records import file_changes as changes
from memfiles.records.record import (
    MAX_ORIGINS,
    Actor,
    Change,
    Record,
    decode,
    digest,
    encode,
    extend,
    grown,
    with_content,
)
from memfiles.tools.json_schemas import record_schema
from tests.support.records import LATER, SEEDED_AT, many_times, seeded, stamp

Fields = dict[str, Any]

texts = st.text(max_size=60)
names = st.text("aZ09_.-", max_size=20).map("n".__add__)
counts = st.integers(min_value=0, max_value=2**40)
moments = st.datetimes().map(lambda moment: moment.strftime("20%y-%m-%dT%H:%M:%S.123Z"))
origins = st.text("0123456789abcdef", min_size=12, max_size=12)
actors = st.builds(Actor, agent=st.none() | texts, session=st.none() | texts, call=st.none() | texts)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Change, ...]:
    """Changes with rising revisions, of any kind."""
    revisions = sorted(draw(st.sets(st.integers(1, 2**48), min_size=1, max_size=5)))
    operations = st.sampled_from(
        ["seed", "hydrate", "append", "edit", "undo", "redact", "external", "declare", "merge"]
    )
    maybe = st.none() | counts
    change = st.builds(Change, revision=st.just(1), at=moments, op=operations, by=actors, bytes=counts, offset=maybe,
                       old=texts, matches=maybe, line=maybe, undone=maybe, target=maybe, opaque=st.booleans(),
                       redacted=st.booleans(), merged=st.booleans())  # fmt: skip
    return tuple(replace(draw(change), revision=revision) for revision in revisions)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Records of every shape that the format allows."""
    history, content = draw(histories()), draw(st.text(max_size=200))
    return Record(
        uid=draw(names),
        name=draw(names),
        description=draw(texts),
        max_size_bytes=draw(st.integers(1, 2**60)),
        level=draw(texts),
        content=content,
        sha256=digest(content.encode()),
        revision=history[-1].revision,
        created_at=draw(moments),
        updated_at=draw(moments),
        history=history,
        provisional=draw(st.booleans()),
        origins=draw(st.dictionaries(origins, st.integers(1, history[-1].revision), max_size=MAX_ORIGINS)),
    )


def fields_of(record: Record) -> Fields:
    fields: Fields = json.loads(encode(record))
    return fields


def bytes_of(fields: Fields) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.slow
@many_times
@given(records())
def test_what_is_encoded_can_be_decoded(record: Record) -> None:
    """A record comes back equal, whatever text it holds."""

    assert record == decode(encode(record), uid=record.uid)


@pytest.mark.slow
@many_times
@given(records())
def test_encoding_is_canonical(record: Record) -> None:
    """The same record always gives the same bytes, also after it was read back."""

    assert encode(record) == encode(decode(encode(record), uid=record.uid))


@pytest.mark.slow
@many_times
@given(records(), st.lists(texts, max_size=4))
def test_a_record_that_grew_has_the_bytes_of_one_written_at_once(record: Record, tails: list[str]) -> None:
    """What is carried on from version to version, to save time, is what would be computed anew."""
    longer, made = record, list[Change]()
    for tail in tails:
        made.append(Change(longer.revision + 1, LATER, "append", bytes=len(tail.encode())))
        longer = grown(longer, tail, made[-1])
    at_once = with_content(record, record.content + "".join(tails))
    for change in made:
        at_once = extend(at_once, change)

    assert encode(at_once) == encode(replace(longer)) == encode(longer)
    assert longer.is_intact


def test_the_bytes_are_one_json_object_with_a_newline_at_the_end() -> None:
    """A person can read a record line by line: one field a line, one change a line."""
    record = changes.append(seeded("# Notes\n"), stamp("toolu_01", agent="support"), text="- Bob\n").record
    assert record is not None
    sha = hashlib.sha256(b"# Notes\n- Bob\n").hexdigest()

    assert (
        '{"format":"memfiles/1",\n"type":"file",\n"uid":"notes",\n"name":"notes",\n"description":"What is known.",\n'
        f'"max_size_bytes":4096,\n"level":"INTERNAL",\n"content":"# Notes\\n- Bob\\n",\n"sha256":"{sha}",\n'
        f'"revision":2,\n"created_at":"{SEEDED_AT}",\n"updated_at":"{LATER}",\n"history":[\n'
        f'{{"revision":1,"at":"{SEEDED_AT}","op":"seed","by":{{}},"bytes":8,"offset":0}},\n'
        f'{{"revision":2,"at":"{LATER}","op":"append","by":{{"agent":"support","call":"toolu_01"}},"bytes":6}}]}}\n'
    ) == encode(record).decode()


def test_origins_stand_before_the_history_in_order() -> None:
    """They are left out where there are none, so that a record that is not mirrored says nothing of mirrors."""
    record = replace(seeded("x"), origins={"bbbbbbbbbbbb": 1, "aaaaaaaaaaaa": 1})

    assert b'",\n"origins":{"aaaaaaaaaaaa":1,"bbbbbbbbbbbb":1},\n"history":[' in encode(record)
    assert b"origins" not in encode(seeded("x"))


def test_sizes_are_utf8_bytes() -> None:
    """Not characters: a cap is about what is stored and sent."""

    assert len("Grüße 👋".encode()) == seeded("Grüße 👋").size_bytes == 12


def test_text_stands_in_the_record_as_it_is() -> None:
    """What is not ASCII is not escaped, so that a person and a search find it."""

    assert "Grüße 👋".encode() in encode(seeded("Grüße 👋"))


@pytest.mark.slow
@many_times
@given(records())
def test_every_record_fits_the_schema(record: Record) -> None:
    """What the schema says of a record is true of all that we write."""

    assert [] == list(Draft202012Validator(record_schema()).iter_errors(fields_of(record)))


def test_another_layout_of_the_same_object_is_read() -> None:
    """An editor may reformat the file and reorder its fields."""
    record = seeded("Grüße\n")
    reordered = dict(reversed(fields_of(record).items()))

    assert record == decode(json.dumps(reordered, indent=4).encode(), uid="notes")
    assert encode(record) == encode(decode(json.dumps(reordered).encode(), uid="notes"))


def test_a_field_of_a_later_version_is_passed_over() -> None:
    """A record that says more than we know is not unreadable."""

    assert seeded("x") == decode(bytes_of({**fields_of(seeded("x")), "tags": ["new"]}), uid="notes")


def test_content_that_does_not_fit_its_digest_is_told_not_refused() -> None:
    """That is how a change made by hand shows."""
    found = decode(bytes_of({**fields_of(seeded("x")), "content": "by hand"}), uid="notes")

    assert ("by hand", False) == (found.content, found.is_intact)


def replaced(**fields: Any) -> Callable[[Fields], bytes]:
    return lambda record: bytes_of({**record, **fields})


def without(field: str) -> Callable[[Fields], bytes]:
    return lambda record: bytes_of({name: value for name, value in record.items() if name != field})


def with_history(*changes_made: Fields) -> Callable[[Fields], bytes]:
    """A history of revisions 1 and 2 with these fields put over its changes."""
    plain: list[Fields] = [{"revision": at, "at": SEEDED_AT, "op": "append", "by": {}, "bytes": 0} for at in (1, 2)]
    history = [{**one, **other} for one, other in zip(plain, changes_made, strict=True)]
    return lambda record: bytes_of({**record, "revision": 2, "history": history})


def forged(*revisions: int) -> Callable[[Fields], bytes]:
    """A history of these revisions."""
    history = [{"revision": at, "at": SEEDED_AT, "op": "append", "by": {}, "bytes": 0} for at in revisions]
    return replaced(revision=revisions[-1], history=history)


def spliced(text: str) -> Callable[[Fields], bytes]:
    """The record in our own layout, one line long, with some JSON put before its last brace."""
    return lambda record: json.dumps(record, separators=(",", ":")).encode().removesuffix(b"}") + text.encode() + b"}\n"


REFUSED: dict[str, tuple[Callable[[Fields], bytes], str]] = {
    "empty": (lambda record: b"", "Invalid JSON"),
    "only zeros": (lambda record: bytes(512), "Invalid JSON"),
    "truncated": (lambda record: bytes_of(record)[:-40], "Invalid JSON"),
    "an array": (lambda record: b"[" + bytes_of(record) + b"]", "object"),
    "two objects": (lambda record: bytes_of(record) * 2, "Invalid JSON"),
    "nested 100,000 deep": (spliced(',"x":' + "[" * 100_000 + "]" * 100_000), "Invalid JSON: it is nested too deeply"),
    "not UTF-8": (lambda record: bytes_of(record).replace(b"INTERNAL", b"\xff\xfe"), "Invalid JSON"),
    "a byte order mark": (lambda record: b"\xef\xbb\xbf" + bytes_of(record), "with a byte order mark; save it"),
    "UTF-16": (lambda record: bytes_of(record).decode().encode("utf-16"), "with a byte order mark; save it"),
    "a lone surrogate": (lambda record: bytes_of(record).replace(b"INTERNAL", rb"\ud800"), "Invalid JSON"),
    "a lone surrogate in passing": (spliced(r',"x":"\udfff"'), "Invalid JSON"),
    "NaN": (spliced(',"x":NaN'), "Invalid JSON"),
    "NaN among other numbers": (spliced(',"x": [1, NaN]'), "Invalid JSON"),
    "infinity": (spliced(',"x":-Infinity'), "Invalid JSON"),
    "a number without end": (spliced(',"x":' + "9" * 5000), "out of range"),
    "a key twice": (spliced(',"level":"PUBLIC"'), "duplicate key"),
    "a key twice, further in": (spliced(',"x":{"a":1,"a":2}'), "duplicate key"),
    "another record": (replaced(uid="other"), "it contains the record of 'other' instead"),
    "a uid that is a path": (replaced(uid="../notes"), "uid: Expected a text that matches"),
    "a name with a newline": (replaced(name="notes\n"), "name: Expected a text that matches"),
    "no format": (without("format"), "format and type are missing"),
    "another format": (replaced(format="memfiles/3"), "format: it is not one of the possible values"),
    "another type": (replaced(type="entry"), "type: it is not one of the possible values"),
    "no content": (without("content"), "missing required field content"),
    "content that is no text": (replaced(content=["x"]), "content: Expected str, got array"),
    "a cap below zero": (replaced(max_size_bytes=-1), "max_size_bytes: Expected int >= 0"),
    "a cap that is text": (replaced(max_size_bytes="4096"), "max_size_bytes: Expected int, got str"),
    "revision zero": (replaced(revision=0), "revision: Expected int >= 1"),
    "a revision that is true": (replaced(revision=True), "revision: Expected int, got bool"),
    "half a revision": (replaced(revision=1.5), "revision: Expected int, got float"),
    "a revision too large for JSON": (replaced(revision=2**53, history=[]), "revision: Expected int <= 9007"),
    "a revision that nobody got to": (replaced(revision=2**48 + 1, history=[]), "at most 281474976710656 is believed"),
    "a leap to a revision": (forged(1, 2**48 + 1), "at most 281474976710656 is believed"),
    "a revision without a next": (forged(2**53 - 2, 2**53 - 1), "at most 281474976710656 is believed"),
    "a digest in capitals": (replaced(sha256="A" * 64), "sha256: Expected a text that matches '^[0-9a-f]{64}$'"),
    "local time": (replaced(updated_at="2026-11-21 09:00"), "updated_at: Expected a text that matches"),
    "an origin that is no id": (replaced(origins={"A" * 12: 1}), "key in $.origins: Expected"),
    "an origin with a newline": (replaced(origins={"a" * 12 + "\n": 1}), "key in $.origins: Expected"),
    "an origin at revision zero": (replaced(origins={"a" * 12: 0}), "origins[...]: Expected int >= 1"),
    "an origin ahead of the record": (replaced(origins={"a" * 12: 2}), "its origins are ahead of revision 1"),
    "33 origins": (replaced(origins={f"{at:012x}": 1 for at in range(33)}), "origins: Expected object of length <= 32"),
    "history that goes back": (with_history({"revision": 2}, {"revision": 1}), "does not lead up to revision 2"),
    "history that stands still": (with_history({"revision": 2}, {}), "does not lead up to revision 2"),
    "history that stops early": (replaced(revision=9), "does not lead up to revision 9"),
    "a change that is no operation": (with_history({}, {"op": "rm"}), "history[1].op: it is not one of"),
    "a change of less than nothing": (with_history({}, {"bytes": -1}), "history[1].bytes: Expected int >= 0"),
    "a change by a number": (with_history({}, {"by": {"call": 7}}), "history[1].by.call: Expected str | null, got int"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_reading_is_strict(what: str) -> None:
    """Whatever is wrong is found when the record is read, and the error says what it is."""
    spoil, complaint = REFUSED[what]
    with pytest.raises(RecordCorrupt) as error:
        decode(spoil(fields_of(seeded("x\n"))), uid="notes")

    assert complaint in str(error.value)


@pytest.mark.parametrize("what", REFUSED)
def test_an_error_shows_none_of_the_text(what: str) -> None:
    """What cannot be read may still be secret, and errors end up in logs."""
    spoil, _ = REFUSED[what]
    with pytest.raises(RecordCorrupt) as error:
        decode(spoil(fields_of(seeded("hunter2 " * 9))), uid="notes")

    assert "hunter2" not in str(error.value)


class Whole(Struct, dict=True):
    """Something with a part that two threads make at the same time."""

    both: Barrier

    @cached_property
    def part(self) -> object:
        """Made by each of them."""
        self.both.wait(60)
        return object()


def test_threads_that_ask_at_once_get_the_same_part() -> None:
    """Two of them could number the same saves, for example."""
    whole = Whole(Barrier(2))
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(lambda: whole.part) for _ in range(2)]
        parts = [each.result() for each in asked]

    assert [whole.part, whole.part] == parts
