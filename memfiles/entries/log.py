"""The log of an entry, its earlier contents, and the lists of deleted and of forgotten entries.

The rule this file guards: a session is told of a change only if it may see the place where the entry was when it was
made, and it is given the content after such a change alone. An entry that came from elsewhere brings its history along,
and not everyone who sees it now could see it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries import decisions
from memfiles.entries.callers import Caller, Partition, View, is_seen, own_level, view_of
from memfiles.entries.decisions import Decided, Expiry
from memfiles.entries.drafts import MAX_GONE, Draft
from memfiles.entries.reader import EntryDatabase, entry_at, shown_at
from memfiles.entries.results import Found, found_in
from memfiles.errors import EntryNotFound, MemfilesError, ReadOnly, RevisionUnknown
from memfiles.index import queries
from memfiles.records import late_logger as _log
from memfiles.records.entry import Entry, Provenance, Scope, seen_by_others
from memfiles.records.history import contents, diff_between, reverse, steps_after
from memfiles.records.keys import check_key, check_whole, id_path, is_file_path, place_tag
from memfiles.records.levels import Levels
from memfiles.records.marks import EntryRecord, Mark
from memfiles.records.record import NOBODY, Actor, Change, Stamp
from memfiles.storage.events import AuditLog, RecordChanged

_OF_PLANS = {"merge": "merge", "fold": "fold", "evict": "evict", "undo": "undo_plan"}
_EXPIRED = "expired "
Places = Mapping[str, Scope]
"""The tags of the places that a session may see, each with the name of its scope."""


def places_of(caller: Caller, levels: Levels) -> Places:
    """The places that the caller sees at its present level."""
    readable = levels.readable(session=caller.level)
    return {place_tag(*place): scope for level in readable for scope, place in own_level(caller, level).items()}


class EntryChange(Struct, frozen=True):
    """Something that happened to an entry; ``revision`` is None for an expiry, which changes no record.

    ``op`` is ``save``, ``update``, ``undo``, ``rename``, ``move`` (to another scope), ``delete``, ``restore``,
    ``evict``, ``expire``, ``merge``, ``fold``, ``undo_plan``, ``import``, ``redact`` or ``external`` (by hand).
    ``key`` and ``scope`` are those after it, ``from_key`` and ``from_scope`` those before, if they changed. ``bytes``
    and ``removed_bytes`` count the content added and removed, None if unknown. ``cause`` is the id of the plan or
    eviction.
    """

    op: str
    at: str
    key: str
    scope: Scope
    revision: int | None = None
    by: Actor = NOBODY
    bytes: int | None = None
    removed_bytes: int | None = None
    from_key: str | None = None
    from_scope: Scope | None = None
    undone_revision: int | None = None
    cause: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without fields that do not apply."""
        known = {name: value for name in _CHANGE_FIELDS if (value := getattr(self, name)) is not None}
        return known | {"by": self.by.to_dict()}


_CHANGE_FIELDS = "revision at op key scope from_key from_scope bytes removed_bytes undone_revision cause".split()


class EntryLog(Struct, frozen=True):
    """The history of an entry as far as the session may know it; ``changes`` are newest first.

    ``state`` is ``live``, ``expired``, ``deleted`` or ``evicted``. ``aliases`` are the ids of entries that were joined
    with it. ``made_of`` and ``made_into`` are the keys, by ids, of entries that were folded or merged into it, and of
    the entries that it was folded or merged into. ``is_complete``: nothing is left out at the beginning.
    """

    found: Found
    state: str
    scope: Scope
    aliases: tuple[str, ...]
    changes: tuple[EntryChange, ...]
    is_complete: bool
    made_of: Mapping[str, str]
    made_into: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without the content."""
        found = self.found
        shown: dict[str, Any] = {"key": found.key, "id": found.id, "level": found.level}
        shown |= {"scope": self.scope, "state": self.state}
        shown |= {"revision": found.revision, "provenance": found.provenance.shown}
        shown |= {"aliases": list(self.aliases)} if self.aliases else {}
        shown |= {name: dict(made) for name in ("made_of", "made_into") if (made := getattr(self, name))}
        return shown | {"complete": self.is_complete, "changes": [change.to_dict() for change in self.changes]}


class GoneEntry(Struct, frozen=True):
    """An entry that is hidden and can be restored: ``deleted``, ``evicted`` or ``expired``, when and by whom."""

    found: Found
    state: str
    at: str
    by: Actor
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without the content."""
        cause = {"cause": self.cause} if self.cause else {}
        return self.found.to_line() | {"state": self.state, "at": self.at, "by": self.by.to_dict()} | cause


class Gone(Struct, frozen=True):
    """The hidden entries that can be restored, newest first; ``more``: there are others."""

    entries: tuple[GoneEntry, ...]
    more: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"deleted": [each.to_dict() for each in self.entries], "more": self.more}


class Tombstone(Struct, frozen=True):
    """What is left of a forgotten entry: its id, whose it was, when and by whom it was forgotten, and why."""

    id: str
    agent: str
    level: str
    at: str
    by: Actor
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        shown = {name: getattr(self, name) for name in ("id", "agent", "level", "at", "why")}
        return shown | {"by": self.by.to_dict()}


class Tombstones(Struct, frozen=True):
    """Tombstones, newest first; ``more``: there are others."""

    tombstones: tuple[Tombstone, ...]
    more: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"tombstones": [each.to_dict() for each in self.tombstones], "more": self.more}


class LogReader:
    """Reads the history of entries, and notes reads in the audit; see ``Entries``. Threads may share it."""

    def __init__(self, db: EntryDatabase, *, audit: AuditLog | None) -> None:
        self._db = db
        self._audit = audit

    def heard(self, change: RecordChanged) -> None:
        """Warn of credentials that a hand edit added to an entry, even if a later change replaced them."""
        rules = self._db.rules
        if rules.secrets == "off" or not change.op == change.origin == "external" or is_file_path(change.path):
            return
        with suppress(MemfilesError):  # it is gone again
            if (entry := entry_at(self._db.repository, change.path)) is not None:
                made = ((it, text) for it, text in _contents(entry) if it.revision == change.revision)
                edit, after = next(made, (None, entry.text.content_bytes))
                before = reverse(after, edit).decode() if edit is not None and not edit.opaque else ""
                for warning in rules.warnings_about(after.decode(), before=before):
                    _log.tell(f"{change.path}: a change by hand {warning}")

    def log(self, caller: Caller, key: str) -> EntryLog:
        view, places, now = self._view(caller), places_of(caller, self._db.rules.levels), self._db.now()
        entry = self._find(view, key)
        scope = places[place_tag(entry.folder, entry.level, entry.run)]
        changes = list(visible_changes(entry, places))
        if entry.retired is None and entry.is_expired(now):
            changes.insert(0, EntryChange("expire", entry.expires_at or now, entry.key, scope))
        beginning, steps = steps_after(entry.text, 0)
        is_whole = len(steps) == len(entry.text.history) and all(_is_told(it, places) for it in entry.text.history)
        state = entry.retired.state if entry.retired else "expired" if entry.is_expired(now) else "live"
        made_of = self._keys(view, entry.sources)
        made_into = {} if entry.run else self._made_into(view, entry)
        complete = is_whole and not beginning
        self._note("log", caller, [entry])
        return EntryLog(found_in(entry), state, scope, entry.aliases, tuple(changes), complete, made_of, made_into)

    def diff(self, caller: Caller, key: str, from_revision: int, to_revision: int) -> str:
        entry, places = self._find(self._view(caller), key), places_of(caller, self._db.rules.levels)
        before, after = (content_told(entry, revision, places) for revision in (from_revision, to_revision))
        names = (f"{entry.key}@{from_revision}", f"{entry.key}@{to_revision}")
        self._note("diff", caller, [entry])
        return diff_between(before, after, names=names)

    def deleted(self, caller: Caller, *, limit: int) -> Gone:
        check_whole(limit, what="limit", least=1, most=MAX_GONE)
        view, now = self._view(caller), self._db.now()
        self._db.refresh(view)
        erased = self._db.rules.retention.moments(now)
        rows = self._db.index.ask(
            lambda opened: queries.deleted_rows(opened, queries.parts(opened, view), now=now, limit=limit + 1, **erased)
        )
        with self._db.repository.together([row.path for row in rows]):
            found = [entry for row in rows if (entry := shown_at(self._db.repository, row.path)) is not None]
        hidden = [entry for entry in found if not entry.is_live(now) and self._is_kept(view, entry)]
        self._note("deleted", caller, hidden[:limit])
        return Gone(tuple(map(_gone, hidden[:limit])), len(hidden) > limit)

    def tombstones(self, caller: Caller, *, limit: int) -> Tombstones:
        check_whole(limit, what="limit", least=1, most=MAX_GONE)
        view = self._view(caller)
        self._db.refresh(view)
        owners = dict.fromkeys((place.folder, place.level) for place in view)
        paths = self._db.index.ask(lambda opened: queries.tombstones(opened, [*owners], limit=limit + 1))
        found = (mark for path in paths if (mark := self._db.mark(path)) is not None)
        marks = [mark for mark in found if mark.type == "tombstone" and not mark.cleared]
        shown = [Tombstone(it.ids[0], it.agent, it.level, it.at, it.by, it.why) for it in marks]
        self._note("tombstones", caller, [])
        return Tombstones(tuple(shown[:limit]), len(shown) > limit)

    def problems(self) -> dict[str, str]:
        """By path, what is wrong with entries that were found and still cannot be read, and with their folders."""
        repository = self._db.repository
        for path in [*repository.unread, *repository.unhandled()]:
            shown_at(repository, path)
        broken = {path: seen.problem for path, seen in repository.known().items() if seen.problem}
        return broken | repository.unread | self._db.index.unlisted.topmost()

    def note_read(self, op: str, caller: Caller, keys: Iterable[str]) -> None:
        """Record the entries that a read returned under these keys in the audit."""
        view, found = self._view(caller), list[Entry]()
        with suppress(MemfilesError):  # the read was answered; what cannot be looked at now is left out
            found += (entry for key in keys if (entry := self._db.visible(view, key)) is not None)
        self._note(op, caller, found)

    def _note(self, op: str, caller: Caller, entries: Sequence[Entry]) -> None:
        if self._audit is not None:
            paths = [entry.path for entry in entries]
            self._audit.record_read(op, paths, by=caller.actor(None), level=caller.level)

    def _view(self, caller: Caller) -> View:
        return view_of(caller, self._db.rules.levels)

    def _find(self, view: View, key: str) -> Entry:
        """The entry of the key that the view shows, else a hidden one there, else one that had the key before."""
        check_key(key)
        self._db.refresh(view)
        records = [self._db.repository.look(place.path(key)).record for place in view]
        here = [record for record in records if isinstance(record, Entry) and self._is_kept(view, record)]
        moved = (entry for record in records if isinstance(record, Mark) for entry in self._moved(record))
        known = chain(filter(self._db.is_live, here), here, (entry for entry in moved if self._is_kept(view, entry)))
        if (found := next(known, None)) is None:
            unknown = f"no entry {ascii(key[:80])} is known to this session: list or search for its key"
            raise erased_among(self._db, view, key) or EntryNotFound(unknown)
        return found

    def _is_kept(self, view: View, entry: Entry) -> bool:
        """Whether the view holds the place of an entry, and its content, seen or hidden, does not count as erased."""
        is_erased = self._db.erased_at(entry) is not None or entry.path in self._db.index.unfollowed
        return is_seen(view, entry) and not is_erased

    def _moved(self, mark: Mark) -> list[Entry]:
        """The entries that left the place of a mark, where they are now."""
        locations = (self._db.mark(id_path(id)) for id in mark.left)
        paths = [each.target for each in locations if each is not None and each.type == "location"]
        return self._db.entries(dict.fromkeys([*paths, *mark.moved]))

    def _keys(self, view: View, ids: tuple[str, ...]) -> dict[str, str]:
        """The keys of those of these entries that the view holds, hidden or not, by their ids."""
        paths = self._db.index.ask(lambda opened: queries.of_ids(opened, ids)) if ids else []
        return {entry.id: entry.key for entry in self._db.entries(paths) if self._is_kept(view, entry)}

    def _made_into(self, view: View, entry: Entry) -> dict[str, str]:
        made = self._db.index.ask(lambda opened: queries.made_into(opened, queries.parts(opened, view), entry.names))
        return {it.id: it.key for it in self._db.entries(made) if self._is_kept(view, it)}


def erased_among(db: EntryDatabase, places: Iterable[Partition], key: str) -> EntryNotFound | None:
    """The error for a key whose content in one of these places was erased for its age; None if there is none."""
    found = [db.repository.look(place.path(key)).record for place in places]
    erased = [at for each in found if each is not None and not each.run and (at := db.erased_at(each))]
    if not erased:
        return None
    return EntryNotFound(
        f"{ascii(key[:80])} had expired or was deleted, and its content was erased on {max(erased)[:10]}, as it was "
        f"kept long enough: it cannot be restored. Save it again"
    )


def visible_changes(entry: Entry, places: Places) -> Iterator[EntryChange]:
    """The changes of an entry that a session with these places may know of, newest first."""
    key, home = entry.key, place_tag(entry.folder, entry.level, entry.run)
    newest_first = entry.text.history[::-1]
    for at, change in enumerate(newest_first):
        key = change.key or key
        earlier = newest_first[at + 1] if at + 1 < len(newest_first) else None
        if not _is_told(change, places):
            continue
        scope = places[change.place or home]
        is_known = earlier is None or _is_told(earlier, places)
        from_key = earlier.key if earlier is not None and is_known and earlier.key not in ("", key) else None
        has_moved = earlier is not None and (earlier.place or home) != (change.place or home)
        op, cause = _cause_of(change)
        if change.op == "update" and (from_key or has_moved):
            op = "move" if has_moved else "rename"
        yield EntryChange(
            *(op, change.at, key, scope, change.revision, _by(change)),
            bytes=change.bytes if is_known and not change.opaque else None,
            removed_bytes=len(change.old.encode()) if is_known and not change.opaque else None,
            from_key=from_key,
            from_scope=places[earlier.place or home] if earlier is not None and has_moved and is_known else None,
            undone_revision=change.undone,
            cause=cause,
        )
        if change.cause.startswith(_EXPIRED):
            yield EntryChange("expire", change.cause.removeprefix(_EXPIRED), key, scope)


def content_told(entry: Entry, revision: int, places: Places) -> str:
    """The content at a revision, if a session with these places may know it; else ``RevisionUnknown``."""
    check_whole(revision, what="a revision")
    known = {change.revision: content for change, content in _contents(entry) if _is_told(change, places)}
    at = max((change.revision for change in entry.text.history if change.revision <= revision), default=0)
    if revision > entry.revision or at not in known:
        told = f"its log has {min(known)} to {entry.revision}" if known else "its log has none"
        raise RevisionUnknown(f"{ascii(entry.key[:80])} has no revision {revision} to read: {told}")
    return known[at].decode()


def undo(
    before: EntryRecord | None,
    stamp: Stamp,
    *,
    key: str,
    to_revision: int | None,
    places: Places,
    by: Provenance,
    expiry: Expiry,
) -> Decided:
    """Decide to go back to the content before the last change of it, or to that at ``to_revision``."""
    entry = decisions.require_live(before, key=key, now=stamp.at)
    if stamp.by.call is not None:
        for change in reversed(entry.text.history):
            if (change.by, change.op, change.target) == (stamp.by, "undo", to_revision):
                return Decided(entry, change.revision)
    decisions.check_expected_revision(entry, stamp, key=key)
    content, undone = _before_last_change(entry, places)
    if to_revision is not None:
        content, undone = content_told(entry, to_revision, places), None
    if content == entry.content:
        return Decided(entry)
    if not content.strip():
        raise RevisionUnknown(f"{ascii(key[:80])} has no earlier text in its history to go back to")
    if entry.kind == "episode":
        raise ReadOnly(f"{ascii(key[:80])} is an episode, which never changes: save under another key")
    changed = decisions.with_draft(entry, Draft(key, content), stamp, op="undo", by=by, expiry=expiry)
    last = replace(changed.text.history[-1], undone=undone, target=to_revision)
    text = replace(changed.text, history=(*changed.text.history[:-1], last))
    return Decided(changed.amended(text=text), replaced=entry)


def _before_last_change(entry: Entry, places: Places) -> tuple[str, int | None]:
    """The content before the last change of it, and the revision of that change; "" if it is not known."""
    for (newer, after), (older, content) in pairwise(_contents(entry)):
        if after != content:
            return (content.decode(), newer.revision) if _is_told(older, places) else ("", None)
    return "", None


def _contents(entry: Entry) -> list[tuple[Change, bytes]]:
    """Each kept change with the content after it, newest first, as far as that is known."""
    known: list[tuple[Change, bytes]] = []
    with suppress(RevisionUnknown):  # the history was damaged by hand
        known.extend(contents(entry.text))
    return known


def _is_told(change: Change, places: Places) -> bool:
    return not change.place or change.place in places


def _by(change: Change) -> Actor:
    return seen_by_others(change.by) if change.of_user else change.by


def _cause_of(change: Change) -> tuple[str, str | None]:
    """The operation as a log names it, and the id of the plan or eviction that it was part of."""
    action, _, plan = change.cause.partition(" ")
    if plan.startswith("plan-") and action in _OF_PLANS:
        return _OF_PLANS[action], plan
    return change.op, None if change.cause.startswith(_EXPIRED) else change.cause or None


def _gone(entry: Entry) -> GoneEntry:
    last = _by(entry.text.history[-1]) if entry.text.history else NOBODY
    if entry.retired is None:
        return GoneEntry(found_in(entry), "expired", entry.expires_at or "", NOBODY)
    return GoneEntry(found_in(entry), entry.retired.state, entry.retired.at, last, entry.retired.cause)
