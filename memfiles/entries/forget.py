"""Forgetting: removes the content of selected entries from everything under the directory, for good.

The rules this file guards:

- An empty selector is refused. A selector means entries at the session's own level, retired and expired ones included;
  with them go the notes they were folded into, and the labels that other entries took over from them.
- An entry is forgotten by its ids, under every key and in every copy, also where another machine forgot it.
- The tombstones are durable before anything else is removed, so nothing can come back after a kill at any point; the
  next start finishes the work. The ledger of the mirror comes last: whoever pushes a tombstone knows it may be pending.
- ``forget`` returns once no file under the directory holds the content, except unreadable notes of others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import decisions
from memfiles.entries.callers import Caller, Scopes, View, check_writable, is_among, is_seen, is_writable, own_level
from memfiles.entries.consolidation.plan import FOLDED, give_back, stands_for
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.questions import Selector, Targets, targets_of
from memfiles.entries.reader import EntryDatabase, observed, shown_at
from memfiles.entries.results import Forgotten
from memfiles.errors import InvalidArgument, MemfilesError, StorageFailed
from memfiles.index import database, queries
from memfiles.index.database import note_followed, note_forgets, note_unread, noted_forgets, strike_forgets
from memfiles.index.rows import RowWriter
from memfiles.records import late_logger as _log
from memfiles.records.entry import MAX_WHY_BYTES, Entry
from memfiles.records.keys import ENTRIES, check_switch, entry_place, id_path, is_id_path, uid_of, user_in
from memfiles.records.marks import EntryRecord, Mark, forgets, has_lost_text, source_paths, vacated
from memfiles.records.record import NOBODY, Stamp, check_text
from memfiles.secrets.gate import gate
from memfiles.storage.atomic import is_of_one_file
from memfiles.storage.events import Progress, RecordChanged
from memfiles.storage.quarantine import holds_forgotten_entry, holds_text
from memfiles.storage.record_store import forget_notes
from memfiles.storage.store import kept_with

_SOME_RUN = "forgotten"  # in a mark: no mirror gets it, and the name of the run stays private
_AT_ONCE = 1000
_Burial = tuple[list[str], dict[str, EntryRecord], list[Entry]]  # what has to be locked as well, the marks, the buried


class _Found(Struct, frozen=True):
    """The result of a selection: the entries to bury, the survivors that only lose labels, and keys to report."""

    entries: tuple[Entry, ...]
    survivors: tuple[Entry, ...]
    held_by: tuple[str, ...]


class Forgetter:
    """Removes the content of entries from one open memory."""

    def __init__(self, db: EntryDatabase) -> None:
        self._db = db

    def forget(self, caller: Caller, selector: Selector, *, why: str, dry_run: bool) -> Forgotten:
        """Forget the selected entries at the caller's level; ``dry_run`` only counts.

        Leftovers of a forget that was killed are removed even if nothing is selected. ``why`` is kept in the
        tombstones, at most 500 bytes; it must not repeat the content. ``LockTimeout`` if another process does not
        answer: the records are marks then, but that process's journal may hold the content.
        """
        selector.check()
        check_switch(dry_run, what="dry_run")
        self.finish()
        own, stamp, why = own_level(caller), Stamp(self._db.now(), caller.actor(None)), self.checked_why(why)
        view, found = tuple(own.values()), self._find(own, selector)
        if dry_run:
            return self._report(view, found.entries, dry_run=dry_run, held_by=found.held_by)
        targets = targets_of(selector, found.entries, view=view)
        paths, survivors = [entry.path for entry in found.entries], [entry.path for entry in found.survivors]
        noted = {it.path: it.revision for it in (*found.entries, *found.survivors)}
        self.note(noted)  # 1 the next start finishes this
        changed, buried = list[EntryRecord](), list[Entry]()
        for start in range(0, len(paths), _AT_ONCE):  # 2 durable
            changed += self._bury([*paths[start : start + _AT_ONCE], *survivors], targets, stamp, why=why, into=buried)
        changed += self._bury_new(targets, stamp, why=why, into=buried)
        self.complete(changed, noted=noted)  # 3 everything but the records
        return self._report(view, buried, held_by=found.held_by)

    def finish(self) -> None:
        """Remove what a killed forget left behind; errors as of ``forget``.

        These are the noted records that lost text since, also where a save over the mark of a forgotten entry followed.
        One that only changed stays noted, as its forget may still be in progress. A new index lacks the notes of the
        one before: then all kept copies are cleaned.
        """
        shared = forget_notes(self._db.store)
        if shared is None and not self._db.index.ask(database.are_copies_cleaned):
            self._db.store.kept.remove_if(self._holds_removed)
            self._db.index.change(database.note_cleaned)
        noted = self._db.index.ask(noted_forgets) | (shared.noted_forgets() if shared is not None else {})
        of_entries = {path: revision for path, revision in noted.items() if uid_of(path) is None}
        found, failed = self._read(of_entries)
        changed = [record for record in found if has_lost_text(record, after=of_entries[record.path])]
        for entry in (record for record in changed if isinstance(record, Entry) and record.text.redactions):
            self._db.store.kept.remove(entry.path, holding=entry.text.redactions)
        if changed:
            self.complete(changed)
        if failed is not None:
            raise failed

    def follow(self, progress: Progress | None = None) -> None:
        """Forget what was forgotten on other machines: entries by their ids, and the notes made of them.

        An entry whose tombstone cannot be read, or that cannot be replaced, keeps no other one away: it is shown to
        nobody, and the error of such a one is raised at the end. Errors as of ``forget``.
        """
        due, (graves, left) = set(self._db.index.unfollowed), self._graves()
        self._db.index.unfollowed.update(graves, left)
        self._note_followed(due - graves.keys() - left.keys())
        if graves:
            self.note({entry.path: entry.revision for entry in self._db.entries(graves, at=shown_at)})
        changed, done = list[EntryRecord](), 0
        for paths in _together(graves):
            marks = graves[paths[0]]
            targets, last = Targets(frozenset(id for mark in marks for id in mark.buried)), marks[-1]
            by, why = (NOBODY, "") if last.user and not user_in(paths[0]) else (last.by, last.why)  # without a user
            changed += self._try_to_bury(paths, targets, Stamp(self._db.now(), by), why=why, left=left)
            done += len(paths)
            if progress is not None:
                progress(done, len(graves))
        self._note_followed(graves.keys() - left.keys())
        if changed:
            self.complete(changed)
        if left:
            raise next(iter(left.values()))

    def _note_followed(self, paths: Collection[str]) -> None:
        if paths:
            self._db.index.change(lambda opened: note_followed(opened, paths), durable=False)
            self._db.index.unfollowed.difference_update(paths)

    def _graves(self) -> tuple[dict[str, list[Mark]], dict[str, StorageFailed]]:
        """By path, the tombstones of entries that are there, or of their sources; and why none is known of others."""
        ask, at = self._db.index.ask, dict[str, list[str]]()
        for mark, path in ask(database.buried):
            at.setdefault(path, []).append(mark)
        for note in ask(queries.all_made_of_others):
            at.setdefault(note.path, [])
        graves, unknown = dict[str, list[Mark]](), dict[str, StorageFailed]()
        for entry in self._db.entries(at, at=shown_at):
            records, failed = self._read([*at[entry.path], *source_paths(entry)])
            if marks := [mark for mark in records if isinstance(mark, Mark) and forgets(mark, entry)]:
                graves[entry.path] = marks
            elif failed is not None:
                unknown[entry.path] = failed
        self._leave_out(at.keys() & self._db.repository.unread.keys())
        return graves, unknown

    def _read(self, paths: Iterable[str]) -> tuple[list[EntryRecord], StorageFailed | None]:
        """The records at these paths that can be read now, and the error of one that cannot."""
        found, failed = list[EntryRecord](), None
        for path in dict.fromkeys(paths):
            try:
                found += () if (it := observed(self._db.repository, path).record) is None else (it,)
            except StorageFailed as error:
                if not is_of_one_file(error):
                    raise
                failed = error
        return found, failed

    def _try_to_bury(
        self, paths: Sequence[str], targets: Targets, stamp: Stamp, *, why: str, left: dict[str, StorageFailed]
    ) -> list[EntryRecord]:
        """As ``_bury``; if one of them cannot be read or replaced, each alone. Such ones are put into ``left``."""
        try:
            return self._bury(paths, targets, stamp, why=why)
        except StorageFailed as error:
            if not is_of_one_file(error):
                raise
            if len(paths) == 1:
                left[paths[0]] = error
                return []
        return [record for path in paths for record in self._try_to_bury([path], targets, stamp, why=why, left=left)]

    def forget_entries(self, entries: Sequence[Entry], stamp: Stamp, *, why: str) -> None:
        """Forget these entries and the notes made of them, wherever they are by now; errors as of ``forget``."""
        if not entries:
            return
        targets = Targets(frozenset(id for entry in entries for id in entry.names))
        made = [note for note in self._made_of_others(()) if stands_for(note, targets.ids)]
        self.note(noted := {each.path: each.revision for each in (*entries, *made)})
        self.complete(self._bury(noted, targets, stamp, why=why), noted=noted)

    def begin(self) -> bool:
        """Finish a forget that a kill interrupted, follow those of others; False after a failure, which is logged."""
        is_done = True
        for step in (self.finish, self.follow):
            try:
                step()
            except MemfilesError as error:
                is_done = False
                _log.warning("forgotten content may not be removed yet; it is tried again later: %s", error)
        return is_done

    def heard(self, change: RecordChanged) -> None:
        """Schedule ``follow`` before the next read, if the change may be a forget of another machine."""
        if entry_place(change.path) is None:
            return
        record = self._db.repository.look(change.path).record
        if not isinstance(record, Entry) or record.sources or any(map(self._db.is_forgotten, record.mortal_ids)):
            self._db.index.unfollowed.add(change.path)

    def release(self, paths: Sequence[str]) -> None:
        """Remove the earlier content of these records from the index, the journals and the kept copies.

        It removes the remains of every forget, whatever the paths: one may have been killed, or come from a mirror.
        """
        try:
            self._db.index.forget(paths)
            self._db.store.kept.remove_if(lambda path, data: holds_forgotten_entry(path, data, mark=self._db.mark))
        finally:
            self._db.store.scrub()

    def _holds_removed(self, path: str, data: bytes) -> bool:
        """Whether a copy of the record at ``path`` holds a text redacted in an entry, or is of a forgotten one."""
        record = self._db.repository.look(path).record if entry_place(path) is not None else None
        is_redacted = isinstance(record, Entry) and holds_text(data, record.text.redactions)
        return is_redacted or holds_forgotten_entry(path, data, mark=self._db.mark)

    def _report(
        self, view: View, entries: Iterable[Entry], *, dry_run: bool = False, held_by: tuple[str, ...] = ()
    ) -> Forgotten:
        """The report on these entries, without entries that the caller may not know of, or that count as erased."""
        keys = [entry.key for entry in entries if is_seen(view, entry) and self._db.erased_at(entry) is None]
        return Forgotten(len(keys), tuple(sorted(set(keys))), dry_run, held_by)

    def _find(self, own: Scopes, selector: Selector) -> _Found:
        """The selection, read from the disk: the index only says where to look.

        Entries that the caller may not change are left out; ``ReadOnly`` if there are no others.
        """
        view = tuple(own.values())
        self._db.refresh()
        if selector.key is None:
            self._check_readable(view)
        rows = self._db.rows(view, wanted=selector.filters)
        matching = [entry for entry in self._db.entries(row.path for row in rows) if selector.matches(entry)]
        entries = [entry for entry in matching if is_writable(own, entry, rules=self._db.rules)]
        if matching and not entries:
            check_writable(own, matching[0], rules=self._db.rules)
        elsewhere = self._db.entries(self._paths_of({id for entry in entries for id in entry.ids}))
        entries = list({each.path: each for each in (*entries, *elsewhere)}.values())
        targets, sources = targets_of(selector, entries, view=view), {id for each in entries for id in each.sources}
        paths = {entry.path for entry in entries}
        made = [note for note in self._made_of_others(view) if note.path not in paths] if entries else []
        entries += (note for note in made if targets.include(note))
        targets = targets_of(selector, entries, view=view)
        survivors = [note for note in made if stands_for(note, targets.ids) and not targets.include(note)]
        held_at = self._paths_of(sources - targets.ids)
        holders = [*self._db.entries(held_at), *self._moved_from(view, selector.key), *survivors]
        return _Found(tuple(entries), tuple(survivors), tuple(sorted({it.key for it in holders if is_seen(view, it)})))

    def _check_readable(self, view: View) -> None:
        """``StorageFailed`` if a record of these places cannot be read: it is unknown whether it is selected."""
        folders = {above for each in view for above in (each.folder, each.folder.rpartition("/")[0])}
        unlisted = [f"{ENTRIES}/{each}" for each in sorted(folders & self._db.index.unlisted.keys())]
        if unread := unlisted + sorted(it for it in set(self._db.index.unread) if is_among(it, view)):
            raise StorageFailed(f"nothing was forgotten, as {unread[0]} cannot be read, and may have to go as well")

    def _paths_of(self, ids: Collection[str]) -> list[str]:
        """The paths of all records of the entries with these ids."""
        return self._db.index.ask(lambda connection: queries.of_ids(connection, ids)) if ids else []

    def _moved_from(self, view: View, key: str | None) -> list[Entry]:
        """The entries that had this key before they moved."""
        marks = [self._db.mark(partition.path(key)) for partition in view] if key is not None else []
        return self._db.entries(self._moved_to({id for mark in marks if mark is not None for id in mark.left}))

    def _moved_to(self, ids: Iterable[str]) -> list[str]:
        """The paths to which the entries with these ids were moved."""
        return [mark.target for mark in map(self._db.mark, map(id_path, ids)) if mark is not None and mark.leads]

    def _bury(
        self, paths: Iterable[str], targets: Targets, stamp: Stamp, *, why: str, into: list[Entry] | None = None
    ) -> list[EntryRecord]:
        """Replace the targets by marks, write the tombstones of their ids, and take their labels from the others.

        One commit, and one more for entries that were joined or moved meanwhile. The targets are added to ``into``.
        """

        def decide(records: RecordsByPath) -> tuple[_Burial, list[EntryRecord]]:
            after, missing, taken = dict[str, EntryRecord](), list[str](), list[Entry]()
            for entry in records.values():
                if not isinstance(entry, Entry):
                    if isinstance(entry, Mark) and entry.path not in changed:
                        missing += self._moved_to(targets.ids.intersection(entry.left))
                elif targets.include(entry):
                    if all(id_path(id) in records for id in entry.ids):
                        after |= _buried(records, entry, stamp, why=why)
                        taken.append(entry)
                    else:
                        missing.append(entry.path)
                elif (stripped := give_back(entry, targets.ids)) is not entry:
                    after[entry.path] = decisions.amend(stripped, stamp, op="redact")
            return (missing, after, taken), list(after.values())

        changed, left = dict[str, EntryRecord](), list(paths)
        while left:
            left, after, taken = self._db.repository.change([*left, *self._db.id_paths(left)], decide)
            changed |= after
            (into if into is not None else []).extend(taken)
        self._leave_out({*self._db.index.ask(lambda it: queries.made_into(it, None, targets.ids))} - changed.keys())
        return [record for path, record in changed.items() if not is_id_path(path)]

    def _bury_new(self, targets: Targets, stamp: Stamp, *, why: str, into: list[Entry]) -> list[EntryRecord]:
        """Bury the notes that other processes made of the targets since these were found; see ``_bury``.

        Notes that cannot be read or replaced now follow at the next read.
        """
        changed, tried = list[EntryRecord](), set[str]()
        while made := self._made_by_now(targets.ids) - tried:
            tried |= made
            self._leave_out(made)
            self.note(noted := {note.path: note.revision for note in self._db.entries(made, at=shown_at)})
            try:
                changed += self._bury(noted, targets, stamp, why=why, into=into)
            except StorageFailed as error:
                if not is_of_one_file(error):
                    raise
        return changed

    def _made_by_now(self, ids: Collection[str]) -> set[str]:
        """The paths of the entries of all agents and users that were made of entries with these ids."""
        self._db.index.catch_up()
        return {*self._db.index.ask(lambda opened: queries.made_into(opened, None, ids))}

    def _leave_out(self, paths: Collection[str]) -> None:
        """Remove unreadable notes among these from the index until the next read, so that no search finds them."""

        def remove(opened: sqlite3.Connection) -> None:
            writer = RowWriter(opened)
            for path in left:
                writer.remove(path)
            writer.finish()
            note_unread(opened, left)

        self._db.index.unfollowed.update(paths)
        if left := [path for path in paths if shown_at(self._db.repository, path) is None]:
            token = self._db.index.intend(left)  # so that every process looks at them
            try:
                self._db.index.change(remove)
            finally:
                self._db.index.settle(token)

    def note(self, revisions: Mapping[str, int]) -> None:
        """Note records whose content is to go, by path with their revisions, so that the next start finishes that."""
        self._db.index.change(lambda connection: note_forgets(connection, revisions))
        if revisions and (shared := forget_notes(self._db.store)) is not None:
            shared.note_forgets(revisions)

    def complete(self, changed: Sequence[EntryRecord], *, noted: Mapping[str, int] = MappingProxyType({})) -> None:
        """Remove the earlier content of changed records everywhere, then strike them and ``noted`` off as pending.

        That includes the notes on the mirror's copies at the paths where a forgotten entry was before.
        """
        self.release([record.path for record in changed])
        ids = {id for record in changed if isinstance(record, Mark) for id in record.left}
        marks = (mark for path in self._paths_of(ids) if not is_id_path(path) and (mark := self._db.mark(path)))
        from memfiles.sync import ledger  # late: only a forget needs it

        ledger.scrub(kept_with(self._db.store), {record.path: record.revision for record in (*marks, *changed)})
        done = {record.path: record.revision for record in changed}
        self.strike({path: revision + 1 for path, revision in noted.items()} | done)

    def strike(self, revisions: Mapping[str, int]) -> None:
        """Delete the notes of forgets at earlier revisions than these, by path: that content is gone."""
        self._db.index.change(lambda connection: strike_forgets(connection, revisions))
        if revisions and (shared := forget_notes(self._db.store)) is not None:
            shared.strike_forgets(revisions)

    def _made_of_others(self, view: View) -> list[Entry]:
        """The entries made of others or with labels of others, hidden or not, at their present paths.

        An unreadable one outside the view is left out: it follows the forget once it can be read.
        """
        ask = self._db.index.ask
        rows = ask(lambda opened: queries.made_of_others(opened, queries.parts(opened, view), prefix=FOLDED))
        paths = sorted({row.path for row in (*rows, *ask(queries.all_made_of_others))})
        others = self._db.entries((it for it in paths if not is_among(it, view)), at=shown_at)
        return self._db.entries(it for it in paths if is_among(it, view)) + others

    def checked_why(self, why: str) -> str:
        """The reason as it may be kept: at most 500 bytes, and no credential."""
        check_text(why)
        rules = self._db.rules
        why = gate(why, policy=rules.secrets, allow=rules.allow, scan=rules.scan, what="the reason").text
        if len(why.encode()) > MAX_WHY_BYTES:
            raise InvalidArgument(f"the reason has {len(why.encode())} bytes, more than {MAX_WHY_BYTES}")
        return why


def _together(graves: Mapping[str, Sequence[Mark]]) -> Iterator[list[str]]:
    """The paths of entries with the same tombstones, as all those of one user have, at most 1000 at once."""
    together: dict[tuple[str | bool, ...], list[str]] = {}
    for path, marks in graves.items():
        together.setdefault((bool(user_in(path)), *(mark.path for mark in marks)), []).append(path)
    for paths in together.values():
        yield from (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))


def _buried(records: RecordsByPath, entry: Entry, stamp: Stamp, *, why: str) -> dict[str, EntryRecord]:
    """The mark in place of a forgotten entry, and the tombstones of its ids that are not there yet."""
    mark = vacated(entry, stamp.at, by=stamp.by)
    after: dict[str, EntryRecord] = {entry.path: replace(mark, run=_SOME_RUN if mark.run else "")}
    for path in map(id_path, entry.ids):
        known = records[path]
        if not (isinstance(known, Mark) and known.type == "tombstone"):
            after[path] = decisions.of_id("tombstone", entry, path, known, stamp, why=why)
    return after
