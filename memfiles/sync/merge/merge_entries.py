"""Merging of entries: one out of two copies of an entry, or of what remains of it.

The rules this file guards: what was forgotten never comes back, so that a tombstone beats every entry that does not
name it, and an entry that names more of them is no copy of one that names fewer; of two live copies everything stays
that both writers were promised; and what is decided stands above both revisions, so that every machine takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from memfiles.records.entry import (
    FORGOTTEN_KEPT,
    MAX_LINKS,
    MAX_MOVED,
    MAX_SOURCES,
    MAX_TAGS,
    Entry,
    EntryRecord,
    Merged,
    Retired,
    Tombstone,
    passed,
)
from memfiles.records.history import extend
from memfiles.records.keys import entry_place
from memfiles.records.lineage import base_revision, joined
from memfiles.records.record import Change, Record, successor
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, merge, supersede
from memfiles.sync.merge.rebase import how_they_stand

Survivor = Literal["local", "remote", "both"]


def merge_entries(
    local: EntryRecord, remote: EntryRecord, *, base: EntryRecord | None = None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[EntryRecord]:
    """Bring two copies of an entry together; ``base`` is what the mirror last acknowledged, if that is known.

    ``on_conflict`` says whose text stands where both changed it differently and the kind does not say.
    """
    stands = surviving_copy(local, remote)
    if stands == "both" and isinstance(local, Entry) and isinstance(remote, Entry):
        known = base if isinstance(base, Entry) and set(base.forgotten) == set(remote.forgotten) else None
        return _two_entries(local, remote, base=known, on_conflict=on_conflict, at=at)
    if stands == "local":
        is_outlived = isinstance(remote, Entry)
        return replace(_standing(local, local, remote, at=at), is_outlived=is_outlived)
    return replace(_standing(remote, local, remote, at=at), is_buried=isinstance(local, Entry))


def surviving_copy(local: EntryRecord, remote: EntryRecord) -> Survivor:
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


def _standing(wanted: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> MergeResult[EntryRecord]:
    """One of the two copies, as it is where every machine will take it, else above both revisions."""
    record = _united(wanted, remote if wanted is local else local)
    if record == remote and (record == local or remote.revision > local.revision):
        return MergeResult(remote, is_news=False)
    if record == local and local.revision > remote.revision:
        return MergeResult(local)
    return MergeResult(_raised(record, local, remote, at=at))


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
) -> MergeResult[EntryRecord]:
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
    return MergeResult(record, loser, merged.note)


def _exact(base: Entry | None, local: Entry, remote: Entry) -> Entry | None:
    """The base if it is the very version at which the two parted: only then do its counts tell who added what."""
    if base is None or not (local.origins and remote.origins):
        return None
    parted = {base_revision(local.text, remote.text), base_revision(remote.text, local.text)}
    return base if parted == {base.revision} else None


def _texts(
    local: Record, remote: Record, *, base: Record | None, kind: str, policy: ConflictPolicy, at: str
) -> MergeResult[Record]:
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
