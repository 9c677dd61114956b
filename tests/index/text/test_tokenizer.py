"""Stems computed in Python are those of SQLite."""

from __future__ import annotations

import re
import sqlite3
import tracemalloc
from contextlib import closing

from memfiles.index.text.tokenizer import FORMS, MAX_QUERY, stem, terms_of
from tests.support import ROOT

ENDINGS = """s es ed ing er est ly ness ful less ment ation ational ization izer ity iviti able ible al ical ive ous
    ism ist ance ence ant ent ement eed y ies ied ion logy bly ator alli entli ousli""".split()
STEMS = "relat condit valen hesit digit conform radic differ vile analog vietnam predic operat feudal decis hop".split()


def test_stems_are_those_of_the_index() -> None:
    """A word that the index finds is a word that the score counts."""
    readme = (ROOT / "README.md").read_text("utf-8").lower()
    words = sorted({*re.findall(r"[a-z0-9]+", readme), *FORMS, *(s + e for s in STEMS for e in ENDINGS)})
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5(word, tokenize='porter unicode61')")
        connection.executemany("INSERT INTO texts (rowid, word) VALUES (?, ?)", enumerate(words))
        connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(texts, instance)")
        found = {words[row]: term for term, row in connection.execute("SELECT term, doc FROM stems")}

    assert found == {word: stem(word) for word in words}


def test_what_is_not_read_of_a_question_costs_nothing() -> None:
    """Its middle is not stemmed either: in 5 MB of different words that took six seconds and 300 MB."""
    half = MAX_QUERY // 2
    first, last = ("".join(f"{letter}{number} " for number in range(half))[:half] for letter in "az")
    middle = "".join(f"m{number} " for number in range(50_000))

    assert _most_memory(f"{first}{middle}{last}") < 2 * _most_memory(f"{first} {last}")


def _most_memory(query: str) -> int:
    """The memory in bytes that reading a question takes."""
    tracemalloc.start()
    terms_of(query)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most
