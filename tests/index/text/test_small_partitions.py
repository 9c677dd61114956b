"""A small partition has no tables of its own, and nobody can tell: only that the file's definitions stay few."""

from __future__ import annotations

import random
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfiles.index.text import fts as texts
from memfiles.index.text.fts import SLOTS, SMALL
from tests.index.entry_rows import Row, Rows

WORDS = ["tea", "teas", "green", "node.js", "École", "東京", "C++", "went", "go", "x", "ab", "user's", "20%"]


def _tables(rows: Rows) -> set[str]:
    return {name for (name,) in rows.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _slots(rows: Rows) -> list[tuple[int, int]]:
    return rows.connection.execute("SELECT slot, part FROM temp.slot ORDER BY slot").fetchall()


def _random_rows(dice: random.Random, *, count: int, parts: int) -> list[Row]:
    return [
        Row(
            f"k{number % 40}-{number}",
            " ".join(dice.choices(WORDS, k=dice.randint(1, 12))),
            part=dice.randint(1, parts),
            tags=tuple(dice.sample(WORDS, k=dice.randint(0, 2))),
            links=(f"k{dice.randint(0, 39)}-{dice.randint(0, count)}",),
            run=f"r{number // 9}",
        )
        for number in range(count)
    ]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 230),
    parts=st.integers(1, 3),
    query=st.lists(st.sampled_from([*WORDS, "gre", "cole", "京", "absent", "green tea"]), min_size=1, max_size=5),
    limit=st.integers(1, 50),
)
def test_a_search_is_the_same_in_a_small_and_in_a_large_partition(
    seed: int, count: int, parts: int, query: list[str], limit: int
) -> None:
    """Keys, scores to the last bit, legs and snippets, also after removals, with a filter and with shadowed rows."""
    dice = random.Random(seed)
    saved = _random_rows(dice, count=count, parts=parts)
    small, large = Rows(), Rows()
    large.grow(*range(1, parts + 1))
    for rows in (small, large):
        rows.save(*saved)
        rows.search("tea", parts=range(1, parts + 1))
    for row in dice.sample(saved, k=count // 5):
        small.remove(row.key)
        large.remove(row.key)
    hidden = {id for id in range(1, count + 1) if dice.random() < 0.1}
    options = {
        "parts": list(range(1, parts + 1)),
        "limit": limit,
        "keep": lambda ids: [id for id in ids if id % 7],
        "shadowed": hidden & {id for (id,) in small.connection.execute("SELECT id FROM text")},
    }

    assert large.said(" ".join(query), **options) == small.said(" ".join(query), **options)


def test_only_a_partition_that_grew_has_tables_of_its_own() -> None:
    """One entry more than a small partition may have makes them, and they stay while it shrinks."""
    rows = Rows()
    before = _tables(rows)
    rows.save_many(Row(f"k{number}", f"tea {number}") for number in range(SMALL))
    full = _tables(rows)
    rows.save(Row("one more", "coffee"))
    grown = _tables(rows)
    rows.remove("one more")

    assert (before, True, grown) == (full, "words_1" in grown, _tables(rows))
    assert (SMALL, ["k7"]) == (texts.open_texts(rows.connection, [1])[0].size, rows.keys("tea 7", limit=1))


def test_what_is_saved_after_a_search_is_found_by_the_next() -> None:
    """A filled slot is not used for texts that changed, and not for another partition that got its number."""
    rows = Rows()
    rows.save(Row("a", "tea"))
    found = [rows.keys("tea")]
    rows.save(Row("b", "tea tea"))
    found.append(rows.keys("tea"))
    rows.remove("a")
    found.append(rows.keys("tea"))
    texts.drop(rows.connection, 1)
    rows.save(Row("c", "tea"))

    assert [["a"], ["b", "a"], ["b"], ["c"]] == [*found, rows.keys("tea")]


def test_a_connection_keeps_few_small_partitions() -> None:
    """However many were searched, those used last are kept: memory does not grow with the users that came and went."""
    rows = Rows()
    parts = range(1, 4 * SLOTS)
    rows.save(*(Row(f"k{part}", "tea", part=part) for part in parts))
    found = [rows.keys("tea", parts=[1, part]) for part in parts[1:]]
    kept = {part for _, part in _slots(rows)}

    assert [{"k1", f"k{part}"} for part in parts[1:]] == list(map(set, found))
    assert {1, *parts[-SLOTS + 1 :]} == kept


def test_one_search_may_need_more_partitions_than_are_kept() -> None:
    """A view of many levels and scopes is searched whole."""
    rows = Rows()
    parts = range(1, 2 * SLOTS)
    rows.save(*(Row(f"k{part}", "tea", part=part) for part in parts))

    assert {f"k{part}" for part in parts} == set(rows.keys("tea", parts=parts, limit=50))


@pytest.mark.parametrize("others", [0, 1, SLOTS])
def test_a_fill_that_failed_leaves_no_half_of_a_partition(others: int) -> None:
    """The next search fills the slot anew, also one that was made for it; as after an interrupt."""
    rows = Rows()
    rows.save(Row("a", "tea"), Row("b", "green tea"))
    rows.save(*(Row(f"k{part}", "tea", part=part) for part in range(2, SLOTS + 2)))
    for part in range(2, others + 2):
        rows.keys("tea", parts=[part])
    rows.connection.execute("UPDATE text SET content = x'00' || x'ff' WHERE content = 'green tea'")
    with pytest.raises((sqlite3.Error, TypeError, AttributeError)):
        rows.keys("tea")
    rows.connection.execute("UPDATE text SET content = 'green tea' WHERE content <> 'tea'")

    assert ({"a", "b"}, ["k2"]) == (set(rows.keys("tea")), rows.keys("tea", parts=[2]))


def test_a_scrub_empties_the_slots() -> None:
    """Words that were forgotten do not stay in the memory of the process either."""
    rows = Rows()
    rows.save(Row("a", "xylophone"))
    rows.keys("xylophone")
    rows.remove("a")
    texts.scrub(rows.connection)

    assert [(0,)] == rows.connection.execute("SELECT count(*) FROM counts_s0").fetchall()
