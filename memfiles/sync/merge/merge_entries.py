"""Merge of entries: one record from two copies of an entry or its tombstone.

The rules this file guards:

- A forgotten entry never comes back: a tombstone wins over every entry that does not name it, and an entry that names
  more tombstones is a later life of the key than one that names fewer.
- Two live copies keep everything that both writers were promised. A field that one copy changed is taken from it; of a
  field that both changed, the newer value, or all of it if it can be added up; and deleting an entry never hides a text
  that was changed without knowing of the delete.
- The result is above both revisions, so that every machine takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from memfiles.records.entry import (
    FACETS,
    FORGOTTEN_KEPT,
    MAX_ALIASES,
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
    with_ids,
)
from memfiles.records.keys import entry_place
from memfiles.records.lineage import base_revision, joined
from memfiles.records.record import Change, Record, extend, successor
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, merge, supersede
from memfiles.sync.merge.rebase import how_they_stand

Survivor = Literal["local", "remote", "both"]


def merge_entries(
    local: EntryRecord, remote: EntryRecord, *, base: EntryRecord | None = None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[EntryRecord]:
    """Merge two copies of an entry; ``base`` is the copy that the mirror last acknowledged, if known.

    ``on_conflict`` says whose text is taken if both changed it differently and the kind does not decide.
    """
    survivor = surviving_copy(local, remote)
    if survivor == "both" and isinstance(local, Entry) and isinstance(remote, Entry):
        known = base if isinstance(base, Entry) and set(base.forgotten) == set(remote.forgotten) else None
        return _two_entries(local, remote, base=known, on_conflict=on_conflict, at=at)
    if survivor == "local":
        is_outlived = isinstance(remote, Entry)
        return replace(_survived(local, local, remote, at=at), is_outlived=is_outlived)
    return replace(_survived(remote, local, remote, at=at), is_buried=isinstance(local, Entry))


def surviving_copy(local: EntryRecord, remote: EntryRecord) -> Survivor:
    """The copy that replaces the other because of a tombstone; both are merged if there is no such reason.

    | local | remote | survivor |
    |---|---|---|
    | tombstone | tombstone | the newer one |
    | tombstone | entry | the tombstone, unless the entry names it (then it was saved later) |
    | entry | entry | see ``_later_life`` |
    """
    if isinstance(local, Tombstone) and isinstance(remote, Tombstone):
        ours, theirs = ((it.revision, it.at, it.id) for it in (local, remote))
        return "local" if ours >= theirs else "remote"
    if isinstance(local, Tombstone):
        return "remote" if local.id in remote.forgotten else "local"
    if isinstance(remote, Tombstone):
        return "local" if remote.id in local.forgotten else "remote"
    return _later_life(local, remote)


def _later_life(local: Entry, remote: Entry) -> Survivor:
    """The entry that was saved after the other had been forgotten.

    | tombstones named | survivor |
    |---|---|
    | the same | both |
    | one names all of the other's, and more | that one |
    | each names some that the other does not, no list is full | both: forgotten and saved again on two machines |
    | the same, a list is full and has lost its first names | the one with the full list, else the newer |
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


def _survived(wanted: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> MergeResult[EntryRecord]:
    """One of the two copies, unchanged if every machine will take it so, else above both revisions."""
    record = _united(wanted, remote if wanted is local else local)
    if record == remote and (record == local or remote.revision > local.revision):
        return MergeResult(remote, is_news=False)
    if record == local and local.revision > remote.revision:
        return MergeResult(local)
    return MergeResult(_raised(record, local, remote, at=at))


def _united(wanted: EntryRecord, other: EntryRecord) -> EntryRecord:
    """The record with the other's tombstones named before its own; the same record if it names them all."""
    if isinstance(wanted, Tombstone):
        wanted = _following(wanted, other)
    own = passed(wanted) if isinstance(wanted, Tombstone) else wanted.forgotten
    named = passed(other) if isinstance(other, Tombstone) else other.forgotten
    missing = [each for each in named if each not in own]
    if not missing:
        return wanted
    return replace(wanted, forgotten=(*missing, *wanted.forgotten)[-FORGOTTEN_KEPT:])


def _following(tombstone: Tombstone, other: EntryRecord) -> Tombstone:
    """The tombstone with the place that the other copy was moved to, if the tombstone was made without knowing."""
    moved = other.moved if isinstance(other, Tombstone) else ()
    if isinstance(other, Entry) and other.retired is not None and other.retired.is_move:
        is_known = _knows(tombstone, other)
        moved = () if is_known or entry_place(other.retired.target) is None else (other.retired.target,)
    missing = [path for path in moved if path not in tombstone.moved]
    return replace(tombstone, moved=(*missing, *tombstone.moved)[-MAX_MOVED:]) if missing else tombstone


def _knows(tombstone: Tombstone, entry: Entry) -> bool:
    """Whether the tombstone was made from this very version; a change made without a mirror cannot be attributed."""
    made = entry.origins
    return entry.revision in made.values() and all(tombstone.origins.get(origin, 0) >= made[origin] for origin in made)


def _raised(record: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> EntryRecord:
    """The record above both revisions, with both version vectors."""
    revision = max(local.revision, remote.revision) + 1
    known = joined(local, remote)
    if isinstance(record, Tombstone):
        return replace(record, revision=revision).with_origins(known)
    text = extend(record.text, Change(revision=revision, at=at, op="merge"))
    return replace(record, text=successor(text, updated_at=record.updated_at)).with_origins(known)


def _two_entries(
    local: Entry, remote: Entry, *, base: Entry | None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[EntryRecord]:
    """Merge two live or retired entries of the same life of a key."""
    standing = how_they_stand(local.text, remote.text)
    if set(local.forgotten) == set(remote.forgotten):
        if standing == "behind" or local == remote:
            return _survived(remote, local, remote, at=at)
        if standing == "ahead":
            return _survived(local, local, remote, at=at)
    if len({*local.ids, *remote.ids}) > MAX_ALIASES + 1:
        wanted, other = (local, remote) if on_conflict == "local" else (remote, local)
        return MergeResult(_raised(wanted, local, remote, at=at), other, f"more than {MAX_ALIASES} aliases")
    pair = EntryPair(local, remote, _exact(base, local, remote), is_content_known=base is not None)
    fields = merged_fields(pair, kept=FORGOTTEN_KEPT)
    merged = _texts(
        local.text, remote.text, base=base.text if base else None, kind=fields.kind, policy=on_conflict, at=at
    )
    loser = None if merged.loser is None else remote if merged.loser is remote.text else local
    source = _source_of(merged.record, local, remote)
    record: EntryRecord = replace(
        fields,
        text=successor(merged.record, updated_at=source.updated_at),
        provenance=source.provenance,
        expires_at=_expiry(pair, source),
    )
    if record.revision <= max(local.revision, remote.revision):  # the texts are one, what is said of them is not
        record = _raised(record, local, remote, at=at)
    return MergeResult(record, loser, merged.note)


def _exact(base: Entry | None, local: Entry, remote: Entry) -> Entry | None:
    """The base if the two diverged at exactly this version: only then do its counts tell who added what."""
    if base is None or not (local.origins and remote.origins):
        return None
    parted = {base_revision(local.text, remote.text), base_revision(remote.text, local.text)}
    return base if parted == {base.revision} else None


def _texts(
    local: Record, remote: Record, *, base: Record | None, kind: str, policy: ConflictPolicy, at: str
) -> MergeResult[Record]:
    """The texts merged by kind: the newest of facts, the first of episodes, both of all others."""
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
    """The copy whose content was taken; if both were, the one that changed last."""
    later, earlier = sorted((local, remote), key=lambda it: (it.updated_at, it.text.sha256), reverse=True)
    return earlier if text.content == earlier.content != later.content else later


def _expiry(pair: EntryPair, source: Entry) -> str | None:
    """When the merged content expires; if both copies have it, as the newer change says."""
    if pair.local.content != pair.remote.content or pair.local.updated_at != pair.remote.updated_at:
        return source.expires_at
    expires_at: str | None = pair.newer_of("expires_at")
    return expires_at


_SINGLE = tuple(name for name, kept_as in FACETS if kept_as is not tuple)


@dataclass(frozen=True, slots=True)
class EntryPair:
    """Two copies and their merge base, if it is known exactly.

    ``is_content_known``: at least some earlier version is known.
    """

    local: Entry
    remote: Entry
    base: Entry | None
    is_content_known: bool = False

    @property
    def newer(self) -> Entry:
        """The copy that was changed last, in any way; the same on every machine."""
        return max(
            self.local, self.remote, key=lambda it: (_changed_at(it), it.revision, it.text.sha256, repr(it.tags))
        )

    def newer_of(self, name: str) -> Any:
        """One field: from the copy that alone changed it, else from the one that was changed last."""
        here, there = getattr(self.local, name), getattr(self.remote, name)
        if self.base is not None:
            before = getattr(self.base, name)
            if here == before:
                return there
            if there == before:
                return here
        return getattr(self.newer, name)


def merged_fields(pair: EntryPair, *, kept: int) -> Entry:
    """An entry with the merged fields of both; text, provenance and expiry are still those of the remote copy.

    At most ``kept`` tombstones are named.
    """
    local, remote = pair.local, pair.remote
    missing = tuple(each for each in local.forgotten if each not in remote.forgotten)
    single: dict[str, Any] = {name: pair.newer_of(name) for name in _SINGLE}
    merged = replace(
        remote,
        **single,
        tags=_labels(pair, "tags", most=MAX_TAGS),
        links=_labels(pair, "links", most=MAX_LINKS),
        successes=_count(pair, "successes"),
        failures=_count(pair, "failures"),
        retired=_retired(pair),
        forgotten=(*missing, *remote.forgotten)[-kept:],
        made_of=tuple(dict.fromkeys((*remote.made_of, *local.made_of)))[-MAX_SOURCES:],
        merged=_merged(pair),
        reorganised=pair.newer_of("reorganised"),
    )
    return with_ids(merged, {*local.ids, *remote.ids})


def _merged(pair: EntryPair) -> tuple[Merged, ...]:
    """The entries merged into either copy; for one that both know, the newer's version."""
    known = {each.uid: each for copy in (pair.remote, pair.local, pair.newer) for each in copy.merged}
    return tuple(known.values())[-MAX_SOURCES:]


def _labels(pair: EntryPair, name: str, *, most: int) -> tuple[str, ...]:
    """The labels of both, without those of the base that one of them removed."""
    here, there = getattr(pair.local, name), getattr(pair.remote, name)
    before = getattr(pair.base, name) if pair.base is not None else ()
    gone = {label for label in before if label not in here or label not in there}
    return tuple(dict.fromkeys(label for label in (*there, *here) if label not in gone))[:most]


def _count(pair: EntryPair, name: str) -> int:
    """The count of the base plus what each side added; the higher count if the base is not known."""
    here, there = getattr(pair.local, name), getattr(pair.remote, name)
    if pair.base is None:
        return int(max(here, there))
    return int(max(0, here + there - getattr(pair.base, name)))


def _retired(pair: EntryPair) -> Retired | None:
    """Whether it is retired: a text changed meanwhile stays visible, else the newer of retiring and restoring."""
    local, remote = pair.local, pair.remote
    if local.retired is not None and remote.retired is not None:
        return max(local.retired, remote.retired, key=lambda it: (it.at, it.state, it.cause))
    shown, hidden = (local, remote) if local.retired is None else (remote, local)
    if hidden.retired is None:
        return None
    before = pair.base.content if pair.base is not None else hidden.content
    if shown.content != before:
        return None
    if pair.base is not None and pair.base.retired == hidden.retired:
        return None  # only the other copy changed it: it was brought back
    if pair.base is not None and pair.base.retired is None and _is_same_life(pair.base, shown):
        return hidden.retired
    return hidden.retired if hidden.retired.at >= _changed_at(shown) else None


def _is_same_life(base: Entry, shown: Entry) -> bool:
    """Whether the visible copy was never retired and restored since the base."""
    later = [change for change in shown.text.history if change.revision > base.revision]
    return not any(change.op == "restore" for change in later)


def _changed_at(entry: Entry) -> str:
    return entry.text.history[-1].at if entry.text.history else entry.updated_at
