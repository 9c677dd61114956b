"""Entries for the tests to start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from memfiles.entries.callers import SessionProvenance
from memfiles.entries.drafts import EntryRules, later
from memfiles.entries.entries import Entries
from memfiles.records.entry import Entry, Provenance, Retired, new_text
from memfiles.records.keys import scope_folder, user_hash
from memfiles.records.marks import Mark, tombstones_in
from memfiles.records.record import FORMAT, Actor, Change, Operation, extend, successor, with_content
from memfiles.storage.events import Subscribers, utc_now
from memfiles.storage.home import home_of
from tests.support.records import SEEDED_AT, files_under
from tests.support.stores import columns_in, place_of


def saved(
    key: str = "color", content: str = "blue", *, agent: str = "support", at: str = SEEDED_AT, **said: Any
) -> Entry:
    """An entry as its first save leaves it; ``level``, ``run`` and the facets by their names."""
    level, run = said.pop("level", "INTERNAL"), said.pop("run", "")
    folder = scope_folder(agent, user_hash(said["user"])) if "user" in said else agent
    text = new_text(folder, key, level=level, run=run, content=content, at=at)
    change = Change(revision=1, at=at, op="save", by=Actor(agent=agent), bytes=text.size_bytes, offset=0)
    return Entry(extend(text, change), agent, key, run=run, **{"provenance": Provenance(agent=agent), **said})


def resaved(entry: Entry, content: str, *, at: str) -> Entry:
    """The entry with another content, as a later save leaves it."""
    before = entry.text
    change = Change(
        revision=before.revision + 1, at=at, op="save", bytes=len(content.encode()), offset=0, old=before.content
    )
    return replace(entry, text=extend(with_content(before, content), change))


def refaceted(entry: Entry, *, at: str, op: Operation = "update", **facets: Any) -> Entry:
    """The entry with something else said about it, as an update, a delete or a restore leaves it."""
    text = extend(entry.text, Change(revision=entry.revision + 1, at=at, op=op))
    return replace(entry, text=successor(text, updated_at=entry.updated_at), **facets)


def deleted(entry: Entry, *, at: str) -> Entry:
    """The entry hidden."""
    return refaceted(entry, at=at, op="delete", retired=Retired("deleted", at))


def saved_over(mark: Mark, key: str, content: str, *, at: str, **said: Any) -> Entry:
    """What a deliberate save under a key makes that was forgotten or moved away."""
    text = new_text(mark.agent, key, level=mark.level, run="", content=content, at=at)
    change = Change(revision=mark.revision + 1, at=at, op="save", bytes=text.size_bytes, offset=0)
    text = successor(extend(text, change), origins=dict(mark.origins))
    return Entry(text, mark.agent, key, forgotten=tombstones_in(mark), **said)


def buried(entry: Entry, *, id: str = "0123456789ab", at: str = SEEDED_AT, why: str = "asked to") -> Mark:
    """What an earlier build left of the entry when it was forgotten."""
    return Mark(
        *(entry.uid, entry.agent, entry.level, "tombstone", entry.revision + 1, at, Actor(agent=entry.agent), why),
        run=entry.run,
        forgotten=entry.forgotten,
        origins=entry.origins,
        id=id,
        format=FORMAT,
    )


def tombstone(id: str, *, at: str = SEEDED_AT, revision: int = 1) -> Mark:
    """What remains of a forgotten entry."""
    return Mark(id, "support", "INTERNAL", "tombstone", revision, at, Actor(agent="support"), "asked to")


def location(entry: Entry, *, id: str = "", at: str = SEEDED_AT, revision: int = 1) -> Mark:
    """Where an entry is."""
    return Mark(id or entry.id, entry.agent, entry.level, "location", revision, at, key=entry.key)


class Visitor:
    """Somebody with a level that can be raised, as a session is."""

    def __init__(
        self,
        agent: str = "support",
        level: str = "INTERNAL",
        *,
        run: str | None = None,
        thread: str | None = None,
        user: str | None = None,
    ) -> None:
        self.level, self.is_brief = level, False
        self.provenance = SessionProvenance(agent, run=run, thread=thread, user=user)

    def check_open(self) -> None:
        """A visitor is never sent away."""

    def actor(self, call_id: str | None) -> Actor:
        """Who makes the call."""
        of = user_hash(self.provenance.user or "") or None
        return Actor(agent=self.provenance.agent, session=self.provenance.run, call=call_id, user=of)


class Clock:
    """Tells the time it is set to."""

    def __init__(self, at: str = SEEDED_AT) -> None:
        self.at = at

    def __call__(self) -> str:
        return self.at

    def go_on(self, seconds: int) -> None:
        """Let time pass."""
        self.at = later(self.at, seconds)


def without_ids(shown: Any) -> Any:
    """What a read returned, without the ids of entries: these are random."""
    if isinstance(shown, dict):
        return {name: without_ids(value) for name, value in shown.items() if name != "id"}
    return [without_ids(each) for each in shown] if isinstance(shown, (list, tuple)) else shown


@contextmanager
def entries_in(
    directory: Path, *, rules: EntryRules | None = None, now: Callable[[], str] = utc_now, **options: Any
) -> Iterator[Entries]:
    """The entries of a memory directory, opened and closed."""
    store = home_of(place_of(directory)).open(now=now, durability=options.pop("durability", "os"))
    entries = Entries(store, rules=rules or EntryRules(), now=now, **{"subscribers": Subscribers()} | options)
    try:
        yield entries
    finally:
        entries.close()
        store.close()


def files_holding(directory: Path, *needles: str) -> list[str]:
    """The files below a directory that hold one of these texts, or the columns of no file in a store in its place."""
    wanted = [needle.encode() for needle in needles]
    places = [*files_under(directory).items()]
    if not any(each in body for _, body in places for each in wanted):
        places = [*columns_in(directory).items()]
    return sorted(name for name, body in places if any(each in body for each in wanted))
