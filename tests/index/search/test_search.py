"""Search finds what a person expects, and only by what may be seen."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfiles.index.queries import Filters, is_all_visible
from memfiles.index.search import scope
from memfiles.index.search.search import snippet
from memfiles.index.text import fts as texts
from tests.index.entry_rows import Row, Rows

DESK = [
    Row("name", "The user's name is Hanna Weber."),
    Row("cpp", "Prefers C++ over C for the renderer."),
    Row("plain-c", "The driver is written in C."),
    Row("runtime", "The service runs on node.js 20."),
    Row("node", "One node of the cluster failed; its js bundle was stale."),
    Row("discount", "Gave a discount of 20% on the yearly plan."),
    Row("invoice", "Invoice 20 was sent in March."),
    Row("school", "Met the director of the École Normale."),
    Row("src/app/main.py", "Entry point of the application."),
    Row("team-name-policy", "How accounts are called."),
    Row("snake", "The setting is called max_retry_count."),
    Row("camel", "Call parseHttpHeaders before the body is read."),
    Row("tokyo", "来月東京都に引っ越します。"),
    Row("greeting", "用户喜欢喝绿茶"),
    Row("korean", "사용자는 서울에 산다"),
    Row("systems", "Our infrastructure moved to Frankfurt."),
    Row("trip", "She went hiking and bought new boots."),
    Row("party", "The launch went well\U0001f389\U0001f389"),
    Row("robot", "\U0001f916 answers at night."),
    Row("weather", "\u2600\ufe0f all day, then \u2602."),
    Row("playing", "The film \u25b6 runs."),
    Row("thumb", "Approved \U0001f44d\U0001f3fd by Ada."),
    Row("family", "A photo of \U0001f469\u200d\U0001f469\u200d\U0001f467."),
    Row("flag", "Moved to \U0001f1e9\U0001f1ea last year."),
    Row("heart", "I \u2764\ufe0f mountains."),
    Row("arrow", "From draft \u2192 review."),
    Row("price", "A seat is \u20ac5 a month."),
    Row("limit", "The load must be \u2264 80."),
]


@pytest.fixture(scope="module")
def desk() -> Rows:
    rows = Rows()
    rows.save(*DESK)
    return rows


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("user's name", "name"),
        ("what is the user's name?", "name"),
        ("What\u2019s the user\u2019s NAME", "name"),
        ("C++", "cpp"),
        ("c++?", "cpp"),
        ("node.js", "runtime"),
        ("20%", "discount"),
        ("20 %", "discount"),
        ("\u00e9cole", "school"),
        ("ECOLE", "school"),
        ("E\u0301cole", "school"),
        ("src/app/main.py", "src/app/main.py"),
        ("main.py", "src/app/main.py"),
        ("team-name", "team-name-policy"),
        ("team name policy", "team-name-policy"),
        ("max_retry_count", "snake"),
        ("retry count", "snake"),
        ("parseHttpHeaders", "camel"),
        ("http headers", "camel"),
        ("parsehttpheaders", "camel"),
        ("東京", "tokyo"),
        ("東京都", "tokyo"),
        ("都", "tokyo"),
        ("绿茶", "greeting"),
        ("喝绿茶", "greeting"),
        ("茶", "greeting"),
        ("用户喜欢喝什么茶", "greeting"),
        ("서울", "korean"),
        ("frastruc", "systems"),
        ("INFRASTRUC", "systems"),
        ("retry_cou", "snake"),
        ("did she go hiking", "trip"),
        ("buying boots", "trip"),
        ("\U0001f389", "party"),
        ("\U0001f916", "robot"),
        ("\u2600", "weather"),
        ("\u2602\ufe0f", "weather"),
        ("\u25b6\ufe0f", "playing"),
        ("\U0001f44d", "thumb"),
        ("\U0001f44d\U0001f3ff", "thumb"),
        ("\U0001f467", "family"),
        ("\U0001f1e9\U0001f1ea", "flag"),
        ("\u2764", "heart"),
        ("\u2192", "arrow"),
        ("\u20ac", "price"),
        ("\u20ac5", "price"),
        ("\u2264", "limit"),
        (
            "I was wondering whether you could perhaps tell me, if that is at all possible and you still have it "
            "somewhere in your notes from one of our many earlier conversations, which director it was that we met "
            "at that school in Paris, the famous one",
            "school",
        ),
    ],
)
def test_what_a_person_expects_is_found_first(desk: Rows, query: str, key: str) -> None:
    """Names with signs, paths, accents, scripts without spaces, parts of words and long questions find their entry."""

    assert key == desk.keys(query)[0]


def test_the_snippet_of_a_long_text_shows_the_emoji_that_was_asked_for() -> None:
    """Wherever it stands in the text."""
    rows = Rows()
    rows.save(Row("long", "word " * 400 + "\U0001f389 " + "word " * 400))

    (hit,) = rows.search("\U0001f389")
    assert "\U0001f389" in snippet(hit.content, hit.terms)


def test_a_question_of_stop_words_only_is_still_asked(desk: Rows) -> None:
    """Stop words are dropped from a question only while something else is left."""

    assert "snake" in desk.keys("is the")


@pytest.mark.parametrize("query", ["", " ", "?!", "\0", '"', '"""', "*", "^", "NEAR(", "-", "%", "_", "'", "\ud800"])
def test_nothing_asked_is_nothing_found(desk: Rows, query: str) -> None:
    """A question without a letter or digit finds nothing, and is no error."""

    assert [] == desk.keys(query, associate=True)


OPERATORS = [
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "NEAR(a b, 3)",
    '"',
    "'",
    "(",
    ")",
    "*",
    "^",
    ":",
    "key:",
    "{key content}:",
    "+",
]


@settings(max_examples=100, deadline=None)
@given(query=st.lists(st.one_of(st.sampled_from(OPERATORS), st.text(), st.sampled_from(["user", "C++", "東京"]))))
def test_no_text_of_a_query_raises(query: list[str]) -> None:
    """Operators, quotes and control characters are text like any other."""
    desk = _shared_desk()

    assert len(desk.search(" ".join(query))) <= 10


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    key=st.text(min_size=1, max_size=40),
    content=st.text(st.characters(codec=None), max_size=200),
    tags=st.lists(st.text(max_size=20), max_size=3),
)
def test_any_text_can_be_saved_found_and_removed(key: str, content: str, tags: list[str]) -> None:
    """What was put in is taken out again without a trace, whatever characters it holds."""
    rows = Rows()
    rows.grow(1)
    texts.replace_texts(rows.connection, {}, {1: [(1, key, content, tags)]})
    texts.replace_texts(rows.connection, {1: [1]}, {})
    texts.replace_texts(rows.connection, {}, {1: [(1, key, content + " zebra", tags)]})
    found = texts.open_texts(rows.connection, [1])[0].best('"zebra"', limit=10)
    texts.replace_texts(rows.connection, {1: [1]}, {})

    assert ([1], []) == (found, rows.connection.execute("SELECT * FROM counts_1").fetchall())


def test_a_query_of_a_megabyte_is_answered(desk: Rows) -> None:
    """Only the beginning of a question is read."""

    assert "name" == desk.keys("Hanna " + "x" * 1_000_000)[0]


def test_a_large_entry_is_found_by_its_end() -> None:
    """Words beyond what is read closely count as well."""
    rows = Rows()
    rows.save(Row("small", "zebra"), Row("large", "word " * 50_000 + "giraffe at last"))

    assert ["large"] == rows.keys("giraffe")


@pytest.mark.slow
def test_the_best_match_is_first_even_if_it_is_the_oldest_of_ten_thousand() -> None:
    """Age is no reason against an entry."""
    rows = Rows()
    rows.save(Row("best", "The spare key of the cellar is under the blue flower pot."))
    noise = random.Random(1)
    words = "the spare key blue flower pot garden meeting lunch report invoice train ticket".split()
    rows.save_many(Row(f"n{n}", " ".join(noise.choices(words, k=6))) for n in range(9_999))

    assert "best" == rows.keys("where is the spare key of the cellar, under which flower pot?")[0]


def test_ties_go_to_the_newest() -> None:
    """Among equal scores the entry saved last comes first."""
    rows = Rows()
    rows.save(*(Row(f"k{n}", "green tea") for n in range(5)))

    assert ["k4", "k3", "k2", "k1", "k0"] == rows.keys("green tea")


def test_a_word_said_twice_in_a_row_counts_twice() -> None:
    """It adds as much as a word that is said twice with another one between."""
    rows = Rows()
    rows.save(Row("a", "tea tea and milk"), Row("b", "tea and tea, milk"))

    assert 1 == len({score for _, score, _, _ in rows.said("tea")})


def test_the_limit_is_applied_after_what_does_not_count() -> None:
    """With a thousand better matches that do not count, the one that does is found."""
    rows = Rows()
    rows.save(Row("wanted", "about zebras, among a good deal of other things"))
    rows.save_many(Row(f"n{n}", "zebra zebra zebra") for n in range(1_000))
    wanted = rows.id("wanted")
    alone = Rows()
    alone.save(Row("wanted", "about zebras, among a good deal of other things"))

    assert [wanted] == [hit.id for hit in rows.search("zebra", keep=lambda ids: {wanted} & set(ids), limit=1)]


def test_nothing_is_left_out_only_of_one_partition_without_a_filter() -> None:
    """Beside another with text something may be shadowed, and has to be asked for."""
    rows = Rows()
    rows.save(Row("a", "red", part=1), Row("b", "green", part=2))
    asked: list[tuple[list[int], Filters]] = [([1], Filters()), ([1, 3], Filters()), ([1, 2], Filters())]
    asked.append(([1], Filters(kind="note")))
    found = [is_all_visible(rows.connection, parts, filters=filters) for parts, filters in asked]

    assert [True, True, False, False] == found


VOCABULARY = "red green blue car house tree train ticket monday dinner user's node.js C++ 東京 école".split()


def _noise(seed: int, count: int, *, part: int) -> list[Row]:
    dice = random.Random(seed)
    return [
        Row(
            f"p{part}-{n}",
            " ".join(dice.choices(VOCABULARY, k=dice.randint(1, 12))),
            part=part,
            tags=("shared",) if dice.random() < 0.02 else (),
            links=(f"p1-{dice.randint(0, 60)}",) if dice.random() < 0.1 else (),
            run=f"r{dice.randint(0, 5)}",
            thread="t",
        )
        for n in range(count)
    ]


def _interleaved(*groups: Sequence[Row]) -> list[Row]:
    """The rows in one order, each group's own order kept."""
    dice = random.Random(7)
    places = [index for index, group in enumerate(groups) for _ in group]
    dice.shuffle(places)
    left = [iter(group) for group in groups]
    return [next(left[place]) for place in places]


@pytest.mark.parametrize("query", ["red car", "monday dinner in the house", "c++ node.js", "東京", "ick", "école"])
def test_hidden_entries_change_nothing(query: str) -> None:
    """Results, scores, order, legs and snippets are those of a store without the thousand that are not visible."""
    visible = _interleaved(_noise(1, 60, part=1), _noise(2, 60, part=2))
    hidden = [*_noise(3, 500, part=3), *_noise(4, 500, part=4)]
    alone, among = Rows(), Rows()
    alone.save(*visible)
    among.save(*_interleaved(visible, hidden))

    assert alone.said(query, parts=[1, 2], limit=30) == among.said(query, parts=[1, 2], limit=30)


def test_a_hit_says_which_legs_found_it() -> None:
    """Words, parts of words and ties to other entries are told apart."""
    rows = Rows()
    rows.save(Row("asked", "Which museum did you like?", run="r"), Row("told", "The one by the river.", run="r"))
    rows.save(Row("systems", "Our infrastructure moved."))

    assert {"asked": ("words",), "told": ("association",)} == {k: legs for k, _, legs, _ in rows.said("museum")}
    assert [("systems", ("substring",))] == [(k, legs) for k, _, legs, _ in rows.said("frastruc")]


def test_scores_are_counted_over_all_partitions_together() -> None:
    """The same texts score the same whether they are in one partition or in several."""
    one, two = Rows(), Rows()
    contents = ["red car", "red house with a tree", "blue car", "green tree", "a train"]
    one.save(*(Row(f"k{n}", content) for n, content in enumerate(contents)))
    two.save(*(Row(f"k{n}", content, part=1 + n % 2) for n, content in enumerate(contents)))

    assert one.said("red car tree") == two.said("red car tree", parts=[1, 2])


def test_an_unknown_partition_is_empty() -> None:
    """A partition in which nothing was ever saved is no error."""

    assert [] == Rows().keys("anything", parts=[5])


_DESKS: list[Rows] = []


def _shared_desk() -> Rows:
    if not _DESKS:
        _DESKS.append(Rows())
        _DESKS[0].save(*DESK)
    return _DESKS[0]


SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu".split()
MANY = ["".join(found) for found in product(SYLLABLES, repeat=3)][:2000]  # words
RARE = [chr(0x5000 + place) for place in range(2000)]


@pytest.mark.parametrize(
    ("preamble", "question", "key"),
    [
        (" ".join(MANY), "which tea does she drink", "tea"),
        (" ".join(MANY[1000:1065]), "which tea does she drink", "tea"),
        (" ".join(MANY), "infrastruc", "systems"),
        (".".join(MANY), "which tea does she drink", "tea"),
        ("".join(RARE), "用户喜欢喝什么茶", "greeting"),
        ("".join(RARE[1000:1065]), "用户喜欢喝什么茶", "greeting"),
        ("".join(f"请{each}" for each in RARE[:300]), "用户喜欢喝什么茶", "greeting"),
    ],
    ids=["words", "a few words", "a part of a word", "one name", "characters", "a few characters", "two by two"],
)
@pytest.mark.parametrize("is_after", [False, True])
def test_a_preamble_hides_no_question(preamble: str, question: str, key: str, is_after: bool) -> None:
    """However long it is, whether nobody or half of the other entries use its words, and on whichever side it is."""
    rows = Rows()
    rows.save(Row("tea", "She drinks green tea."), Row("milk", "He drinks milk."), *DESK)
    rows.save_many(Row(f"noise-{place}", f"{word} {MANY[-place]} 请求") for place, word in enumerate(MANY[:40]))
    asked = [question, preamble]

    assert key in rows.keys(" ".join(reversed(asked) if is_after else asked), limit=50)


@pytest.mark.slow
def test_of_a_very_long_question_the_rarest_words_count() -> None:
    """By what the asking session sees: what it may not see makes no word more common."""
    rows = [Row(f"k{place}", MANY[place // 2]) for place in range(1200)]
    alone, among = Rows(), Rows()
    alone.save(*rows, Row("answer", "platypus"))
    among.save(*(Row(f"h{place}", f"platypus {word}", part=2) for place, word in enumerate(MANY)), *rows)
    among.save(Row("answer", "platypus"))
    query = f"{' '.join(MANY[:600])} platypus"

    assert "answer" == alone.keys(query)[0]
    assert alone.said(query) == among.said(query)


@pytest.mark.parametrize("unit", ["w", "word ", "a.b-c/", "aB", "茶", "1 %", '"', "zz1 zz2 zz3 "])
def test_a_megabyte_of_a_question_is_answered(desk: Rows, unit: str) -> None:
    """Its two ends are read, within seconds."""
    filler = (unit * 1_000_000)[:1_000_000]
    begun = time.process_time()
    found = [desk.keys(f"École {filler}"), desk.keys(f"{filler} École")]

    assert time.process_time() - begun < 20
    assert [True, True] == ["school" in keys for keys in found]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_a_search_remembers_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was saved and removed since: as a search that counts every word anew."""
    monkeypatch.setattr(scope, "MOST_ADDED", 3)
    monkeypatch.setattr(scope, "MOST_BYTES", 6_000)
    dice = random.Random(seed)
    words = [f"{word}{number}" for word in ("river", "tea", "車", "C++ ") for number in range(12)]
    rows = Rows()
    keys: list[str] = []
    for turn in range(60):
        for number in range(dice.choice((0, 1, 1, 5))):
            text = " ".join(dice.choices(words, k=dice.randint(1, 8)))
            keys.append(f"k{turn}-{number}")
            rows.save(Row(keys[-1], text, part=dice.choice((1, 2)), tags=tuple(dice.choices(words, k=1)), run="r"))
        if keys and dice.random() < 0.2:
            rows.remove(keys.pop(dice.randrange(len(keys))))
        asked = " ".join(dice.choices(words, k=3))
        for parts in ((1,), (2, 1)):
            anew, known = (rows.said(asked, parts=parts, counted=counted) for counted in (False, True))
            assert anew == known, turn


def test_a_word_is_counted_once() -> None:
    """As long as nothing is removed; what is saved since is added."""
    rows, counted = Rows(), list[str]()
    rows.connection.set_trace_callback(lambda it: counted.append(it) if "CROSS JOIN counts" in it else None)
    rows.save(Row("a", "tea and milk"), Row("b", "tea"))
    counts = []
    for step in ("", "save", "", "remove", ""):
        if step == "save":
            rows.save(Row("c", "tea"))
        elif step == "remove":
            rows.remove("c")
        rows.search("tea")
        counts.append(len(counted))

    assert [1, 1, 1, 2, 2] == counts
