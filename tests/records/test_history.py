"""The history inside a record: reverse deltas, their bounds, what they can tell and how they are cleaned."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import MemfilesError, RevisionUnknown
from memfiles.records import file_changes as changes
from memfiles.records.file_changes import Decision
from memfiles.records.history import (
    Splice,
    common_prefix,
    common_suffix,
    content_at,
    contents,
    oldest_known,
    rewritten,
    splice_between,
    unified_diff,
)
from memfiles.records.record import (
    MAX_HISTORY_BYTES,
    MAX_HISTORY_CHANGES,
    Change,
    Record,
    decode,
    encode,
    extend,
    with_content,
)
from memfiles.records.redactions import MARKER, Cleaner
from tests.support.records import LATER, many_times, seeded, stamp

texts = st.text("aab\nü日👋", max_size=8)
requests = st.one_of(
    st.tuples(st.just("append"), texts),
    st.tuples(st.just("edit"), texts, texts),
    st.tuples(st.just("replace"), texts),
    st.tuples(st.just("undo")),
    st.tuples(st.just("go back"), st.integers(1, 12)),
)


@given(st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=12), st.integers(0, 24))
def test_the_common_end_of_two_texts_is_their_common_beginning_turned_around(
    one: bytes, other: bytes, end: bytes, most: int
) -> None:
    """Of so many bytes at most, as what both texts begin with is counted already."""
    left, right = one + end, other + end
    most = min(most, len(left), len(right))

    assert min(most, common_prefix(left[::-1], right[::-1])) == common_suffix(left, right, most=most)


def test_new_content_keeps_what_was_encoded_of_the_history() -> None:
    """An edit of a note with a hundred changes encodes its own change alone."""
    record = extend(seeded("# Notes\n"), Change(2, LATER, "declare"))
    encoded = record.history_json
    edited = with_content(record, "other")

    assert encoded is vars(edited)["history_json"]
    assert encode(replace(edited)) == encode(edited)


def requested(record: Record, request: tuple[object, ...]) -> Decision:
    """What becomes of one request."""
    match request:
        case "append", str(text):
            return changes.append(record, stamp(), text=text)
        case "edit", str(old), str(new):
            return changes.edit(record, stamp(), old=old, new=new)
        case "replace", str(text):
            return changes.replace_content(record, stamp(), content=text)
        case "go back", int(revision):
            return changes.undo(record, stamp(), to_revision=revision)
    return changes.undo(record, stamp())


def written(requests: list[tuple[object, ...]]) -> tuple[Record, dict[int, str]]:
    """The record after these requests, and the content it had at every revision."""
    record = seeded("ab\n")
    model = {1: record.content}
    for request in requests:
        try:
            record = requested(record, request).record or record
        except MemfilesError:
            continue
        model[record.revision] = record.content
    return record, model


@many_times
@given(st.lists(requests, max_size=12))
def test_every_revision_can_be_reconstructed(requests: list[tuple[object, ...]]) -> None:
    """Whatever was done, in any script, each earlier content is exactly what it was."""
    record, model = written(requests)

    assert model == {revision: content_at(record, revision) for revision in model}
    assert oldest_known(record) == 1


@many_times
@given(st.lists(requests, max_size=12))
def test_the_history_survives_the_disk(requests: list[tuple[object, ...]]) -> None:
    """What was written and read back tells the same."""
    record, model = written(requests)
    found = decode(encode(record), uid=record.uid)

    assert model == {revision: content_at(found, revision) for revision in model}


@many_times
@given(texts, texts)
def test_a_splice_turns_one_text_into_the_other(before: str, after: str) -> None:
    """It is cut between characters, and replaces no more than it must."""
    splice = splice_between(before.encode(), after.encode())
    start = splice.offset or 0
    put = after.encode()[start : start + splice.bytes].decode()

    assert (
        after.encode() == before.encode()[:start] + put.encode() + before.encode()[start + len(splice.old.encode()) :]
    )
    assert not (put and splice.old) or (put[0] != splice.old[0] and put[-1] != splice.old[-1])


def test_a_splice_is_not_cut_inside_a_character() -> None:
    """ü and ö share their first byte, 日 and 旦 their first two."""

    assert Splice(bytes=2, offset=1, old="ü") == splice_between("gün".encode(), "gön".encode())
    assert Splice(bytes=3, offset=0, old="日") == splice_between("日".encode(), "旦".encode())


@pytest.mark.parametrize("revision", [-1, 0, 4, 10**9])
def test_a_revision_that_never_was_is_unknown(revision: int) -> None:
    """It is an error, not the nearest one; the error tells which are known."""
    record, _ = written([("append", "x"), ("append", "y")])
    with pytest.raises(RevisionUnknown, match=f"notes has no revision {revision}; its history holds 1 to 3"):
        content_at(record, revision)


def test_the_newest_hundred_changes_are_kept() -> None:
    """The oldest one kept still tells the content before it."""
    record, model = written([("append", f"{number}\n") for number in range(150)])

    assert MAX_HISTORY_CHANGES == len(record.history)
    assert [52, 151] == [record.history[0].revision, record.history[-1].revision]
    assert 51 == oldest_known(record)
    assert [model[51], model[52], model[151]] == [content_at(record, revision) for revision in (51, 52, 151)]
    with pytest.raises(RevisionUnknown, match="its history holds 51 to 151"):
        content_at(record, 50)


def test_the_history_is_bounded_in_bytes() -> None:
    """64 KiB of earlier text, however few changes that is."""
    record = seeded("", cap=1 << 20)
    for number in range(12):
        record = changes.replace_content(record, stamp(), content=str(number) * 10_000).record or record
    size = len(encode(record)) - len(encode(replace(record, history=())))

    assert MAX_HISTORY_BYTES - 11_000 < size <= MAX_HISTORY_BYTES
    assert "8" * 10_000 == content_at(record, record.revision - 3)
    with pytest.raises(RevisionUnknown):
        content_at(record, 2)


def test_a_change_too_large_for_the_bounds_keeps_no_text() -> None:
    """It is in the log, and what was before it cannot be told."""
    record = changes.append(seeded("", cap=1 << 20), stamp(), text="x" * MAX_HISTORY_BYTES).record
    assert record is not None
    emptied = changes.replace_content(record, stamp("big"), content="small").record
    assert emptied is not None

    assert [(3, True, "", "big")] == [(one.revision, one.opaque, one.old, one.by.call) for one in emptied.history]
    assert "small" == content_at(emptied, 3)
    with pytest.raises(RevisionUnknown, match="its history holds 3 to 3"):
        content_at(emptied, 2)


@many_times
@given(st.lists(st.integers(0, 400), max_size=130))
def test_the_bounds_hold_for_any_changes(sizes: list[int]) -> None:
    """What is kept is always the newest, and is encoded as if it had been kept from the start."""
    record = seeded()
    for size in sizes:
        record = extend(record, Change(record.revision + 1, LATER, "append", old="ü" * size))
    lines = [change.encoded for change in record.history]

    assert len(record.history) <= MAX_HISTORY_CHANGES and len(record.history_json) <= MAX_HISTORY_BYTES
    assert list(range(record.revision - len(lines) + 1, record.revision + 1)) == [
        one.revision for one in record.history
    ]
    assert b",\n".join(lines) == record.history_json


def test_a_history_that_does_not_fit_its_content_is_an_error() -> None:
    """It is never stretched to fit: someone may have cut the content by hand and forged its digest."""
    record, _ = written([("append", "twenty characters...")])
    with pytest.raises(RevisionUnknown, match="the history of revision 2 does not fit"):
        content_at(with_content(record, "short"), 1)


def test_a_diff_is_unified() -> None:
    """As ``diff -u`` shows it, with the revisions as names."""
    record, _ = written([("append", "c\n"), ("edit", "ab", "ü")])

    assert "--- notes@1\n+++ notes@3\n@@ -1 +1,2 @@\n-ab\n+ü\n+c\n" == unified_diff(
        record, from_revision=1, to_revision=3
    )


def test_a_diff_goes_both_ways() -> None:
    """From a later revision to an earlier one, what was added is taken away."""
    record, _ = written([("append", "c\n")])

    assert "-c\n" in unified_diff(record, from_revision=2, to_revision=1)


def test_a_diff_between_equal_contents_is_empty() -> None:
    """There is nothing to show."""
    record, _ = written([("append", "c\n"), ("undo",)])

    assert "" == unified_diff(record, from_revision=1, to_revision=3)


def test_a_diff_says_where_no_newline_ends_the_text() -> None:
    """As ``diff`` does, so that ``patch`` understands it."""
    record, _ = written([("append", "c")])

    assert unified_diff(record, from_revision=1, to_revision=2).endswith("+c\n\\ No newline at end of file\n")


def test_only_a_newline_ends_a_line_of_a_diff() -> None:
    r"""Other separators, such as ``\r`` and U+2028, are text."""
    record, _ = written([("append", "c\rd\u2028e\x0cf\n")])

    assert unified_diff(record, from_revision=1, to_revision=2).endswith(" ab\n+c\rd\u2028e\x0cf\n")


def _is_within(part: str, text: str) -> bool:
    """Whether a text has these characters in this order."""
    rest = iter(text)
    return all(character in rest for character in part)


@many_times
@example([("append", "a"), ("append", "a")], "aa")
@given(st.lists(requests, max_size=10), st.text("aab\nü", min_size=1, max_size=3))
def test_cleaning_reaches_every_revision(requests: list[tuple[object, ...]], needle: str) -> None:
    """Each content is what it was, cleaned; the parts of which a later one was put together may be gone as well."""
    record, model = written(requests)
    cleaned = rewritten(record, Cleaner([needle.encode()]))
    kept = json.loads(encode(cleaned))
    put, left = "" if needle in MARKER else MARKER, {at: content_at(cleaned, at) for at in model}
    wanted = {at: text.replace(needle, put) for at, text in model.items()}
    has_lost = {at for at in model if any(needle in model[later] for later in model if later > at)}

    assert {at: text for at, text in wanted.items() if at not in has_lost} == {
        at: text for at, text in left.items() if at not in has_lost
    }
    assert [at for at in has_lost if not _is_within(left[at].replace(MARKER, ""), wanted[at].replace(MARKER, ""))] == []
    assert [] == [change for change in kept["history"] if needle in change.get("old", "")]
    assert needle not in kept["content"]


def test_text_that_a_later_change_cut_in_two_is_cleaned() -> None:
    """Neither the content nor any single delta held it whole."""
    record, _ = written([("append", "my secret word"), ("edit", "cre", "--"), ("edit", "se--t", "")])
    cleaned = rewritten(record, Cleaner([b"secret"]))

    assert ["ab\n", "ab\nmy [redacted] word", "ab\nmy se--t word", "ab\nmy  word"] == [
        content_at(cleaned, at) for at in range(1, 5)
    ]
    assert not any("cre" in change.old for change in cleaned.history)


def test_changes_that_held_none_of_the_text_stay_as_they_were() -> None:
    """A replay of them is told by their text; only those that had to be cleaned are marked."""
    record, _ = written([("append", "secret\n"), ("edit", "ab", "ac"), ("append", "d\n")])
    cleaned = rewritten(record, Cleaner([b"secret"]))

    assert [False, True, False, False] == [change.redacted for change in cleaned.history]
    assert [("ab", 2), ("", 2)] == [(change.old, change.bytes) for change in cleaned.history[2:]]


def test_the_walk_stops_where_the_past_is_unknown() -> None:
    """Behind a change by hand that nobody saw the earlier text of, there is nothing to walk."""
    record, _ = written([("append", "c")])
    absorbed = changes.absorb(replace(record, content="by hand"), known=None, at=LATER)

    assert [(3, b"by hand")] == [(change.revision, content) for change, content in contents(absorbed)]
    assert [1, 2, 3] == [change.revision for change in absorbed.history]
