"""Names: what may be one, and where the record of a uid lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.files.manager import MemoryManager
from memfiles.records.keys import (
    NAME_PATTERN,
    UID_PATTERN,
    agent_folder,
    case_clashes,
    check_key,
    check_name,
    check_uid,
    check_whole,
    entry_path,
    entry_place,
    entry_uid,
    is_entry_folder,
    record_path,
    staged_path,
    temp_path,
    uid_of,
)
from memfiles.records.record import decode
from tests.support.records import declared, many_times

GOOD = ["a", "A1", "_", "0", "customer-notes", "a.b", "notes_7f3a", "x" * 64]
BAD = [
    "",
    ".",
    "..",
    ".hidden",
    "-dash",
    "../x",
    "a/b",
    "a\\b",
    "a b",
    "a\n",
    "\na",
    "ä",
    "a\0",
    "日本",
    "٣",
    "a:b",
    "a*",
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_and_uids_are_returned(name: str) -> None:
    """ASCII letters, digits and ``_ . -``, not starting with a dot or a dash."""

    assert [name, name] == [check_name(name), check_uid(name)]


@pytest.mark.parametrize("name", BAD)
def test_bad_names_and_uids_are_refused(name: str) -> None:
    """Nothing that a path, a shell or another file system could take for something else."""
    for check, what in ((check_name, "name"), (check_uid, "uid")):
        with pytest.raises(InvalidArgument, match=f"{what} .* is not allowed"):
            check(name)


def test_a_name_has_64_characters_and_a_uid_128() -> None:
    """A name is for the model, a uid also for machines that make them up."""
    with pytest.raises(InvalidArgument, match="1 to 64"):
        check_name("x" * 65)
    with pytest.raises(InvalidArgument, match="1 to 128"):
        check_uid("x" * 129)

    assert "x" * 128 == check_uid("x" * 128)


@pytest.mark.parametrize("uid", BAD)
def test_no_path_is_built_from_unchecked_text(uid: str) -> None:
    """The one function that makes paths of uids checks them."""
    with pytest.raises(InvalidArgument):
        record_path(uid)


@many_times
@given(st.text("aA0_.-/\n ä", max_size=6))
def test_a_path_is_a_records_only_if_its_uid_is_good(stem: str) -> None:
    """What lies in the directory is told apart by the same rule that names are made by."""
    try:
        uid: str | None = check_uid(stem)
    except InvalidArgument:
        uid = None

    assert uid == uid_of(stem + ".json")


@pytest.mark.parametrize(
    "name", ["notes", "notes.json~", ".notes.json.tmp", "notes.JSON", ".json", "entries", "a/b.json"]
)
def test_other_files_are_no_records(name: str) -> None:
    """Backups, temp files and folders are left alone."""

    assert uid_of(name) is None


def test_a_temp_file_lies_hidden_beside_its_record() -> None:
    """In the same folder, so that a rename is enough; never taken for a record; and it tells whose it is."""

    assert ".notes.json.tmp" == temp_path("notes.json")
    assert "entries/a/.x.json.tmp" == temp_path("entries/a/x.json")
    assert "entries/a/x.json" == staged_path(temp_path("entries/a/x.json"))
    assert uid_of(temp_path("notes.json")) is None


@pytest.mark.parametrize("name", ["notes.json", "notes.json.tmp", ".notes.tmp", ".notes.json", "tmp"])
def test_other_files_are_no_temp_files(name: str) -> None:
    """A start sweeps only what memfiles left."""

    assert staged_path(name) is None


def test_uids_that_differ_only_by_case_clash() -> None:
    """Some file systems would store them in one place."""

    assert [("Notes", "notes"), ("Notes", "NOTES")] == case_clashes(["Notes", "b", "notes", "NOTES", "b"])
    assert [] == case_clashes(["a", "b"])


AGENTS = [
    "agent_1",
    "agentX1",
    "AGENT_1",
    "a",
    "a:PUBLIC",
    "%",
    "../x",
    "@workspace",
    "é",
    "É",
    "x" * 255,
    "y" * 255,
    ".",
]


def test_no_two_agents_share_a_folder() -> None:
    """Not even on a file system that ignores case."""
    folders = [agent_folder(agent).casefold() for agent in AGENTS]

    assert len(AGENTS) == len(set(folders))


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_s_folder_is_a_safe_name(agent: str) -> None:
    """A folder is one name, never a way out of the directory, and short enough for any file system."""
    folder = agent_folder(agent)
    uid = entry_uid(folder, "PUBLIC", "key")

    assert (folder, uid) == entry_place(entry_path(folder, uid))
    assert len(folder) <= 120


def test_an_entry_s_uid_follows_from_all_that_it_belongs_to() -> None:
    """Another agent, level, key or run is another record, also where the parts run into one another."""
    parts = [("a", "b", "c", ""), ("ab", "", "c", ""), ("a", "bc", "", ""), ("a", "b", "c", "r"), ("a", "b", "cr", "")]

    assert len(parts) == len({entry_uid(folder, level, key, run) for folder, level, key, run in parts})


@pytest.mark.parametrize("key", ["RESTRICTED:secret", "a/b", "..", "é" * 127, "👩‍👩‍👧", " a ", "%", "a" * 255])
def test_a_key_may_be_any_text(key: str) -> None:
    """Keys are stored exactly; they never become a path."""

    assert key == check_key(key)


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "a\0", "\ud800", "a" * 256, "é" * 128, None, 3])
def test_what_cannot_be_a_key_is_refused(key: object) -> None:
    """A key is 1 to 255 bytes of text without control characters."""
    with pytest.raises(InvalidArgument):
        check_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["notes.json", "entries/a.json", "entries/A/x.json", "entries/../a/x.json", "entries/a/b/c.json"]
)
def test_where_no_entry_can_lie(path: str) -> None:
    """Only what ``entry_path`` makes is an entry's place."""

    assert entry_place(path) is None


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
    file = replace(declared("notes"), max_size_bytes=cap)
    with pytest.raises(InvalidArgument, match="max_size_bytes of notes must be a whole number, 0 or more"):
        MemoryManager(tmp_path / "memory").restore([file])


@pytest.mark.parametrize("name", ["", "a", "a=b_-9", "A", "a.b", "x" * 160, "x" * 161, "@ids", "@workspace", "@files"])
@pytest.mark.parametrize(
    "below", ["", f"/users/{'0' * 40}", f"/users/{'0' * 39}", f"/users/{'G' * 40}", "/users/", "/x"]
)
def test_a_folder_of_records_is_one_in_which_a_record_can_be(name: str, below: str) -> None:
    """As the pattern of their paths says."""
    assert (entry_place(f"entries/{name}{below}/{'0' * 40}.json") is not None) == is_entry_folder(name + below)


@pytest.mark.parametrize("first", ["", "a", "_", "9", ".", "-", "\u00e4", "a\n", " "])
@pytest.mark.parametrize("rest", ["", "b", ".-_9Z", "/", "\n", "x" * 62, "x" * 63, "x" * 126, "x" * 127, "x" * 128])
def test_names_and_uids_are_checked_as_their_patterns_say(first: str, rest: str) -> None:
    """Letters, digits and signs of ASCII, and no line break at the end."""
    allowed = [bool(re.fullmatch(pattern[1:-1], first + rest)) for pattern in (NAME_PATTERN, UID_PATTERN)]

    assert allowed == [_is_allowed(check, first + rest) for check in (check_name, check_uid)]


def _is_allowed(check: Callable[[str], str], text: str) -> bool:
    try:
        return check(text) == text
    except InvalidArgument:
        return False
