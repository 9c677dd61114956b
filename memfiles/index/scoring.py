"""BM25 over what is visible: how well a text answers a question, as a pure function of both and of word counts.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with weighted fields. Two
things differ, both because entries are mostly short: length counts only beyond ``SHORT`` words (a shorter entry is not
better for it), and the label that an entry opens with (``Caroline: ...``) counts as a field, for it names the subject.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memfiles.index.texts import Text
from memfiles.index.words import Term, fold, indexed, stems_of

K1 = 0.8  # how soon more of the same word adds nothing
B = 0.75  # how much of its length beyond SHORT counts against a text
SHORT = 64  # words
KEY, CONTENT, TAGS, LABEL = 2.0, 1.0, 1.5, 3.0  # what a word counts, by where it stands

READ_CLOSELY = 16_384  # characters; beyond them stems are counted as substrings
_LABEL = re.compile(r"\s*([^:\n]{1,40}):\s")


@dataclass(frozen=True)
class Weighed:
    """A term, how many of the visible entries it matches, and how much that tells."""

    term: Term
    matches: int
    weight: float


def weigh(term: Term, *, matches: int, entries: int) -> Weighed:
    """The rarer a term among the entries, the more it tells (its inverse document frequency); never negative."""
    return Weighed(term, matches, math.log(1 + max(0.0, entries - matches + 0.5) / (matches + 0.5)))


def score(text: Text, terms: Sequence[Weighed]) -> Mapping[Term, float]:
    """What each term adds to the text's score; terms that it does not hold are left out."""
    content = stems_of(indexed(text.content[:READ_CLOSELY]))
    fields = [(CONTENT, content), (KEY, stems_of(indexed(text.key)))]
    if text.tags:
        fields.append((TAGS, stems_of(indexed(text.tags))))
    if label := _LABEL.match(text.content):
        fields.append((LABEL, stems_of(fold(label[1]))))
    rest = fold(text.content[READ_CLOSELY:])
    norm = K1 * _length_norm(len(content) + len(rest) // 6)
    found = ((weighed, _frequency(weighed.term, fields, rest)) for weighed in terms)
    return {it.term: it.weight * count * (K1 + 1) / (count + norm) for it, count in found if count}


def _length_norm(words: int) -> float:
    return 1 - B + B * max(1.0, words / SHORT)


def _frequency(term: Term, fields: Sequence[tuple[float, list[str]]], rest: str) -> float:
    if term.is_phrase:
        count = sum(weight * _phrases(term, stems) for weight, stems in fields)
    else:
        count = sum(weight * stems.count(form) for weight, stems in fields for (form,) in term.stems)
    return count + sum(rest.count(" ".join(form)) for form in term.stems) if rest else count


def _phrases(term: Term, stems: list[str]) -> int:
    words = term.stems[0]
    if any(word not in stems for word in words):
        return 0
    return f" {' '.join(stems)} ".count(f" {' '.join(words)} ")
