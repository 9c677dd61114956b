"""Consolidation: the plan by which the entries of one folder and level come within their budget.

The rule this file guards: least destruction first. What is said twice is merged, what is said again in more words gives
way to it, episodes are folded into notes, derived vectors are dropped, and only what is then still over is evicted, in
the order of ``retention.value``. Nothing is done that does not help, nor after the budget is met; what is being saved
is never given up; and the same entries give the same steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby

from memfiles.entries.budgets import ALL, Budget, FolderTotals, Scope, Tally, excess, select, tally_of, value
from memfiles.entries.consolidation.folding import FirstSentences, Summariser, groups_to_fold, note_of, united
from memfiles.entries.consolidation.plan import Named, Plan, Step, SummaryNote
from memfiles.entries.consolidation.similarity import near_duplicates, normalised, words_of
from memfiles.entries.summary import EntrySummary
from memfiles.records.entry import MAX_LINKS, MAX_TAGS, Entry


@dataclass(frozen=True, slots=True)
class Member:
    """An entry that is consolidated: how it stands, its record, and whether the index holds a vector of it."""

    standing: EntrySummary
    entry: Entry
    has_vector: bool = False

    @property
    def named(self) -> Named:
        """Which entry, at which revision."""
        return Named(self.entry.uid, self.entry.key, self.entry.revision)


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above the steps of a plan: its id, when it is made, and of which folder and level it is."""

    id: str
    made_at: str
    folder: str
    level: str


def plan_consolidation(
    members: Iterable[Member],
    budget: Budget,
    *,
    heading: Heading,
    summariser: Summariser | None = None,
    spared: Collection[str] = (),
) -> Plan:
    """The plan for the usable ones of these entries; without steps if they are within the budget.

    ``spared`` are the uids of what is being saved: others may be merged into it, and it never goes.
    """
    usable = [member for member in members if member.standing.is_usable(heading.made_at)]
    summariser = summariser or FirstSentences()
    planning, steps = _planned(usable, budget, summariser=summariser, spared=frozenset(spared))
    if planning.over and any(step.note for step in steps):  # the notes are too much: evict what they would be made of
        planning, steps = _planned(usable, budget, summariser=None, spared=frozenset(spared))
    return Plan(
        **{name: getattr(heading, name) for name in ("id", "made_at", "folder", "level")},
        before=FolderTotals.of(member.standing for member in usable).within(ALL),
        after=planning.totals.within(ALL),
        is_enough=not planning.over,
        steps=steps,
    )


def _planned(
    members: Sequence[Member], budget: Budget, *, summariser: Summariser | None, spared: frozenset[str]
) -> tuple[_Planning, tuple[Step, ...]]:
    planning = _Planning(members, budget, spared=spared)
    return planning, tuple(planning.steps(summariser))


class _Planning:
    """The entries as they would be after the steps so far."""

    def __init__(self, members: Sequence[Member], budget: Budget, *, spared: frozenset[str]) -> None:
        self.totals = FolderTotals.of(member.standing for member in members)
        self.over = excess(budget, self.totals)
        self._left = {member.entry.uid: member for member in sorted(members, key=lambda each: value(each.standing))}
        self._tags = {member.entry.uid: member.entry.tags for member in members}
        self._links = {member.entry.uid: member.entry.links for member in members}
        self._budget = budget
        self._spared = spared

    def steps(self, summariser: Summariser | None) -> Iterator[Step]:
        """The steps in their order, until nothing is over; without a summariser nothing is folded."""
        if self.over:
            yield from self._merges(self._same(), "says the same as")
        if self.over:
            yield from self._merges(self._nearly_same(), "is said again, in more words, by")
        if self.over and summariser is not None:
            yield from self._folds(summariser)
        if self.over:
            yield from self._evictions()

    def _merges(self, groups: list[tuple[Member, list[Member]]], why: str) -> Iterator[Step]:
        for survivor, retired in sorted(groups, key=lambda group: value(group[1][0].standing)):
            if self._helps(retired):
                yield self._merge(survivor, retired, why)

    def _merge(self, survivor: Member, retired: list[Member], why: str) -> Step:
        uids = [survivor.entry.uid, *(member.entry.uid for member in retired)]
        keys = [survivor.entry.key, *(member.entry.key for member in retired)]
        tags = united([self._tags[uid] for uid in uids])[:MAX_TAGS]
        links = united([self._links[uid] for uid in uids], without=keys)[:MAX_LINKS]
        self._tags[survivor.entry.uid], self._links[survivor.entry.uid] = tags, links
        return Step(
            "merge",
            f"{_keys(retired)} {why} {survivor.entry.key!r}",
            retired=tuple(member.named for member in retired),
            survivor=survivor.named,
            tags=tags,
            links=links,
            freed=self._retire(retired),
        )

    def _same(self) -> list[tuple[Member, list[Member]]]:
        """Entries of one sort that say the same: the one worth most stays."""
        groups: dict[tuple[str, ...], list[Member]] = {}
        for member in self._mergeable():
            groups.setdefault((*_sort(member), normalised(member.entry.content)), []).append(member)
        parted = (self._parted(group) for group in groups.values())
        return [(survivor, retired) for survivor, retired in parted if retired]

    def _parted(self, group: list[Member]) -> tuple[Member, list[Member]]:
        """The one that stays, and the others; what is being saved stays in any case."""
        survivor = max(group, key=lambda member: (member.entry.uid in self._spared, value(member.standing)))
        others = [member for member in group if member is not survivor and member.entry.uid not in self._spared]
        return survivor, others

    def _nearly_same(self) -> list[tuple[Member, list[Member]]]:
        """Entries of one sort that a newer one, no less important, says all of: it stays."""
        groups: dict[str, tuple[Member, list[Member]]] = {}
        newest_first = sorted(self._mergeable(), key=lambda member: _recency(member.standing), reverse=True)
        for _, alike in groupby(sorted(newest_first, key=_sort), key=_sort):
            sort = list(alike)
            for stays, goes in near_duplicates([words_of(member.entry.content) for member in sort]):
                newer, older = sort[stays], sort[goes]
                if self._may_replace(newer, older):
                    groups.setdefault(newer.entry.uid, (newer, []))[1].append(older)
        return list(groups.values())

    def _may_replace(self, newer: Member, older: Member) -> bool:
        is_worth_it = newer.standing.importance >= older.standing.importance
        return is_worth_it and not older.standing.is_held and older.entry.uid not in self._spared

    def _folds(self, summariser: Summariser) -> Iterator[Step]:
        foldable = [member for member in self._left.values() if member.entry.kind == "episode"
                    and not member.standing.is_held and member.entry.uid not in self._spared]  # fmt: skip
        for group in groups_to_fold([member.entry for member in foldable]):
            members = [self._left[episode.uid] for episode in group]
            if self._helps(members):
                step = self._fold(members, self._under_a_free_key(note_of(group, summariser)))
                yield from () if step is None else (step,)

    def _under_a_free_key(self, note: SummaryNote) -> SummaryNote:
        """The note, under another key if its own is taken: by one of an earlier plan that somebody brought back."""
        taken = {member.entry.key for member in self._left.values()}
        keys = (note.key if number == 1 else f"{note.key} {number}" for number in count(1))
        return replace(note, key=next(key for key in keys if key not in taken))

    def _fold(self, members: list[Member], note: SummaryNote) -> Step | None:
        """The step, unless the note is not smaller than its episodes or goes over a budget of its own."""
        new = _standing_of_note(note, level=members[0].entry.level)
        totals = self._without(members).plus(new)
        over = excess(self._budget, totals)
        if new.size_bytes >= sum(member.standing.size_bytes for member in members) or set(over) - set(self.over):
            return None
        before = self.totals.within(ALL)
        self._retire(members)
        self.totals, self.over = totals, over
        why = f"{len(members)} episodes that belong together become one note"
        retired = tuple(member.named for member in members)
        return Step("fold", why, retired=retired, note=note, freed=before.minus(totals.within(ALL)))

    def _evictions(self) -> Iterator[Step]:
        """The vectors of what must go, and then what must go."""
        chosen, _ = select(self._in_order, self.over, spared=self._spared)
        members = [self._left[standing.uid] for standing in chosen]
        about = tuple(member.named for member in members if member.has_vector)
        if about:
            yield Step("drop_vectors", f"{len(about)} vectors of what is evicted", about=about)
        for member in members:
            yield Step("evict", _worth(member.standing), retired=(member.named,), freed=self._retire([member]))

    def _in_order(self, scope: Scope) -> Iterator[EntrySummary]:
        """What is left, the lowest value first."""
        return (member.standing for member in self._left.values() if scope.holds(member.standing))

    def _mergeable(self) -> list[Member]:
        """Episodes are what happened, once each; they are folded, not merged."""
        return [member for member in self._left.values() if member.entry.kind != "episode"]

    def _helps(self, retired: Sequence[Member]) -> bool:
        """Whether something over the budget becomes less without these."""
        return any(scope.holds(member.standing) for scope in self.over for member in retired)

    def _without(self, members: Iterable[Member]) -> FolderTotals:
        totals = self.totals
        for member in members:
            totals = totals.minus(member.standing)
        return totals

    def _retire(self, members: Sequence[Member]) -> Tally:
        """Take these out; returns what that frees."""
        freed = Tally()
        for member in members:
            freed = freed.plus(tally_of(member.standing))
            del self._left[member.entry.uid]
        self.totals = self._without(members)
        self.over = excess(self._budget, self.totals)
        return freed


def _sort(member: Member) -> tuple[str, ...]:
    """Only entries of one sort are merged: none that expires stands for one that does not, nor one run's for all."""
    entry = member.entry
    return entry.run, entry.category, entry.kind, "" if entry.expires_at is None else "expires"


def _recency(standing: EntrySummary) -> tuple[str, int, str, str]:
    return standing.updated_at, standing.ordinal, standing.key, standing.uid


def _keys(members: Iterable[Member]) -> str:
    return ", ".join(repr(member.entry.key) for member in members)


def _worth(standing: EntrySummary) -> str:
    """What of an entry decided that it goes."""
    held = "pinned, " if standing.is_held else ""
    outcomes = f", {standing.failures} failures" if standing.kind == "procedure" else ""
    return (
        f"{held}importance {standing.importance:g}{outcomes}, confidence {standing.confidence:g}, "
        f"read {standing.accesses} times, last changed {standing.updated_at}"
    )


def _standing_of_note(note: SummaryNote, *, level: str) -> EntrySummary:
    return EntrySummary("", note.key, level, category=note.category, size_bytes=note.size_bytes)
