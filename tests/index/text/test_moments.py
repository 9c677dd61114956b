"""A question and a text that mean the same moment have words in common."""

from __future__ import annotations

from datetime import date
from itertools import product

import pytest

from memfiles.index.text.moments import moments_in
from memfiles.index.text.tokenizer import indexed, words_of
from memfiles.index.text.traits import ASKS, TELLS_NUMBER, TELLS_WHEN, traits_of, wanted_by
from tests.index.entry_rows import Row, Rows

SAID = date(2026, 5, 6)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("yesterday", "day20260505"),
        ("tomorrow morning", "day20260507"),
        ("last Friday", "day20260501"),
        ("last Wednesday", "day20260429"),
        ("next Friday", "day20260508"),
        ("three days ago", "day20260503"),
        ("last week", "week202618"),
        ("two weeks ago", "week202617"),
        ("last month", "month202604"),
        ("5 months ago", "month202512"),
        ("last year", "year2025"),
        ("2026-02-28", "day20260228"),
        ("on 28 February 2026", "day20260228"),
        ("on February 28th, 2026", "day20260228"),
        ("on the 3rd of May, 2026", "day20260503"),
        ("in May 2026", "month202605"),
        ("in May", "monthmay"),
        ("since 2024", "year2024"),
        ("ON MAY 4TH, 2026", "day20260504"),
        ("SIX DAYS AGO", "day20260430"),
        ("\u017f\u0130x days ago, s\u0131x", "day20260430"),
        ("\u017fep 2026", "month202609"),
    ],
)
def test_a_moment_is_read(text: str, first: str) -> None:
    """As it was meant on the day on which it was said, the most exact word first."""

    assert first == moments_in(text, said=SAID)[0]


_PARTS = """
    may_ march in since last sepember jan 2026 1999- 4th 12 of the week weekend years days before ago earlier yesterday
    THIS morning night two fridays Monday once first
""".split()


def test_known_words_change_nothing() -> None:
    """They only spare a text without a moment the expressions."""
    texts = [" ".join(parts) for parts in product(_PARTS, repeat=3)]
    known = [words_of(indexed(text)) for text in texts]
    found = [(moments_in(text, said=SAID), traits_of(text)) for text in texts]

    assert [] == [
        text
        for text, words, expected in zip(texts, known, found, strict=True)
        if expected != (moments_in(text, said=SAID, words=words), traits_of(text, words))
    ]


@pytest.mark.parametrize(
    "text", ["I may march on", "30 February 2026", "ship 20 of them", "version 1.2026", "the second"]
)
def test_what_is_no_moment_is_left_alone(text: str) -> None:
    """Words that are also names of months, dates that no calendar has, and numbers."""

    assert [] == [word for word in moments_in(text, said=SAID) if not word.startswith("year")]


def test_what_is_before_a_date_is_seen_from_it() -> None:
    """Not from the day on which the question is asked."""

    assert {"week202547"} <= {*moments_in("the week before 26 November 2025", said=SAID)}


@pytest.mark.parametrize("said", [date.min, date.max])
def test_the_ends_of_the_calendar_are_no_error(said: date) -> None:
    """What lies beyond them has no words."""

    assert isinstance(moments_in("last year, 900 years ago, tomorrow, yesterday and next month", said=said), list)


def test_a_day_is_found_however_it_is_said() -> None:
    """By its date, or by its distance from today."""
    rows = Rows()
    saved = ["We met Ada last Friday.", "We met Ada.", "Ada called."]
    rows.save(*(Row(f"k{n}", text, said="2026-05-04T09:00:00.000Z") for n, text in enumerate(saved, start=1)))
    asked = ["Whom did we meet on 1 May 2026?", "2026-05-01", "five days ago"]

    assert ["k1"] * 3 == [rows.key(rows.search(each, today=SAID)[0].id) for each in asked]


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("Where is it?", ASKS),
        ('Ada: "Is it?" [a photo of a cat]', ASKS),
        ("Is it? Yes.", 0),
        ("你好吗？", ASKS),
        ("It was last Friday.", TELLS_WHEN),
        ("There were seven of them.", TELLS_NUMBER),
        ("", 0),
    ],
)
def test_the_traits_of_a_text(text: str, traits: int) -> None:
    """Whether it asks, tells when, or tells how many."""

    assert traits == traits_of(text)


def test_what_a_question_wants() -> None:
    """A moment, a number, or neither."""
    asked = ["When was it?", "How many are there?", "Wann war es?", "Who whens?", "whence"]

    assert [TELLS_WHEN, TELLS_NUMBER, TELLS_WHEN, 0, 0] == [wanted_by(each) for each in asked]
