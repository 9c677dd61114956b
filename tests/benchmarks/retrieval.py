"""What retrieval is measured with: rows of conversations and paragraphs, other searches, and what they find."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from memfiles.errors import ExtraMissing
from memfiles.index.search.embedder import WordVectors
from memfiles.index.search.vectors import Matrices
from memfiles.index.text.tokenizer import STOP_WORDS, fold, stems_of
from memfiles.records.graphemes import estimate_tokens
from tests.benchmarks.conversations import Conversation
from tests.index.entry_rows import Row, Rows

CUTS = (1, 5, 10, 25, 50)
TOKENS = (500, 1_000, 2_000)
RARE = 0.05  # of the turns, which a name that is asked for again occurs in at most
Find = Callable[[str], Sequence[str]]  # a question's keys, best first, 50 of them
Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Paragraphs:
    """Paragraphs of articles in one language, by key, and questions, each with the key of its paragraph."""

    language: str
    texts: Mapping[str, str]
    questions: Sequence[tuple[str, str]]


@cache
def rows_of(conversation: Conversation) -> Rows:
    """Each turn as an entry; the turns of a session share a run and a thread, and say when they were said."""
    rows = Rows()
    rows.save_many(
        Row(it.key, it.content, run=it.session, thread=it.session, said=it.said) for it in conversation.turns
    )
    return rows


def searching(conversation: Conversation, **options: object) -> Find:
    """Our search, asked on the day of the last session."""
    rows, last = rows_of(conversation), date.fromisoformat(max(turn.said for turn in conversation.turns))
    options |= {"limit": max(CUTS), "today": last, "matrices": Matrices()}
    return lambda question: [rows.key(hit.id) for hit in rows.search(question, **options)]  # type: ignore[arg-type]


class Remembering:
    """An embedder that embeds a text once, however often it is asked."""

    def __init__(self, inner: WordVectors) -> None:
        self.model_id = inner.model_id
        self._inner = inner
        self._known: dict[str, Any] = {}
        self.near_words = cache(inner.near_words)

    def embed(self, texts: Sequence[str]) -> list[Any]:
        """The texts' vectors."""
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            self._known.update(zip(new, self._inner.embed(new), strict=True))
        return [self._known[text] for text in texts]


@cache
def encoder() -> Remembering | None:
    """The embedder of the extra ``semantic``, if it is installed."""
    try:
        return Remembering(WordVectors())
    except ExtraMissing:
        return None


def asking_twice(conversation: Conversation, **options: object) -> Find:
    """A second question with the names that the first results say, and both results together, by reciprocal ranks."""
    find = searching(conversation, **options)
    said = {turn.key: turn.content.partition(": ")[2] for turn in conversation.turns}
    held = Counter(stem for turn in conversation.turns for stem in set(stems_of(fold(turn.content))))

    def names_in(text: str, asked: set[str]) -> Iterator[str]:
        for name in re.findall(r"(?<=[^.!?] )[A-Z][a-z]\w+", text):
            (stem, *_) = stems_of(fold(name))
            if stem not in asked and 2 <= held[stem] <= RARE * len(said):
                yield name

    def found(question: str) -> Sequence[str]:
        first, asked = find(question), set(stems_of(fold(question)))
        names = Counter(name for key in first[:5] for name in names_in(said[key], asked))
        if not names:
            return first
        second = find(f"{question} {' '.join(name for name, _ in names.most_common(3))}")
        scores: dict[str, float] = defaultdict(float)
        for weight, keys in (1.0, first), (0.5, second):
            for rank, key in enumerate(keys):
                scores[key] += weight / (10 + rank)
        return sorted(scores, key=lambda key: -scores[key])[: max(CUTS)]

    return found


def plain(texts: Mapping[str, str], following: Mapping[str, str] | None = None) -> Find:
    """FTS5 as it comes: porter, words OR-ed, stop words left out; each result may be followed by another key."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turn USING fts5(key UNINDEXED, content, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO turn (key, content) VALUES (?, ?)", texts.items())

    def find(question: str) -> list[str]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
        match = " OR ".join(f'"{word}"' for word in words)
        statement = "SELECT key FROM turn WHERE turn MATCH ? ORDER BY bm25(turn) LIMIT ?"
        found = [key for (key,) in connection.execute(statement, (match, max(CUTS)))] if match else []
        with_next = (each for key in found for each in (key, (following or {}).get(key)) if each is not None)
        return list(dict.fromkeys(with_next))[: max(CUTS)]

    return find


def bm25_with_snowball(texts: Mapping[str, str], language: str = "english") -> Find:
    """BM25 by the library bm25s, with Snowball's stemmer; skips without it."""
    bm25s, stemmers = pytest.importorskip("bm25s"), pytest.importorskip("Stemmer")
    stemmer = stemmers.Stemmer(language) if language in stemmers.algorithms() else None
    keys = list(texts)
    stop = "en" if language == "english" else []
    settings = {"stopwords": stop, "stemmer": stemmer, "show_progress": False}
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize(list(texts.values()), **settings), show_progress=False)

    def find(question: str) -> list[str]:
        asked = bm25s.tokenize(question, **settings)
        found, scores = retriever.retrieve(asked, k=min(max(CUTS), len(keys)), show_progress=False)
        return [keys[at] for at, score in zip(found[0], scores[0], strict=True) if score > 0]

    return find


def measured(evidence: Sequence[str], found: Sequence[str], tokens: Mapping[str, int]) -> dict[str, float]:
    """Recall at each cut, the reciprocal rank, and whether all evidence is in the results that fit so many tokens."""
    figures = {f"R@{cut}": len({*evidence} & {*found[:cut]}) / len(evidence) for cut in CUTS}
    first = next((rank for rank, key in enumerate(found, start=1) if key in evidence), None)
    figures["MRR"] = 1 / first if first else 0.0
    for budget in TOKENS:
        left, within = budget, set()
        for key in found:
            left -= tokens[key]
            if left < 0:
                break
            within.add(key)
        figures[f"all in {budget:,}"] = float({*evidence} <= within)
    return figures


def averaged(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure in per cent."""
    found: Figures = defaultdict(list)
    for each in measured:
        for name, value in each.items():
            found[name].append(value)
    return {name: 100 * fmean(values) for name, values in found.items()}


def tokens_of(conversation: Conversation) -> dict[str, int]:
    """About how many tokens each turn has."""
    return {turn.key: estimate_tokens(turn.content) for turn in conversation.turns}


def paragraphs(language: str) -> Paragraphs:
    """The paragraphs of ``xquad.LANGUAGE.json`` in the folder that MEMFILES_XQUAD names; skips without it."""
    folder = os.environ.get("MEMFILES_XQUAD")
    if not folder:
        pytest.skip("MEMFILES_XQUAD names no folder: get xquad.*.json from google-deepmind/xquad (CC BY-SA 4.0)")
    articles = json.loads((Path(folder) / f"xquad.{language}.json").read_text("utf-8"))["data"]
    texts: dict[str, str] = {}
    asked: list[tuple[str, str]] = []
    for number, article in enumerate(articles):
        for place, paragraph in enumerate(article["paragraphs"]):
            texts[key := f"{number}/{place}"] = paragraph["context"]
            asked += ((each["question"], key) for each in paragraph["qas"])
    return Paragraphs(language, texts, asked[:: int(os.environ.get("MEMFILES_XQUAD_STEP", "1"))])
