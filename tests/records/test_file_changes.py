"""Decisions: what each requested change makes of a record, as pure functions of record and request."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import EditNoMatch, EmptyText, RevisionConflict, RevisionUnknown, SizeExceeded
from memfiles.records.file_changes import (
    Decision,
    absorb,
    append,
    card_of,
    edit,
    receipt_of,
    replace_content,
    undo,
    with_warnings,
)
from memfiles.records.history import content_at
from memfiles.records.record import Actor, Change, Record, encode
from tests.support.records import LATER, SEEDED_AT, many_times, redact, seeded, stamp

texts = st.text("ab\n ü👋", max_size=10)


def after(decision: Decision) -> Record:
    """The record that a decision commits; it must commit one."""
    assert decision.record is not None
    return decision.record


def written(*texts: str, call: str | None = None) -> Record:
    """A record seeded with the first text, the others appended."""
    record = seeded(texts[0])
    for text in texts[1:]:
        record = after(append(record, stamp(call), text=text))
    return record


# append


@many_times
@given(texts, texts)
def test_append_concatenates_exactly(content: str, text: str) -> None:
    """No newline is added, none taken away, nothing is normalised."""
    decision = append(seeded(content), stamp(), text=text)

    assert content + text == (decision.record or seeded(content)).content
    assert len((content + text).encode()) == decision.receipt.size_bytes


def test_a_change_says_who_when_and_how_much() -> None:
    """An append needs only its length: its text stands at the end of the content."""
    record = after(append(seeded("# "), stamp("toolu_01", agent="support"), text="ü\n"))

    assert Change(2, LATER, "append", Actor("support", None, "toolu_01"), 3) == record.history[-1]
    assert (2, SEEDED_AT, LATER) == (record.revision, record.created_at, record.updated_at)


def test_appending_nothing_changes_nothing() -> None:
    """No revision is spent on it."""
    decision = append(seeded("x"), stamp(), text="")

    assert (None, 1) == (decision.record, decision.receipt.revision)


def test_an_append_may_fill_the_cap_exactly() -> None:
    """The cap is the last size allowed, in bytes."""
    receipt = append(seeded("ab", cap=6), stamp(), text="üü").receipt

    assert (6, 0, 1.0) == (receipt.size_bytes, receipt.bytes_left, receipt.share)


def test_an_append_over_the_cap_is_refused_with_the_numbers() -> None:
    """Characters would fit, bytes do not; the caller can tell how much to cut."""
    with pytest.raises(
        SizeExceeded, match="would be 7 bytes, over its cap of 6; it is 3 now, so 3 bytes are left and this needs 4"
    ):
        append(seeded("abc", cap=6), stamp(), text="üü")


# edit


def test_edit_replaces_the_first_match() -> None:
    """It says how often the text occurs, and on which line the replaced one stood."""
    decision = edit(seeded("one\ntwo two\ntwo\n"), stamp(), old="two", new="2")

    assert "one\n2 two\ntwo\n" == after(decision).content
    assert (3, 2) == (decision.receipt.matches, decision.receipt.line)


def test_edit_may_span_lines_and_delete() -> None:
    """The text to find is text, not a line and not a pattern."""
    decision = edit(seeded("a.*\nb\nc"), stamp(), old=".*\nb", new="")

    assert ("a\nc", 1, 1) == (after(decision).content, decision.receipt.matches, decision.receipt.line)


def test_edit_with_empty_old_text_is_refused() -> None:
    """It would match everywhere."""
    with pytest.raises(EmptyText, match="nothing to find in notes"):
        edit(seeded("a"), stamp(), old="", new="x")


def test_no_match_shows_the_nearest_line() -> None:
    """So that the caller can correct itself; the lines are counted from 1."""
    with pytest.raises(EditNoMatch, match="nearest is line 2: '- Bob is on Pro'"):
        edit(seeded("# Customers\n- Bob is on Pro\n- Ann\n"), stamp(), old="- Bob is on pro", new="x")


def test_no_match_without_a_near_line_says_to_read_the_file() -> None:
    """A far-fetched hint would mislead."""
    with pytest.raises(EditNoMatch, match="read it and copy the text exactly"):
        edit(seeded("# Customers\n"), stamp(), old="%%%", new="x")


def test_edit_to_the_same_text_changes_nothing() -> None:
    """It still tells the matches."""
    decision = edit(seeded("a a"), stamp(), old="a", new="a")

    assert (None, 1, 2) == (decision.record, decision.receipt.revision, decision.receipt.matches)


def test_a_file_over_its_cap_may_shrink_but_not_grow_or_stay() -> None:
    """That is how it gets back under a cap that was lowered."""
    record = seeded("0123456789", cap=5)

    assert "01234567" == after(edit(record, stamp(), old="89", new="")).content
    for refused in (partial(edit, old="89", new="!!"), partial(edit, old="8", new="!!"), partial(append, text="x")):
        with pytest.raises(SizeExceeded, match="it is 10 now, so 0 bytes are left"):
            refused(record, stamp())


# replace


def test_replacing_the_content_is_the_smallest_edit_that_does_it() -> None:
    """The history stays small, whatever an editor rewrote."""
    record = after(replace_content(seeded("one\ntwo\nthree\n"), stamp(), content="one\n2\nthree\n"))

    assert "one\n2\nthree\n" == record.content
    assert ("edit", 4, "two", 1) == tuple(
        getattr(record.history[-1], name) for name in ("op", "offset", "old", "bytes")
    )


def test_replacing_content_by_itself_changes_nothing() -> None:
    """Saving an unchanged file is no change."""

    assert replace_content(seeded("x"), stamp(), content="x").record is None


# expected revision


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_write_over_a_revision_nobody_expected_is_refused(expected: int) -> None:
    """The caller decided on something else than what is there."""
    record = written("a\n", "b\n")
    for write in (
        lambda: append(record, stamp(expected=expected), text="x"),
        lambda: edit(record, stamp(expected=expected), old="a", new="x"),
        lambda: replace_content(record, stamp(expected=expected), content="x"),
        lambda: undo(record, stamp(expected=expected)),
        lambda: redact(record, stamp(expected=expected), text="a"),
    ):
        with pytest.raises(RevisionConflict, match=f"notes is at revision 2, not {expected}: read it again"):
            write()


def test_a_write_over_the_expected_revision_happens() -> None:
    """Nothing came in between."""

    assert "a\nb\nc" == after(append(written("a\n", "b\n"), stamp(expected=2), text="c")).content


# undo


def test_undo_takes_back_the_last_change_as_a_new_revision() -> None:
    """Nothing is rolled back: the history tells that it was undone."""
    decision = undo(written("a\n", "b\n", "c\n"), stamp())

    assert ("a\nb\n", 4, "undo") == (after(decision).content, after(decision).revision, after(decision).history[-1].op)
    assert 3 == decision.receipt.undone_revision


def test_undoing_an_undo_brings_the_change_back() -> None:
    """There is no other redo."""
    record = written("a\n", "b\n")

    assert "a\nb\n" == after(undo(after(undo(record, stamp())), stamp())).content


def test_undo_goes_back_to_any_known_revision() -> None:
    """Also back to the future: the content as it was, not the changes in reverse."""
    record = written("a\n", "b\n", "c\n")
    back = after(undo(record, stamp(), to_revision=1))

    assert ["a\n", "a\nb\nc\n"] == [back.content, after(undo(back, stamp(), to_revision=3)).content]


def test_undo_to_the_present_content_changes_nothing() -> None:
    """There is nothing to take back."""

    assert undo(written("a\n", "b\n"), stamp(), to_revision=2).record is None


def test_undo_passes_over_changes_that_left_the_content_alone() -> None:
    """A new description is not what the caller wants taken back."""
    record = written("a\n", "b\n")
    redeclared = replace(record, revision=3, history=(*record.history, Change(3, LATER, "declare")))

    assert "a\n" == after(undo(redeclared, stamp())).content


@pytest.mark.parametrize("revision", [-1, 0, 3])
def test_undo_beyond_the_history_is_refused(revision: int) -> None:
    """Earlier than the first revision, or later than the last."""
    with pytest.raises(RevisionUnknown, match="its history holds 1 to 2"):
        undo(written("a\n", "b\n"), stamp(), to_revision=revision)


def test_there_is_nothing_before_the_seed() -> None:
    """The first revision cannot be undone."""
    with pytest.raises(RevisionUnknown, match="no change in its history to undo"):
        undo(seeded("a"), stamp())


def test_undo_respects_the_cap() -> None:
    """What was allowed under an earlier cap may not be now."""
    shrunk = after(edit(seeded("0123456789", cap=10), stamp(), old="456789", new=""))
    with pytest.raises(SizeExceeded):
        undo(replace(shrunk, max_size_bytes=5), stamp())


# changes by hand


def test_a_change_by_hand_becomes_a_revision() -> None:
    """With what was known before, it can be undone like any other."""
    known = written("a\n", "b\n")
    record = absorb(replace(known, content="a\nhand\n"), known=known, at=LATER)

    assert (3, "external", True) == (record.revision, record.history[-1].op, record.is_intact)
    assert "a\nb\n" == after(undo(record, stamp())).content


def test_a_change_by_hand_does_not_change_what_is_declared() -> None:
    """Name, level and cap come from the workflow; the record on disk is put right."""
    known = written("a\n")
    record = absorb(replace(known, content="b", level="PUBLIC", max_size_bytes=9**9), known=known, at=LATER)

    assert ("b", "INTERNAL", 4096) == (record.content, record.level, record.max_size_bytes)


def test_a_change_by_hand_that_nobody_saw_the_past_of_is_opaque() -> None:
    """The log keeps who did what before; what the text was cannot be told, so none of it is kept."""
    before = after(edit(seeded("a secret"), stamp("c1"), old="secret", new="word"))
    record = absorb(replace(before, content="by hand"), known=None, at=LATER)

    assert ["seed", "edit", "external"] == [change.op for change in record.history]
    assert (True, "by hand") == (record.history[-1].opaque, content_at(record, 3))
    assert b"secret" not in encode(record)
    with pytest.raises(RevisionUnknown):
        undo(record, stamp())


def test_a_change_by_hand_stands_on_the_latest_version_there_was() -> None:
    """What this process knew may have been redacted by another since: that does not come back."""
    known = written("a secret")
    redacted = redact(known, stamp(), text="secret")[0]
    assert redacted is not None
    record = absorb(replace(redacted, content="a hand-made [redacted]"), known=known, at=LATER)

    assert 3 == record.revision
    assert b"secret" not in encode(record)


def test_a_change_by_hand_on_an_old_copy_comes_after_what_is_known() -> None:
    """The revision never goes back."""
    known = written("a\n", "b\n", "c\n")
    record = absorb(replace(known, content="old copy", revision=1, history=known.history[:1]), known=known, at=LATER)

    assert (4, "a\nb\nc\n") == (record.revision, content_at(record, 3))


def test_a_receipt_has_revision_sizes_and_share() -> None:
    """Everything a caller needs to decide what to write next, in UTF-8 bytes."""
    receipt = append(seeded("# Grüße\n", cap=40), stamp(), text="x").receipt

    assert {
        "uid": "notes",
        "name": "notes",
        "revision": 2,
        "size_bytes": 11,
        "max_size_bytes": 40,
        "bytes_left": 29,
        "share": 0.275,
    } == receipt.to_dict()


@pytest.mark.parametrize(
    ("size", "warning"),
    [
        (79, None),
        (80, "80 % of the cap is used (80 of 100 bytes, 20 bytes are left): shorten the file soon"),
        (100, "100 % of the cap is used (100 of 100 bytes, 0 bytes are left): shorten the file soon"),
        (250, "250 % of the cap is used (250 of 100 bytes, 150 bytes over it): shorten the file soon"),
    ],
)
def test_from_four_fifths_of_the_cap_there_is_a_warning(size: int, warning: str | None) -> None:
    """Early enough to tidy up before a write is refused."""

    assert warning == receipt_of(seeded("x" * size, cap=100)).warning


def test_a_file_over_its_cap_has_nothing_left() -> None:
    """Not less than nothing; the share tells how far over it is."""
    receipt = receipt_of(seeded("x" * 150, cap=100))

    assert (0, 1.5) == (receipt.bytes_left, receipt.share)


def test_zero_is_a_number() -> None:
    """An empty file has a size, a full one has room of zero: only what does not apply is left out."""
    empty, full = receipt_of(seeded("", cap=10)).to_dict(), receipt_of(seeded("x" * 10, cap=10)).to_dict()

    assert (0, 0.0, 0) == (empty["size_bytes"], empty["share"], full["bytes_left"])
    assert not {"replayed", "matches", "line", "undone_revision", "warning"} & set(empty)


def test_an_edit_and_an_undo_say_more() -> None:
    """Where the edit was and how many places there were; which change was taken back."""
    record = append(seeded("a\n"), stamp(), text="b b").record or seeded()
    edited = edit(record, stamp(), old="b", new="c").receipt

    assert (2, 2) == (edited.matches, edited.line)
    assert 2 == undo(record, stamp()).receipt.undone_revision
    assert undo(record, stamp(), to_revision=1).receipt.undone_revision is None


def test_what_the_secrets_gate_says_is_a_warning_too() -> None:
    """After the one about the cap, if there is one."""
    roomy, full = receipt_of(seeded("x")), receipt_of(seeded("x" * 9, cap=10))

    assert "a; b" == with_warnings(roomy, ["a", "b"]).warning
    assert f"{full.warning}; a" == with_warnings(full, ["a"]).warning
    assert roomy == with_warnings(roomy, [])


def test_a_card_says_everything_but_the_content() -> None:
    """A tool may list the files without reading them to the model."""

    assert {
        "uid": "notes",
        "name": "notes",
        "description": "What is known.",
        "level": "INTERNAL",
        "max_size_bytes": 4096,
        "size_bytes": 7,
        "revision": 1,
        "provisional": False,
    } == card_of(seeded("hunter2")).to_dict()
