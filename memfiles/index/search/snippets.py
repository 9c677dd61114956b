"""What of an entry a search shows: a bounded piece of its content around the words that were asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from memfiles.index.text.porter import stem
from memfiles.index.text.tokenizer import Term, fold
from memfiles.records.graphemes import whole_after, whole_before

LONGEST = 240  # characters
READ = 65_536  # characters of an entry in which words are looked for
MORE = "..."

_WORD = re.compile(r"[^\W_]+")


def snippet(content: str, terms: Sequence[Term]) -> str:
    """At most ``LONGEST`` characters of the content: where most of the terms stand together, else its beginning."""
    if len(content) <= LONGEST:
        return content
    room = LONGEST - 2 * len(MORE)
    begin = _begin(content[:READ], {word for term in terms for form in term.stems for word in form}, room)
    end = whole_before(content, begin + room)
    begin = min(whole_after(content, begin), end)
    return (MORE if begin else "") + content[begin:end] + (MORE if end < len(content) else "")


def _begin(content: str, stems: Collection[str], room: int) -> int:
    """Where to begin, so that the most different stems are shown; a little before the first of them."""
    found = [(at.start(), word) for at in _WORD.finditer(content) if (word := stem(fold(at[0]))) in stems]
    best, most, first = 0, 0, 0
    shown: list[str] = []
    for position, word in found:
        shown.append(word)
        while position - found[first][0] > room - 40:
            first += 1
            shown.pop(0)
        if len(set(shown)) > most:
            best, most = found[first][0], len(set(shown))
    return _word_boundary(content, max(0, min(best - 20, len(content) - room)))


def _word_boundary(content: str, begin: int) -> int:
    space = content.find(" ", begin, begin + 20)
    return space + 1 if begin and space >= 0 else begin
