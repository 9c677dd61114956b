"""Likeness: which texts say the same, and which say all that another says.

The rule this file guards: a text gives way only to one in which each of its words stands, in its order; that much is
alike does not make two texts the same, where a number or a name differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

NEAR = 0.8
"""Of the words of the longer text, how many the shorter one must have."""

FEWEST_WORDS = 5
"""Shorter texts are never nearly the same, only exactly."""

MOST_COMPARED = 200
"""With how many texts that share its rarest word a text is compared, the first ones: bounds the work."""

TokenSequence = Sequence[str]
_WORD = re.compile(r"\w+")


def normalised(text: str) -> str:
    """What is compared: composed, in lower case, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in their order, in lower case."""
    return tuple(_WORD.findall(normalised(text)))


def says_all_of(longer: TokenSequence, shorter: TokenSequence) -> bool:
    """Whether each word of the shorter stands in the longer, in its order, and they are most of its words."""
    if not FEWEST_WORDS <= len(shorter) <= len(longer) or len(shorter) < NEAR * len(longer):
        return False
    ahead = iter(longer)
    return all(word in ahead for word in shorter)


def near_duplicates(texts: Sequence[TokenSequence]) -> Iterator[tuple[int, int]]:
    """Pairs of positions (stays, goes): the first earlier text that says all of a later one, and does not itself go."""
    counts = Counter(word for text in texts for word in set(text))
    holders: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(texts):
        stays = _first_that_says_all(texts, position, holders[_rarest(text, counts)] if text else ())
        if stays is not None:
            yield stays, position
            continue
        for word in sorted(set(text)):
            if len(holders[word]) < MOST_COMPARED:
                holders[word].append(position)


def _rarest(text: TokenSequence, counts: Counter[str]) -> str:
    return min(set(text), key=lambda word: (counts[word], word))


def _first_that_says_all(texts: Sequence[TokenSequence], position: int, candidates: Sequence[int]) -> int | None:
    return next((other for other in candidates if says_all_of(texts[other], texts[position])), None)
