"""A result tells the model in a sentence what happened, and the program in a code and an object."""

from __future__ import annotations

from dataclasses import replace

from memfiles.errors import SizeExceeded
from memfiles.records.receipt import Receipt
from memfiles.tools.results import ToolResult, appended, edited, failed

RECEIPT = Receipt(
    uid="u", name="notes", revision=8, size_bytes=40, max_size_bytes=100, bytes_left=60, share=0.4, matches=1, line=4
)


def test_an_append_tells_the_numbers_of_its_receipt() -> None:
    """Revision, bytes used and bytes left; the receipt itself is the data."""
    expected = "Added to the end of notes. Now at revision 8: 40 of 100 bytes used, 60 left."

    assert ToolResult(expected, data=RECEIPT.to_dict()) == appended(RECEIPT)


def test_a_nearly_full_file_is_said_so() -> None:
    """The receipt's warning stands at the end, where it is not missed."""

    assert appended(replace(RECEIPT, warning="82 % is used")).text.endswith("60 left. Warning: 82 % is used.")


def test_an_edit_tells_its_line() -> None:
    """The model can check that it hit what it meant."""

    assert edited(RECEIPT).text.startswith("Replaced the text at line 4 of notes. Now at revision 8")


def test_an_ambiguous_edit_says_how_many_matches_there_were() -> None:
    """The first was replaced; the model is told how to reach another."""
    text = edited(replace(RECEIPT, matches=3)).text

    assert text.startswith("Replaced the first of 3 matches in notes, the one at line 4; the rest is unchanged.")
    assert "try again with more surrounding text" in text


def test_a_replay_is_named() -> None:
    """A call that was carried out before changes nothing, and the model learns it."""
    text = appended(replace(RECEIPT, replayed=True)).text

    assert text.startswith("This call had already been carried out; nothing changed now. Added to the end of notes.")


def test_an_error_keeps_its_code_and_sentence() -> None:
    """The code is the error's own, the text its message."""

    assert ToolResult("too big", is_error=True, code="size_exceeded") == failed(SizeExceeded("too big"))


def test_a_result_is_an_object_with_every_field() -> None:
    """The same keys whatever happened, for JSON."""

    assert {"text": "hi", "is_error": False, "code": None, "data": None} == ToolResult("hi").to_dict()
