"""What a save, an update, a delete or a restore makes of an entry.

The rules this file guards: the same content again changes nothing, least of all when it expires; what was superseded
stays in the history; a replay of a call is told by the history; an episode never changes; and whoever saves over a
tombstone says so, so that no stale copy passes for a new one.

Everything here is a pure function of its arguments: the decision is the entry to commit, None when the disk already
says so, and what is refused is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from memfiles.entries.categories import seconds_between
from memfiles.entries.drafts import Draft, facets_of
from memfiles.entries.replays import called_before, saved_before, updated_before
from memfiles.errors import EntryNotFound, ReadOnly, RevisionConflict
from memfiles.records.entry import (
    GENERAL,
    MAX_SOURCES,
    Entry,
    EntryRecord,
    Provenance,
    Retired,
    Tombstone,
    new_text,
    passed,
)
from memfiles.records.history import extend, splice_between
from memfiles.records.record import Change, EntryOperation, Record, Stamp, successor, with_content

Expiry = Callable[[str, str, int | None], str | None]
"""When an entry of this category expires whose content last changed at that time; its own lifetime goes first."""


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """Where a draft is to be saved: whose it is, at which level, and of which run it is alone."""

    agent: str
    level: str
    run: str = ""
    category: str = GENERAL


@dataclass(frozen=True, slots=True)
class Decided:
    """The entry to commit (None: it is stored already), and the entry as it then is.

    ``replayed`` is the revision that this very call made earlier.
    """

    record: Entry | None
    entry: Entry
    replayed: int | None = None


def save(
    before: EntryRecord | None, draft: Draft, stamp: Stamp, *, place: EntryLocation, by: Provenance, expiry: Expiry
) -> Decided:
    """What saving ``draft`` makes of what is stored under its key; an expired or deleted entry is as good as none."""
    if isinstance(before, Entry) and (replay := saved_before(before, draft.content, stamp)) is not None:
        return Decided(None, before, replay)
    is_there = isinstance(before, Entry) and before.is_live(stamp.at)
    check_revision(before if is_there else None, stamp, key=draft.key)
    content = draft.content or ""
    if not isinstance(before, Entry):
        return _first(before, draft, stamp, place=place, by=by, expiry=expiry)
    return _changed(before, draft, stamp, op="save", content=content, by=by, expiry=expiry, renews=not is_there)


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of an entry from before it came here: times, and how often it was of use."""

    created_at: str
    updated_at: str
    expires_at: str | None = None
    successes: int = 0
    failures: int = 0
    made_of: tuple[str, ...] = ()
    provenance: Provenance | None = None


def take_in(
    before: EntryRecord | None,
    draft: Draft,
    stamp: Stamp,
    *,
    place: EntryLocation,
    by: Provenance,
    expiry: Expiry,
    past: Past,
) -> Decided:
    """What saving a draft from elsewhere makes of what is stored: as a save, with the times it had there.

    A content that is not the one of those times is as new as this change.
    """
    decided = save(before, draft, stamp, place=place, by=by, expiry=expiry)
    entry = _with_past(decided.entry, past)
    if decided.record is None:
        return decided if entry == decided.entry else _stored(entry, stamp, op="import", text=entry.text)
    is_later = isinstance(before, Entry) and before.updated_at >= past.updated_at
    updated_at = entry.updated_at if is_later else past.updated_at
    created_at = min(before.created_at if isinstance(before, Entry) else past.created_at, updated_at)
    expires_at = past.expires_at or expiry(entry.category, updated_at, None)
    text = successor(entry.text, created_at=created_at, updated_at=updated_at)
    taken = entry.amended(text=text, expires_at=expires_at)
    if past.provenance is not None:
        taken = taken.amended(provenance=past.provenance)
    return Decided(taken, taken)


def _with_past(entry: Entry, past: Past) -> Entry:
    """The entry with what adds up: how often it was of use, and what it was made of."""
    return replace(
        entry,
        successes=max(entry.successes, past.successes),
        failures=max(entry.failures, past.failures),
        made_of=tuple(dict.fromkeys((*entry.made_of, *past.made_of)))[-MAX_SOURCES:],
    )


def update(before: EntryRecord | None, draft: Draft, stamp: Stamp, *, by: Provenance, expiry: Expiry) -> Decided:
    """What an update makes of an entry, which must be there; ``EntryNotFound``."""
    entry = present(before, key=draft.key, now=stamp.at)
    if (replay := updated_before(entry, draft, stamp)) is not None:
        return Decided(None, entry, replay)
    check_revision(entry, stamp, key=draft.key)
    content = entry.content if draft.content is None else draft.content
    return _changed(entry, draft, stamp, op="update", content=content, by=by, expiry=expiry)


def move(entry: Entry, there: EntryRecord | None, stamp: Stamp, *, place: EntryLocation, expiry: Expiry) -> Decided:
    """What an entry makes of what is stored under its key in another place: all that it is, with its times."""
    names = ("tags", "category", "kind", "confidence", "importance", "pinned", "links")
    draft = Draft(entry.key, entry.content, **{name: getattr(entry, name) for name in names})
    unchecked = replace(stamp, expected_revision=None)
    saved = save(there, draft, unchecked, place=place, by=entry.provenance, expiry=expiry).entry
    text = successor(saved.text, created_at=entry.created_at, updated_at=entry.updated_at)
    moved = replace(
        saved,
        text=text,
        expires_at=entry.expires_at,
        provenance=entry.provenance,
        successes=entry.successes,
        failures=entry.failures,
        made_of=entry.made_of,
        merged=entry.merged,
    )
    return Decided(moved, moved)


def delete(before: EntryRecord | None, stamp: Stamp, *, key: str, cause: str = "") -> Decided:
    """Hide an entry, which must be there; its content is kept until it is forgotten or its place is needed."""
    if isinstance(before, Entry) and before.retired is not None and (done := called_before(before, stamp)) is not None:
        return Decided(None, before, done)
    entry = present(before, key=key, now=stamp.at)
    check_revision(entry, stamp, key=key)
    return _retired(entry, stamp, Retired("deleted", stamp.at, cause), op="delete")


def evict(entry: Entry, stamp: Stamp, *, cause: str) -> Entry:
    """Hide an entry over a budget."""
    decided = _retired(entry, stamp, Retired("evicted", stamp.at, cause), op="evict")
    assert decided.record is not None
    return decided.record


def consolidate(entry: Entry, stamp: Stamp, *, state: Literal["deleted", "evicted"], cause: str) -> Entry:
    """Hide an entry as a plan says, by whose id it can be taken back."""
    return _retired(entry, stamp, Retired(state, stamp.at, cause), op="consolidate").entry


def resaid(after: Entry, stamp: Stamp, *, op: EntryOperation) -> Entry:
    """The entry with what else is said about it now, as a change; its text and its times stay."""
    return _stored(after, stamp, op=op, text=after.text).entry


def restore(before: EntryRecord | None, stamp: Stamp, *, key: str, expiry: Expiry) -> Decided:
    """Bring a deleted or evicted entry back as it was; one that had expired is renewed."""
    if not isinstance(before, Entry):
        raise not_there(key)
    if before.is_live(stamp.at):
        return Decided(None, before)
    expires_at = before.expires_at
    if before.is_expired(stamp.at):
        expires_at = expiry(before.category, stamp.at, None)
    return _stored(before.amended(retired=None, expires_at=expires_at), stamp, op="restore", text=before.text)


def bury(record: Entry, stamp: Stamp, *, id: str, why: str, cleared: bool = False) -> Tombstone:
    """What remains of an entry that is forgotten; ``id`` is 12 random hexadecimal digits."""
    return Tombstone(
        uid=record.uid,
        agent=record.agent,
        level=record.level,
        id=id,
        revision=record.revision + 1,
        at=stamp.at,
        by=stamp.by,
        why=why,
        run=record.run,
        forgotten=record.forgotten,
        origins=record.origins,
        cleared=cleared,
    )


def present(record: EntryRecord | None, *, key: str, now: str) -> Entry:
    """The entry if it is there for those who may see it, else ``EntryNotFound``."""
    if not isinstance(record, Entry) or not record.is_live(now):
        raise not_there(key)
    return record


def not_there(key: str) -> EntryNotFound:
    """The error for a key under which there is nothing to be changed, hidden or not."""
    return EntryNotFound(f"there is no entry {ascii(key[:80])} at this session's level: list or search for its key")


def _first(
    before: Tombstone | None, draft: Draft, stamp: Stamp, *, place: EntryLocation, by: Provenance, expiry: Expiry
) -> Decided:
    """The first revision of an entry, above that of the tombstone it is saved over."""
    content = draft.content or ""
    text = new_text(place.agent, draft.key, level=place.level, run=place.run, content=content, at=stamp.at)
    revision = before.revision if before is not None else 0
    change = _change(revision + 1, stamp, op="save", size=text.size_bytes, offset=0)
    category = draft.category or place.category
    said = {"category": category, **facets_of(draft)}
    entry = Entry(
        extend(text, change),
        place.agent,
        draft.key,
        run=place.run,
        provenance=by,
        expires_at=expiry(category, stamp.at, draft.ttl),
        forgotten=passed(before) if before is not None else (),
        **said,
    )
    entry = _counted(entry, draft)
    if before is not None:
        entry = entry.amended(text=successor(entry.text, origins=before.origins))
    return Decided(entry, entry)


def _changed(
    before: Entry,
    draft: Draft,
    stamp: Stamp,
    *,
    op: EntryOperation,
    content: str,
    by: Provenance,
    expiry: Expiry,
    renews: bool = False,
) -> Decided:
    """The entry with what the draft says; ``renews``: it was not there for anyone, and lives from now on."""
    is_new_text = content != before.content
    is_other_kind = draft.kind not in (None, before.kind)
    if (is_new_text or is_other_kind) and before.kind == "episode" and not renews:
        raise ReadOnly(f"{ascii(before.key[:80])} is an episode, which never changes: save under another key")
    category = draft.category or before.category
    expires_at = before.expires_at
    if is_new_text or renews:
        is_kept = not renews and category == before.category
        ttl = _own_lifetime(before, expiry) if is_kept and draft.ttl is None else draft.ttl
        expires_at = expiry(category, stamp.at, ttl)
    elif draft.ttl is not None or category != before.category:
        expires_at = expiry(category, before.updated_at, draft.ttl)
    after = before.amended(retired=None, expires_at=expires_at, **facets_of(draft))
    if is_new_text or renews:
        after = after.amended(provenance=replace(by, ordinal=before.provenance.ordinal or by.ordinal))
    after = _counted(after, draft)
    if after == before and not is_new_text:
        return Decided(None, before)
    text = with_content(before.text, content) if is_new_text else before.text
    stored = _stored(after, stamp, op=op, text=text, renews=renews)
    return _begun_anew(stored.entry) if before.retired is not None and before.retired.is_move else stored


def _begun_anew(entry: Entry) -> Decided:
    """The entry without a past, as that of what was moved away goes when what it became is forgotten."""
    change = replace(entry.text.history[-1], old="", opaque=True)
    begun = replace(entry, text=replace(entry.text, history=(change,)))
    return Decided(begun, begun)


def _own_lifetime(entry: Entry, expiry: Expiry) -> int | None:
    """The seconds that an entry was given, in a category whose entries do not expire; None if it was given none."""
    if entry.expires_at is None or expiry(entry.category, entry.updated_at, None) is not None:
        return None
    return max(1, seconds_between(entry.updated_at, entry.expires_at))


def _retired(entry: Entry, stamp: Stamp, retired: Retired, *, op: EntryOperation) -> Decided:
    return _stored(entry.amended(retired=retired), stamp, op=op, text=entry.text)


def _stored(entry: Entry, stamp: Stamp, *, op: EntryOperation, text: Record, renews: bool = False) -> Decided:
    """The entry with ``text`` and the change that made it so; it is as new as its content."""
    before = entry.text
    splice = splice_between(before.content_bytes, text.content_bytes)
    change = _change(before.revision + 1, stamp, op=op, size=splice.bytes, offset=splice.offset, old=splice.old)
    longer = extend(text, change)
    if text.content == before.content and not renews:
        longer = successor(longer, updated_at=before.updated_at)
    stored = entry.amended(text=longer)
    return Decided(stored, stored)


def _change(revision: int, stamp: Stamp, *, op: EntryOperation, size: int, offset: int | None, old: str = "") -> Change:
    return Change(revision=revision, at=stamp.at, op=op, by=stamp.by, bytes=size, offset=offset, old=old)


def _counted(entry: Entry, draft: Draft) -> Entry:
    if draft.outcome == "success":
        return entry.amended(successes=entry.successes + 1)
    return entry.amended(failures=entry.failures + 1) if draft.outcome == "failure" else entry


def check_revision(entry: EntryRecord | None, stamp: Stamp, *, key: str) -> None:
    """Refuse a change of another revision than the caller expected; 0 for what is not there."""
    found = entry.revision if entry is not None else 0
    if stamp.expected_revision is not None and stamp.expected_revision != found:
        raise RevisionConflict(
            f"{ascii(key[:80])} is at revision {found}, not {stamp.expected_revision}: read it again and decide anew"
        )
