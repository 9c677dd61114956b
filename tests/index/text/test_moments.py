"""A question and a text that mean the same moment have words in common."""

from __future__ import annotations

from datetime import date
from itertools import product

import pytest

from memfiles.index.text.moments import moments_asked, moments_in
from memfiles.index.text.tokenizer import fold, indexed, terms_of, words_of
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Was geschah am 3. M\u00e4rz 2026?", "day20260303"),
        ("Wen traf sie am 1.5.2026?", "day20260501"),
        ("Was war vor zwei Wochen?", "week202617"),
        ("Wer kam letzten Freitag?", "day20260501"),
        ("Wo war sie gestern?", "day20260505"),
        ("Was war im Mai?", "monthmay"),
        ("Qui est parti le 1er f\u00e9vrier 2026 ?", "day20260201"),
        ("Avec qui \u00e9tait-elle hier ?", "day20260505"),
        ("Que s'est-il pass\u00e9 il y a trois mois ?", "month202602"),
        ("O\u00f9 \u00e9tait-elle vendredi dernier ?", "day20260501"),
        ("\u00bfQu\u00e9 pas\u00f3 el 2 de mayo de 2026?", "day20260502"),
        ("\u00bfQui\u00e9n llam\u00f3 hace dos d\u00edas?", "day20260504"),
        ("\u00bfQu\u00e9 hizo la semana pasada?", "week202618"),
        ("Dov'era due settimane fa?", "week202617"),
        ("\u0427\u0442\u043e \u0431\u044b\u043b\u043e 3 \u043c\u0430\u044f 2026?", "day20260503"),
        (
            "\u0645\u0627\u0630\u0627 \u062d\u062f\u062b \u0641\u064a 3 \u0645\u0627\u064a\u0648 2026\u061f",
            "day20260503",
        ),
        ("\u0645\u0627\u0630\u0627 \u062d\u062f\u062b \u0623\u0645\u0633\u061f", "day20260505"),
        ("2026\u5e745\u67081\u65e5\u53d1\u751f\u4e86\u4ec0\u4e48\uff1f", "day20260501"),
        ("\u4e0a\u5468\u4e94\u8c01\u6765\u4e86\uff1f", "day20260501"),
        ("\u4e24\u5929\u524d\u5979\u6253\u7ed9\u8c01\uff1f", "day20260504"),
        ("\u4e0a\u4e2a\u6708\u600e\u4e48\u6837\uff1f", "month202604"),
        ("\u53bb\u5e74\u5462\uff1f", "year2025"),
    ],
)
def test_a_moment_is_read_in_questions_of_other_languages(question: str, first: str) -> None:
    """As seen from today; what an entry says has the words of the day on which it was said."""

    assert first == next(term.text for term in terms_of(question, today=SAID) if term.is_moment)


@pytest.mark.parametrize(
    "question",
    ["Was ist hier?", "Le 30 f\u00e9vrier 2026", "Who is an April fool?", "vor 9999 Jahren", "9999\u5e74\u524d"],
)
def test_what_is_no_moment_in_another_language_is_left_alone(question: str) -> None:
    """Words of two languages, dates that no calendar has, and the time before the first year."""
    folded = fold(question)

    assert [] == moments_asked(folded, words_of(folded), today=SAID, language="german")


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
