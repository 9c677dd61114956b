"""The tokenizer cuts and stems what is saved and what is asked in the same way."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing

import pytest

from memfiles.index.text import tokenizer
from memfiles.index.text.tokenizer import CUT, MAX_QUERY, terms_of, tokenized


@pytest.mark.slow
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


TEXTS = [
    "Running to node.js and back, 20% of C++; parseHttpHeaders, École.",
    "Die Häuser der Städte wurden größer, und niemand zählte sie.",
    "Les maisons de la ville étaient grandes avec des jardins pour tous.",
    "Дома этого города были больше других домов.",
    "البيوت الكبيرة في المدينة القديمة",
    "हिन्दी में लिखा हुआ एक वाक्य",
    "来月東京都に引っ越します。",
    "ผู้ใช้ชอบดื่มชาเขียวทุกเช้า",
    "여름에는 서울에 산다",
    "Σήμερα τα σπίτια των πόλεων",
]


@pytest.mark.parametrize("text", TEXTS)
def test_fts5_cuts_stems_no_further(text: str) -> None:
    """The words that the index finds are the words that the score counts, in every script."""
    (tokens,) = tokenized([(1, "key", text, "a tag", "2026-05-04T09:00:00.000Z")])
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE texts USING fts5(key, content, tags, moments, {CUT})")
        connection.execute("INSERT INTO texts VALUES (?, ?, ?, ?)", tokens.columns)
        connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab(texts, row)")
        found = {term for (term,) in connection.execute("SELECT term FROM stems")}

    assert tokens.stems == found


@pytest.mark.parametrize(
    ("saved", "asked"),
    [
        ("She was hiking in the hills.", "hikes"),
        ("Die Häuser der Stadt sind alt und nicht groß.", "Wie alt ist das Haus?"),
        ("Les étudiants sont arrivés avec des livres.", "Quand est arrivé l'étudiant ?"),
        ("Los niños jugaron con las pelotas por la tarde.", "¿Con qué jugaba el niño?"),
        ("Дома этого города были больше других.", "Какой дом?"),
        ("المهندسون في المدينة", "مهندس"),
        ("Evlerin çatıları ve bahçeleri çok güzel.", "Hangi evler için?"),
        ("The Häuser in Berlin are old.", "Häuser"),
    ],
)
def test_forms_of_a_word_have_a_stem_in_common(saved: str, asked: str) -> None:
    """In English, in the language of a text in Latin letters, and in that of a script."""
    (tokens,) = tokenized([(1, "key", saved, "", "")])

    assert tokens.stems & {form[0] for term in terms_of(asked) for form in term.stems if len(term.text) > 2}


def test_a_word_of_which_nobody_knows_the_language_is_found_as_it_is() -> None:
    """A question of one German word finds the text that holds it, though nothing tells that it is German."""
    (tokens,) = tokenized([(1, "key", "Die Häuser der Stadt sind alt und nicht groß.", "", "")])

    assert [True] * 3 == [bool(tokens.stems & set(terms_of(word)[0].stems[0])) for word in ("Häuser", "Stadt", "groß")]


def test_the_middle_of_a_cut_word_is_no_part_to_look_for() -> None:
    """Pairs of characters that no entry holds are not looked for again as parts of words."""

    assert [] == tokenizer.needles_of("東京都", terms_of("東京都"))
