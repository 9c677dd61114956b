"""A search answers as a store would in which nothing is shadowed: the same keys, scores, order, legs and snippets."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from memfiles.entries.callers import Partition
from memfiles.entries.drafts import Draft
from memfiles.entries.entries import Entries
from memfiles.entries.reader import EntryRepository
from memfiles.storage.events import Subscribers, utc_now
from memfiles.storage.record_kinds import ENTRY_KIND
from memfiles.storage.record_store import Records
from tests.support.saved import Visitor, entries_in

WORDS = ("tea", "coffee", "node.js", "running", "ran", "blue", "青い", "Ada: hello", "20%", "snake_case", "zebra")
QUERIES = (
    "tea",
    "node.js coffee",
    "run",
    "ebr",
    "青",
    "ada blue",
    "snake_case 20%",
    "k3",
    "shared",
    "tea zebra running",
)
READER = Visitor(level="CONFIDENTIAL", run="r", thread="t")
Save = tuple[Visitor, Draft]


def saves(chances: random.Random) -> list[Save]:
    """Entries at several levels and in both folders, each key several times."""
    made: list[Save] = []
    for number in range(70):
        level = chances.choice(["PUBLIC", "INTERNAL", "CONFIDENTIAL"])
        who = Visitor(level=level, run=chances.choice(["r", "s"]), thread="t")
        text = " ".join(chances.choices(WORDS, k=chances.randrange(1, 9)))
        category = chances.choice([None, "workspace"])
        links, tags = [f"k{chances.randrange(30)}"], chances.sample(["shared", "blue", f"own {number}"], 2)
        made.append((who, Draft(f"k{chances.randrange(30)}", text, tags, category or "general", links=links)))
    return made


def seen(made: list[Save]) -> list[Save]:
    """Those of the saves that the reader sees: what each replaces, and what is shadowed, was never there."""
    order = ["CONFIDENTIAL", "INTERNAL", "PUBLIC"]
    best: dict[str, tuple[int, bool, int]] = {}
    for number, (who, draft) in enumerate(made):
        rank = order.index(who.level), draft.category == "workspace", -number
        best[draft.key] = min(best.get(draft.key, rank), rank)
    return [made[-number] for _, _, number in sorted(best.values(), key=lambda rank: -rank[2])]


def distinct(made: list[Save]) -> list[Save]:
    """One save a key, level and folder, so that nothing was ever saved over or moved."""
    first: dict[tuple[str, str, str | None], Save] = {}
    for who, draft in made:
        first.setdefault((draft.key, who.level, draft.category), (who, draft))
    own = {(draft.key, who.level) for who, draft in first.values() if draft.category == "general"}
    return [
        (who, draft)
        for who, draft in first.values()
        if draft.category == "general" or (draft.key, who.level) not in own
    ]


def answers(directory: Path, made: list[Save]) -> list[object]:
    """What the reader finds."""
    with entries_in(directory) as entries:
        for who, draft in made:
            entries.save_many(who, [draft])
        return [_answer(entries, query, kind) for query in QUERIES for kind in (None, "note")]


def _answer(entries: Entries, query: str, kind: str | None) -> object:
    found = entries.search(READER, query, max_results=50, kind=kind).matches
    return [(match.found.key, match.found.content, match.score, match.legs, match.snippet) for match in found]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_shadowed_counts_in_nothing(tmp_path: Path, seed: int) -> None:
    """Neither in how much a word tells, nor between neighbours, nor in how many share a tag."""
    made = distinct(saves(random.Random(seed)))
    unshadowed = seen(made)

    assert len(unshadowed) < len(made)
    assert answers(tmp_path / "without", unshadowed) == answers(tmp_path / "with", made)


def test_what_is_shadowed_by_nothing_any_more_counts_again(tmp_path: Path) -> None:
    """As soon as what shadowed it is gone."""
    low, high = Visitor(level="PUBLIC"), Visitor(level="INTERNAL")
    with entries_in(tmp_path) as entries:
        entries.save(low, "color", "zebra blue")
        entries.save(high, "color", "red")

        assert () == entries.search(high, "zebra").matches
        entries.delete(high, "color")
        assert ["color"] == [match.found.key for match in entries.search(high, "zebra").matches]


def test_a_question_that_is_not_read_as_a_whole_says_so(tmp_path: Path) -> None:
    """And it is not repeated as a whole."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "plan", "Ada is on Pro")
        whole = entries.search(Visitor(), f"{'hm ' * 20_000} Ada")
        cut = entries.search(Visitor(), f"{'hm ' * 400_000} Ada")

        assert (["plan"], ["plan"]) == tuple([match.found.key for match in each.matches] for each in (whole, cut))
        assert (None, True) == (whole.note, "1200004 characters; only its first and last 32768" in (cut.note or ""))
        assert cut.to_dict()["note"] == cut.note
        assert len(cut.to_dict()["query"]) <= 2000


class RemoteRecords:
    """The store inside, as one over a network; ``asked`` is how many records it was asked for at once."""

    id, home, cache, images = "remote", None, None, None

    def __init__(self, inner: Any) -> None:
        self.asked: list[int] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def point(self) -> str:
        """There is none."""
        return ""

    def view(self, paths: Iterable[str]) -> Records:
        """As of the store, and counted."""
        wanted = list(paths)
        self.asked.append(len(wanted))
        viewed: Records = self._inner.view(wanted)
        return viewed


@pytest.mark.slow
def test_many_entries_are_read_together(tmp_path: Path) -> None:
    """Also the second thousand: an export over a network asked for each of them."""
    with entries_in(tmp_path) as entries:
        entries.save_many(Visitor(), [Draft(f"k{number}", "tea") for number in range(1001)])
        paths = [row.path for row in entries._db.rows([Partition("support", "INTERNAL", "")])]
        remote: Any = RemoteRecords(entries._db.store)
        repository = EntryRepository(remote, ENTRY_KIND, now=utc_now, subscribers=Subscribers())
        found = replace(entries._db, store=remote, repository=repository).entries(paths)

    assert (1001, [1000, 1]) == (len(found), remote.asked)
