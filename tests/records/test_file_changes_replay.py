"""Replays: a call that comes again, because its answer got lost, returns the same result and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from memfiles.errors import EditNoMatch
from memfiles.records.file_changes import Decision, absorb, append, edit, replace_content, undo
from memfiles.records.record import MAX_HISTORY_BYTES, MAX_HISTORY_CHANGES, Actor, Record, Stamp, decode, encode
from tests.support.records import LATER, redact, seeded, stamp

Change = Callable[[Record, Stamp], Decision]

CALLS: dict[str, Change] = {
    "append": partial(append, text="- Bob\n"),
    "edit": partial(edit, old="two", new="2"),
    "replace": partial(replace_content, content="# Bob\n"),
    "undo": undo,
    "undo to a revision": partial(undo, to_revision=1),
}
START = "one\ntwo\ntwo\n"


def begun() -> Record:
    """A record at revision 2."""
    return after(append(seeded(START), stamp("other"), text="- Ann\n"))


def after(decision: Decision) -> Record:
    assert decision.record is not None
    return decision.record


@pytest.mark.parametrize("call", CALLS)
def test_a_replay_returns_the_same_receipt_and_changes_nothing(call: str) -> None:
    """Only ``replayed`` tells the caller."""
    change = CALLS[call]
    first = change(begun(), stamp("c1"))
    again = change(after(first), stamp("c1"))

    assert (None, replace(first.receipt, replayed=True)) == (again.record, again.receipt)


@pytest.mark.parametrize("call", CALLS)
def test_a_replay_is_known_after_a_restart_and_after_later_changes(call: str) -> None:
    """The history on disk tells it, as long as it holds the call; the receipt has the numbers of then."""
    change = CALLS[call]
    first = change(begun(), stamp("c1"))
    later = after(append(after(first), stamp("c2"), text="later\n"))
    again = change(decode(encode(later), uid="notes"), stamp("c1"))

    assert (None, replace(first.receipt, replayed=True)) == (again.record, again.receipt)


@pytest.mark.parametrize("call", CALLS)
def test_a_replay_is_known_behind_a_change_by_hand(call: str) -> None:
    """The text of then cannot be told any more; who called, what for and how much still can."""
    first = CALLS[call](begun(), stamp("c1"))
    by_hand = absorb(replace(after(first), content="by hand"), known=None, at=LATER)
    again = CALLS[call](by_hand, stamp("c1"))

    assert (None, True, first.receipt.revision) == (again.record, again.receipt.replayed, again.receipt.revision)


@pytest.mark.parametrize("call", CALLS)
def test_a_replay_is_known_whatever_revision_was_expected(call: str) -> None:
    """The caller expected the revision before its own change; that is no conflict."""
    first = CALLS[call](begun(), stamp("c1", expected=2))

    assert CALLS[call](after(first), stamp("c1", expected=2)).receipt.replayed


@pytest.mark.parametrize("call", CALLS)
def test_the_same_id_from_someone_else_is_another_call(call: str) -> None:
    """Two agents, or two runs, may count their calls alike."""
    theirs = after(CALLS[call](begun(), Stamp(LATER, Actor("support", "run 1", "c1"))))
    others = [Actor("sales", "run 1", "c1"), Actor("support", "run 2", "c1"), Actor(call="c1")]

    assert [False] * 3 == [CALLS[call](theirs, Stamp(LATER, by)).receipt.replayed for by in others]


@pytest.mark.parametrize("call", CALLS)
def test_without_an_id_nothing_is_a_replay(call: str) -> None:
    """Asking for the same thing twice is then asking for it twice."""
    once = after(CALLS[call](begun(), stamp()))

    assert not CALLS[call](once, stamp()).receipt.replayed


OTHER_PAYLOADS: dict[str, tuple[Change, Change]] = {
    "append": (partial(append, text="abc"), partial(append, text="abd")),
    "edit, another new text": (partial(edit, old="two", new="2"), partial(edit, old="two", new="3")),
    "edit, another old text": (partial(edit, old="two", new="2"), partial(edit, old="one", new="2")),
    "replace": (partial(replace_content, content="abc"), partial(replace_content, content="abd")),
    "undo": (undo, partial(undo, to_revision=2)),
    "undo to a revision": (partial(undo, to_revision=1), partial(undo, to_revision=2)),
    "another operation": (partial(append, text="two"), partial(edit, old="two", new="two!")),
}


@pytest.mark.parametrize("what", OTHER_PAYLOADS)
def test_a_different_payload_with_the_same_id_is_a_new_change(what: str) -> None:
    """A framework that uses an id twice must not lose a write; and both are then known."""
    first, second = OTHER_PAYLOADS[what]
    record = after(first(begun(), stamp("c1")))
    both = after(second(record, stamp("c1")))

    assert record.revision + 1 == both.revision
    assert [True, True] == [change(both, stamp("c1")).receipt.replayed for change in (first, second)]


def test_a_call_whose_text_was_redacted_is_still_known() -> None:
    """A replay must not bring back what was taken out."""
    record = after(append(begun(), stamp("c1"), text="the word is hunter2\n"))
    redacted = redact(record, stamp(), text="hunter2")[0]
    assert redacted is not None
    again = append(redacted, stamp("c1"), text="the word is hunter2\n")

    assert (None, True) == (again.record, again.receipt.replayed)


def test_a_redaction_leaves_other_calls_known_by_their_text() -> None:
    """Their deltas are moved, not computed anew."""
    record = after(
        edit(after(append(seeded("hunter2 one"), stamp("c1"), text=" two")), stamp("c2"), old="one", new="one!")
    )
    redacted = redact(record, stamp(), text="hunter2")[0]
    assert redacted is not None

    assert append(redacted, stamp("c1"), text=" two").receipt.replayed
    assert edit(redacted, stamp("c2"), old="one", new="one!").receipt.replayed
    with pytest.raises(EditNoMatch):
        edit(redacted, stamp("c2"), old="three", new="one!")


def test_a_call_that_fell_out_of_the_history_is_a_new_one() -> None:
    """The memory for calls is as long as the history."""
    record = after(append(begun(), stamp("c1"), text="- Bob\n"))
    for number in range(MAX_HISTORY_CHANGES):
        record = after(append(record, stamp(f"later {number}"), text="x"))

    assert after(append(record, stamp("c1"), text="- Bob\n")).content.endswith("x- Bob\n")


def test_a_change_too_large_to_keep_its_text_is_still_known() -> None:
    """It is in the history without its delta."""
    large = seeded("x" * 2 * MAX_HISTORY_BYTES, cap=1 << 20)
    record = after(replace_content(large, stamp("c1"), content="small"))

    assert replace_content(record, stamp("c1"), content="small").receipt.replayed
    assert not replace_content(record, stamp("c1"), content="smell").receipt.replayed
