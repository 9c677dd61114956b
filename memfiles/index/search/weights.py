"""The weights of a search, in one table, with where they come from.

They were fitted to five long conversations (LoCoMo), all five at once, for recall at 1, 5 and 10 and for all evidence
within 1,000 tokens, then rounded; ``BRIEF`` was set by paragraphs (XQuAD). ``tests/benchmarks/bench_weights.py`` tries
other values for each, chosen without one conversation; as it starts from this table, it is no test on unseen data. What
did not help is not here: the length of a text, the speaker who is named beyond the label, and Rocchio's feedback.
"""

from __future__ import annotations

from typing import NamedTuple


class Weights(NamedTuple):
    """Shares of a score, unless they say otherwise."""

    answer: float = 0.6
    """What an entry that asks lends to the one that was saved next, in the same run and thread."""

    after: tuple[float, float] = (0.1, 0.3)
    """What another entry lends to the two that were saved next; one that asks lends the second one as much."""

    before: tuple[float, float] = (0.1, 0.1)
    """What one of the ``LENDERS`` best lends to the two that were saved before it."""

    link: float = 0.4
    """What one of the best few lends to an entry that it links to; set by hand, as conversations have no links."""

    tag: float = 0.2
    """What it lends to each of the few entries that share a tag with it; set by hand."""

    most: float = 0.9
    """Of what the best lender is ahead: all that an entry is lent. What asks may fall behind its answer."""

    run: float = 0.8
    """Of the mean of the three best scores in a run and thread, for every hit in it."""

    moment: float = 0.8
    """Of the weight of a word, for a day, week, month or year that a question and a text have in common."""

    asks: float = 0.05
    """Taken from an entry that asks."""

    tells_when: float = 0.12
    """Of the best score by itself, for an entry that names a moment if the question asks when."""

    tells_number: float = 0.1
    """Of the best score by itself, for an entry with a number if the question asks how many."""

    meaning: float = 0.5
    """Of the best score by words, for a nearness of 1 more than the median, for the nearest entries in meaning."""


WEIGHTS = Weights()
LENDERS = 30  # the best hits, which lend to both sides; others lend only to what was saved next
DENSE = 24  # hits; a run with more of them tells less
BRIEF = 40  # words; a run of longer entries tells less
TAGGED_LENDERS = 5  # the best hits, whose tags and links are followed
