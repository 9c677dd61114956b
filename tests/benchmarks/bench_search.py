"""What a search costs beside the bare FTS5 query of the same words on the same data, and what an insert costs."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Collection, Sequence
from statistics import median

import pytest

from memfiles.index.text import fts as texts
from tests.benchmarks.bare import seconds, show
from tests.index.entry_rows import Row, Rows

WORDS = 20_000  # in the language of the entries
QUERIES = 60
ROUNDS = 3


def _language(dice: random.Random) -> list[str]:
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return ["".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(WORDS)]


def _contents(dice: random.Random, count: int) -> list[str]:
    """Texts of 8 to 30 words, drawn as words are in speech: a few everywhere, most hardly ever (Zipf)."""
    language = _language(dice)
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    return [" ".join(dice.choices(language, weights, k=dice.randint(8, 30))) for _ in range(count)]


def _questions(dice: random.Random, contents: Sequence[str]) -> list[list[str]]:
    """Three to six words each, half of them as common as in the texts, half drawn from all words alike."""
    common = re.findall(r"\w+", " ".join(contents[:2_000]))
    rare = sorted(set(common))
    return [
        [dice.choice(common if dice.random() < 0.5 else rare) for _ in range(dice.randint(3, 6))]
        for _ in range(QUERIES)
    ]


def _bare(contents: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE bare USING fts5(content, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO bare (content) VALUES (?)", [(content,) for content in contents])
    return connection


@pytest.mark.parametrize("count", [1_000, 10_000, 100_000])
def test_search(count: int) -> None:
    """The median of all questions, ours and the bare query in turns."""
    dice = random.Random(count)
    contents = _contents(dice, count)
    bare, rows = _bare(contents), Rows()
    rows.save_many(Row(f"k{n}", text, run=f"r{n // 20}", thread="t") for n, text in enumerate(contents))

    def keep(ids: Sequence[int]) -> Collection[int]:
        live = f"SELECT id FROM entry WHERE id IN ({','.join(map(str, ids))}) AND state = 'live'"
        return [id for (id,) in rows.connection.execute(live)]

    def query(words: Sequence[str]) -> None:
        match = " OR ".join(f'"{word}"' for word in words)
        bare.execute("SELECT rowid FROM bare WHERE bare MATCH ? ORDER BY bm25(bare) LIMIT 10", (match,)).fetchall()

    times = []
    for words in _questions(dice, contents):
        text = " ".join(words)
        ours = min(seconds(lambda: rows.search(text, keep=keep)) for _ in range(ROUNDS))
        times.append((ours, min(seconds(lambda: query(words)) for _ in range(ROUNDS))))
    ours, raw = median(a for a, _ in times), median(b for _, b in times)
    show(
        f"search of {count} entries", f"{ours * 1e3:.2f} ms, bare {raw * 1e3:.2f} ms: {ours / raw:.2f} times", "<= 1.5"
    )


def test_insert() -> None:
    """Rows of about 130 characters, in one transaction."""
    contents = _contents(random.Random(1), 20_000)
    rows = Rows()
    entries = [(n, f"k{n}", content, ()) for n, content in enumerate(contents)]
    taken = seconds(lambda: texts.put_many(rows.connection, 1, entries))
    length = sum(map(len, contents)) / len(contents)
    show(f"insert of a text of {length:.0f} characters", f"{taken / len(contents) * 1e6:.1f} us", "<= 15")
