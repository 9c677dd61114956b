"""Entry decisions: the new version that a save, an update, a move, a delete or a restore makes of an entry.

The rules this file guards:

- Saving the same content again changes nothing, least of all when it expires.
- Superseded content stays in the history, and an episode never changes. The confidence in it goes, if none is given:
  it was the confidence in another text.
- A repeated call is recognised by the history and changes nothing.
- An entry that moves keeps its ids, leaves a mark at its old path, and is found by its id at the new one.

All functions are pure. A decision is the entry to commit: the one before if nothing changes. Refusals are raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries.drafts import Draft, facets_of, later, seconds_between
from memfiles.errors import EntryNotFound, InvalidArgument, ReadOnly, RevisionConflict
from memfiles.records.entry import (
    DEFAULT_CONFIDENCE,
    GENERAL,
    MAX_SOURCES,
    Entry,
    Provenance,
    Retired,
    departing,
    new_text,
    seen_by_others,
    with_ids,
)
from memfiles.records.history import contents, splice_between
from memfiles.records.keys import WORKSPACE, entry_path, entry_uid, id_path, scope_folder, uid_at, user_hash
from memfiles.records.marks import EntryRecord, Mark, MarkType, tombstones_in, vacated
from memfiles.records.record import Change, EntryOperation, Record, Stamp, extend, successor, with_content

RecordsByPath = Mapping[str, EntryRecord | None]
WorkingCopy = dict[str, EntryRecord | None]
Expiry = Callable[[str, str, float | None], str | None]
"""The expiry of an entry: of this category, with content of that time, and with that ttl of its own, if any."""

_JOINED_MAX = 50  # contents of an entry that another one joins: more would push its own out of the history


class EntryLocation(Struct, frozen=True):
    """The location of a draft: agent, level, and the user (with the epoch) or run; ``id`` is for a new entry."""

    agent: str
    level: str
    run: str = ""
    user: str = ""
    epoch: str = ""
    id: str = ""

    @property
    def folder(self) -> str:
        """The folder of its record."""
        return scope_folder(self.agent, user_hash(self.user))


def location_of(agent: str, user: tuple[str, str], folder: str, level: str, run: str, *, id: str = "") -> EntryLocation:
    """The location of an entry that ``agent`` saves in this partition, for a ``user`` (name and epoch) or none."""
    is_of_user = bool(user[0]) and folder == scope_folder(agent, user_hash(user[0]))
    owner = WORKSPACE if folder == WORKSPACE else agent
    return EntryLocation(owner, level, run, *(user if is_of_user else ("", "")), id)


class Decided(Struct, frozen=True):
    """The entry after a call; ``replayed`` is the revision that this very call made earlier.

    ``replaced`` is the entry before, if the call replaced its content.
    """

    entry: Entry
    replayed: int | None = None
    replaced: Entry | None = None


class ImportedHistory(Struct, frozen=True):
    """The history of an entry from before it came here: times, how often it was of use, and the ids that it keeps."""

    created_at: str
    updated_at: str
    expires_at: str | None = None
    successes: int = 0
    failures: int = 0
    made_of: tuple[str, ...] = ()
    provenance: Provenance | None = None
    ids: tuple[str, ...] = ()


def save(
    before: EntryRecord | None, draft: Draft, stamp: Stamp, *, place: EntryLocation, by: Provenance, expiry: Expiry
) -> Decided:
    """Save ``draft`` over the record of its key; an expired or retired entry counts as none."""
    if isinstance(before, Entry) and (revision := _saved_before(before, draft.content, stamp)) is not None:
        return Decided(before, revision)
    was_live, stamp = is_live(before, stamp.at), _after_expiry(before, stamp)
    check_expected_revision(before if was_live else None, stamp, key=draft.key)
    if not isinstance(before, Entry):
        return Decided(_first(before, draft, stamp, place=place, by=by, expiry=expiry))
    after = with_draft(before, draft, stamp, op="save", by=by, expiry=expiry, renews=not was_live)
    return Decided(after, replaced=before if after.content != before.content else None)


def import_(
    before: EntryRecord | None,
    draft: Draft,
    stamp: Stamp,
    *,
    place: EntryLocation,
    by: Provenance,
    expiry: Expiry,
    past: ImportedHistory,
) -> Decided:
    """Save a draft from elsewhere with the times it had there, and its ids if it becomes a new entry.

    If the entry here is newer than the content, ``updated_at`` becomes the time of this change.
    """
    decided = save(before, draft, stamp, place=place, by=by, expiry=expiry)
    entry = replace(
        decided.entry,
        successes=max(decided.entry.successes, past.successes),
        failures=max(decided.entry.failures, past.failures),
        made_of=tuple(dict.fromkeys((*decided.entry.made_of, *past.made_of)))[-MAX_SOURCES:],
    )
    if decided.entry is before:
        return decided if entry == before else Decided(amend(entry, stamp, op="import"))
    is_later = isinstance(before, Entry) and before.updated_at >= past.updated_at
    updated_at = entry.updated_at if is_later else past.updated_at
    created_at = min(before.created_at if isinstance(before, Entry) else past.created_at, updated_at)
    expires_at = past.expires_at or expiry(entry.category, updated_at, None)
    text = successor(entry.text, created_at=created_at, updated_at=updated_at)
    entry = entry.amended(text=text, expires_at=expires_at, provenance=past.provenance or entry.provenance)
    return Decided(with_ids(entry, past.ids) if past.ids and not isinstance(before, Entry) else entry)


def update(before: EntryRecord | None, draft: Draft, stamp: Stamp, *, by: Provenance, expiry: Expiry) -> Decided:
    """Update an entry, which must be there; ``EntryNotFound``."""
    entry = require_live(before, key=draft.key, now=stamp.at)
    if (revision := _updated_before(entry, draft, stamp)) is not None:
        return Decided(entry, revision)
    check_expected_revision(entry, stamp, key=draft.key)
    after = with_draft(entry, draft, stamp, op="update", by=by, expiry=expiry)
    return Decided(after, replaced=entry if after.content != entry.content else None)


def made_by_call(entry: Entry, stamp: Stamp) -> str | None:
    """The content that an earlier update by this very call made; None if there was none."""
    calls = (after for change, after in contents(entry.text) if change.by == stamp.by and change.op == "update")
    return None if stamp.by.call is None or (after := next(calls, None)) is None else after.decode()


def move(entry: Entry, there: EntryRecord | None, draft: Draft, stamp: Stamp, *, place: EntryLocation) -> Entry:
    """The entry with the facets of ``draft`` under its key in another place: its ids, times, counts and history stay.

    An entry that is there already is joined with it: its contents go to the history.
    """
    revision, forgotten, known = (there.revision, tombstones_in(there), there.origins) if there else (0, (), {})
    uid = entry_uid(place.folder, place.level, draft.key, place.run)
    left = departing(entry, folder=place.folder, key=draft.key, run=place.run)
    text = successor(left, uid=uid, level=place.level, revision=max(entry.revision, revision))
    owned = replace(entry, text=text, agent=place.agent, user=place.user, run=place.run, key=draft.key)
    moved = replace(owned, epoch=place.user and entry.epoch, forgotten=forgotten).amended(**facets_of(draft))
    content, ids = draft.content or "", {*entry.ids}
    if isinstance(there, Entry):
        authors, ids = {*moved.authors, *there.authors}, ids | {*there.ids}
        moved = moved.amended(authors=tuple(sorted(authors)))
        for earlier in [past.decode() for _, past in contents(there.text)][:_JOINED_MAX][::-1]:
            if earlier not in (content, moved.content):
                moved = _stored(moved, stamp, op="save", text=with_content(moved.text, earlier))
    moved = _stored(moved, stamp, op="update", text=with_content(moved.text, content))
    moved = moved.amended(text=successor(moved.text, updated_at=entry.updated_at))
    return with_ids(moved.with_origins(known), ids)  # not with its former path's


def relocated(
    records: RecordsByPath, entry: Entry, draft: Draft, stamp: Stamp, *, place: EntryLocation
) -> dict[str, EntryRecord]:
    """The changed records when an entry gets the key of ``draft`` in another place: both places, and where its ids are.

    ``EntryNotFound`` if it was forgotten elsewhere, ``RevisionConflict`` if it was joined meanwhile.
    """
    target = entry_path(place.folder, entry_uid(place.folder, place.level, draft.key, place.run))
    moved = move(entry, records[target], draft, stamp, place=place)
    after: dict[str, EntryRecord] = {target: moved}
    if records[entry.path] is entry:
        after[entry.path] = vacated(entry, stamp.at, by=stamp.by, target=target, is_private=bool(place.run))
    for path in map(id_path, moved.ids):
        if path not in records:
            raise RevisionConflict(f"{ascii(entry.key[:80])} was changed meanwhile: read it again and decide anew")
        known = records[path]
        if isinstance(known, Mark) and known.type == "tombstone":
            raise not_there(entry.key)
        if not place.run and (known is not None or not entry.run):  # nobody else knows of an entry of one run
            after[path] = of_id("location", moved, path, known, stamp)
    return after


def delete(before: EntryRecord | None, stamp: Stamp, *, key: str) -> Decided:
    """Hide an entry, which must be there; its content is kept until it is forgotten or purged."""
    if isinstance(before, Entry) and before.retired is not None and (done := called_before(before, stamp)) is not None:
        return Decided(before, done)
    entry = require_live(before, key=key, now=stamp.at)
    check_expected_revision(entry, stamp, key=key)
    return Decided(retire(entry, stamp, Retired("deleted", stamp.at), op="delete"))


def retire(entry: Entry, stamp: Stamp, retired: Retired, *, op: EntryOperation) -> Entry:
    """Hide an entry; its text and its times stay. By a clock that is behind, it is hidden when it last changed."""
    at = max([retired.at, entry.updated_at, *(change.at for change in entry.text.history[-1:])])
    stamp = replace(stamp, cause=stamp.cause or retired.cause)
    return amend(entry.amended(retired=replace(retired, at=at)), stamp, op=op)


def amend(after: Entry, stamp: Stamp, *, op: EntryOperation) -> Entry:
    """The entry with a change of its other fields recorded; its text and its times stay."""
    return _stored(after, stamp, op=op, text=after.text)


def restore(before: EntryRecord | None, stamp: Stamp, *, key: str, expiry: Expiry) -> Decided:
    """Bring back a deleted or evicted entry as it was; an expired one is renewed; ``EntryNotFound``."""
    if not isinstance(before, Entry):
        raise not_there(key)
    if is_live(before, stamp.at):
        if (done := called_before(before, stamp)) is None:
            raise not_hidden(key)
        return Decided(before, done)
    stamp = _after_expiry(before, stamp)
    expires_at = expiry(before.category, stamp.at, None) if before.is_expired(stamp.at) else before.expires_at
    return Decided(amend(before.amended(retired=None, expires_at=expires_at), stamp, op="restore"))


def of_id(type: MarkType, entry: Entry, path: str, known: EntryRecord | None, stamp: Stamp, *, why: str = "") -> Mark:
    """The tombstone or location of one id of an entry, in place of the record ``known`` at ``path``."""
    revision, origins = (known.revision, known.origins) if known is not None else (0, {})
    named = (uid_at(path), entry.agent, entry.level, type, revision + 1)
    if stamp.by.user and not entry.user:  # other users see it, and may not learn of that user's session
        stamp, why = replace(stamp, by=seen_by_others(stamp.by)), ""
    after = ""
    if type == "location" and isinstance(known, Mark):
        with suppress(InvalidArgument):  # a time that is none, such as that of February 30
            after = later(known.at, 0.001)  # than by another clock
    mark = Mark(*named, max(stamp.at, after), stamp.by, why=why, user=user_hash(entry.user), origins=origins)
    return replace(mark, key=entry.key) if type == "location" else replace(mark, of_run=bool(entry.run))


def is_live(record: EntryRecord | None, now: str) -> TypeGuard[Entry]:
    """Whether the record is an entry that sessions can see: neither retired nor expired."""
    return isinstance(record, Entry) and record.is_live(now)


def require_live(record: EntryRecord | None, *, key: str, now: str) -> Entry:
    """The entry if sessions can see it, else ``EntryNotFound``."""
    if not is_live(record, now):
        raise not_there(key)
    return record


def not_there(key: str, *, seen_at: str | None = None) -> EntryNotFound:
    """The error for a key without an entry to change, hidden or not; ``seen_at`` is the level of one that is seen."""
    remedy = "list or search for its key"
    if seen_at is not None:
        remedy = f"the one it sees is at level {seen_at}, and only a session at that level may change it"
    return EntryNotFound(f"there is no entry {ascii(key[:80])} at this session's level: {remedy}")


def not_hidden(key: str) -> EntryNotFound:
    """The error for an entry that is to be restored, but was neither deleted nor evicted, and has not expired."""
    return EntryNotFound(f"{ascii(key[:80])} is not deleted: there is nothing to restore")


def check_expected_revision(entry: EntryRecord | None, stamp: Stamp, *, key: str) -> None:
    """Refuse a change if the entry is not at the revision that the caller expected; 0 means that there is none."""
    found = entry.revision if entry is not None else 0
    if stamp.expected_revision is not None and stamp.expected_revision != found:
        raise RevisionConflict(
            f"{ascii(key[:80])} is at revision {found}, not {stamp.expected_revision}: read it again and decide anew"
        )


def _first(
    before: Mark | None, draft: Draft, stamp: Stamp, *, place: EntryLocation, by: Provenance, expiry: Expiry
) -> Entry:
    """The first revision of an entry, above that of the mark it is saved over."""
    content = draft.content or ""
    text = new_text(place.folder, draft.key, level=place.level, run=place.run, content=content, at=stamp.at)
    revision = before.revision if before is not None else 0
    is_of_user, size = bool(stamp.by.user) and not place.user, text.size_bytes
    change = Change(revision + 1, stamp.at, "save", stamp.by, size, 0, cause=stamp.cause, of_user=is_of_user)
    facets = {"category": GENERAL, **facets_of(draft)}
    entry = Entry(
        extend(text, change),
        place.agent,
        draft.key,
        user=place.user,
        epoch=place.epoch,
        run=place.run,
        provenance=by,
        expires_at=expiry(facets["category"], stamp.at, draft.ttl),
        forgotten=tombstones_in(before) if before is not None else (),
        given_id=place.id,
        **facets,
    )
    entry = _counted(entry, draft)
    return entry if before is None else entry.amended(text=successor(entry.text, origins=before.origins))


def with_draft(
    before: Entry,
    draft: Draft,
    stamp: Stamp,
    *,
    op: EntryOperation,
    by: Provenance,
    expiry: Expiry,
    renews: bool = False,
) -> Entry:
    """The entry with the draft's content and facets; ``renews``: it was retired or expired and lives from now on."""
    is_new_text = draft.content not in (None, before.content)
    is_other_kind = draft.kind not in (None, before.kind)
    if (is_new_text or is_other_kind) and before.kind == "episode" and not renews:
        raise ReadOnly(f"{ascii(before.key[:80])} is an episode, which never changes: save under another key")
    expires_at = _expires_at(before, draft, expiry, at=stamp.at, renews=renews)
    facets = ({"confidence": DEFAULT_CONFIDENCE, "said_at": ""} if is_new_text else {}) | facets_of(draft)
    after = _counted(before.amended(retired=None, expires_at=expires_at, **facets), draft)
    if is_new_text or renews:
        after = after.amended(provenance=replace(by, ordinal=before.provenance.ordinal or by.ordinal))
    if after == before and not is_new_text:
        return before
    text = with_content(before.text, draft.content or "") if is_new_text else before.text
    return _stored(after, stamp, op=op, text=text, renews=renews)


def _after_expiry(before: EntryRecord | None, stamp: Stamp) -> Stamp:
    """The stamp of a change that brings an entry back; its cause says when the entry had expired, if it had."""
    if not isinstance(before, Entry) or before.retired is not None or not before.is_expired(stamp.at):
        return stamp
    return replace(stamp, cause=f"expired {before.expires_at}")


def _expires_at(before: Entry, draft: Draft, expiry: Expiry, *, at: str, renews: bool) -> str | None:
    """The expiry of an entry after a draft: it counts from new content, and only new content or rules change it."""
    category = draft.category or before.category
    if renews or draft.restarts:
        return expiry(category, at, draft.ttl)
    if draft.content not in (None, before.content):
        keeps_lifetime = category == before.category and draft.ttl is None
        return expiry(category, at, _own_lifetime(before, expiry) if keeps_lifetime else draft.ttl)
    if draft.ttl is not None or category != before.category:
        return expiry(category, before.updated_at, draft.ttl)
    return before.expires_at


def _own_lifetime(entry: Entry, expiry: Expiry) -> int | None:
    """The ttl in seconds that an entry was given, in a category that never expires; None if it was given none."""
    if entry.expires_at is None or expiry(entry.category, entry.updated_at, None) is not None:
        return None
    return max(1, seconds_between(entry.updated_at, entry.expires_at))


def _stored(entry: Entry, stamp: Stamp, *, op: EntryOperation, text: Record, renews: bool = False) -> Entry:
    """The entry with ``text`` and its change recorded; ``updated_at`` moves only with the content."""
    before = entry.text
    splice = splice_between(before.content_bytes, text.content_bytes)
    made = (before.revision + 1, stamp.at, op, stamp.by, splice.bytes, splice.offset, splice.old)
    change = Change(*made, cause=stamp.cause, of_user=bool(stamp.by.user) and not entry.user)
    longer = extend(text, change)
    if text.content == before.content and not renews:
        longer = successor(longer, updated_at=before.updated_at)
    return entry.amended(text=longer)


def _counted(entry: Entry, draft: Draft) -> Entry:
    if draft.outcome == "success":
        return entry.amended(successes=entry.successes + 1)
    return entry.amended(failures=entry.failures + 1) if draft.outcome == "failure" else entry


def _saved_before(entry: Entry, content: str | None, stamp: Stamp) -> int | None:
    """The revision that this very call made: same caller, same call id, same content."""
    if stamp.by.call is None or not any(change.by.call == stamp.by.call for change in entry.text.history):
        return None
    wanted = (content or "").encode()
    for change, after in contents(entry.text):
        if change.by == stamp.by and change.op in ("save", "update") and (change.is_altered or after == wanted):
            return change.revision
    return None


def _updated_before(entry: Entry, draft: Draft, stamp: Stamp) -> int | None:
    """The revision that this very update made.

    The history has no facets: an update without content counts as repeated if the entry changed since, or still has
    its facets.
    """
    if draft.content is not None:
        return _saved_before(entry, draft.content, stamp)
    history = entry.text.history
    made = [change for change in history if change.by == stamp.by and change.op == "update"] if stamp.by.call else []
    if not made:
        return None
    is_other = any(getattr(entry, name) != value for name, value in facets_of(draft).items())
    return None if is_other and made[-1] == history[-1] else made[-1].revision


def called_before(entry: Entry, stamp: Stamp) -> int | None:
    """The revision that an earlier call with this id made, by any operation."""
    if stamp.by.call is None:
        return None
    made = (change.revision for change in reversed(entry.text.history) if change.by == stamp.by)
    return next(made, None)
