"""Texts and questions for the figures, of words drawn as in speech: a few everywhere, most hardly ever."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

WORDS = 20_000  # in the language


def contents(dice: random.Random, count: int) -> list[str]:
    """Texts of 8 to 30 words (Zipf)."""
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    language = ["".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    return [" ".join(dice.choices(language, weights, k=dice.randint(8, 30))) for _ in range(count)]


def short_questions(dice: random.Random, texts: Sequence[str], count: int) -> list[str]:
    """One to three words and a question mark, as people ask."""
    return [" ".join(words) + "?" for words in questions(dice, texts, count, least=1, most=3)]


def questions(
    dice: random.Random, texts: Sequence[str], count: int, *, least: int = 3, most: int = 6
) -> list[list[str]]:
    """Three to six words each, half of them as common as in the texts, half drawn from all words alike."""
    common = re.findall(r"\w+", " ".join(texts[:2_000]))
    rare = sorted(set(common))
    return [
        [dice.choice(common if dice.random() < 0.5 else rare) for _ in range(dice.randint(least, most))]
        for _ in range(count)
    ]
