"""Merging of entries: one out of two copies of an entry, or of what remains of it.

The rules this file guards: what was forgotten never comes back, so that a tombstone beats every entry that does not
name it, and an entry that names more of them is no copy of one that names fewer; of two live copies everything stays
that both writers were promised; and what is decided stands above both revisions, so that every machine takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from memfiles.records.entry import FORGOTTEN_KEPT, MAX_MOVED, Entry, EntryRecord, Tombstone, passed
from memfiles.records.history import extend
from memfiles.records.keys import entry_place
from memfiles.records.lineage import base_revision, joined
from memfiles.records.record import Change, Record, successor
from memfiles.sync.merge.merge_base import how_they_stand
from memfiles.sync.merge.merge_fields import EntryPair, merged_facets
from memfiles.sync.merge.merge_files import ConflictPolicy, MergedFile, merge, supersede

Survivor = Literal["local", "remote", "both"]


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """The record that knows both copies; the one whose content lost, whole; what else is to be told.

    ``is_news``: the mirror lacks something of it. ``is_outlived``: what the remote copy holds was forgotten, and no
    copy of it may be kept anywhere. ``is_buried``: so was what the local copy held.
    """

    record: EntryRecord
    loser: Entry | None = None
    note: str | None = None
    is_news: bool = True
    is_outlived: bool = False
    is_buried: bool = False


def merge_entries(
    local: EntryRecord, remote: EntryRecord, *, base: EntryRecord | None = None, on_conflict: ConflictPolicy, at: str
) -> MergedEntry:
    """Bring two copies of an entry together; ``base`` is what the mirror last acknowledged, if that is known.

    ``on_conflict`` says whose text stands where both changed it differently and the kind does not say.
    """
    stands = which_stands(local, remote)
    if stands == "both" and isinstance(local, Entry) and isinstance(remote, Entry):
        known = base if isinstance(base, Entry) and set(base.forgotten) == set(remote.forgotten) else None
        return _two_entries(local, remote, base=known, on_conflict=on_conflict, at=at)
    if stands == "local":
        is_outlived = isinstance(remote, Entry)
        return replace(_standing(local, local, remote, at=at), is_outlived=is_outlived)
    return replace(_standing(remote, local, remote, at=at), is_buried=isinstance(local, Entry))


def which_stands(local: EntryRecord, remote: EntryRecord) -> Survivor:
    """Which of two copies stands alone, because of what was forgotten; both do if nothing that one has was."""
    if isinstance(local, Tombstone) and isinstance(remote, Tombstone):
        return "local" if _rank(local) >= _rank(remote) else "remote"
    if isinstance(local, Tombstone) or isinstance(remote, Tombstone):
        local_ids, remote_ids = _ids(local), _ids(remote)
        is_local = isinstance(local, Tombstone)
        tombstone = local if isinstance(local, Tombstone) else remote
        assert isinstance(tombstone, Tombstone)
        is_passed = tombstone.id in (remote_ids if is_local else local_ids)
        return "local" if is_local != is_passed else "remote"
    return _later_life(local, remote)


def without_origins(record: EntryRecord) -> EntryRecord:
    """The record as one that does not say whose changes it includes."""
    return record.with_origins({})


def _rank(tombstone: Tombstone) -> tuple[int, str, str]:
    return (tombstone.revision, tombstone.at, tombstone.id)


def _ids(record: EntryRecord) -> set[str]:
    """The tombstones that a record has behind it, itself included."""
    return set(passed(record) if isinstance(record, Tombstone) else record.forgotten)


def _later_life(local: Entry, remote: Entry) -> Survivor:
    """Which of two entries was saved after the other had been forgotten.

    Each may name one that the other does not: two were forgotten apart, and saved again apart, so that neither has
    anything of what the other's tombstone stands for. A full list has lost its first names and counts as the longer.
    """
    here, there = set(local.forgotten), set(remote.forgotten)
    if here == there:
        return "both"
    if here < there:
        return "remote"
    if there < here:
        return "local"
    full_here, full_there = len(here) >= FORGOTTEN_KEPT, len(there) >= FORGOTTEN_KEPT
    if not full_here and not full_there:
        return "both"
    ours, theirs = (
        (is_full, it.revision, it.text.sha256) for is_full, it in ((full_here, local), (full_there, remote))
    )
    return "local" if ours >= theirs else "remote"


def _standing(wanted: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> MergedEntry:
    """One of the two copies, as it is where every machine will take it, else above both revisions."""
    record = _united(wanted, remote if wanted is local else local)
    if record == remote and (record == local or remote.revision > local.revision):
        return MergedEntry(remote, is_news=False)
    if record == local and local.revision > remote.revision:
        return MergedEntry(local)
    return MergedEntry(_raised(record, local, remote, at=at))


def _united(wanted: EntryRecord, other: EntryRecord) -> EntryRecord:
    """The record with the names of the other's tombstones before its own; itself if it has them all."""
    if isinstance(wanted, Tombstone):
        wanted = _following(wanted, other)
    own = passed(wanted) if isinstance(wanted, Tombstone) else wanted.forgotten
    named = passed(other) if isinstance(other, Tombstone) else other.forgotten
    missing = [each for each in named if each not in own]
    if not missing:
        return wanted
    return replace(wanted, forgotten=(*missing, *wanted.forgotten)[-FORGOTTEN_KEPT:])


def _following(tombstone: Tombstone, other: EntryRecord) -> Tombstone:
    """The tombstone with where the other copy says that it went, if whoever forgot it did not know of that."""
    moved = other.moved if isinstance(other, Tombstone) else ()
    if isinstance(other, Entry) and other.retired is not None and other.retired.is_move:
        is_known = _knows(tombstone, other)
        moved = () if is_known or entry_place(other.retired.target) is None else (other.retired.target,)
    missing = [path for path in moved if path not in tombstone.moved]
    return replace(tombstone, moved=(*missing, *tombstone.moved)[-MAX_MOVED:]) if missing else tombstone


def _knows(tombstone: Tombstone, entry: Entry) -> bool:
    """Whether who forgot it had this very version; what was changed without a mirror does not say by whom."""
    made = entry.origins
    return entry.revision in made.values() and all(tombstone.origins.get(origin, 0) >= made[origin] for origin in made)


def _raised(record: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> EntryRecord:
    """The record above both revisions, which knows of both."""
    revision = max(local.revision, remote.revision) + 1
    known = joined(local, remote)
    if isinstance(record, Tombstone):
        return replace(record, revision=revision).with_origins(known)
    text = extend(record.text, Change(revision=revision, at=at, op="merge"))
    return replace(record, text=successor(text, updated_at=record.updated_at)).with_origins(known)


def _two_entries(
    local: Entry, remote: Entry, *, base: Entry | None, on_conflict: ConflictPolicy, at: str
) -> MergedEntry:
    """Two live or retired entries, neither of which holds what the other outlived."""
    stand = how_they_stand(local.text, remote.text)
    if set(local.forgotten) == set(remote.forgotten):
        if stand == "behind" or local == remote:
            return _standing(remote, local, remote, at=at)
        if stand == "ahead":
            return _standing(local, local, remote, at=at)
    told = EntryPair(local, remote, _exact(base, local, remote), is_content_known=base is not None)
    facets = merged_facets(told, kept=FORGOTTEN_KEPT)
    merged = _texts(
        local.text, remote.text, base=base.text if base else None, kind=facets.kind, policy=on_conflict, at=at
    )
    loser = None if merged.loser is None else remote if merged.loser is remote.text else local
    source = _source_of(merged.record, local, remote)
    record: EntryRecord = replace(
        facets,
        text=successor(merged.record, updated_at=source.updated_at),
        provenance=source.provenance,
        expires_at=_expiry(told, source),
    )
    if record.revision <= max(local.revision, remote.revision):  # the texts are one, what is said of them is not
        record = _raised(record, local, remote, at=at)
    return MergedEntry(record, loser, merged.note)


def _exact(base: Entry | None, local: Entry, remote: Entry) -> Entry | None:
    """The base if it is the very version at which the two parted: only then do its counts tell who added what."""
    if base is None or not (local.origins and remote.origins):
        return None
    parted = {base_revision(local.text, remote.text), base_revision(remote.text, local.text)}
    return base if parted == {base.revision} else None


def _texts(
    local: Record, remote: Record, *, base: Record | None, kind: str, policy: ConflictPolicy, at: str
) -> MergedFile:
    """The two texts as their kind wants it: of facts the newest, of episodes the first, of all else both."""
    if kind not in ("fact", "episode"):
        return merge(local, remote, base=base, on_conflict=policy, at=at)
    if kind == "fact":
        is_ours = (local.updated_at, local.sha256) >= (remote.updated_at, remote.sha256)
    else:
        is_ours = (local.created_at, local.sha256) <= (remote.created_at, remote.sha256)
    merged = supersede(local, remote, base=base, winner="local" if is_ours else "remote", at=at)
    if kind == "fact" or local.content == remote.content:
        return merged
    return replace(merged, loser=remote if is_ours else local)


def _source_of(text: Record, local: Entry, remote: Entry) -> Entry:
    """The copy whose content stands; of two that stand together the one that changed last."""
    later, earlier = sorted((local, remote), key=lambda it: (it.updated_at, it.text.sha256), reverse=True)
    return earlier if text.content == earlier.content != later.content else later


def _expiry(told: EntryPair, source: Entry) -> str | None:
    """When the content that stands expires; where both have the same one, as the newer change says."""
    if told.local.content != told.remote.content or told.local.updated_at != told.remote.updated_at:
        return source.expires_at
    expires_at: str | None = told.newer_of("expires_at")
    return expires_at
