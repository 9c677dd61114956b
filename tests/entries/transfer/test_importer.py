"""What is taken in: with all that was known of it where it came from, and never over what was hidden since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.callers import view_of
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.entries.reader import entry_at
from memfiles.errors import InvalidArgument, SecretRefused
from tests.support.saved import Clock, Visitor, entries_in

TOKEN = "AKIA" + "ABCDEFGHIJKLMNOP"  # in two parts, so that no scanner takes this file for a leak


@pytest.fixture
def clock() -> Clock:
    """A clock that is set by hand."""
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """An empty memory."""
    with entries_in(tmp_path / "memory", now=clock) as opened:
        yield opened


def taken_in(entries: Entries, tmp_path: Path, *lines: dict[str, Any]) -> list[str]:
    """Take these lines in; the reasons for which some were not."""
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [skipped.why for skipped in entries.import_(Visitor(), source).skipped]


def known(entries: Entries, visitor: Visitor) -> dict[str, Any]:
    """All that is known of what is seen, but for its history and what plans did with it."""
    view = view_of(visitor, entries.rules.levels)
    seen = [place.path(each.key) for each in entries.list(visitor).memories for place in view]
    found = [
        entry for path in seen if (entry := entry_at(entries.repository, path)) is not None and entry.retired is None
    ]
    own = {"text", "reorganised", "given_id"}
    times = {entry.key: (entry.content, entry.created_at, entry.updated_at) for entry in found}
    return {
        "times": times,
        **{e.key: {it.name: getattr(e, it.name) for it in fields(e) if it.name not in own} for e in found},
    }


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_everything_that_is_known_of_an_entry_goes_out_and_in(tmp_path: Path, clock: Clock, format: Any) -> None:
    """Its times, its facets, where it came from, of how much use it was, and what it was made of."""
    target, visitor = tmp_path / "out", Visitor(run="evt-1", thread="T=17")
    with entries_in(tmp_path / "one", rules=EntryRules(budget=Budget(max_entries=6)), now=clock) as entries:
        said = Draft("a", "x", ["t"], "core", "procedure", 0.25, 0.75, True, ["b"], 5000, source="notes")
        entries.save_many(visitor, [said])
        entries.update(visitor, "a", outcome="success")
        entries.update(visitor, "a", outcome="failure")
        clock.go_on(60)
        entries.update(visitor, "a", content="y")
        for number in range(4):
            entries.save(visitor, f"day/{number}", f"It came up on day {number}. " * 9, kind="episode")
        entries.apply(visitor, entries.plan(visitor, share=0.4))
        entries.export(visitor, target, format=format)
        before = known(entries, visitor)
    clock.go_on(600)
    with entries_in(tmp_path / "two", now=clock) as entries:
        entries.import_(visitor, target, format=format)
        after = known(entries, visitor)

        assert 3 == len(before)
        assert before == after
        assert (2, 0) == (
            (again := entries.import_(visitor, target, format=format, dry_run=True)).unchanged,
            again.updated,
        )


def test_what_was_hidden_since_stays_hidden(entries: Entries, tmp_path: Path, clock: Clock) -> None:
    """What was written before it was deleted or evicted does not bring it back; what is newer does."""
    entries.save(Visitor(), "gone", "x")
    target = tmp_path / "out.jsonl"
    entries.export(Visitor(), target, format="jsonl")
    clock.go_on(60)
    entries.delete(Visitor(), "gone")
    clock.go_on(60)
    (skipped,) = entries.import_(Visitor(), target).skipped

    assert "it was deleted here at 2026-11-21T09:01:00.000Z" in skipped.why
    assert entries.get(Visitor(), "gone") is None
    assert [] == taken_in(entries, tmp_path, {"key": "gone", "content": "y", "updated": clock()})
    assert entries.get(Visitor(), "gone") is not None


def test_what_expired_before_it_came_is_told(entries: Entries, tmp_path: Path) -> None:
    """Nobody would ever see it."""
    old = "2001-01-01T00:00:00.000Z"
    reasons = taken_in(
        entries,
        tmp_path,
        {"key": "a", "content": "x", "expires_at": old},
        {"key": "b", "content": "x", "category": "daily", "updated": old},
    )

    assert ["it expired at 2001-01-01T00:00:00.000Z", "it expired at 2001-01-04T00:00:00.000Z"] == reasons


@pytest.mark.parametrize(
    "line",
    [
        {"provenance": ["run"]},
        {"provenance": ["colour=blue"]},
        {"provenance": ["run=a", "run=b"]},
        {"provenance": ["ordinal=-1"]},
        {"provenance": ["run=a\nb"]},
        {"provenance": [7]},
        {"made_of": ["x"]},
        {"made_of": ["a" * 40] * 300},
    ],
)
def test_an_origin_that_cannot_be_is_told(entries: Entries, tmp_path: Path, line: dict[str, Any]) -> None:
    """Nothing is stored that could not be read again."""
    (reason,) = taken_in(entries, tmp_path, {"key": "a", "content": "x", **line})

    assert reason.startswith(f"{next(iter(line))} must be a list of")


WAYS: dict[str, Callable[[Entries, str], object]] = {
    "save": lambda entries, category: entries.save(Visitor(), "b", "x", category=category),
    "save_many": lambda entries, category: entries.save_many(Visitor(), [Draft("b", "x", category=category)]),
    "update": lambda entries, category: entries.update(Visitor(), "a", category=category),
    "search": lambda entries, category: entries.search(Visitor(), "x", category=category),
    "list": lambda entries, category: entries.list(Visitor(), category=category),
    "forget": lambda entries, category: entries.forget(Visitor(), category=category),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("category", ["two words", "x" * 65, "../up", "ключ", "a\nb"])
def test_one_rule_says_what_a_category_can_be(entries: Entries, tmp_path: Path, way: str, category: str) -> None:
    """Wherever it is named."""
    entries.save(Visitor(), "a", "x")

    with pytest.raises(InvalidArgument, match="category"):
        WAYS[way](entries, category)
    assert ["category"] == [
        why[:8] for why in taken_in(entries, tmp_path, {"key": "b", "content": "x", "category": category})
    ]
    assert "x" == getattr(entries.get(Visitor(), "a"), "content", None)


@pytest.mark.parametrize("name", ["key", "category", "tags", "links", "source", "provenance"])
def test_a_credential_is_kept_out_of_every_field(entries: Entries, tmp_path: Path, name: str) -> None:
    """It would stand in names, in the audit log's neighbours and in every mirror."""
    value: Any = [TOKEN] if name in ("tags", "links") else [f"run={TOKEN}"] if name == "provenance" else TOKEN
    said = {"key": "a", "content": "x", name: value}

    if name != "provenance":
        with pytest.raises(SecretRefused):
            entries.save_many(Visitor(), [said])
    if name != "source":
        (reason,) = taken_in(entries, tmp_path, said)
        assert "credential" in reason
        assert TOKEN not in reason
    assert () == entries.list(Visitor()).memories


def test_what_has_no_time_of_its_own_comes_in_at_one_time(tmp_path: Path) -> None:
    """A tick of the clock in the middle tells no entries apart: the order of a prompt would depend on it."""
    ticks = count(1)
    with entries_in(tmp_path / "memory", now=lambda: f"2026-11-23T10:00:00.{next(ticks):03}Z") as entries:
        taken_in(entries, tmp_path, *({"key": key, "content": f"{key} opens"} for key in ("bob", "ada", "zoe")))
        times = {found.updated_at for found in entries.list(Visitor()).memories}

    assert 1 == len(times)
