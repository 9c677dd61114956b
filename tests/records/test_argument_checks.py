"""What is taken for a whole number, and where one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.errors import InvalidArgument
from memfiles.files.manager import MemoryManager
from memfiles.records.keys import check_whole
from memfiles.records.record import decode
from tests.support.records import declared

NOT_WHOLE = [1.0, 2.5, float("nan"), float("inf"), True, False, "1", b"1", [1], 1 + 0j]


class Numbered(int):
    """A number with a name, as of an enumeration."""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(tmp_path / "memory", durability="os") as manager:
        manager.restore([declared("notes", content="one\n", cap=1000)])
        manager.append("notes", "two\n")
        yield manager


@pytest.mark.parametrize("value", NOT_WHOLE)
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    """However round it is; the error says what must be one, and what it was."""
    with pytest.raises(InvalidArgument, match=rf"^limit must be a whole number, not {type(value).__name__}$"):
        check_whole(value, what="limit")


@pytest.mark.parametrize(
    ("value", "range_of", "said"),
    [
        (0, {"least": 1}, ", 1 or more"),
        (6, {"least": 1, "most": 5}, " from 1 to 5"),
        (0.5, {"least": 0}, ", 0 or more"),
    ],
)
def test_the_range_is_told(value: object, range_of: dict[str, int], said: str) -> None:
    """What is out of range learns what is in it."""
    with pytest.raises(InvalidArgument, match=f"^limit must be a whole number{said}"):
        check_whole(value, what="limit", **range_of)


def test_a_whole_number_comes_back_as_a_plain_one() -> None:
    """Whatever kind of int it was."""

    assert (int, 3) == (type(check_whole(Numbered(3), what="limit")), check_whole(3, what="limit", least=3, most=3))


CALLS: dict[str, Callable[[MemoryManager, Any], object]] = {
    "undo to": lambda manager, value: manager.undo("notes", to_revision=value),
    "undo over": lambda manager, value: manager.undo("notes", expected_revision=value),
    "append": lambda manager, value: manager.append("notes", "x\n", expected_revision=value),
    "edit": lambda manager, value: manager.edit("notes", "one", "x", expected_revision=value),
    "replace": lambda manager, value: manager.replace("notes", "x\n", expected_revision=value),
    "redact": lambda manager, value: manager.redact("notes", "one", expected_revision=value),
    "diff from": lambda manager, value: manager.diff("notes", value, 2),
    "diff to": lambda manager, value: manager.diff("notes", 1, value),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", NOT_WHOLE)
def test_a_revision_is_a_whole_number(manager: MemoryManager, call: str, value: object) -> None:
    """Nothing is changed, and the record can still be read: 2.0 as a revision made one that could not."""
    before = (manager.directory / "notes.json").read_bytes()
    with pytest.raises(InvalidArgument):
        CALLS[call](manager, value)

    assert before == (manager.directory / "notes.json").read_bytes()
    assert 2 == decode(before, uid="notes").revision


@pytest.mark.parametrize("cap", [10.5, True, "10"])
def test_a_cap_is_a_whole_number(tmp_path: Path, cap: Any) -> None:
    """Also that of a declaration that no workflow checked."""
    file = declared("notes").model_copy(update={"max_size_bytes": cap})
    with pytest.raises(InvalidArgument, match="max_size_bytes of notes must be a whole number, 1 or more"):
        MemoryManager(tmp_path / "memory").restore([file])
