"""The consolidation planner: steps by which the entries of one folder and level come within their budget.

The rules this file guards: least destruction first. Duplicates are merged, then entries that a newer one repeats in
more words, then episodes are folded into notes; only entries that are still over the budget are evicted, in the order
of ``budgets.value``. No step is planned that does not help, nor after the budget is met; and the same entries give the
same steps. An entry only gives way to one that has all of its words in their order: similar texts may differ in a name
or a number.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries.budgets import ALL, Budgeted, EntrySummary, FolderTotals, Limit, Tally, excess, select, value
from memfiles.entries.consolidation.plan import (
    FirstSentences,
    Plan,
    PlannedEntry,
    Step,
    Summariser,
    SummaryNote,
    groups_to_fold,
    note_of,
    united_labels,
)
from memfiles.records.entry import EPISODE, MAX_LINKS, MAX_TAGS, Entry

NEAR = 0.8
"""The share of the longer text's words that the shorter one must have."""

FEWEST_WORDS = 5
"""The fewest words of a near duplicate; shorter texts must be equal."""

MOST_COMPARED = 200
"""The most texts with the same rarest word that a text is compared with; bounds the work."""

TokenSequence = Sequence[str]
Limits = Mapping[Budgeted, Limit]
Admit = Callable[[SummaryNote], SummaryNote | None]
_WORD = re.compile(r"\w+")


class Member(Struct, frozen=True):
    """An entry that is consolidated: its summary and its record."""

    summary: EntrySummary
    entry: Entry

    @property
    def named(self) -> PlannedEntry:
        """The entry at its revision."""
        return PlannedEntry(self.entry.uid, self.entry.key, self.entry.revision)


def plan_consolidation(
    members: Iterable[Member],
    limits: Limits,
    *,
    plan: Plan,
    summariser: Summariser | None = None,
    admit: Admit | None = None,
) -> Plan:
    """The empty ``plan`` filled for the live ones of these entries; it stays empty if they are within the limits.

    ``admit`` is as of ``PlannedState.folds``.
    """
    live = [member for member in members if member.summary.is_live(plan.made_at)]
    planning = PlannedState(live, limits)
    before = planning.totals.within(ALL)
    steps = tuple(planning.steps(summariser or FirstSentences(), admit))
    if planning.over and any(step.note for step in steps):  # the notes are too large: evict their episodes
        planning = PlannedState(live, limits)
        steps = tuple(planning.steps(None))
    return replace(plan, before=before, after=planning.totals.within(ALL), is_enough=not planning.over, steps=steps)


class PlannedState:
    """The entries as they would be after the steps so far."""

    def __init__(
        self,
        members: Sequence[Member],
        limits: Limits,
        *,
        totals: FolderTotals | None = None,
        watched: Collection[Budgeted] | None = None,
        saved: Collection[str] = (),
    ) -> None:
        """``members`` are the entries that may be merged or folded; by default all that count.

        Otherwise ``totals`` are those of all, and ``watched`` are the limits to meet. No step hides the uids that are
        being ``saved``.
        """
        self.totals = FolderTotals.of(member.summary for member in members) if totals is None else totals
        self._limits, self._watched, self._saved = limits, limits.keys() if watched is None else watched, saved
        self.over = self._excess(self.totals)
        ordered = sorted(members, key=lambda each: (each.entry.uid in saved, value(each.summary)))
        self._left = {member.entry.uid: member for member in ordered}
        self._tags = {member.entry.uid: member.entry.tags for member in members}
        self._links = {member.entry.uid: member.entry.links for member in members}

    def steps(self, summariser: Summariser | None, admit: Admit | None = None) -> Iterator[Step]:
        """The steps in their order, until nothing is over; without a summariser nothing is folded."""
        yield from self.lossless_steps(summariser, admit)
        if self.over:
            yield from self._evictions()

    def lossless_steps(self, summariser: Summariser | None, admit: Admit | None = None) -> Iterator[Step]:
        """The merges and the folds, until nothing is over."""
        if self.over:
            yield from self.merges_of_same(normalised)
        if self.over:
            yield from self._merges(self._nearly_same(), "{} repeated, in more words, by", ("is", "are"))
        if self.over and summariser is not None:
            yield from self.folds(summariser, admit)

    def merges_of_same(self, text: Callable[[str], str]) -> Iterator[Step]:
        """Merges of entries of one sort whose content is the same ``text``, those worth least first."""
        yield from self._merges(self._same(text), "{} the same as", ("says", "say"))

    def folds(self, summariser: Summariser, admit: Admit | None = None) -> Iterator[Step]:
        """Folds of episodes that belong together; ``admit`` gives the note as it can be saved, None if it cannot."""
        left = self._left.values()
        foldable = [it.entry for it in left if it.entry.kind == EPISODE and not it.summary.is_held]
        for group in groups_to_fold([episode for episode in foldable if episode.uid not in self._saved]):
            members = [self._left[episode.uid] for episode in group]
            if self._helps(members):
                named = self._under_a_free_key(note_of(group, summariser))
                note = named if admit is None else admit(named)
                step = None if note is None else self._fold(members, note)
                yield from () if step is None else (step,)

    def _merges(self, groups: list[tuple[Member, list[Member]]], why: str, verbs: tuple[str, str]) -> Iterator[Step]:
        """The merges of groups; the verb of ``why`` is that for one entry or that for several."""
        for survivor, retired in sorted(groups, key=lambda group: value(group[1][0].summary)):
            if self._helps(retired):
                yield self._merge(survivor, retired, why.format(verbs[len(retired) > 1]))

    def _merge(self, survivor: Member, retired: list[Member], why: str) -> Step:
        uids = [survivor.entry.uid, *(member.entry.uid for member in retired)]
        keys = [survivor.entry.key, *(member.entry.key for member in retired)]
        tags = united_labels([self._tags[uid] for uid in uids])[:MAX_TAGS]
        links = united_labels([self._links[uid] for uid in uids], without=keys)[:MAX_LINKS]
        self._tags[survivor.entry.uid], self._links[survivor.entry.uid] = tags, links
        return Step(
            "merge",
            f"{', '.join(repr(member.entry.key) for member in retired)} {why} {survivor.entry.key!r}",
            retired=tuple(member.named for member in retired),
            survivor=survivor.named,
            tags=tags,
            links=links,
            freed=self._retire(retired),
        )

    def _same(self, text: Callable[[str], str]) -> list[tuple[Member, list[Member]]]:
        """Groups of duplicates of one sort: the entry worth most stays, or the one that is being saved."""
        groups: dict[tuple[str, ...], list[Member]] = {}
        for member in self._mergeable():
            groups.setdefault((*_sort(member), text(member.entry.content)), []).append(member)
        found = [(survivor, self._may_go(retired, survivor)) for *retired, survivor in groups.values()]
        return [(survivor, retired) for survivor, retired in found if retired]

    def _may_go(self, retired: list[Member], survivor: Member) -> list[Member]:
        """The members that are not being saved, and whose importance and pin the survivor has as well."""
        worth = survivor.summary.is_held, survivor.summary.importance
        free = [member for member in retired if member.entry.uid not in self._saved]
        return [member for member in free if (member.summary.is_held, member.summary.importance) <= worth]

    def _nearly_same(self) -> list[tuple[Member, list[Member]]]:
        """Groups of entries of one sort that a newer one, no less important, repeats in more words: it stays."""
        groups: dict[str, tuple[Member, list[Member]]] = {}
        recency = attrgetter("updated_at", "ordinal", "key", "uid")
        newest_first = sorted(self._mergeable(), key=lambda member: recency(member.summary), reverse=True)
        for _, alike in groupby(sorted(newest_first, key=_sort), key=_sort):
            sort = list(alike)
            for stays, goes in near_duplicates([normalised_words(member.entry.content) for member in sort]):
                newer, older = sort[stays], sort[goes]
                if not older.summary.is_held and newer.summary.importance >= older.summary.importance:
                    groups.setdefault(newer.entry.uid, (newer, []))[1].append(older)
        return list(groups.values())

    def _under_a_free_key(self, note: SummaryNote) -> SummaryNote:
        """The note, under another key if its own is taken by a restored note of an earlier plan."""
        taken = {member.entry.key for member in self._left.values()}
        keys = (note.key if number == 1 else f"{note.key} {number}" for number in count(1))
        return replace(note, key=next(key for key in keys if key not in taken))

    def _fold(self, members: list[Member], note: SummaryNote) -> Step | None:
        """The step; None if the note is not smaller than its episodes, or over a budget of its own."""
        new = EntrySummary("", note.key, members[0].entry.level, category=note.category, size_bytes=note.size_bytes)
        totals = self._without(members).after([(new, 1)])
        is_over_more = excess(self._limits, totals).keys() - excess(self._limits, self.totals).keys()
        if new.size_bytes >= sum(member.summary.size_bytes for member in members) or is_over_more:
            return None
        before = self.totals.within(ALL)
        self._retire(members)
        self.totals, self.over = totals, self._excess(totals)
        why = f"{len(members)} episodes that belong together become one note"
        retired = tuple(member.named for member in members)
        return Step("fold", why, retired=retired, note=note, freed=before.minus(totals.within(ALL)))

    def _evictions(self) -> Iterator[Step]:
        lowest_first = [member.summary for member in self._left.values()]
        chosen, _ = select(lambda scope: filter(scope.holds, lowest_first), self.over)
        for summary in chosen:
            member = self._left[summary.uid]
            yield Step("evict", _worth(summary), retired=(member.named,), freed=self._retire([member]))

    def _excess(self, totals: FolderTotals) -> dict[Budgeted, Tally]:
        """The excess over the limits to meet."""
        return {scope: tally for scope, tally in excess(self._limits, totals).items() if scope in self._watched}

    def _mergeable(self) -> list[Member]:
        """The entries that may be merged, those worth least first; episodes are events, which are folded instead."""
        return [member for member in self._left.values() if member.entry.kind != EPISODE]

    def _helps(self, retired: Sequence[Member]) -> bool:
        """Whether an excess becomes smaller without these."""
        return any(scope.holds(member.summary) for scope in self.over for member in retired)

    def _without(self, members: Iterable[Member]) -> FolderTotals:
        return self.totals.after((member.summary, -1) for member in members)

    def _retire(self, members: Sequence[Member]) -> Tally:
        """Remove these members; returns the tally that this frees."""
        for member in members:
            del self._left[member.entry.uid]
        self.totals = self._without(members)
        self.over = self._excess(self.totals)
        return Tally(len(members), sum(member.summary.size_bytes for member in members))


def _sort(member: Member) -> tuple[str, ...]:
    """The sort of an entry. Only one sort is merged: an entry that expires, or of one run, must not replace others."""
    entry = member.entry
    return entry.run, entry.category, entry.kind, "" if entry.expires_at is None else "expires"


def _worth(summary: EntrySummary) -> str:
    """The facts that decided an eviction."""
    held = "pinned, " if summary.is_held else ""
    outcomes = f", {summary.failures} failures" if summary.kind == "procedure" else ""
    return (
        f"{held}importance {summary.importance:g}{outcomes}, confidence {summary.confidence:g}, "
        f"read {summary.accesses} times, last changed {summary.updated_at}"
    )


def normalised(text: str) -> str:
    """The text as it is compared: composed, in lower case, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def normalised_words(text: str) -> tuple[str, ...]:
    """The words of a text in their order, in lower case."""
    return tuple(_WORD.findall(normalised(text)))


def says_all_of(longer: TokenSequence, shorter: TokenSequence) -> bool:
    """Whether the longer text has all words of the shorter one in their order, and few others."""
    if not FEWEST_WORDS <= len(shorter) <= len(longer) or len(shorter) < NEAR * len(longer):
        return False
    ahead = iter(longer)
    return all(word in ahead for word in shorter)


def near_duplicates(texts: Sequence[TokenSequence]) -> Iterator[tuple[int, int]]:
    """Pairs of positions (stays, goes): the first earlier text that repeats a later one, and does not itself go."""
    counts = Counter(word for text in texts for word in set(text))
    holders: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(texts):
        rarest = min(set(text), key=lambda word: (counts[word], word), default="")
        stays = next((other for other in holders[rarest] if says_all_of(texts[other], text)), None)
        if stays is not None:
            yield stays, position
            continue
        for word in sorted(set(text)):
            if len(holders[word]) < MOST_COMPARED:
                holders[word].append(position)
