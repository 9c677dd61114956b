"""Stems computed in Python are those of SQLite."""

from __future__ import annotations

import re
import sqlite3
import tracemalloc
from contextlib import closing

from memfiles.index.text import tokenizer
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


def test_the_new_words_of_many_texts_are_stemmed_at_once() -> None:
    """SQLite is asked once for all texts of a batch, not once for each of their fields."""
    stem("warm")
    asked: list[str] = []
    tokenizer._STEMMER._idle[-1].set_trace_callback(asked.append)
    letters = "abcdefghij"
    names = ["".join(letters[int(digit)] for digit in str(number)) for number in range(100, 200)]
    found = tokenizer.tokenized([(n, f"{name}keys", f"{name}ing {name}ed", name) for n, name in enumerate(names)])
    tokenizer._STEMMER._idle[-1].set_trace_callback(None)

    assert 1 == sum(statement.startswith("INSERT INTO words (rowid") for statement in asked)
    assert [" ".join((stem(f"{name}ing"), stem(f"{name}ed"))) for name in names] == [text.content for text in found]
