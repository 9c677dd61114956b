"""Facets: what is said about an entry beside its text, brought together out of two copies.

The rules this file guards: what only one copy changed is taken over as it is; of what both changed the newer stands,
or all of it where it can be added up; and a delete never hides a text that was changed without knowing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from memfiles.records.entry import MAX_LINKS, MAX_SOURCES, MAX_TAGS, Entry, Merged, Retired

_SINGLE = ("category", "kind", "confidence", "importance", "pinned")


@dataclass(frozen=True, slots=True)
class EntryPair:
    """Two copies, and the one that both began with where it is known exactly.

    ``is_content_known``: some earlier version is known at least.
    """

    local: Entry
    remote: Entry
    base: Entry | None
    is_content_known: bool = False

    @property
    def newer(self) -> Entry:
        """The copy that was changed last, in whatever way; the same whoever asks."""
        return max(
            self.local, self.remote, key=lambda it: (_changed_at(it), it.revision, it.text.sha256, repr(it.tags))
        )

    def newer_of(self, name: str) -> Any:
        """One facet: of the copy that alone changed it, else of the one that was changed last."""
        here, there = getattr(self.local, name), getattr(self.remote, name)
        if self.base is not None:
            before = getattr(self.base, name)
            if here == before:
                return there
            if there == before:
                return here
        return getattr(self.newer, name)


def merged_facets(told: EntryPair, *, kept: int) -> Entry:
    """An entry with the facets of both; text, provenance and expiry are still those of the remote copy.

    At most so many names of tombstones are ``kept``.
    """
    local, remote = told.local, told.remote
    missing = tuple(each for each in local.forgotten if each not in remote.forgotten)
    single: dict[str, Any] = {name: told.newer_of(name) for name in _SINGLE}
    return replace(
        remote,
        **single,
        tags=_labels(told, "tags", most=MAX_TAGS),
        links=_labels(told, "links", most=MAX_LINKS),
        successes=_count(told, "successes"),
        failures=_count(told, "failures"),
        retired=_retired(told),
        forgotten=(*missing, *remote.forgotten)[-kept:],
        made_of=tuple(dict.fromkeys((*remote.made_of, *local.made_of)))[-MAX_SOURCES:],
        merged=_merged(told),
        reorganised=told.newer_of("reorganised"),
    )


def _merged(told: EntryPair) -> tuple[Merged, ...]:
    """What gave way to either copy; of one that both know, what the newer says."""
    known = {each.uid: each for copy in (told.remote, told.local, told.newer) for each in copy.merged}
    return tuple(known.values())[-MAX_SOURCES:]


def _labels(told: EntryPair, name: str, *, most: int) -> tuple[str, ...]:
    """The labels of both, without those that one of them took away from what they began with."""
    here, there = getattr(told.local, name), getattr(told.remote, name)
    before = getattr(told.base, name) if told.base is not None else ()
    gone = {label for label in before if label not in here or label not in there}
    return tuple(dict.fromkeys(label for label in (*there, *here) if label not in gone))[:most]


def _count(told: EntryPair, name: str) -> int:
    """What both began with and what each added to it; the higher one where the beginning is not known."""
    here, there = getattr(told.local, name), getattr(told.remote, name)
    if told.base is None:
        return int(max(here, there))
    return int(max(0, here + there - getattr(told.base, name)))


def _retired(told: EntryPair) -> Retired | None:
    """Hidden or not: a text that was changed meanwhile is shown, else the newer of hiding and bringing back stands."""
    local, remote = told.local, told.remote
    if local.retired is not None and remote.retired is not None:
        return max(local.retired, remote.retired, key=lambda it: (it.at, it.state, it.cause))
    shown, hidden = (local, remote) if local.retired is None else (remote, local)
    if hidden.retired is None:
        return None
    before = told.base.content if told.base is not None else hidden.content
    if shown.content != before:
        return None
    if told.base is not None and told.base.retired == hidden.retired:
        return None  # only the other copy changed it: it was brought back
    if told.base is not None and told.base.retired is None and _is_same_life(told.base, shown):
        return hidden.retired
    return hidden.retired if hidden.retired.at >= _changed_at(shown) else None


def _is_same_life(base: Entry, shown: Entry) -> bool:
    """Whether the shown copy was never hidden and brought back since the base."""
    later = [change for change in shown.text.history if change.revision > base.revision]
    return not any(change.op == "restore" for change in later)


def _changed_at(entry: Entry) -> str:
    return entry.text.history[-1].at if entry.text.history else entry.updated_at
