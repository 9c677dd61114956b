"""What must never get into an entry, by whichever way: it would be lost at the next start, or stop every search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.entries import Entries
from memfiles.errors import InvalidArgument, ReadOnly, RevisionConflict
from tests.support.saved import Visitor, entries_in


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Entries]:
    """The entries of an empty directory."""
    with entries_in(tmp_path / "memory") as opened:
        yield opened


@pytest.mark.parametrize(
    "said",
    [
        {"pinned": "no"},
        {"pinned": 1},
        {"ttl": True},
        {"source": 5},
        {"source": ""},
        {"source": "\ud800"},
        {"source": "x" * 256},
    ],
    ids=str,
)
def test_what_is_said_of_an_entry_is_checked(entries: Entries, said: dict[str, Any]) -> None:
    """A value of the wrong kind is refused, and not stored in a record that cannot be read again."""
    with pytest.raises(InvalidArgument):
        entries.save(Visitor(), "key", "content", **said)

    assert entries.get(Visitor(), "key") is None


def test_an_episode_keeps_its_kind(entries: Entries) -> None:
    """Otherwise it could be changed in two steps."""
    entries.save(Visitor(), "day", "as it was", kind="episode")
    with pytest.raises(ReadOnly):
        entries.update(Visitor(), "day", kind="note")


def test_a_delete_of_another_revision_is_refused(entries: Entries) -> None:
    """As every change of what the caller has not seen."""
    entries.save(Visitor(), "plan", "Free")
    entries.save(Visitor(), "plan", "Pro")
    with pytest.raises(RevisionConflict, match="is at revision 2, not 1"):
        entries.delete(Visitor(), "plan", expected_revision=1)

    assert 3 == entries.delete(Visitor(), "plan", expected_revision=2).revision
    assert entries.get(Visitor(), "plan") is None


@pytest.mark.parametrize("tags", ["ada", 5, None, [5]], ids=repr)
def test_a_filter_of_the_wrong_kind_is_refused(entries: Entries, tags: Any) -> None:
    """A text is not taken for the list of its letters."""
    with pytest.raises(InvalidArgument):
        entries.search(Visitor(), "ada", tags=tags)
    with pytest.raises(InvalidArgument):
        entries.list(Visitor(), tags=tags)


@pytest.mark.parametrize(
    "said",
    [
        {"successes": 10**30},
        {"failures": 2**63},
        {"expires_at": "2026-13-45T99:99:99.999Z"},
        {"updated": "2026-02-30T00:00:00.000Z", "category": "daily"},
        {"created": "yesterday"},
    ],
    ids=str,
)
def test_an_import_skips_what_no_entry_can_say(entries: Entries, tmp_path: Path, said: dict[str, Any]) -> None:
    """The rest is taken in, and what can be found still is."""
    source = tmp_path / "in.jsonl"
    documents = [{"key": "bad", "content": "zebra", **said}, {"key": "good", "content": "zebra"}]
    source.write_text("".join(json.dumps(each) + "\n" for each in documents))
    imported = entries.import_(Visitor(), source)

    assert (1, [f"{source.name}:1"]) == (imported.added, [each.where for each in imported.skipped])
    assert ["good"] == [match.found.key for match in entries.search(Visitor(), "zebra").matches]


def test_a_store_without_any_entry_left_is_searched(entries: Entries) -> None:
    """Nothing is found, and nothing raised, after the only entry was deleted or forgotten."""
    entries.save(Visitor(), "only", "zebra")
    entries.search(Visitor(), "zebra")
    entries.delete(Visitor(), "only")
    deleted = entries.search(Visitor(), "zebra")
    entries.forget(Visitor(), key="only")

    assert ((), ()) == (deleted.matches, entries.search(Visitor(), "zebra").matches)


def test_what_every_entry_says_teaches_nothing(entries: Entries) -> None:
    """The best match is first although its words stand in all the others, which share more words still."""
    entries.save(Visitor(), "user/name", "The user's name is Ada Lovelace.")
    entries.save_many(
        Visitor(),
        [{"key": f"n/{n}", "content": f"some user note {n} about member discounts and name tags"} for n in range(300)],
    )
    found = entries.search(Visitor(), "what is the user's name?").matches

    assert "user/name" == found[0].found.key
