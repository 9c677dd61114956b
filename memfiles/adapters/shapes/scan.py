"""Looking words up in texts one by one, within bounds: how many texts, how much of each, how much to show.

For callers that ask for exactly that. The search of entries goes by an index, folds and stems words, and ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

_NAME_COUNTS = 2
_CUT = "..."


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many matches, texts to look at, characters to show in all, and characters to look at in each text."""

    matches: int
    texts: int
    shown: int
    looked_at: int


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A text that holds a word: its key, the place around the first one, and how often they occur."""

    key: str
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class Matches:
    """What was found, how many texts were looked at, and whether a bound left anything out."""

    matches: list[TextMatch]
    scanned: int
    truncated: bool


def search(texts: Iterable[tuple[str, str]], query: str, *, prefix: str, bounds: Bounds) -> Matches:
    """The texts in which words of ``query`` occur, most often first; a word in the name below ``prefix`` counts twice.

    Without a word, or with a bound that lets nothing through, that is none.
    """
    words = query.lower().split()
    if not words or min(bounds.matches, bounds.texts, bounds.shown, bounds.looked_at) <= 0:
        return Matches([], 0, truncated=False)
    looked_at = list(islice(texts, bounds.texts + 1))
    is_cut = len(looked_at) > bounds.texts or any(len(text) > bounds.looked_at for _, text in looked_at)
    scored = []
    for key, text in looked_at[: bounds.texts]:
        name, part = key.removeprefix(prefix), text[: bounds.looked_at]
        if score := _score(words, name=name, text=part):
            scored.append((-score, key, name, part))
    scored.sort()
    matches = _shown(scored[: bounds.matches], words, room=bounds.shown)
    scanned = min(len(looked_at), bounds.texts)
    return Matches(matches, scanned, truncated=is_cut or len(scored) > len(matches))


def _score(words: Sequence[str], *, name: str, text: str) -> int:
    name, text = name.lower(), text.lower()
    return sum(text.count(word) + _NAME_COUNTS * name.count(word) for word in words)


def _shown(scored: Sequence[tuple[int, str, str, str]], words: Sequence[str], *, room: int) -> list[TextMatch]:
    """The matches with as much of each as there is room for, names included."""
    matches = []
    for score, key, name, text in scored:
        room -= len(name)
        if room <= 0:
            break
        snippet = _snippet(text, words, size=room)
        room -= len(snippet)
        matches.append(TextMatch(key, snippet, float(-score)))
    return matches


def _snippet(text: str, words: Sequence[str], *, size: int) -> str:
    """At most ``size`` characters around the first word that occurs, with dots where it is cut."""
    lower = text.lower()
    first = min((place for word in words if (place := lower.find(word)) >= 0), default=0)
    start = max(0, min(first - size // 3, len(text) - size))
    snippet = text[start : start + size]
    if size <= 2 * len(_CUT):
        return snippet
    if start:
        snippet = _CUT + snippet[len(_CUT) :]
    return snippet[: -len(_CUT)] + _CUT if start + size < len(text) else snippet
