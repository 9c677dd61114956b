"""Merge of entries: one record from two copies of an entry or its tombstone.

The rules this file guards:

- A forgotten entry never comes back, and one that moved is never merged with what has its key now. An entry is known by
  its ids, not by the path where a copy of it is met.
- Two live copies keep everything that both writers were promised. A field that one copy changed is taken from it; of a
  field that both changed, the newer value, or all of it if it can be added up; and deleting an entry never hides a text
  that was changed without knowing of the delete.
- The result is above both revisions, so that every machine takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from msgspec.structs import replace

from memfiles.records.entry import (
    FACETS,
    FORGOTTEN_KEPT,
    MAX_ALIASES,
    MAX_LINKS,
    MAX_SOURCES,
    MAX_TAGS,
    Entry,
    Merged,
    Retired,
    departing,
    united_authors,
    with_ids,
)
from memfiles.records.keys import uid_at
from memfiles.records.lineage import all_origins, are_among, base_revision, changes_here, common_revision, later_changes
from memfiles.records.marks import MAX_LEFT, MAX_MOVED, EntryRecord, Mark, buries, tombstones_in, vacated
from memfiles.records.record import Change, Record, extend, successor
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, merge, supersede
from memfiles.sync.merge.rebase import relation_by_history

MarksById = Mapping[str, Mark]
"""The tombstones and locations that are known here, by the ids of their entries."""

Fate = Literal["here", "elsewhere", "forgotten"]
_EPISODES = "two machines saved an episode under this key, and episodes are not merged: the earlier one stays"


def merge_entries(
    local: EntryRecord,
    remote: EntryRecord,
    *,
    base: EntryRecord | None = None,
    on_conflict: ConflictPolicy,
    at: str,
    known: MarksById | None = None,
) -> MergeResult[EntryRecord]:
    """Merge two copies of the record at a path; ``base`` is the copy that the mirror last acknowledged, if known.

    ``on_conflict`` says whose text is taken if both changed it differently and the kind does not decide. ``known`` is
    what is known of the entries of both.

    | copies | the record |
    |---|---|
    | an entry that was forgotten, or is elsewhere now | the other copy, or a mark |
    | two entries of one id, or of two that are both here | both merged; their ids are joined |
    | a mark, and an entry that is here | the entry, unless whoever made the mark knew this version of it |
    | two marks | a tombstone, else the later one; it includes the other |

    A cleared mark is later only than marks that it includes. Like a tombstone, it leaves nothing of what it replaces.
    """
    known = known or {}
    ours, theirs = fate(local, remote, known), fate(remote, local, known)
    if isinstance(local, Entry) and isinstance(remote, Entry) and ours == theirs == "here":
        base = base if isinstance(base, Entry) and is_same(base, local) and is_same(base, remote) else None
        return _two_entries(local, remote, base=base, on_conflict=on_conflict, at=at)
    forgets_remote, forgets_local = theirs == "forgotten", ours == "forgotten"
    if isinstance(local, Mark) and isinstance(remote, Mark):
        record: EntryRecord = (mark := _two_marks(local, remote))
        forgets_local = mark.type == "tombstone" != local.type
    elif isinstance(local, Entry) and ours == "here":
        record = _heir(local, remote)
    elif isinstance(remote, Entry) and theirs == "here":
        record = _heir(remote, local)
    else:
        record = _mark_of(local, remote, at=at)
    forgets_local = forgets_local or (ours == "elsewhere" and _is_nowhere(local, known))
    forgets_remote = forgets_remote or (theirs == "elsewhere" and _is_nowhere(remote, known))
    if isinstance(record, Mark) and record.cleared:
        forgets_local = forgets_local or not isinstance(local, Mark) or local.leads
        forgets_remote = forgets_remote or not isinstance(remote, Mark) or remote.leads
    return replace(_survived(record, local, remote, at=at), forgets_remote=forgets_remote, forgets_local=forgets_local)


def fate(record: EntryRecord, other: EntryRecord | None, known: MarksById) -> Fate:
    """Whether the entry of this copy is at its path, elsewhere or forgotten; ``other`` is the other copy there."""
    if not isinstance(record, Entry):
        return "here"
    tombstones = [mark for id in record.mortal_ids if (mark := known.get(id)) is not None and mark.type == "tombstone"]
    if tombstones or (other is not None and buries(other, record)):
        return "forgotten"
    if other is not None and (is_same(record, other) or includes(other, record)):
        return "here" if is_same(record, other) else "elsewhere"
    return "here" if place_of(record, known) is None else "elsewhere"


def place_of(entry: Entry, known: MarksById) -> Mark | None:
    """The latest location of an entry that is not where this copy of it is; None if it is here, or nothing is known."""
    found = [mark for id in entry.ids if (mark := known.get(id)) is not None and mark.leads]
    latest = max(found, key=lambda mark: (mark.at, mark.target), default=None)
    return None if latest is None or entry.run or latest.target == entry.path else latest


def _is_nowhere(record: EntryRecord, known: MarksById) -> bool:
    """Whether the other copy was made after this entry, which has no other place: it was erased for its age."""
    return isinstance(record, Entry) and place_of(record, known) is None


def includes(other: EntryRecord, entry: EntryRecord) -> bool:
    """Whether the other record was made with knowledge of this version; False for a version without origins."""
    made = entry.origins
    is_known = entry.revision in made.values() and all(other.origins.get(origin, 0) >= made[origin] for origin in made)
    return is_known and not (isinstance(entry, Entry) and _was_another_here(other, entry))


def _was_another_here(other: EntryRecord, entry: Entry) -> bool:
    """Whether the other record shows that the directory which made this version had another entry at the path.

    This happens when two machines start from copies of one directory and both keep its id.
    """
    if isinstance(other, Mark):  # made from the version before, in the same directory
        began = other.revision - 1 if other.left and {*other.left}.isdisjoint(entry.ids) else None
    else:
        changes = changes_here(other.text)
        began = changes[0].revision if changes and not is_same(entry, other) else None
    if began is None or began > entry.revision:
        return False
    makers = {origin for origin, revision in entry.origins.items() if revision == entry.revision}
    return all(revision < began for origin, revision in other.origins.items() if origin not in makers)


def is_same(one: EntryRecord, other: EntryRecord) -> bool:
    """Whether these are copies of one entry."""
    return isinstance(one, Entry) and isinstance(other, Entry) and not {*one.ids}.isdisjoint(other.ids)


def _heir(entry: Entry, other: EntryRecord) -> Entry:
    """The entry with the tombstones of format 1 that the other record names."""
    missing = [each for each in tombstones_in(other) if each not in entry.forgotten]
    if not missing:
        return entry
    forgotten = (*missing, *entry.forgotten)[-FORGOTTEN_KEPT:]
    return with_ids(replace(entry, forgotten=forgotten), entry.ids)


def _two_marks(local: Mark, remote: Mark) -> Mark:
    """The mark to keep of two at a path, with the facts of both: a tombstone, else the later, else the smaller path."""

    def by_place(pair: tuple[Mark, Mark]) -> tuple[str, int, str]:
        return pair[0].target if pair[0].key else "", -pair[0].revision, repr(pair[0])

    def rank(pair: tuple[Mark, Mark]) -> tuple[bool, bool, bool, str]:
        mark, other = pair
        is_later = includes(mark, other)  # clocks tell only if neither includes the other
        yields = mark.cleared and not other.cleared and not is_later
        return mark.type == "tombstone" and mark.id not in other.forgotten, not yields, is_later, mark.at

    pairs = sorted(((local, remote), (remote, local)), key=by_place)
    wanted, other = max(pairs, key=rank)
    if wanted.is_of_id or wanted == other:
        return wanted
    missing = [each for each in tombstones_in(other) if each not in tombstones_in(wanted)]
    is_known = includes(wanted, other)  # whoever forgot it knew where it went, and meant this place alone
    moved = wanted.moved if is_known else tuple(dict.fromkeys((*other.moved, *wanted.moved)))[-MAX_MOVED:]
    left = tuple(sorted({*wanted.left, *other.left}))[:MAX_LEFT] if wanted.type == "vacated" else ()
    forgotten = (*missing, *wanted.forgotten)[-FORGOTTEN_KEPT:]
    return replace(wanted, moved=moved, left=left, forgotten=forgotten)


def _mark_of(local: EntryRecord, remote: EntryRecord, *, at: str) -> EntryRecord:
    """The mark in place of two copies none of which is here: the one of the two that is a mark, or a new one."""
    if not (isinstance(local, Entry) and isinstance(remote, Entry)):
        return remote if isinstance(local, Entry) else local
    left = tuple(sorted({*local.ids, *remote.ids}))
    return replace(vacated(_heir(local, remote), at), left=left[:MAX_LEFT])


def merged_at_place(
    copy: Entry, there: EntryRecord | None, place: Mark, *, on_conflict: ConflictPolicy, at: str, known: MarksById
) -> MergeResult[EntryRecord]:
    """The record at the ``place`` of an entry, from the one that is ``there`` and a copy that was elsewhere."""
    left = departing(copy, folder=place.entry_folder, key=place.key)
    text = successor(left, uid=uid_at(place.target), level=place.level, origins={})  # they tell of its former path
    moved = with_ids(replace(copy, text=text, agent=place.agent, key=place.key, run="", forgotten=()), copy.ids)
    if there is None:
        return MergeResult(moved)
    if isinstance(there, Mark) and {*there.left}.isdisjoint(copy.ids):  # version vectors of two paths tell nothing
        return _survived(_heir(moved, there), there, moved, at=at)
    if isinstance(there, Entry) and not is_same(there, moved) and fate(there, moved, known) != "forgotten":
        return _two_entries(there, moved, base=None, on_conflict=on_conflict, at=at)
    return merge_entries(there, moved, on_conflict=on_conflict, at=at, known=known)


def _survived(record: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> MergeResult[EntryRecord]:
    """The result for a record, unchanged if every machine will take it so, else above both revisions."""
    if record == remote and (record == local or remote.revision > local.revision):
        return MergeResult(remote, is_news=False)
    if record == local and local.revision > remote.revision:
        return MergeResult(local)
    return MergeResult(_raised(record, local, remote, at=at))


def _raised(record: EntryRecord, local: EntryRecord, remote: EntryRecord, *, at: str) -> EntryRecord:
    """The record above both revisions, with both version vectors."""
    revision = max(local.revision, remote.revision) + 1
    known = all_origins(local, remote)
    if isinstance(record, Mark):
        return replace(record, revision=revision).with_origins(known)
    text = extend(record.text, Change(revision=revision, at=at, op="merge"))
    return replace(record, text=successor(text, updated_at=record.updated_at)).with_origins(known)


def _two_entries(
    local: Entry, remote: Entry, *, base: Entry | None, on_conflict: ConflictPolicy, at: str
) -> MergeResult[EntryRecord]:
    """Merge two live or retired entries; two saves of one key are joined."""
    texts = _comparable(local, remote)
    standing = relation_by_history(*texts)
    if is_same(local, remote) and set(local.forgotten) == set(remote.forgotten):
        here, there = _has_every_change_of(local, remote), _has_every_change_of(remote, local)
        if standing == "behind" or local == remote or (there and not here):
            return _survived(remote, local, remote, at=at)
        if standing == "ahead" or (here and not there):
            return _survived(local, local, remote, at=at)
    if len({*local.ids, *remote.ids}) > MAX_ALIASES + 1:
        wanted, other = (local, remote) if on_conflict == "local" else (remote, local)
        lost: ConflictPolicy = "remote" if other is remote else "local"
        return MergeResult(_raised(wanted, local, remote, at=at), other, lost, f"more than {MAX_ALIASES} aliases")
    pair = EntryPair(local, remote, _exact(base, local, remote))
    fields = merged_fields(pair)
    merged = _texts(*texts, base=base.text if base else None, kind=fields.kind, policy=on_conflict, at=at)
    owner = {"local": local, "remote": remote, None: None}[merged.lost]
    loser = replace(owner, text=merged.loser.with_origins(owner.text.origins)) if owner and merged.loser else None
    source = _source_of(merged.record, local, remote)
    record: EntryRecord = replace(
        fields,
        text=successor(merged.record, updated_at=source.updated_at),
        provenance=source.provenance,
        expires_at=_expiry(pair, source),
    )
    record = record.with_origins(all_origins(local, remote))
    if record.revision <= max(local.revision, remote.revision):  # the texts are one, what is said of them is not
        record = _raised(record, local, remote, at=at)
    return MergeResult(record, loser, merged.lost, merged.note)


def _has_every_change_of(entry: Entry, other: Entry) -> bool:
    """Whether the history of an entry has every change of the other one, apart from moves by a sync.

    The version vectors of two paths have nothing in common, so they do not tell.
    """
    here, there = later_changes(entry.text, other.text)
    made = [each for each in there if (change := each[0]).op != "merge" or change.bytes or change.old]
    return bool(made) and are_among(made, here) and {*other.ids} <= {*entry.ids}


def _comparable(local: Entry, remote: Entry) -> tuple[Record, Record]:
    """The texts of both, without version vectors if these tell of other entries that the path had before."""
    one, other = local.text, remote.text
    parted = min(base_revision(one, other), base_revision(other, one))
    if is_same(local, remote) and common_revision(one, other) <= parted:
        return one, other
    return one.with_origins({}), other.with_origins({})


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
        return replace(merged, loser=None, lost=None)
    return replace(merged, note=_EPISODES)


def _source_of(text: Record, local: Entry, remote: Entry) -> Entry:
    """The copy whose content was taken; if both were, the one that changed last."""
    later, earlier = sorted((local, remote), key=lambda it: (it.updated_at, it.text.sha256), reverse=True)
    return earlier if text.content == earlier.content != later.content else later


def _expiry(pair: EntryPair, source: Entry) -> str | None:
    """When the merged content expires; if both copies have it, as the newer change says."""
    if pair.local.content != pair.remote.content or pair.local.updated_at != pair.remote.updated_at:
        return source.expires_at
    return cast("str | None", pair.newer_of("expires_at"))


_SINGLE = tuple(name for name, kept_as in FACETS if kept_as is not tuple)


@dataclass(frozen=True, slots=True)
class EntryPair:
    """Two copies and their merge base, if it is known exactly."""

    local: Entry
    remote: Entry
    base: Entry | None

    @property
    def newer(self) -> Entry:
        """The copy that was changed last, in any way; the same on every machine."""

        def rank(entry: Entry) -> tuple[str, int, str, str]:
            return _changed_at(entry), entry.revision, entry.text.sha256, repr([getattr(entry, it) for it, _ in FACETS])

        return max(self.local, self.remote, key=rank)

    def newer_of(self, name: str) -> Any:
        """A field from the copy that alone changed it, else from the one that was changed last."""
        here, there = getattr(self.local, name), getattr(self.remote, name)
        if self.base is not None:
            before = getattr(self.base, name)
            if here == before:
                return there
            if there == before:
                return here
        return getattr(self.newer, name)


def merged_fields(pair: EntryPair) -> Entry:
    """An entry with the merged fields of both; text, provenance and expiry are still those of the remote copy."""
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
        forgotten=(*missing, *remote.forgotten)[-FORGOTTEN_KEPT:],
        made_of=tuple(dict.fromkeys((*remote.made_of, *local.made_of)))[-MAX_SOURCES:],
        merged=_merged(pair),
        authors=united_authors((local, remote)),
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
    if pair.base is not None and pair.base.retired is None:
        since = [change.op for change in shown.text.history if change.revision > pair.base.revision]
        if "restore" not in since:  # else the visible copy was retired as well, and restored
            return hidden.retired
    return hidden.retired if hidden.retired.at >= _changed_at(shown) else None


def _changed_at(entry: Entry) -> str:
    return entry.text.history[-1].at if entry.text.history else entry.updated_at
