"""What a search costs beside the bare FTS5 query of the same words on the same data, and what an insert costs."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Collection, Sequence
from statistics import median

import pytest

from memfiles.index.text import fts
from tests.benchmarks.bare import seconds, show
from tests.benchmarks.language import contents, questions
from tests.index.entry_rows import Row, Rows

QUERIES = 60
ROUNDS = 3


def _bare(texts: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE bare USING fts5(content, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO bare (content) VALUES (?)", [(content,) for content in texts])
    return connection


@pytest.mark.parametrize("count", [1_000, 10_000, 100_000])
def test_search(count: int) -> None:
    """The median of all questions, ours and the bare query in turns."""
    dice = random.Random(count)
    texts = contents(dice, count)
    bare, rows = _bare(texts), Rows()
    rows.save_many(Row(f"k{n}", text, run=f"r{n // 20}", thread="t") for n, text in enumerate(texts))

    def keep(ids: Sequence[int]) -> Collection[int]:
        live = f"SELECT id FROM entry WHERE id IN ({','.join(map(str, ids))}) AND state = 'live'"
        return [id for (id,) in rows.connection.execute(live)]

    def query(words: Sequence[str]) -> None:
        match = " OR ".join(f'"{word}"' for word in words)
        bare.execute("SELECT rowid FROM bare WHERE bare MATCH ? ORDER BY bm25(bare) LIMIT 10", (match,)).fetchall()

    times = []
    for words in questions(dice, texts, QUERIES):
        text = " ".join(words)
        ours = min(seconds(lambda: rows.search(text, keep=keep)) for _ in range(ROUNDS))
        times.append((ours, min(seconds(lambda: query(words)) for _ in range(ROUNDS))))
    ours, raw = median(a for a, _ in times), median(b for _, b in times)
    show(
        f"search of {count} entries", f"{ours * 1e3:.2f} ms, bare {raw * 1e3:.2f} ms: {ours / raw:.2f} times", "<= 1.5"
    )


def test_insert() -> None:
    """Rows of about 130 characters, in one transaction."""
    saved = contents(random.Random(1), 20_000)
    rows = Rows()
    entries = [(n, f"k{n}", content, ()) for n, content in enumerate(saved)]
    taken = seconds(lambda: fts.replace_texts(rows.connection, {}, {1: entries}))
    length = sum(map(len, saved)) / len(saved)
    show(f"insert of a text of {length:.0f} characters", f"{taken / len(saved) * 1e6:.1f} us", "<= 15")
