"""Receipts and cards: the numbers that come back from a write, and what is said of a file without its content."""

from __future__ import annotations

import pytest

from memfiles.records.file_changes import append, card_of, edit, receipt_of, undo, with_warnings
from tests.support.records import seeded, stamp


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
