"""Forgetting: what a selector means, and its content out of everything under the directory.

The rules this file guards: an empty selector is refused; what is forgotten is what the session's own level holds,
retired and expired entries included, with an entry the notes that it was folded into, and the labels that others have
of it; what was forgotten on another machine is followed here in the same way; the tombstones are durable before
anything else goes, so that a kill at any point leaves nothing that could come back; what a kill left undone is done at
the next start; and it returns when no file under the directory holds the content.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memfiles.entries import decisions as saving
from memfiles.entries.consolidation.folding import FOLDED, is_made_of
from memfiles.entries.consolidation.merged_labels import give_back, stands_for
from memfiles.entries.drafts import check_switch
from memfiles.entries.moves import Moves
from memfiles.entries.partitions import Caller, View, is_in_view, own_level
from memfiles.entries.reader import EntryReader
from memfiles.entries.repository import EntryRepository, RecordsByPath
from memfiles.entries.results import Forgotten
from memfiles.entries.selector import Selector
from memfiles.errors import InvalidArgument
from memfiles.index import queries as reading
from memfiles.index.database import note_forgets, noted_forgets, strike_forgets
from memfiles.index.index import Index
from memfiles.index.rows import Row
from memfiles.records.entry import FORGOTTEN_KEPT, MAX_WHY_BYTES, Entry, EntryRecord, Tombstone, moved_to
from memfiles.records.keys import entry_path, entry_place
from memfiles.records.record import Stamp, check_text
from memfiles.secrets.gate import Policy, gate

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


class Forgetter:
    """Takes the content of entries out of one open memory, for good."""

    def __init__(
        self,
        shelf: EntryRepository,
        index: Index,
        finder: EntryReader,
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
        self._moves = Moves(shelf, index)
        self._awaited: frozenset[str] = frozenset()

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
        self._index.change(lambda connection: note_forgets(connection, [*paths, *lent]))
        changed: list[EntryRecord] = []
        for start in range(0, len(paths), _AT_ONCE):
            changed += self._bury([*paths[start : start + _AT_ONCE], *lent], meant, stamp, why=why)
        self._let_go(changed)
        told = {entry.path for entry in found.told}
        buried = [record for record in changed if isinstance(record, Tombstone) and record.path in told]
        return Forgotten(len(buried), found.keys, held_by=found.held_by)

    def finish(self) -> None:
        """Take away what an earlier forget left lying about because it was killed; errors as of ``forget``."""
        found = map(self._shelf.find, self._index.ask(noted_forgets))
        if changed := [record for record in found if record is not None and _was_forgotten_from(record)]:
            self._let_go(changed)

    def follow(self) -> None:
        """Forget what was made of entries that were forgotten elsewhere, on other machines, or what those were before.

        Errors as of ``forget``.
        """
        self._follow_moves()
        rows = self._index.ask(lambda connection: reading.made_of_others(connection, reading.all_parts(connection)))
        made = self._moves.read(row.path for row in rows)
        before = self._gone_before()
        gone = {each.path: found for each in made if (found := self._gone(each))}
        gone |= {each.path: [found] for each, found in before}
        if not gone:
            return
        self._index.change(lambda connection: note_forgets(connection, list(gone)))
        moves = frozenset(each.retired.cause for each, _ in before if each.retired is not None)
        changed: list[EntryRecord] = []
        for path, tombstones in gone.items():
            meant = _Meant(None, frozenset(found.uid for found in tombstones), (), moves)
            last = tombstones[-1]
            changed += self._bury([path], meant, Stamp(self._now(), last.by), why=last.why)
        self._let_go(changed)

    def awaits(self, path: str) -> bool:
        """Whether what lies at ``path``, or may come there, was forgotten elsewhere before it was moved there."""
        return path in self._awaited

    def _follow_moves(self) -> None:
        """Forget what was moved on another machine than the one that forgot it, wherever it went from there.

        The tombstone that it leaves has an id that follows from where it was forgotten, so that all machines leave the
        same, and what is saved there later is known.
        """
        found = map(self._shelf.find, self._index.ask(reading.followed))
        tombstones = [record for record in found if isinstance(record, Tombstone)]
        self._awaited = frozenset(path for tombstone in tombstones for path in tombstone.moved)
        for tombstone in tombstones:
            there = self._moves.read(tombstone.moved)
            reached = (*there, *self._moves.after(there))
            ids = {entry.path: id for entry in reached if (id := _id_where_it_went(tombstone, entry))}
            if ids:
                self._bury_where_it_went(ids, tombstone)

    def _bury_where_it_went(self, ids: Mapping[str, str], tombstone: Tombstone) -> None:
        stamp = Stamp(self._now(), tombstone.by)

        def decide(records: RecordsByPath) -> tuple[list[EntryRecord], list[EntryRecord]]:
            found = [record for record in records.values() if isinstance(record, Entry)]
            ids = ((record, _id_where_it_went(tombstone, record)) for record in found)
            buried: list[EntryRecord] = [
                saving.bury(record, stamp, id=id, why=tombstone.why) for record, id in ids if id
            ]
            return buried, buried

        self._index.change(lambda connection: note_forgets(connection, list(ids)))
        self._let_go(self._shelf.change(ids, decide))

    def _gone_before(self) -> list[tuple[Entry, Tombstone]]:
        """What was moved, once or several times, to where it was forgotten, and what remains of it there."""
        found = ((path, self._buried(path)) for path in self._moves.targets())
        return [(each, gone) for path, gone in found if gone is not None for each in self._moves.before([path])]

    def _buried(self, path: str) -> Tombstone | None:
        """What remains of an entry that was forgotten because somebody asked for it; None if it was not."""
        record = self._shelf.find(path) if entry_place(path) is not None else None
        return record if isinstance(record, Tombstone) and not record.cleared else None

    def _gone(self, made: Entry) -> list[Tombstone]:
        """What remains of those of its sources that were forgotten because somebody asked for it."""
        found = (self._buried(entry_path(made.folder, uid)) for uid in made.sources)
        return [record for record in found if record is not None]

    def _let_go(self, buried: Sequence[EntryRecord]) -> None:
        paths = [record.path for record in buried]
        self._scrub(buried)
        self._index.change(lambda connection: strike_forgets(connection, paths))

    def _found(self, view: View, selector: Selector) -> _Found:
        """What the selector means, read from the disk: the index only says where to look."""
        self._finder.refresh()
        said = reading.RowFilter(
            key=selector.key, tag=selector.tag, kind=selector.kind, provenance=dict(selector.provenance)
        )
        meant = [entry for entry in self._matching(view, said) if selector.means(entry)]
        meant += self._moves.before([entry.path for entry in meant])
        known, sources = _meant_by(selector, meant, view=view), {uid for entry in meant for uid in entry.sources}
        paths = {entry.path for entry in meant}
        made = [entry for entry in self._made_of_others(view) if entry.path not in paths] if meant else []
        meant += (entry for entry in made if known.holds(entry))
        known = _meant_by(selector, meant, view=view)
        survivors = [entry for entry in made if stands_for(entry, known.uids) and not known.holds(entry)]
        said_there = {entry_path(place.scope, uid) for uid in sources - known.uids for place in view}
        others = [*self._moves.read(sorted(said_there)), *self._moves.after(meant), *survivors]
        told = tuple(entry for entry in meant if _is_seen(view, entry))
        held_by = {entry.key for entry in others if _is_seen(view, entry)}
        return _Found(tuple(meant), told, tuple(survivors), tuple(sorted(held_by)))

    def _matching(self, view: View, said: reading.RowFilter) -> list[Entry]:
        rows = self._index.ask(lambda connection: reading.matching(connection, reading.parts(connection, view), said))
        return self._moves.read(row.path for row in rows)

    def _made_of_others(self, view: View) -> list[Entry]:
        """What was made of other entries, or has labels of them, hidden or not, wherever it is by now."""

        def ask(connection: sqlite3.Connection) -> list[Row]:
            seen = reading.made_of_others(connection, reading.parts(connection, view), prefix=FOLDED)
            return [*seen, *reading.made_of_others(connection, reading.all_parts(connection))]

        return self._moves.read(sorted({row.path for row in self._index.ask(ask)}))

    def _bury(self, paths: Sequence[str], meant: _Meant, stamp: Stamp, *, why: str) -> list[EntryRecord]:
        def decide(records: RecordsByPath) -> tuple[list[EntryRecord], list[EntryRecord]]:
            entries = [record for record in records.values() if isinstance(record, Entry)]
            buried = [
                saving.bury(record, stamp, id=secrets.token_hex(6), why=why)
                for record in entries
                if meant.holds(record)
            ]
            kept = ((record, give_back(record, meant.uids)) for record in entries if not meant.holds(record))
            lent = [saving.resaid(after, stamp, op="redact") for before, after in kept if after is not before]
            changed: list[EntryRecord] = [*buried, *lent]
            return changed, changed

        return self._shelf.change(paths, decide)

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


def _id_where_it_went(tombstone: Tombstone, entry: Entry) -> str:
    """The id of what remains of an entry that what was forgotten had become; "" if it was saved after that."""
    id = hashlib.sha256(f"{tombstone.id} {entry.path}".encode()).hexdigest()[:12]
    return "" if id in entry.forgotten or len(entry.forgotten) >= FORGOTTEN_KEPT else id


def _was_forgotten_from(record: EntryRecord) -> bool:
    """Whether the record is what remains of a forgotten entry, or of one that had labels of it."""
    return isinstance(record, Tombstone) or bool(record.text.history and record.text.history[-1].op == "redact")
