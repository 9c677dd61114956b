"""Marks: what remains of entries that were forgotten or moved. Pure data; see ``entry_codec`` for JSON.

The rule this file guards: a mark contains nothing of a forgotten entry.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from memfiles.records import cached_property
from memfiles.records.entry import FORGOTTEN_KEPT, MAX_WHY_BYTES, Entry, EntryId, TombstoneId, earlier_lives
from memfiles.records.history import has_lost
from memfiles.records.keys import (
    ENTRY_PATH_PATTERN,
    ENTRY_UID_PATTERN,
    IDS,
    WORKSPACE,
    entry_path,
    entry_uid,
    id_path,
    matching,
    scope_folder,
    uid_at,
    user_hash,
)
from memfiles.records.record import (
    FORMAT_2,
    MAX_ORIGINS,
    NOBODY,
    Actor,
    Origins,
    Record,
    Revision,
    Timestamp,
    latest_origins,
)

MAX_MOVED = 8
MAX_LEFT = 128
EntryPath = Annotated[str, matching(ENTRY_PATH_PATTERN)]
UserHash = Annotated[str, matching(ENTRY_UID_PATTERN)]
UserHashIfAny = Annotated[str, matching(r"^([0-9a-f]{40})?$")]
MarkType = Literal["tombstone", "location", "vacated"]


class Mark(Struct, frozen=True, dict=True):
    """A record without content. It says what happened to an entry, or which entries left the path of a key.

    - ``tombstone``: the entry with the id ``uid`` was forgotten, when, by whom and why. It is never evicted. Nothing of
      the entry remains, not even its key. ``of_run``: it belonged to one run alone, and no session is told of it.
    - ``location``: the entry with the id ``uid`` got another ``key`` or owner, and is at ``target`` now.
    - ``vacated``: at the path of a key. The entries with the ids ``left`` are no longer there; ``moved`` are the paths
      they went to at that time. The next save under this key replaces the mark.

    In format 1 a tombstone is at the path of a key. Its ``id`` is random, and ``forgotten`` are the ids of those before
    it; ``moved`` are paths where other machines had the entry by then.

    ``cleared``: nobody asked to forget the entry. It had expired or was hidden for long enough, or too many were, and
    its content was erased at this time. Such a mark yields to any copy with a change that it does not include; its
    ``why`` is the plan that last changed the entry, and a cleared location has no key.
    """

    uid: EntryId
    agent: str
    level: str
    type: MarkType
    revision: Revision
    at: Timestamp
    by: Actor = NOBODY
    why: Annotated[str, Meta(max_length=MAX_WHY_BYTES)] = ""
    run: str = ""
    user: UserHashIfAny = ""
    key: str = ""
    left: Annotated[tuple[EntryId, ...], Meta(max_length=MAX_LEFT)] = ()
    moved: Annotated[tuple[EntryPath, ...], Meta(max_length=MAX_MOVED)] = ()
    forgotten: Annotated[tuple[TombstoneId, ...], Meta(max_length=FORGOTTEN_KEPT)] = ()
    cleared: bool = False
    of_run: bool = False
    origins: Annotated[Origins, Meta(max_length=MAX_ORIGINS)] = {}
    id: Annotated[str, matching(r"^([0-9a-f]{12})?$")] = ""
    format: Literal["memfiles/1", "memfiles/2"] = FORMAT_2

    @property
    def folder(self) -> str:
        """The folder of the record."""
        return IDS if self.is_of_id else self.entry_folder

    @property
    def entry_folder(self) -> str:
        """The folder of the entries that it is about."""
        return scope_folder(self.agent, self.user)

    @property
    def is_of_id(self) -> bool:
        """Whether it is known by the id of an entry, and not by the path of a key."""
        return self.format == FORMAT_2 and self.type != "vacated"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the entries that the mark is about."""
        return (self.uid,) if self.is_of_id else tuple(sorted({*self.left, *self.buried}))

    @property
    def leads(self) -> bool:
        """Whether it says where an entry is."""
        return self.type == "location" and not self.cleared

    @property
    def mortal_ids(self) -> tuple[str, ...]:
        """The ids that a tombstone may call forgotten, as of an entry."""
        return self.ids

    @cached_property
    def path(self) -> str:
        """The record's path, relative to the memory directory."""
        return entry_path(self.folder, self.uid)

    @cached_property
    def target(self) -> str:
        """Where the entry of a location is."""
        return entry_path(self.entry_folder, entry_uid(self.entry_folder, self.level, self.key))

    @cached_property
    def buried(self) -> frozenset[str]:
        """The ids of the entries that it says were forgotten."""
        if self.is_of_id:
            return frozenset({self.uid} if self.type == "tombstone" else ())
        moved = self.moved if self.type == "tombstone" else ()
        return frozenset({*earlier_lives(self.uid, tombstones_in(self)), *map(uid_at, moved)})

    def stamped(self, origin: str) -> "Mark":
        """The mark as a change made in the memory directory ``origin``."""
        return self.with_origins({**self.origins, origin: self.revision}, own=origin)

    def with_origins(self, origins: Origins, *, own: str | None = None) -> "Mark":
        """The mark with these ``origins``; see ``Record``."""
        return replace(self, origins=latest_origins(origins, own=own))


EntryRecord = Entry | Mark
AnyRecord = Record | EntryRecord


def vacated(entry: Entry, at: str, *, by: Actor = NOBODY, target: str = "", is_private: bool = False) -> Mark:
    """The mark that an entry leaves behind when it moves to ``target`` or, without one, is forgotten.

    ``is_private``: copies of it on other machines follow it nowhere.
    """
    return Mark(
        *(entry.uid, entry.agent, entry.level, "vacated", entry.revision + 1, at, by),
        run=entry.run,
        user=user_hash(entry.user),
        left=() if is_private else tuple(sorted(entry.ids)),
        moved=(target,) if target else (),
        forgotten=entry.forgotten,
        origins=entry.origins,
    )


def erased(entry: Entry, at: str, *, by: Actor = NOBODY) -> Mark:
    """The mark in place of an entry whose content was erased at this time; see ``Mark.cleared``."""
    plan = entry.reorganised.plan if entry.reorganised is not None else ""
    return replace(vacated(entry, at, by=by, is_private=True), cleared=True, why=plan)


def is_tombstone(record: object) -> bool:
    """Whether the record says that an entry was forgotten, or all those of one epoch of a user."""
    return isinstance(record, Mark) and record.type == "tombstone"


def tombstones_in(record: EntryRecord) -> tuple[str, ...]:
    """The ids of the format 1 tombstones in this record, newest last; a save over it must name them."""
    return (*record.forgotten, *([record.id] if isinstance(record, Mark) and record.id else ()))[-FORGOTTEN_KEPT:]


def forgets(record: EntryRecord, entry: Entry) -> bool:
    """Whether a record says that the entry was forgotten, or one that it was made of."""
    if isinstance(record, Mark) and record.uid in entry.sources and record.buried.isdisjoint(entry.mortal_ids):
        return is_tombstone(record) and not record.cleared
    return buries(record, entry)


def has_lost_text(record: EntryRecord, *, after: int) -> bool:
    """Whether a forget or redaction that noted the record at this revision changed it."""
    return record.revision > after if isinstance(record, Mark) else has_lost(record.text, after=after)


def source_paths(entry: Entry) -> list[str]:
    """Where the tombstones of what the entry was made of would be, of each format."""
    return [path for id in entry.sources for path in (id_path(id), entry_path(entry.folder, id))]


def buries(record: EntryRecord, entry: Entry) -> bool:
    """Whether a record says that the entry was forgotten; in format 1, only an entry of its own level and agent."""
    if not record.buried.isdisjoint(entry.mortal_ids):
        is_of_id = isinstance(record, Mark) and record.is_of_id
        return is_of_id or (entry.level == record.level and entry.folder in (scope_folder(record.agent), WORKSPACE))
    names = tombstones_in(record)  # a full list may have dropped older ones: one that shares none is of an earlier life
    return len(names) >= FORGOTTEN_KEPT and bool(entry.forgotten) and {*names}.isdisjoint(entry.forgotten)
