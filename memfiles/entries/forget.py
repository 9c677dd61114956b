"""Forgetting: removes the content of selected entries from everything under the directory, for good.

The rules this file guards:

- An empty selector is refused. A selector means entries at the session's own level, retired and expired ones included;
  with them go the notes they were folded into, and the labels that other entries took over from them.
- Entries that were forgotten on another machine are followed here in the same way.
- The tombstones are durable before anything else is removed, so nothing can come back after a kill at any point; the
  next start finishes the work. The ledger of the mirror comes last: whoever pushes a tombstone knows it may be pending.
- ``forget`` returns when no file under the directory holds the content.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from memfiles.entries import decisions
from memfiles.entries.callers import Caller, View, is_in_view, own_level
from memfiles.entries.consolidation.folding import FOLDED, give_back, is_made_of, stands_for
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.drafts import check_category, check_kind, checked_tags
from memfiles.entries.moves import Moves
from memfiles.entries.reader import EntryDatabase, EntryReader
from memfiles.errors import InvalidArgument
from memfiles.index import queries
from memfiles.index.database import note_forgets, noted_forgets, strike_forgets
from memfiles.index.rows import Row
from memfiles.records.entry import FORGOTTEN_KEPT, MAX_WHY_BYTES, Entry, EntryRecord, Provenance, Tombstone, moved_to
from memfiles.records.keys import ENTRY_ID_PATTERN, ENTRY_UID_PATTERN, check_key, check_switch, entry_path, entry_place
from memfiles.records.record import Stamp, check_text
from memfiles.secrets.gate import gate
from memfiles.storage import quarantine
from memfiles.sync import ledger

_AT_ONCE = 1000
_PROVENANCE_FIELDS = tuple(each.name for each in fields(Provenance) if each.name != "ordinal")


@dataclass(frozen=True, slots=True)
class Selector:
    """The entries to forget: those that match every field that is given."""

    key: str | None = None
    uid: str | None = None
    id: str | None = None
    tag: str | None = None
    kind: str | None = None
    category: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse an empty selector, and values that no entry can have."""
        if not any(getattr(self, each.name) for each in fields(self)):
            raise InvalidArgument("select what to forget: give a key, id, uid, tag, kind, category or provenance")
        if self.key is not None:
            check_key(self.key)
        if self.uid is not None and not (isinstance(self.uid, str) and re.fullmatch(ENTRY_UID_PATTERN[1:-1], self.uid)):
            raise InvalidArgument("uid must be that of an entry: 40 hexadecimal digits")
        if self.id is not None and not (isinstance(self.id, str) and re.fullmatch(ENTRY_ID_PATTERN[1:-1], self.id)):
            raise InvalidArgument("id must be that of an entry: 32 hexadecimal digits, 40 in earlier records")
        if self.tag is not None:
            checked_tags([self.tag])
        if self.kind is not None:
            check_kind(self.kind)
        if self.category is not None:
            check_category(self.category)
        if not isinstance(self.provenance, Mapping):
            raise InvalidArgument("provenance must be an object such as {'run': 'evt-1'}")
        for name, value in self.provenance.items():
            if name not in _PROVENANCE_FIELDS:
                known = ", ".join(_PROVENANCE_FIELDS)
                raise InvalidArgument(f"provenance has no {str(name)[:40]!r}: use one of {known}")
            if not isinstance(value, str) or not value:
                raise InvalidArgument(f"provenance {name} must be text that is not empty")
            check_text(value)

    def means(self, entry: Entry) -> bool:
        """Whether the entry matches."""
        wanted = ((name, getattr(self, name)) for name in ("key", "uid", "kind", "category"))
        known = entry.provenance.to_dict()
        return (
            all(value is None or value == getattr(entry, name) for name, value in wanted)
            and (self.id is None or self.id in entry.ids)
            and (self.tag is None or self.tag in entry.tags)
            and all(known.get(name) == value for name, value in self.provenance.items())
        )


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The entries that a forget took, or would take (``dry_run``); the keys are reported here alone, and kept nowhere.

    ``held_by`` are the keys of entries that stay and hold the same content: the sources of a forgotten note, and
    entries that took the place of a forgotten duplicate.
    """

    count: int
    keys: tuple[str, ...]
    dry_run: bool = False
    held_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        shown = {"forgotten": self.count, "keys": list(self.keys), "dry_run": self.dry_run}
        return shown | ({"held_by": list(self.held_by)} if self.held_by else {})


@dataclass(frozen=True, slots=True)
class _Targets:
    """The entries to bury: those selected in the view, their hidden earlier versions, and the notes made of them.

    ``uids`` and ``episodes`` (keys) are the sources by which notes are known, ``moves`` the causes by which earlier
    places are. Notes and earlier places count also where the caller sees nothing.
    """

    uids: frozenset[str]
    moves: frozenset[str]
    episodes: tuple[str, ...] = ()
    selector: Selector | None = None
    view: View = ()

    def new_id(self, entry: Entry) -> str:
        """A random tombstone id if the entry is one of them, else ""."""
        return secrets.token_hex(6) if self.hold(entry) else ""

    def hold(self, entry: Entry) -> bool:
        """Whether the entry is one of them; asked again under its lock, as it may have changed."""
        is_seen = _is_seen(self.view, entry)
        is_selected = is_seen and self.selector is not None and self.selector.means(entry)
        was_moved = entry.retired is not None and entry.retired.cause in self.moves
        return is_selected or was_moved or is_made_of(entry, uids=self.uids, keys=self.episodes if is_seen else ())


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a selection: the entries to bury, the survivors that only lose labels, and keys to report.

    ``reported`` are the paths of buried entries that the caller may know of.
    """

    entries: tuple[Entry, ...]
    survivors: tuple[Entry, ...]
    reported: frozenset[str]
    keys: tuple[str, ...]
    held_by: tuple[str, ...]


class Forgetter:
    """Removes the content of entries from one open memory."""

    def __init__(self, db: EntryDatabase, reader: EntryReader, moves: Moves) -> None:
        self._db = db
        self._reader = reader
        self._moves = moves
        self._awaited: frozenset[str] = frozenset()

    def forget(
        self, caller: Caller, selector: Selector, *, why: str = "", dry_run: bool = False, call_id: str | None = None
    ) -> Forgotten:
        """Forget the selected entries at the caller's level; ``dry_run`` only counts.

        Leftovers of a forget that was killed are removed even if nothing is selected. ``why`` is kept in the
        tombstones, at most 500 bytes; it must not repeat the content. ``LockTimeout`` if another process does not
        answer: the records are tombstones then, but that process's journal may hold the content.
        """
        selector.check()
        check_switch(dry_run, what="dry_run")
        self.finish()
        stamp, why = Stamp(self._db.now(), caller.actor(call_id)), self._checked_why(why)
        view = own_level(caller)
        found = self._find(view, selector)
        if dry_run:
            return Forgotten(len(found.reported), found.keys, dry_run, found.held_by)
        targets = _targets_of(selector, found.entries, view=view)
        paths, survivors = [entry.path for entry in found.entries], [entry.path for entry in found.survivors]
        self._note([*paths, *survivors])  # 1 a kill from here on is finished by the next start
        changed: list[EntryRecord] = []
        for start in range(0, len(paths), _AT_ONCE):  # 2 durable
            batch = [*paths[start : start + _AT_ONCE], *survivors]
            changed += self._bury(batch, targets.new_id, stamp, why=why, uids=targets.uids)
        self._finish(changed)  # 3 everything but the records
        buried = [record for record in changed if isinstance(record, Tombstone) and record.path in found.reported]
        return Forgotten(len(buried), found.keys, held_by=found.held_by)

    def finish(self) -> None:
        """Remove what a killed forget left behind; errors as of ``forget``."""
        found = (self._db.repository.look(path).record for path in self._db.index.ask(noted_forgets))
        if changed := [record for record in found if record is not None and _was_forgotten_from(record)]:
            self._finish(changed)

    def follow(self) -> None:
        """Forget the notes made of entries that were forgotten on other machines, and the earlier places of those.

        Errors as of ``forget``.
        """
        self._follow_moves()
        before = self._moved_to_tombstones()
        made = self._db.entries(row.path for row in self._rows_made_of_others(queries.all_parts))
        gone = {note.path: found for note in made if (found := self._forgotten_sources(note))}
        gone |= {entry.path: [tombstone] for entry, tombstone in before}
        if not gone:
            return
        self._note(gone)
        moves = frozenset(entry.retired.cause for entry, _ in before if entry.retired is not None)
        changed: list[EntryRecord] = []
        for path, tombstones in gone.items():
            uids, last = frozenset(tombstone.uid for tombstone in tombstones), tombstones[-1]
            stamp = Stamp(self._db.now(), last.by)
            changed += self._bury([path], _Targets(uids, moves).new_id, stamp, why=last.why, uids=uids)
        self._finish(changed)

    def awaits(self, path: str) -> bool:
        """Whether an entry at ``path``, now or later, was forgotten elsewhere before it was moved there."""
        return path in self._awaited

    def release(self, paths: Sequence[str]) -> None:
        """Remove the earlier content of these records from the index, the journals and the kept copies.

        The remains of all tombstones go, whatever the paths: a tombstone may have come from a mirror, or its forget may
        have been killed.
        """
        try:
            self._db.index.forget(paths)
            kept = [path for path in quarantine.kept_of(self._db.store.descriptor) if entry_place(path) is not None]
            for path in {
                *paths,
                *(path for path in kept if isinstance(self._db.repository.look(path).record, Tombstone)),
            }:
                quarantine.remove_copies(self._db.store.descriptor, path)
        finally:
            self._db.store.scrub()

    def _find(self, view: View, selector: Selector) -> _Found:
        """The selection, read from the disk: the index only says where to look."""
        self._reader.refresh()
        entries = [entry for entry in self._matching(view, selector) if selector.means(entry)]
        entries += self._moves.before([entry.path for entry in entries])
        targets, sources = _targets_of(selector, entries, view=view), {uid for each in entries for uid in each.sources}
        paths = {entry.path for entry in entries}
        made = [note for note in self._made_of_others(view) if note.path not in paths] if entries else []
        entries += (note for note in made if targets.hold(note))
        targets = _targets_of(selector, entries, view=view)
        survivors = [note for note in made if stands_for(note, targets.uids) and not targets.hold(note)]
        held_at = {entry_path(partition.scope, uid) for uid in sources - targets.uids for partition in view}
        holders = [*self._db.entries(sorted(held_at)), *self._moves.after(entries), *survivors]
        reported = [entry for entry in entries if _is_seen(view, entry)]
        return _Found(
            tuple(entries),
            tuple(survivors),
            frozenset(entry.path for entry in reported),
            tuple(sorted({entry.key for entry in reported})),
            tuple(sorted({entry.key for entry in holders if _is_seen(view, entry)})),
        )

    def _follow_moves(self) -> None:
        """Forget entries that were moved on this machine while another one forgot them at their old place.

        The id of such a tombstone follows from the first one's, so all machines leave the same tombstone, and an entry
        that is saved over it later is known.
        """
        found = (self._db.repository.look(path).record for path in self._db.index.ask(queries.followed))
        tombstones = [record for record in found if isinstance(record, Tombstone)]
        self._awaited = frozenset(path for tombstone in tombstones for path in tombstone.moved)
        for tombstone in tombstones:
            new_id = partial(_id_after_move, tombstone)
            there = self._db.entries(tombstone.moved)
            paths = [entry.path for entry in (*there, *self._moves.after(there)) if new_id(entry)]
            if paths:
                self._note(paths)
                stamp = Stamp(self._db.now(), tombstone.by)
                self._finish(self._bury(paths, new_id, stamp, why=tombstone.why))

    def _bury(
        self,
        paths: Iterable[str],
        new_id: Callable[[Entry], str],
        stamp: Stamp,
        *,
        why: str,
        uids: Collection[str] = (),
    ) -> list[EntryRecord]:
        """Replace entries by tombstones, and take the labels of ``uids`` from the others; one commit.

        ``new_id`` gives the id of an entry's tombstone, "" if the entry stays.
        """

        def decide(records: RecordsByPath) -> tuple[list[EntryRecord], list[EntryRecord]]:
            changed: list[EntryRecord] = []
            for entry in records.values():
                if not isinstance(entry, Entry):
                    continue
                if id := new_id(entry):
                    changed.append(decisions.bury(entry, stamp, id=id, why=why))
                elif (stripped := give_back(entry, uids)) is not entry:
                    changed.append(decisions.amend(stripped, stamp, op="redact"))
            return changed, changed

        return self._db.repository.change(paths, decide)

    def _note(self, paths: Iterable[str]) -> None:
        noted = list(paths)
        self._db.index.change(lambda connection: note_forgets(connection, noted))

    def _finish(self, changed: Sequence[EntryRecord]) -> None:
        """Remove the earlier content of changed records everywhere, then strike out what was noted as pending."""
        paths = [record.path for record in changed]
        self.release(paths)
        ledger.scrub(self._db.store.directory, {record.path: record.revision for record in changed})
        self._db.index.change(lambda connection: strike_forgets(connection, paths))

    def _moved_to_tombstones(self) -> list[tuple[Entry, Tombstone]]:
        """The hidden entries at earlier places of forgotten ones, each with the tombstone."""
        found = ((path, self._tombstone(path)) for path in self._moves.targets())
        return [(each, gone) for path, gone in found if gone is not None for each in self._moves.before([path])]

    def _tombstone(self, path: str) -> Tombstone | None:
        """The tombstone of an entry that somebody asked to forget, if there is one at ``path``."""
        record = self._db.repository.look(path).record if entry_place(path) is not None else None
        return record if isinstance(record, Tombstone) and not record.cleared else None

    def _forgotten_sources(self, note: Entry) -> list[Tombstone]:
        found = (self._tombstone(entry_path(note.folder, uid)) for uid in note.sources)
        return [record for record in found if record is not None]

    def _matching(self, view: View, selector: Selector) -> list[Entry]:
        keys = None if selector.key is None else (selector.key,)
        tags = () if selector.tag is None else (selector.tag,)
        wanted = queries.Filters(
            tags, kind=selector.kind, keys=keys, provenance=dict(selector.provenance), id=selector.id
        )
        return self._db.entries(row.path for row in self._db.rows(view, wanted=wanted))

    def _made_of_others(self, view: View) -> list[Entry]:
        """The entries made of others or with labels of others, hidden or not, wherever they are by now."""
        rows = self._rows_made_of_others(lambda connection: queries.parts(connection, view), prefix=FOLDED)
        rows += self._rows_made_of_others(queries.all_parts)
        return self._db.entries(sorted({row.path for row in rows}))

    def _rows_made_of_others(
        self, parts: Callable[[sqlite3.Connection], Sequence[int]], *, prefix: str | None = None
    ) -> list[Row]:
        ask = self._db.index.ask
        return ask(lambda connection: queries.made_of_others(connection, parts(connection), prefix=prefix))

    def _checked_why(self, why: str) -> str:
        check_text(why)
        if len(why.encode()) > MAX_WHY_BYTES:
            raise InvalidArgument(f"the reason has {len(why.encode())} bytes, more than {MAX_WHY_BYTES}")
        return gate(why, policy=self._db.rules.secrets).text


def _targets_of(selector: Selector, entries: Sequence[Entry], *, view: View) -> _Targets:
    uids = frozenset(entry.uid for entry in entries)
    moves = frozenset(moved_to(entry.path) for entry in entries)
    return _Targets(uids, moves, tuple(entry.key for entry in entries if entry.kind == "episode"), selector, view)


def _is_seen(view: View, entry: Entry) -> bool:
    return is_in_view(view, entry.path, key=entry.key, level=entry.level)


def _id_after_move(tombstone: Tombstone, entry: Entry) -> str:
    """The tombstone id of an entry that a forgotten one had moved to; "" if it was saved after that."""
    id = hashlib.sha256(f"{tombstone.id} {entry.path}".encode()).hexdigest()[:12]
    return "" if id in entry.forgotten or len(entry.forgotten) >= FORGOTTEN_KEPT else id


def _was_forgotten_from(record: EntryRecord) -> bool:
    """Whether the record is a tombstone, or an entry whose last change removed labels of a forgotten one."""
    return isinstance(record, Tombstone) or bool(record.text.history and record.text.history[-1].op == "redact")
