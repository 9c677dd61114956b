"""Nothing is committed that the next start could not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import InvalidArgument, SizeExceeded
from memfiles.files.manager import MemoryManager
from memfiles.records import file_changes as changes
from memfiles.records.entry import Entry, new_text
from memfiles.records.entry_codec import encode_entry
from memfiles.records.marks import Mark
from memfiles.records.record import Actor, Change, Record, Stamp, decode, digest, encode, successor
from memfiles.storage.record_kinds import version_of, version_of_entry
from memfiles.storage.record_store import NewVersion
from memfiles.storage.transaction import groups_of
from tests.support.records import declared, many_times

AT = "2026-11-21T09:00:00.000Z"
FIRST = Change(1, AT, "seed", bytes=4, offset=0)
RECORD = Record("notes", "notes", "", 1000, "PUBLIC", "one\n", digest(b"one\n"), 1, AT, AT, (FIRST,))
SPOILT_CHANGES: list[dict[str, Any]] = [
    {"target": 1.0},
    {"line": True},
    {"bytes": -1},
    {"at": "yesterday"},
    {"op": "guess"},
    {"by": Actor(agent=5)},  # type: ignore[arg-type]
    {"revision": 1.0},
    {"old": 7},
]
SPOILT: list[dict[str, Any]] = [{"level": 5}, {"updated_at": AT[:10]}, {"sha256": "0"}, {"history": (FIRST, FIRST)}]


def entry(**said: Any) -> Entry:
    text = replace(new_text("support", "plan", level="PUBLIC", run="", content="a\n", at=AT), revision=1)
    text = replace(text, history=(Change(1, AT, "save", bytes=2, offset=0),))
    return Entry(**{"text": text, "agent": "support", "key": "plan", **said})


@pytest.mark.parametrize("spoilt", SPOILT_CHANGES, ids=str)
def test_a_change_that_could_not_be_read_back_is_refused(spoilt: dict[str, Any]) -> None:
    """Whatever its caller let pass."""
    record = replace(RECORD, history=(replace(FIRST, **spoilt),))
    with pytest.raises(InvalidArgument, match="nothing was changed, because the new version could not be read back"):
        version_of(record, replaces=None)


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_record_that_could_not_be_read_back_is_refused(spoilt: dict[str, Any]) -> None:
    """Its head as well as its history."""
    with pytest.raises(InvalidArgument, match="could not be read back"):
        version_of(replace(RECORD, **spoilt), replaces=None)


@pytest.mark.parametrize(
    "spoilt",
    [{"tags": (5,)}, {"importance": 2.0}, {"pinned": "yes"}, {"expires_at": "soon"}, {"key": "other"}, {"kind": "x"}],
    ids=str,
)
def test_an_entry_that_could_not_be_read_back_is_refused(spoilt: dict[str, Any]) -> None:
    """So is one that would not belong where it lies."""
    with pytest.raises(InvalidArgument, match="could not be read back"):
        version_of_entry(entry(**spoilt), replaces=None)


def test_a_tombstone_that_could_not_be_read_back_is_refused() -> None:
    """A forget that cannot be read would bring nothing to rest."""
    tombstone = Mark(entry().uid, "support", "PUBLIC", "vacated", 2, AT)

    assert encode_entry(tombstone) == version_of_entry(tombstone, replaces=None).data
    with pytest.raises(InvalidArgument, match="could not be read back"):
        version_of_entry(replace(tombstone, id="x"), replaces=None)


def test_what_can_be_read_back_is_the_whole_record() -> None:
    """The bytes are those of the record with all of its history, whatever of it was new."""
    first = version_of(RECORD, replaces=None)
    again = version_of(replace(RECORD, content="two\n", sha256=digest(b"two\n")), replaces=None)

    assert ("notes.json", 1, encode(RECORD)) == (first.path, first.revision, first.data)
    assert encode(replace(RECORD, content="two\n", sha256=digest(b"two\n"))) == again.data
    assert encode_entry(entry()) == version_of_entry(entry(), replaces=None).data


def appended(record: Record, text: str) -> Record:
    changed = changes.append(record, Stamp(AT), text=text).record
    assert changed is not None
    return changed


KNOWN = appended(appended(RECORD, "two\n"), "three\n")
version_of(KNOWN, replaces=None)
LATER = appended(KNOWN, "four\n")
NEWEST = LATER.history[-1]


def spoilt_change(change: Change, **said: Any) -> Change:
    return replace(change, **said)


class Loud(str):
    """Text that tells lies about itself."""

    def startswith(self, *_: object) -> bool:
        return True

    def __getitem__(self, _: object) -> str:
        return ""


SPOILT_LATER: list[dict[str, Any]] = [
    {"content": LATER.content + "more"},
    {"content": Loud("lies")},
    {"content": "four\n"},
    {"content": LATER.content.replace("one", "two")},
    {"content_start": LATER.content_start + b"more"},
    {"content_start": LATER.content_start[:-1]},
    {"content_start": LATER.content_start + b"\\ud800"},
    {"content_start": LATER.content_start + b"\xff"},
    {"content_start": LATER.content_start.replace(b"one", b"two")},
    {"sha256": LATER.sha256.upper()},
    {"revision": 2**53},
    {"updated_at": "now"},
    {"level": 7},
    {"origins": {"0" * 12: 5}},
    {"origins": {"x": 1}},
    {"history": (*LATER.history[:-1], spoilt_change(NEWEST, bytes=5.0))},
    {"history": (*LATER.history[:-1], replace(NEWEST, revision=3), NEWEST)},
    {"history": (*LATER.history[:-1], spoilt_change(LATER.history[-2], bytes=6.0), NEWEST)},
    {"history": (*LATER.history[:-2], spoilt_change(LATER.history[-2], bytes=6.0), NEWEST)},
    {"history": (replace(LATER.history[0], bytes=True), *LATER.history[1:])},
    {"history": (*LATER.history[:-1], replace(NEWEST, revision=3)), "revision": 3},
    {"history": (LATER.history[1], LATER.history[0], *LATER.history[2:])},
    {"history": LATER.history[:-1]},
]


@pytest.mark.parametrize("spoilt", SPOILT_LATER, ids=lambda spoilt: next(iter(spoilt)))
def test_what_was_read_back_before_covers_up_for_nothing(spoilt: dict[str, Any]) -> None:
    """A later version that is not what was read back and something new at its end is looked at anew, and refused."""
    if "history" in spoilt:
        spoilt = {**spoilt, "history_json": b",\n".join([change.encoded for change in spoilt["history"]])}
    with pytest.raises(InvalidArgument, match="could not be read back"):
        fields = {name: value for name, value in spoilt.items() if name in Record.__struct_fields__}
        derived = {name: value for name, value in spoilt.items() if name not in fields}
        version_of(successor(LATER, derived, **fields), replaces=None)


steps = st.tuples(st.sampled_from(["append", "edit", "undo", "read", "again"]), st.text(max_size=12))


@many_times
@given(st.lists(steps, max_size=12))
def test_every_version_is_the_record_as_a_start_reads_it(made: list[tuple[str, str]]) -> None:
    """Whether what it holds was read back before, read from the disk, or is new; down to the last byte."""
    record = RECORD
    for kind, text in made:
        stamp = Stamp(AT, Actor(call=text))
        if kind == "append":
            record = changes.append(record, stamp, text=text, earlier=RECORD).record or record
        elif kind == "edit":
            record = changes.replace_content(record, stamp, content=text).record or record
        elif kind == "undo" and len(record.history) > 1:
            record = changes.undo(record, stamp).record or record
        elif kind == "read":
            record = decode(encode(record), uid="notes")
        if kind != "again":  # then the next version has several changes that are new
            data = version_of(record, replaces=None).data
            assert encode(replace(record)) == data
            assert record == decode(data, uid="notes")


def test_changes_that_were_read_back_before_stay_where_they_were() -> None:
    """Between the head of the record, read anew, and its end; also if nothing of the history is new."""
    tricky = '"history":[\n]}\n'
    record = replace(RECORD, content=tricky, sha256=digest(tricky.encode()))
    known = version_of(record, replaces=None).data
    later = replace(record, revision=2, history=(*record.history, Change(2, AT, "edit", bytes=1, offset=0, old=tricky)))
    saved = entry()
    version_of_entry(saved, replaces=None)
    text = replace(saved.text, revision=2, history=(*saved.text.history, Change(2, AT, "update")))
    changed = replace(saved, text=text)

    assert [known, encode(later)] == [version_of(each, replaces=None).data for each in (record, later)]
    assert encode_entry(changed) == version_of_entry(changed, replaces=None).data


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(tmp_path / "memory", durability="os") as manager:
        manager.restore([declared("notes", content="one\n", cap=1000)])
        yield manager


@pytest.mark.parametrize("call_id", [5, 5.0, True, b"toolu", ["x"], "half \ud800"])
def test_a_call_id_is_text(manager: MemoryManager, call_id: Any) -> None:
    """Or it is refused, and named."""
    before = (manager.directory / "notes.json").read_bytes()
    with pytest.raises(InvalidArgument, match="an agent, session, call id or actor"):
        manager.append("notes", "x\n", call_id=call_id)

    assert before == (manager.directory / "notes.json").read_bytes()


def test_texts_of_every_kind_can_be_read_back(manager: MemoryManager) -> None:
    """Control characters, NUL, every plane of Unicode, and a text of a class of its own."""

    class Text(str):
        pass

    for number, text in enumerate(["\0\x01\x1b\x7f\u2028", "\U0001f642\ufeff\uffff", Text("own\n")]):
        manager.append("notes", text, call_id=f"nul \0 {number}")
    content = manager.read("notes")
    manager.restore([declared("notes", cap=1000)])

    assert "one\n\0\x01\x1b\x7f\u2028\U0001f642\ufeff\uffffown\n" == content == manager.read("notes")


def test_a_commit_has_a_largest_size(manager: MemoryManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over it is refused with the numbers before anything is staged, however many records it is made of."""
    monkeypatch.setattr("memfiles.storage.transaction.LARGEST_COMMIT", 900)
    before = sorted(manager.directory.rglob("*"))
    with pytest.raises(SizeExceeded, match="the 1 records of this change have 1[0-9]{3} bytes, over the 900"):
        manager.append("notes", "x" * 900)

    assert before == sorted(manager.directory.rglob("*"))
    assert "one\n" == manager.read("notes")


def test_many_changes_are_grouped_by_what_a_commit_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order; a start may bring more than one commit can."""
    monkeypatch.setattr("memfiles.storage.transaction.LARGEST_COMMIT", 10)
    changes = [NewVersion(f"{size}.json", 1, b"x" * size, None) for size in (4, 6, 1, 10, 3)]

    assert [["4.json", "6.json"], ["1.json"], ["10.json"], ["3.json"]] == [
        [change.path for change in group] for group in groups_of(changes)
    ]
    assert [] == list(groups_of([]))
