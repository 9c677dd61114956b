"""What is explained is what is shown, to the byte, whatever lies in the store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.entries.hydration.window import HEAD_BYTES, Explanation
from memfiles.records.entry import barred, quoted
from tests.support.saved import Clock, Visitor, entries_in

LEVELS = ("PUBLIC", "INTERNAL", "CONFIDENTIAL")
KEYS = (
    *("plain", "two words", "tags <b>", 'quote"d', "back\\slash", "# heading", "ключ", "鍵", "e\u0301", "\u00e9"),
    *("👩‍👩‍👧‍👦", "🇩🇪 flag", "👍🏽", "עברית", "\u202eright to left", "zero\u200dwidth", "x" * 255, "ä" * 127),
)
TEXTS = ("short", "two\nlines\n", "", "ä" * 40, "👩‍👩‍👧‍👦" * 9, "<b>&\u202e", "x" * 300, "\ttab\r\nend", "|bar\n\n\n")


def fill(entries: Entries, clock: Clock, chances: random.Random) -> None:
    """Have entries of all sorts at several levels, in both folders, some of them hidden."""
    for number in range(60):
        clock.go_on(chances.randrange(3))
        who = Visitor(level=chances.choice(LEVELS), run=chances.choice([None, "r"]))
        category = chances.choice([None, "core", "daily", "workspace", "conversation" if who.provenance.run else None])
        ttl = chances.choice([None, None, 30, 9000])
        key, text = chances.choice(KEYS), f"{chances.choice(TEXTS)}{number}"
        tags, kind = chances.sample(KEYS[:4], chances.randrange(3)), chances.choice(["note", "episode", None])
        if (found := entries.get(who, key)) is not None and found.kind == "episode":
            continue
        pinned = chances.choice([None, True])
        entries.save_many(who, [Draft(key, text, tags, category, kind, pinned=pinned, ttl=ttl)])  # type: ignore[arg-type]
        if chances.random() < 0.15:
            entries.delete(who, key)
    for level in LEVELS:
        entries.apply(Visitor(level=level), entries.plan(Visitor(level=level), share=0.3))


def check(entries: Entries, who: Visitor, budget: int) -> None:
    """Every explanation of every key against the block and the list."""
    block = entries.hydrate(who, budget_bytes=budget)
    seen = {found.key: found for found in entries.list(who, limit=100).memories}
    used = 0
    for key in KEYS:
        told = entries.explain(who, key, budget_bytes=budget)
        assert told.is_shown == (key in block.keys)
        assert (told.reason in ("pinned", "windowed", "too_big", "over_budget")) == (key in seen)
        if key not in seen:
            assert told.position is None
            continue
        found = seen[key]
        assert (found.level, budget) == (told.level, told.budget_bytes)
        _check_size(told, f"### {quoted(key)} (level {found.level}, updated {found.updated_at}", barred(found.content))
        used += told.needed_bytes or 0 if told.is_shown else 0
        assert all(other.reason in ("expired", "deleted", "evicted", "shadowed") for other in told.others)
    assert used == block.size_bytes <= budget
    assert list(block.keys) == sorted(
        block.keys, key=lambda key: entries.explain(who, key, budget_bytes=budget).position or 0
    )


def _check_size(told: Explanation, head: str, body: str) -> None:
    """It needs what its lines take, and what stands above the first one."""
    least = len(f"{head})\n{body}".encode()) + 1
    assert told.needed_bytes is not None
    assert told.needed_bytes >= least
    if told.is_shown:
        assert (told.left_bytes or 0) >= told.needed_bytes
    elif told.reason == "over_budget":
        assert (told.left_bytes or 0) < told.needed_bytes
    elif told.reason == "too_big":
        assert told.needed_bytes > (told.budget_bytes or 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_is_explained_is_what_is_shown(tmp_path: Path, seed: int) -> None:
    """In every session, with every budget, also those at which an entry just fits or lacks one byte."""
    chances, clock = random.Random(seed), Clock()
    rules = EntryRules(budget=Budget(max_entries=14))
    with entries_in(tmp_path, rules=rules, now=clock) as entries:
        fill(entries, clock, chances)
        for moment in (0, 60):
            clock.go_on(moment)
            for who in (Visitor(level=level, run=run) for level in LEVELS for run in (None, "r")):
                whole = entries.hydrate(who).size_bytes
                budgets = {
                    0,
                    HEAD_BYTES,
                    whole - 1,
                    whole,
                    whole + 1,
                    *(chances.randrange(whole + 9) for _ in range(4)),
                }
                for budget in budgets - {-1}:
                    check(entries, who, budget)


@pytest.mark.parametrize("key", KEYS)
def test_one_byte_decides(tmp_path: Path, key: str) -> None:
    """Also where a character takes several."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), key, f"what {key} says", tags=["t"])
        needed = entries.explain(Visitor(), key).needed_bytes or 0
        less = entries.explain(Visitor(), key, budget_bytes=needed - 1)

        assert (key,) == entries.hydrate(Visitor(), budget_bytes=needed).keys
        assert () == entries.hydrate(Visitor(), budget_bytes=needed - 1).keys
        assert ("too_big", needed) == (less.reason, less.needed_bytes)
