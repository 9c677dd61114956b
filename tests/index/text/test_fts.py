"""Texts are written in the caller's transaction, and a scrub leaves nothing of removed ones."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from memfiles.index.text import fts as texts
from memfiles.index.text.fts import SMALL
from tests.index.entry_rows import Row, Rows


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]


def test_a_text_put_again_replaces_the_one_before() -> None:
    """Only the words of the newest text are found."""
    rows = Rows()
    rows.save(Row("drink", "green tea"))
    texts.replace_texts(rows.connection, {1: [rows.id("drink")]}, {})
    texts.replace_texts(rows.connection, {}, {1: [(rows.id("drink"), "drink", "black coffee", ["morning"])]})

    assert ([], ["drink"], ["drink"]) == (rows.keys("tea"), rows.keys("coffee"), rows.keys("morning"))


@pytest.mark.parametrize("size", [40, SMALL + 40])
def test_many_changes_at_once_are_as_each_by_itself(size: int) -> None:
    """Some texts go, some get others, and some are new; whether the partition has tables of its own or not."""
    rows = Rows()
    rows.save_many(Row(f"k{n}", f"tea {n} cup") for n in range(size))
    gone, other = range(1, 30, 3), range(2, 30, 3)
    new: list[texts.NewText] = [(id, f"k{id - 1}", f"milk {id}", []) for id in (*other, size + 1)]
    texts.replace_texts(rows.connection, {1: [*gone, *other]}, {1: new})
    (opened,) = texts.open_texts(rows.connection, [1])

    left = sorted({*range(1, size + 1)} - {*gone, *other})
    assert left == sorted(opened.all('"tea"')) == sorted(opened.containing("tea", limit=size))
    assert [*other, size + 1] == sorted(opened.all('"milk"'))
    assert {"tea": len(left), "milk": len(new)} == opened.counts(["tea", "milk"])
    assert (len(left) + len(new), {*gone, *other}) == (
        opened.size,
        texts.removed_rows(
            rows.connection, 1, since=opened.state._replace(stamp=opened.state.stamp - 1), now=opened.state
        ),
    )


@pytest.mark.parametrize(("ids", "more"), [([7], 1), ([9, 8, 7, 30], 2)])
def test_other_texts_for_entries_are_few_segments_more(ids: list[int], more: int) -> None:
    """FTS5 reads every segment in a search, and merges them at times; here they are one of removals, one of texts."""
    rows = Rows()
    rows.save_many(Row(f"k{n}", "tea") for n in range(SMALL + 1))
    rows.connection.commit()
    segments = "SELECT count(DISTINCT segid) FROM words_1_idx"
    ((before,),) = rows.connection.execute(segments)
    rows.connection.execute("BEGIN")
    texts.replace_texts(rows.connection, {1: ids}, {1: [(id, f"k{id - 1}", "coffee", []) for id in ids]})
    rows.connection.commit()

    assert [(before + more,)] == rows.connection.execute(segments).fetchall()


def test_what_was_not_committed_is_not_there() -> None:
    """Everything happens in the caller's transaction, the tables of a new partition included."""
    rows = Rows()
    rows.connection.commit()
    before = _tables(rows.connection)
    rows.connection.execute("BEGIN")
    texts.replace_texts(rows.connection, {}, {4: [(1, "k", "tea", [])]})
    found = texts.open_texts(rows.connection, [4])[0].best('"tea"', limit=1)
    rows.connection.rollback()

    assert ([1], before, []) == (found, _tables(rows.connection), texts.with_text(rows.connection, [4]))


def test_a_partition_is_dropped_whole() -> None:
    """Nothing of it is left, the others stay, and it can be filled again."""
    rows = Rows()
    before = _tables(rows.connection)
    rows.save(Row("a", "tea", part=2))
    texts.drop(rows.connection, 2)
    texts.drop(rows.connection, 3)
    dropped = _tables(rows.connection)
    rows.save(Row("b", "tea", part=2))

    assert (before, ["b"]) == (dropped, rows.keys("tea", parts=[2]))


def test_removing_what_is_not_there_is_fine() -> None:
    """A row without text, in a partition without text or with, is no error."""
    rows = Rows()
    texts.replace_texts(rows.connection, {9: [1]}, {})
    rows.save(Row("a", "tea"))
    texts.replace_texts(rows.connection, {1: [77]}, {})

    assert ["a"] == rows.keys("tea")


def test_counts_follow_what_is_put_and_removed() -> None:
    """Word counts and sizes, from which scores are made, are exact after every change."""
    rows = Rows()
    rows.save(Row("a", "tea tea coffee"), Row("b", "tea"), Row("c", "milk"))
    rows.remove("a")

    assert ({"tea": 1, "milk": 1}, 2) == (
        texts.open_texts(rows.connection, [1])[0].counts(["tea", "milk", "coffe"]),
        texts.open_texts(rows.connection, [1])[0].size,
    )


def test_a_search_scans_no_table_of_a_large_partition() -> None:
    """How many entries have text is kept with the texts: counting them read a row of each in every search."""
    rows = Rows()
    rows.save_many(Row(f"k{n}", f"number {n} about tea", tags=("tea",)) for n in range(SMALL + 50))
    for n in range(20):
        rows.remove(f"k{n}")
    asked: list[str] = []
    rows.connection.set_trace_callback(asked.append)
    found = rows.keys("tea number 77", limit=1, associate=True)
    rows.connection.set_trace_callback(None)
    steps = [row[3] for each in asked if each.lstrip().startswith("SELECT") for row in _plan(rows.connection, each)]

    assert (["k77"], SMALL + 30) == (found, texts.open_texts(rows.connection, [1])[0].size)
    assert [] == [step for step in steps if re.match(r"SCAN (?!CONSTANT|\(subquery|.*VIRTUAL TABLE)", step)]


def _plan(connection: sqlite3.Connection, statement: str) -> list[tuple[int, int, int, str]]:
    return connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()


def test_a_tag_is_matched_whole() -> None:
    """An entry with the tag ``blue tea`` has not the tag ``tea``."""
    rows = Rows()
    rows.save(Row("a", tags=("blue tea",)), Row("b", tags=("tea",)), Row("c", "tea"))

    assert [rows.id("b")] == texts.open_texts(rows.connection, [1])[0].tagged("tea", limit=5)


@pytest.mark.parametrize("tag", ["C++", "camelCase", "\U0001f389", "fun\U0001f389"])
def test_a_tag_that_is_spelled_out_is_found_among_others(tag: str) -> None:
    """Also if it is not the last one of the entry."""
    rows = Rows()
    rows.save(Row("a", "x", tags=(tag, "other")), Row("b", "y", tags=("other",)))

    assert [rows.id("a")] == texts.open_texts(rows.connection, [1])[0].tagged(tag, limit=5)


def test_a_scrub_leaves_no_byte_of_removed_text(tmp_path: Path) -> None:
    """Once the file is written anew, neither words, nor parts of words, nor contents stay in it or beside it."""
    path = tmp_path / "index.db"
    rows = Rows(str(path))
    rows.connection.execute("PRAGMA journal_mode=WAL")
    rows.save_many(Row(f"k{n}", f"entry number {n} about tea") for n in range(500))
    rows.save(Row("k-secret", "the xylophonist hides quartzite near Zwickau", tags=("zirconium",)))
    rows.save(Row("gone", "vuvuzela", part=2))
    rows.connection.commit()
    rows.remove("k-secret")
    texts.drop(rows.connection, 2)
    rows.connection.execute("DELETE FROM entry WHERE key = 'gone'")
    rows.connection.commit()
    texts.scrub(rows.connection)
    rows.connection.commit()
    rows.connection.execute("VACUUM")
    rows.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir()).lower()

    assert [] == [word for word in (b"xyl", b"quartz", b"zwick", b"zirc", b"vuvu", b"k-secret") if word in left]
    assert ["k7"] == rows.keys("number 7", limit=1)


def test_a_text_may_hold_what_no_encoding_has() -> None:
    """A lone surrogate is kept as a question mark, and what stands beside it is found."""
    rows = Rows()
    rows.save(Row("a", "tea\udfff time \0 end"))

    assert ["tea? time \0 end"] == [hit.snippet for hit in rows.search("time")]


@pytest.mark.parametrize("reading", [None, "no lines"])
def test_a_text_that_is_not_as_it_was_written_is_damage(reading: str | None) -> None:
    """It is told as SQLite tells of a damaged file, so that the index is started over."""
    rows = Rows()
    rows.save(Row("a", "tea"))
    rows.connection.execute("UPDATE text SET reading = ?", (reading,))
    with pytest.raises(sqlite3.DatabaseError) as raised:
        texts.tokens_of(rows.connection, [rows.id("a")])

    assert sqlite3.SQLITE_CORRUPT == raised.value.sqlite_errorcode
