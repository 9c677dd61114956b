"""The weights of a search, in one table, with where they come from.

``tests/benchmarks/bench_weights.py`` fits them to five long conversations (LoCoMo), for recall at several cuts and for
all evidence within 1,000 tokens, from round values and drawn back to them. It also fits them to four of the five and
measures on the fifth; docs/measurements/retrieval.md has the figures. ``near_word`` and ``meaning`` are the best of a
few values, by searches with meaning. ``link``, ``tag`` and ``most`` were set by hand, ``BRIEF`` by paragraphs (XQuAD).
What did not help is not here: the length of a text, a share of the words of the question, less lent where it asks when,
and Rocchio's feedback.
"""

from __future__ import annotations

from memfiles.records import NamedTuple


class Weights(NamedTuple):
    """Shares of a score, unless they say otherwise."""

    answer: float = 0.55
    """What an entry that asks lends to the one that was saved next, in the same run and thread."""

    after: tuple[float, float] = (0.1, 0.35)
    """What another entry lends to the two that were saved next; one that asks lends the second one as much."""

    before: tuple[float, float] = (0.2, 0.15)
    """What one of the ``LENDERS`` best lends to the two that were saved before it."""

    link: float = 0.4
    """What one of the best few lends to an entry that it links to; set by hand, as conversations have no links."""

    tag: float = 0.2
    """What it lends to each of the few entries that share a tag with it; set by hand."""

    most: float = 0.9
    """Of what the best lender is ahead: all that an entry is lent. What asks may fall behind its answer."""

    label: float = 0.5
    """Added for a word of the label that an entry opens with (``Caroline: ...``), however common the word is."""

    run: float = 0.7
    """Of the mean of the three best scores in a run and thread, for every hit in it."""

    moment: float = 0.8
    """Of the weight of a word, for a day, week, month or year that a question and a text have in common."""

    asks: float = 0.125
    """Taken from an entry that asks."""

    tells_when: float = 0.2
    """Of the best score by itself, for an entry that names a moment if the question asks when."""

    tells_number: float = 0.25
    """Of the best score by itself, for an entry with a number if the question asks how many."""

    meaning: float = 0.75
    """Of the best score by words, for a nearness of 1 more than the median, for the nearest entries in meaning."""

    near_word: float = 1.0
    """Of the weight of a word that hardly any entry holds, for a word of the same meaning (a cosine of 1)."""


WEIGHTS = Weights()
LENDERS = 30  # the best hits, which lend to both sides; others lend only to what was saved next
DENSE = 24  # hits; a run with more of them means less
BRIEF = 40  # words; a run of longer entries means less
TAGGED_LENDERS = 5  # the best hits, whose tags and links are followed
