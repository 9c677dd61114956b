"""How much of what answers a question is found: recall on five long conversations, beside plain FTS5.

Each turn is an entry as it was said (``speaker: text``, with the caption of a picture), keyed by its number; the turns
of a session share a run and a thread. Nothing is prepared for the questions. No language model, no network.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pytest

from memfiles.entries.drafts import Draft
from memfiles.errors import ExtraMissing
from memfiles.index.search.embedder import SentenceEncoder
from memfiles.index.text.tokenizer import STOP_WORDS
from tests.benchmarks.article import ARTICLE, paragraph_questions
from tests.benchmarks.bare import show
from tests.benchmarks.conversations import CATEGORIES, Conversation, Question, load
from tests.index.entry_rows import Row, Rows
from tests.support.saved import Visitor, entries_in

CUTS = (5, 10, 25, 50)

Find = Callable[[str], Sequence[str]]  # a question's keys, best first, 50 of them


@pytest.fixture(scope="module")
def conversations() -> list[Conversation]:
    return load()


def test_plain_full_text(conversations: list[Conversation]) -> None:
    """FTS5 as it comes: porter, words OR-ed, stop words left out."""
    _report("plain FTS5", conversations, _plain)


def test_words(conversations: list[Conversation]) -> None:
    """Lexical search alone."""
    recall = _report("words", conversations, lambda it: _searching(it, associate=False))

    assert recall >= 0.66


def test_association(conversations: list[Conversation]) -> None:
    """With what hits lend to their neighbours."""
    recall = _report("words and association", conversations, _searching)

    assert recall >= 0.758


def test_meaning(conversations: list[Conversation]) -> None:
    """With the semantic leg, too."""
    try:
        encoder = SentenceEncoder()
    except ExtraMissing as missing:
        pytest.skip(str(missing))
    _report("words, association and meaning", conversations, lambda it: _searching(it, embedder=encoder))


def test_recall(conversations: list[Conversation], tmp_path: Path) -> None:
    """The share of the evidence in blocks of 4 KiB, each entry with its heading."""
    shares: list[float] = []
    for conversation in conversations:
        with entries_in(tmp_path / conversation.name) as entries:
            for name, turns in groupby(conversation.turns, key=lambda turn: turn.session):
                entries.save_many(Visitor(run=name, thread=name), [Draft(turn.key, turn.content) for turn in turns])
            for question in conversation.questions:
                found = set(entries.recall(Visitor(), question.text).keys)
                shares.append(len(found.intersection(question.evidence)) / len(question.evidence))
    print(f"\nrecall ({len(shares)} questions)")
    show("evidence in 4 KiB", f"{100 * fmean(shares):.1f} %")

    assert fmean(shares) >= 0.78


def test_article() -> None:
    """Paragraphs of one article in one run: what neighbours lend does not take the first place from the right one."""
    rows = Rows()
    rows.save_many(Row(f"p{number}", text, run="r", thread="t") for number, (text, _) in enumerate(ARTICLE))
    asked = list(paragraph_questions())
    first = {
        what: fmean(rows.keys(question, associate=associate)[0] == key for key, question in asked)
        for what, associate in (("words", False), ("words and association", True))
    }
    print(f"\nan article ({len(asked)} questions)")
    for what, share in first.items():
        show(f"recall@1, {what}", f"{100 * share:.1f} %")

    assert first["words and association"] >= first["words"] - 0.01


def _report(what: str, conversations: Sequence[Conversation], finding: Callable[[Conversation], Find]) -> float:
    """Print recall at every cut, by category and by conversation at 10; returns it at 10."""
    recalls: dict[str, list[float]] = defaultdict(list)
    for conversation in conversations:
        find = finding(conversation)
        for question in conversation.questions:
            for name, value in _recalls(conversation, question, find(question.text)):
                recalls[name].append(value)
    print(f"\n{what} ({len(recalls['recall@10'])} questions)")
    for name in sorted(recalls, key=lambda name: (not name.startswith("recall"), len(name), name)):
        show(name, f"{100 * fmean(recalls[name]):.1f} %")
    return fmean(recalls["recall@10"])


def _recalls(conversation: Conversation, question: Question, found: Sequence[str]) -> Iterator[tuple[str, float]]:
    recall = {cut: sum(key in found[:cut] for key in question.evidence) / len(question.evidence) for cut in CUTS}
    yield from ((f"recall@{cut}", value) for cut, value in recall.items())
    yield f"at 10, {CATEGORIES[question.category]}", recall[10]
    yield f"at 10, conversation {conversation.name}", recall[10]


def _searching(conversation: Conversation, **options: object) -> Find:
    rows = Rows()
    rows.save_many(Row(turn.key, turn.content, run=turn.session, thread=turn.session) for turn in conversation.turns)
    return lambda question: [key for key, *_ in rows.said(question, limit=max(CUTS), **options)]


def _plain(conversation: Conversation) -> Find:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turn USING fts5(key UNINDEXED, content, tokenize='porter unicode61')")
    turns = [(turn.key, turn.content) for turn in conversation.turns]
    connection.executemany("INSERT INTO turn (key, content) VALUES (?, ?)", turns)

    def find(question: str) -> list[str]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
        match = " OR ".join(f'"{word}"' for word in words)
        statement = "SELECT key FROM turn WHERE turn MATCH ? ORDER BY bm25(turn) LIMIT ?"
        return [key for (key,) in connection.execute(statement, (match, max(CUTS)))]

    return find
