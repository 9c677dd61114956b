"""Redaction: text leaves the content and every revision that the history can tell."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import EmptyText
from memfiles.records.file_changes import Redaction, append, edit, replace_content, undo
from memfiles.records.history import content_at, oldest_known
from memfiles.records.record import Record, encode
from memfiles.records.redactions import MARKER
from tests.support.records import many_times, redact, seeded, stamp


def redacted(record: Record, text: str) -> tuple[Record, Redaction]:
    changed, redaction = redact(record, stamp(), text=text)
    assert changed is not None
    return changed, redaction


def written(*contents: str, cap: int = 4096) -> Record:
    """A record that had each of these contents in turn."""
    record = seeded(contents[0], cap=cap)
    for content in contents[1:]:
        record = replace_content(record, stamp(), content=content).record or record
    return record


def texts_of(record: Record) -> list[str]:
    """Every text in a record that came from outside: its content and what its history keeps."""
    fields = json.loads(encode(record))
    return [fields["content"], *(change.get("old", "") for change in fields["history"])]


def test_the_marker_takes_the_place_of_the_text() -> None:
    """A reader sees that something was there."""
    record, redaction = redacted(written("the word is hunter2, hunter2\n"), "hunter2")

    assert ("the word is [redacted], [redacted]\n", 2) == (record.content, redaction.in_content)


def test_a_redaction_is_a_revision() -> None:
    """The log tells when it was, and the receipt is a write's."""
    record, redaction = redacted(written("hunter2"), "hunter2")

    assert (2, "redact", 2, 10) == (
        record.revision,
        record.history[-1].op,
        redaction.receipt.revision,
        redaction.receipt.size_bytes,
    )


def test_text_that_only_the_past_held_is_taken_out_of_it() -> None:
    """The content stays as it is; what earlier revisions were is told without the text."""
    record, redaction = redacted(written("a hunter2 b", "a b"), "hunter2")

    assert (["a [redacted] b", "a b"], 0, 2) == (
        [content_at(record, 1), content_at(record, 2)],
        redaction.in_content,
        redaction.in_history,
    )
    assert "hunter2" not in "".join(texts_of(record))


def test_text_that_an_earlier_change_cut_in_two_is_found() -> None:
    """No content and no delta holds it whole, but one revision did."""
    record, redaction = redacted(written("a b", "a hunter2 b", "a hun b", "a b"), "hunter2")

    assert ["a b", "a [redacted] b", "a hun b", "a b"] == [content_at(record, at) for at in range(1, 5)]
    assert 0 == redaction.in_content


def earlier(record: Record) -> list[str]:
    """All contents that the history can tell, the oldest first."""
    return [content_at(record, at) for at in range(oldest_known(record), record.revision + 1)]


@pytest.mark.parametrize(
    ("contents", "text", "left"),
    [
        (["#\n", "#\none\n", "#\none\ntwo\n"], "one\ntwo", ["#\n", "#\n[redacted]", "#\n[redacted]\n"]),
        (["#\n", "#\none\n", "#\none\ntwo\n"], "one\ntwo\n", ["#\n", "#\n[redacted]", "#\n[redacted]"]),
        (["two\n", "one\ntwo\n"], "one\ntwo\n", ["[redacted]", "[redacted]"]),
        (["a b", "a hunter b", "a hunter2 b"], "hunter2", ["a b", "a [redacted] b", "a [redacted] b"]),
        (["ac", "abc", "abbc"], "abbc", ["[redacted]", "[redacted]", "[redacted]"]),
        (["1\n", "1\nx\n", "1\nx\n2\n", "1\n2\n"], "1\n2", [f"{MARKER}{it}" for it in ("", "x\n", "x\n\n", "\n")]),
        (["one\n", "one\r\ntwo\r\n"], "one\r\ntwo", ["[redacted]\n", "[redacted]\r\n"]),
        (["first\n", "head\nfirst\ntwo\ntail\n"], "first\ntwo\n", ["[redacted]\n", "head\n[redacted]tail\n"]),
        (["one\none\n", "one\none\ntwo\n"], "one\ntwo", ["one\n[redacted]", "one\n[redacted]\n"]),
    ],
)  # fmt: skip
def test_the_past_loses_the_parts_that_it_was_put_together_from(
    contents: list[str], text: str, left: list[str]
) -> None:
    """An earlier revision had some of its lines, or the beginning of a word; the same text elsewhere stays."""
    record, _ = redacted(written(*contents), text)

    assert [*left, left[-1]] == earlier(record)


@pytest.mark.parametrize(
    ("contents", "text", "left"),
    [
        (["- Bob is on Free\n", "- Bob is on Pro\n"], "Bob is on Pro", ["- Bob is on Free\n", "- [redacted]\n"]),
        (["one\nBob: Free\n", "one\nBob: Pro\n"], "one\nBob: Pro", ["[redacted]Bob: Free\n", "[redacted]\n"]),
        (["Bob: Free\ntwo\n", "Bob: Pro\ntwo\n"], "Bob: Pro\ntwo", ["Bob: Free\n[redacted]\n", "[redacted]\n"]),
    ],
)
def test_another_text_that_it_replaced_stays_in_the_past(contents: list[str], text: str, left: list[str]) -> None:
    """Only whole lines next to what was replaced are parts of the redacted text."""
    record, _ = redacted(written(*contents), text)

    assert [*left, left[-1]] == earlier(record)


LINES = st.lists(st.sampled_from(["one", "two", "six", ""]), min_size=1, max_size=5)


@many_times
@given(LINES, st.data())
def test_lines_that_were_appended_leave_no_line_of_the_redacted_ones(lines: list[str], data: st.DataObject) -> None:
    """Each in a change of its own: what is redacted was never there, and every other line was."""
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    texts = [f"{number} {line}\n" for number, line in enumerate(lines)]
    record, text = seeded("#\n"), "".join(texts[start:end])
    for line in texts:
        record = append(record, stamp(), text=line).record or record
    record, _ = redacted(record, text)

    before, after = "#\n" + "".join(texts[:start]), ""
    wanted = ["#\n" + "".join(texts[:count]) for count in range(start + 1)]
    for line in ["" for _ in texts[start:end]] + texts[end:]:
        after += line
        wanted.append(f"{before}{MARKER}{after}")
    assert [*wanted, wanted[-1]] == earlier(record)


def test_an_undo_does_not_bring_it_back() -> None:
    """Neither of the redaction, which is no change of the content, nor of what was before."""
    record, _ = redacted(written("a hunter2\n", "a\n"), "hunter2")

    assert "a [redacted]\n" == (undo(record, stamp()).record or record).content


def test_nothing_to_take_out_changes_nothing() -> None:
    """No revision is spent on it."""
    changed, redaction = redact(written("a", "b"), stamp(), text="hunter2")

    assert (None, 0, 0) == (changed, redaction.in_content, redaction.in_history)


def test_empty_text_is_refused() -> None:
    """It is everywhere."""
    with pytest.raises(EmptyText, match="nothing to redact"):
        redact(written("a"), stamp(), text="")


def test_a_redaction_is_never_refused_for_the_cap() -> None:
    """The marker may be longer than the text; what must go, goes."""
    record, redaction = redacted(written("x" * 9, cap=10), "x")

    assert ("[redacted]" * 9, 0) == (record.content, redaction.receipt.bytes_left)


@pytest.mark.parametrize("text", ["e", "redacted", "[", "d]", MARKER])
def test_where_the_marker_would_hold_the_text_nothing_takes_its_place(text: str) -> None:
    """Otherwise taking it out would put it in."""
    record, _ = redacted(written(f"a{text}b"), text)

    assert "ab" == record.content


def test_taking_text_out_may_not_put_it_together() -> None:
    """What is left on both sides can be the text again."""
    record, _ = redacted(written("eeredredactedacted x"), "redacted")

    assert "ee x" == record.content


def test_text_of_more_than_ascii_is_taken_out() -> None:
    """Characters are never cut."""
    record, _ = redacted(written("日本語 Grüße 👋", "日 Grüße"), "本語")

    assert ["日[redacted] Grüße 👋", "日 Grüße"] == [content_at(record, 1), record.content]


texts = st.text("ab[]d", max_size=8)


@many_times
@given(st.lists(texts, min_size=1, max_size=6), st.text("ab[]d", min_size=1, max_size=4))
def test_nothing_of_the_text_is_left_in_any_revision(contents: list[str], needle: str) -> None:
    """Whatever the text is, also one that overlaps itself or the marker."""
    record = written(*contents)
    clean = redact(record, stamp(), text=needle)[0] or record

    assert [] == [text for text in texts_of(clean) if needle in text]
    assert [] == [at for at in range(oldest_known(clean), clean.revision + 1) if needle in content_at(clean, at)]


@many_times
@given(st.lists(st.tuples(texts, texts), max_size=6), st.text("ab[]d", min_size=1, max_size=3))
def test_a_redacted_history_goes_on(pairs: list[tuple[str, str]], needle: str) -> None:
    """Later changes stand on the cleaned contents and can be undone to them."""
    record = seeded("aa[b]dd")
    for old, new in pairs:
        if old and old in record.content:
            record = edit(record, stamp(), old=old, new=new).record or record
    clean = redact(record, stamp(), text=needle)[0] or record
    longer = append(clean, stamp(), text="!").record
    assert longer is not None

    assert clean.content == (undo(longer, stamp()).record or longer).content
    assert content_at(clean, 1) == (undo(longer, stamp(), to_revision=1).record or longer).content
