"""The next step of a record, decided by its ledger row and its copy in the mirror."""

from __future__ import annotations

import pytest

from memfiles.records.entry_codec import encode_entry
from memfiles.records.record import digest, encode
from memfiles.storage.atomic import Signature
from memfiles.sync.ledger import LedgerRow, UnansweredPut
from memfiles.sync.mirror import Stored
from memfiles.sync.reconciler import Acknowledge, Merge, Push, Replace, Step, Unread, next_step
from memfiles.sync.replica import LocalCopy
from tests.support.records import seeded
from tests.support.saved import buried, saved

RECORD, OTHER = seeded("mine\n"), seeded("another\n")
PATH = f"{RECORD.uid}.json"
BODY = encode(RECORD)
LOCAL = LocalCopy(BODY, RECORD, Signature(1, len(BODY), 1))
PROVISIONAL = LocalCopy(BODY, RECORD, Signature(1, len(BODY), 1), is_provisional=True)
THEIRS = Stored(encode(OTHER), "v2")
DONE = LedgerRow("v1", digest(BODY), BODY)

STEPS: dict[str, tuple[LocalCopy, LedgerRow, Stored | None | Unread, bool, Step]] = {
    # local copy, ledger row, copy in the mirror, look, step
    "never pushed": (LOCAL, LedgerRow(), "unread", False, Push(BODY, None)),
    "changed since": (LOCAL, LedgerRow("v1", "earlier"), "unread", False, Push(BODY, "v1")),
    "acknowledged": (LOCAL, DONE, "unread", False, "wait"),
    "changed since, and the keys too": (LOCAL, LedgerRow("", "earlier"), "unread", False, "read"),
    "sent, and the keys changed": (
        LOCAL,
        LedgerRow("", digest(BODY), sent=UnansweredPut(b"sent", "v1")),
        "unread",
        False,
        "read",
    ),
    "acknowledged, and the keys changed": (LOCAL, LedgerRow("", digest(BODY), BODY), "unread", False, "wait"),
    "acknowledged, to be looked at": (LOCAL, DONE, "unread", True, "read"),
    "provisional": (PROVISIONAL, LedgerRow(), "unread", False, "read"),
    "a lost answer": (LOCAL, LedgerRow(sent=UnansweredPut(b"sent", "v0")), "unread", False, Push(b"sent", "v0")),
    "no copy": (LOCAL, DONE, None, False, "confirm"),
    "an equal copy": (LOCAL, LedgerRow(), Stored(BODY, "v3"), False, Acknowledge(Stored(BODY, "v3"), digest(BODY))),
    "the copy that was sent": (
        *(LOCAL, LedgerRow(sent=UnansweredPut(b"sent", None)), Stored(b"sent", "v3"), False),
        Acknowledge(Stored(b"sent", "v3"), digest(b"sent")),
    ),
    "the copy of the ledger": (
        *(LOCAL, LedgerRow("v1", "a digest", b"known"), Stored(b"known", "v3"), False),
        Acknowledge(Stored(b"known", "v3"), "a digest"),
    ),
    "another copy": (LOCAL, DONE, THEIRS, False, Merge(THEIRS, OTHER)),
}


@pytest.mark.parametrize("case", STEPS)
def test_the_next_step_follows_from_the_ledger_and_the_copy(case: str) -> None:
    """One row of the table of ``next_step`` each."""
    local, row, stored, look, step = STEPS[case]

    assert step == next_step(PATH, local, row, stored, look=look)


def test_a_copy_that_is_not_a_record_is_replaced() -> None:
    """And the step says what is wrong with it."""
    step = next_step(PATH, LOCAL, DONE, Stored(b"{", "v2"))

    assert isinstance(step, Replace)
    assert "the mirror's copy cannot be used" in step.why


def test_an_entry_restored_from_a_backup_is_merged_with_the_known_tombstone() -> None:
    """It is not pushed over it, though the mirror may have nothing newer."""
    entry = saved("key")
    tombstone = buried(entry)
    body, known = encode_entry(entry), encode_entry(tombstone)
    local = LocalCopy(body, entry, Signature(1, len(body), 1))
    row = LedgerRow("v1", digest(known), known)

    assert Merge(Stored(known, "v1"), tombstone) == next_step(entry.path, local, row)
