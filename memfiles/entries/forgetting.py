"""Forgetting: what a selector means, and its content out of everything under the directory.

The rules this file guards: an empty selector is refused; what is forgotten is what the session's own level holds,
retired and expired entries included, with an entry the notes that it was folded into, and the labels that others have
of it; what was forgotten on another machine is followed here in the same way; the tombstones are durable before
anything else goes, so that a kill at any point leaves nothing that could come back; what a kill left undone is done at
the next start; and it returns when no file under the directory holds the content.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memfiles.changes import Stamp, check_text
from memfiles.entries import saving
from memfiles.entries.drafts import check_switch
from memfiles.entries.finding import Finder
from memfiles.entries.folding import FOLDED, is_made_of
from memfiles.entries.lending import give_back, stands_for
from memfiles.entries.receipts import Forgotten
from memfiles.entries.selecting import Selector
from memfiles.entries.shelf import Records, Shelf
from memfiles.entries.views import Caller, View, is_in_view, own_level
from memfiles.entry import MAX_WHY_BYTES, MOVED, Entry, EntryRecord, Tombstone, moved_to
from memfiles.errors import InvalidArgument
from memfiles.index import debts, reading
from memfiles.index.indexing import Index
from memfiles.index.rows import Row
from memfiles.keys import entry_path, entry_place
from memfiles.secrets import Policy, gate

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _Meant:
    """What is to go: what the selector means, where that was before it moved, and what was made of it.

    Told by uids, by keys of episodes among them, and by the causes of what was hidden by a move. The selector means
    what is in the view; what that was before, or became, may be where the caller sees nothing.
    """

    selector: Selector | None
    uids: frozenset[str]
    episodes: tuple[str, ...]
    moves: frozenset[str] = frozenset()
    view: View = ()

    def holds(self, entry: Entry) -> bool:
        is_seen = _is_seen(self.view, entry)
        is_meant = is_seen and self.selector is not None and self.selector.means(entry)
        was_moved = entry.retired is not None and entry.retired.cause in self.moves
        return is_meant or was_moved or is_made_of(entry, uids=self.uids, keys=self.episodes if is_seen else ())


@dataclass(frozen=True, slots=True)
class _Found:
    """What a selector comes to: the entries that go, those that only have labels of them, and what says the same.

    ``told`` are those that go of which the caller may know.
    """

    meant: tuple[Entry, ...]
    told: tuple[Entry, ...]
    survivors: tuple[Entry, ...]
    held_by: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted({entry.key for entry in self.told}))


class Forgetting:
    """Takes the content of entries out of one open memory, for good."""

    def __init__(
        self,
        shelf: Shelf,
        index: Index,
        finder: Finder,
        *,
        secrets: Policy,
        now: Callable[[], str],
        scrub: Callable[[Sequence[EntryRecord]], None],
    ) -> None:
        """``scrub`` has everything else let go of earlier versions of these records: journals, copies, notes."""
        self._shelf = shelf
        self._index = index
        self._finder = finder
        self._secrets = secrets
        self._now = now
        self._scrub = scrub

    def forget(
        self, caller: Caller, selector: Selector, *, why: str = "", dry_run: bool = False, call_id: str | None = None
    ) -> Forgotten:
        """Forget what the selector means at the caller's level; ``dry_run`` only counts.

        Where nothing is meant any more, what a forget that was killed may have left behind is removed all the same.
        ``why`` is kept in the tombstones, at most 500 bytes; it must not repeat what is forgotten. ``LockTimeout`` if
        another process does not answer: the records are tombstones then, that process's journal may hold the content.
        """
        selector.check()
        check_switch(dry_run, what="dry_run")
        self.finish()
        stamp = Stamp(self._now(), caller.actor(call_id))
        why = self._checked_why(why)
        view = own_level(caller)
        found = self._found(view, selector)
        if dry_run:
            return Forgotten(len(found.told), found.keys, dry_run, found.held_by)
        meant = _meant_by(selector, found.meant, view=view)
        paths, lent = [entry.path for entry in found.meant], [entry.path for entry in found.survivors]
        self._index.change(lambda connection: debts.note(connection, [*paths, *lent]))
        changed: list[EntryRecord] = []
        for start in range(0, len(paths), _AT_ONCE):
            changed += self._bury([*paths[start : start + _AT_ONCE], *lent], meant, stamp, why=why)
        self._let_go(changed)
        told = {entry.path for entry in found.told}
        buried = [record for record in changed if isinstance(record, Tombstone) and record.path in told]
        return Forgotten(len(buried), found.keys, held_by=found.held_by)

    def finish(self) -> None:
        """Take away what an earlier forget left lying about because it was killed; errors as of ``forget``."""
        found = map(self._shelf.find, self._index.ask(debts.noted))
        if changed := [record for record in found if record is not None and _was_forgotten_from(record)]:
            self._let_go(changed)

    def follow(self) -> None:
        """Forget what was made of entries that were forgotten elsewhere, on other machines; errors as of ``forget``."""
        rows = self._index.ask(lambda connection: reading.made_of_others(connection, reading.all_parts(connection)))
        made = self._read(row.path for row in rows)
        gone = {each.path: found for each in made if (found := self._gone(each))}
        if not gone:
            return
        self._index.change(lambda connection: debts.note(connection, list(gone)))
        changed: list[EntryRecord] = []
        for path, tombstones in gone.items():
            meant = _Meant(None, frozenset(found.uid for found in tombstones), ())
            last = tombstones[-1]
            changed += self._bury([path], meant, Stamp(self._now(), last.by), why=last.why)
        self._let_go(changed)

    def _gone(self, made: Entry) -> list[Tombstone]:
        """What remains of those of its sources that were forgotten because somebody asked for it."""
        found = (self._shelf.find(entry_path(made.folder, uid)) for uid in made.sources)
        return [record for record in found if isinstance(record, Tombstone) and not record.cleared]

    def _let_go(self, buried: Sequence[EntryRecord]) -> None:
        paths = [record.path for record in buried]
        self._scrub(buried)
        self._index.change(lambda connection: debts.strike(connection, paths))

    def _found(self, view: View, selector: Selector) -> _Found:
        """What the selector means, read from the disk: the index only says where to look."""
        self._finder.refresh()
        said = reading.Selector(
            key=selector.key, tag=selector.tag, kind=selector.kind, provenance=dict(selector.provenance)
        )
        meant = [entry for entry in self._matching(view, said) if selector.means(entry)]
        meant += self._moved_to(meant)
        known, sources = _meant_by(selector, meant, view=view), {uid for entry in meant for uid in entry.sources}
        paths = {entry.path for entry in meant}
        made = [entry for entry in self._made_of_others(view) if entry.path not in paths] if meant else []
        meant += (entry for entry in made if known.holds(entry))
        known = _meant_by(selector, meant, view=view)
        survivors = [entry for entry in made if stands_for(entry, known.uids) and not known.holds(entry)]
        said_there = {entry_path(place.scope, uid) for uid in sources - known.uids for place in view}
        others = [*self._read(sorted(said_there)), *self._moved_from(meant), *survivors]
        told = tuple(entry for entry in meant if _is_seen(view, entry))
        held_by = {entry.key for entry in others if _is_seen(view, entry)}
        return _Found(tuple(meant), told, tuple(survivors), tuple(sorted(held_by)))

    def _moved_to(self, entries: Sequence[Entry]) -> list[Entry]:
        """What these entries were before they got their keys or places, by one move or several, whoever had it."""

        def ask(connection: sqlite3.Connection) -> list[Row]:
            return reading.retired_by(connection, reading.all_parts(connection), prefix=MOVED)

        left: dict[str, list[str]] = {}
        for row in self._index.ask(ask) if entries else ():
            left.setdefault(row.cause, []).append(row.path)
        paths = [entry.path for entry in entries]
        for path in paths:  # which grows: something may have moved more than once
            paths += left.pop(moved_to(path), ())
        return self._read(set(paths[len(entries) :]) - set(paths[: len(entries)]))

    def _moved_from(self, entries: Sequence[Entry]) -> list[Entry]:
        """Where else these entries went, by one move or several; what they said is there."""
        known, left = {entry.path for entry in entries}, list(entries)
        for entry in left:  # which grows: what it became may have moved on
            target = entry.retired.target if entry.retired is not None else ""
            if target not in known and entry_place(target) is not None:
                known.add(target)
                left += self._read([target])
        return left[len(entries) :]

    def _read(self, paths: Iterable[str]) -> list[Entry]:
        return [entry for path in paths if (entry := self._shelf.entry(path)) is not None]

    def _matching(self, view: View, said: reading.Selector) -> list[Entry]:
        rows = self._index.ask(lambda connection: reading.matching(connection, reading.parts(connection, view), said))
        return self._read(row.path for row in rows)

    def _made_of_others(self, view: View) -> list[Entry]:
        """What was made of other entries, or has labels of them, hidden or not, wherever it is by now."""

        def ask(connection: sqlite3.Connection) -> list[Row]:
            seen = reading.made_of_others(connection, reading.parts(connection, view), prefix=FOLDED)
            return [*seen, *reading.made_of_others(connection, reading.all_parts(connection))]

        return self._read(sorted({row.path for row in self._index.ask(ask)}))

    def _bury(self, paths: Sequence[str], meant: _Meant, stamp: Stamp, *, why: str) -> list[EntryRecord]:
        def decide(records: Records) -> list[EntryRecord]:
            entries = [record for record in records.values() if isinstance(record, Entry)]
            buried = [
                saving.bury(record, stamp, id=secrets.token_hex(6), why=why)
                for record in entries
                if meant.holds(record)
            ]
            kept = ((record, give_back(record, meant.uids)) for record in entries if not meant.holds(record))
            lent = [saving.resaid(after, stamp, op="redact") for before, after in kept if after is not before]
            return [*buried, *lent]

        return self._shelf.change(paths, decide, record_of=lambda changed: changed)

    def _checked_why(self, why: str) -> str:
        check_text(why)
        if len(why.encode()) > MAX_WHY_BYTES:
            raise InvalidArgument(f"the reason has {len(why.encode())} bytes, more than {MAX_WHY_BYTES}")
        return gate(why, policy=self._secrets).text


def _meant_by(selector: Selector, entries: Sequence[Entry], *, view: View) -> _Meant:
    uids = frozenset(entry.uid for entry in entries)
    moves = frozenset(moved_to(entry.path) for entry in entries)
    return _Meant(selector, uids, tuple(entry.key for entry in entries if entry.kind == "episode"), moves, view)


def _is_seen(view: View, entry: Entry) -> bool:
    return is_in_view(view, entry.path, key=entry.key, level=entry.level)


def _was_forgotten_from(record: EntryRecord) -> bool:
    """Whether the record is what remains of a forgotten entry, or of one that had labels of it."""
    return isinstance(record, Tombstone) or bool(record.text.history and record.text.history[-1].op == "redact")
