"""Rows of the index: one for each record, and the totals of rows by partition; as values and in the tables.

A row holds what the index knows of one entry's record, or of the mark in its place. ``RowWriter`` changes rows,
texts and totals together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct, field
from msgspec.json import decode as from_json

from memfiles.index.text import fts
from memfiles.records import NamedTuple, to_json
from memfiles.records.entry import CORE, EPISODE, Entry, EntryState, Provenance, block_bytes
from memfiles.records.keys import ENTRIES, USERS
from memfiles.records.marks import EntryRecord
from memfiles.storage.atomic import Signature, file_hash
from memfiles.storage.entry_folders import MASK, StoredSignature

PartitionKey = tuple[str, str, str]
"""The scope, level and run of a partition."""

_SHORT_DIGEST = 32


class Row(NamedTuple):
    """One record. ``scope`` is its folder; equal contents have equal ``digest``s.

    ``size`` is the bytes of its content, ``block`` those of its block in a prompt.

    The row of a mark has only the path, scope, level, revision, time, ids, signature and, as its cause, its type, or
    the plan that last changed what was erased; as its key, a tombstone of no run has the folder of the entry.
    ``content`` goes to the texts, with when it was ``said``; ``sources`` and ids (``lineage``, ``aliases``, ``epoch``)
    are only selected by, as the number of ``redactions``: not read back. A plain tuple, as each save makes one.
    """

    path: str
    scope: str
    level: str
    run: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    category: str = ""
    kind: str = ""
    pinned: bool = False
    importance: float = 0.0
    confidence: float = 0.0
    size: int = 0
    successes: int = 0
    failures: int = 0
    created_at: str = ""
    updated_at: str = ""
    expires_at: str | None = None
    provenance: Provenance = Provenance()
    state: EntryState = "forgotten"
    retired_at: str = ""
    cause: str = ""
    revision: int = 1
    digest: str = ""
    block: int = 0
    signature: Signature | None = None
    content: str = ""
    sources: tuple[str, ...] = ()
    lineage: str = ""
    aliases: tuple[str, ...] = ()
    epoch: str = ""
    said: str = ""
    redactions: int = 0


_described = attrgetter(  # in the order of a ``Row``, up to its state
    *("path", "folder", "text.level", "run", "key", "tags", "links", "category", "kind", "pinned", "importance"),
    *("confidence", "text.size_bytes", "successes", "failures", "text.created_at", "text.updated_at", "expires_at"),
    "provenance",
)


def row_of(record: EntryRecord, signature: Signature | None) -> Row:
    """The row of a record whose file has this signature; None if unknown, so that the file will be read."""
    if not isinstance(record, Entry):
        return Row(
            *(record.path, record.folder, record.level),
            key=record.entry_folder if record.type == "tombstone" and not (record.of_run or record.run) else "",
            revision=record.revision,
            retired_at=record.at,
            cause=record.why if record.cleared and record.why else record.type,
            signature=signature,
            lineage=record.uid if record.is_of_id else "",
            aliases=() if record.is_of_id else record.ids,
        )
    text, retired = record.text, record.retired
    state = (retired.state, retired.at, retired.cause) if retired else ("live", "", "")
    content = (text.revision, text.sha256[:_SHORT_DIGEST], block_bytes(record), signature, text.content)
    named = (record.sources, record.id, (*record.aliases, *record.authors), record.epoch)
    rest = (record.said_at or text.updated_at, len(text.redactions))
    return Row._make((*_described(record), *state, *content, *named, *rest))


def counted_row(record: EntryRecord) -> Row:
    """The part of a record's row that is needed to take it out of the totals."""
    place = record.path, record.folder, record.level
    if not isinstance(record, Entry):
        return Row(*place)
    state: EntryState = record.retired.state if record.retired else "live"
    category, kind, size = record.category, record.kind, record.size_bytes
    return Row(*place, record.run, category=category, kind=kind, size=size, state=state)


DECLARED = """
    path TEXT UNIQUE, key TEXT, tags TEXT, links TEXT, category TEXT, kind TEXT, pinned INT, kept INT, importance REAL,
    confidence REAL, size INT, successes INT, failures INT, created_at TEXT, updated_at TEXT, expires_at TEXT,
    source_run TEXT, thread TEXT, ordinal INT, provenance TEXT, state TEXT, retired_at TEXT, cause TEXT, revision INT,
    digest TEXT, block INT, inode INT, file_size INT, mtime_ns INT, sources TEXT, lineage TEXT,
    aliases TEXT NOT NULL DEFAULT '[]', epoch TEXT, alike TEXT NOT NULL DEFAULT '', redactions INT
"""
COLUMNS = [column.split()[0] for column in DECLARED.split(",")]
_TAGS_AT, _LINKS_AT, _PINNED_AT, _MEASURES_AT, _PROVENANCE_AT, _STATE_AT, _SIGNATURE_AT = (
    Row._fields.index(name) for name in "tags links pinned importance provenance state signature".split()
)
_SELECTED = [f"{'p' if name in ('scope', 'level', 'run') else 'e'}.{name}" for name in Row._fields[:_SIGNATURE_AT]]
SELECTED = ", ".join([*_SELECTED, "e.inode", "e.file_size", "e.mtime_ns"])


def values_of(row: Row) -> tuple[Any, ...]:
    """The row's values in ``COLUMNS``; ``kept`` entries are evicted last, and what a user saved for all has no run."""
    provenance = row.provenance
    is_anonymous = provenance.user is not None and USERS not in row.scope
    plain: tuple[Any, ...] = row
    return (
        row.path,
        row.key,
        to_json(row.tags).decode() if row.tags else "[]",
        to_json(row.links).decode() if row.links else "[]",
        row.category,
        row.kind,
        row.pinned,
        row.pinned or row.category == CORE,
        *plain[_MEASURES_AT:_PROVENANCE_AT],  # importance to expires_at
        "" if is_anonymous else provenance.run or "",
        "" if is_anonymous else provenance.thread or "",
        provenance.ordinal & MASK,
        to_json(provenance.to_dict()).decode(),
        *plain[_STATE_AT:_SIGNATURE_AT],  # state to block
        *(storable(row.signature) or (None, None, None)),
        to_json(row.sources).decode() if row.sources else "[]",
        row.lineage,
        to_json(row.aliases).decode() if row.aliases else "[]",
        row.epoch,
        alike(row),
        row.redactions,
    )


def alike(row: Row) -> str:
    """The group within its partition, category and kind with which an entry may become one; "" if it stays single.

    Entries of the same content are duplicates. Episodes are folded that are of one run and thread, or else of one day;
    see ``entries.consolidation.plan``.
    """
    expires = "expires" if row.expires_at is not None else ""
    if row.state != "live":
        return ""
    if row.kind != EPISODE:
        return f"{row.digest} {expires}"
    run, thread = row.provenance.run or "", row.provenance.thread or ""
    is_kept = row.pinned or row.category == CORE
    return "" if is_kept else "\n".join((run, thread, "" if run or thread else row.created_at[:10], expires))


def row_from(found: tuple[Any, ...]) -> Row:
    """The row in the ``SELECTED`` columns of the table, without content and sources."""
    values = list(found[:_SIGNATURE_AT])
    values[_TAGS_AT], values[_LINKS_AT] = _texts(values[_TAGS_AT]), _texts(values[_LINKS_AT])
    values[_PINNED_AT] = bool(values[_PINNED_AT])
    values[_PROVENANCE_AT] = Provenance(**from_json(values[_PROVENANCE_AT]))
    signature = None if found[_SIGNATURE_AT] is None else Signature(*found[_SIGNATURE_AT:])
    return Row._make((*values, signature, "", (), "", (), "", "", 0))


def storable(signature: Signature | None) -> Signature | None:
    """The signature as the table can hold it, in signed 64-bit integers."""
    if signature is None:
        return None
    return Signature(signature.inode & MASK, signature.size & MASK, signature.mtime_ns & MASK)


def _texts(found: str) -> tuple[str, ...]:
    return () if found == "[]" else tuple(from_json(found))


class Sum(NamedTuple):
    """A number of entries, and the bytes of their contents."""

    number: int = 0
    size: int = 0

    def plus(self, other: Sum) -> Sum:
        """The sum of both."""
        return Sum(self.number + other.number, self.size + other.size)


NOTHING = Sum()


class CountKey(NamedTuple):
    """Rows that are counted together: of one state, category and kind in a partition."""

    state: str
    category: str
    kind: str


Sums = dict[CountKey, Sum]


class Totals(Struct, frozen=True):
    """The live entries of one partition, expired ones included, also by kind and category.

    ``retired``: the number of retired ones of each category. ``is_behind``: others may have changed something since.
    """

    count: int = 0
    size: int = 0
    by_sort: Mapping[tuple[str, str], Sum] = field(default_factory=dict)
    retired: Mapping[str, int] = field(default_factory=dict)
    is_behind: bool = False


def add_row(sums: Sums, row: Row | None, *, times: int = 1) -> None:
    """Add a row of the partition to its sums, or subtract it (``times`` -1); marks are not counted."""
    if row is not None and row.state != "forgotten":
        key = CountKey(row.state, row.category, row.kind)
        sums[key] = sums.get(key, NOTHING).plus(Sum(times, times * row.size))


def totals_of(sums: Iterable[tuple[CountKey, Sum]]) -> Totals:
    """The totals of one partition; a key may occur several times."""
    by_sort, retired = dict[tuple[str, str], Sum](), dict[str, int]()
    for (state, category, kind), found in sums:
        if state != "live":
            retired[category] = retired.get(category, 0) + found.number
        elif (known := by_sort.get((kind, category))) is not None:
            by_sort[kind, category] = known.plus(found)
        else:
            by_sort[kind, category] = found
    number, size = (sum([each[at] for each in by_sort.values()]) for at in (0, 1))
    return Totals(number, size, {sort: found for sort, found in by_sort.items() if found.number}, retired)


def load_sums(connection: sqlite3.Connection, partition: PartitionKey) -> Sums:
    """The sums of one partition from the tables."""
    rows = connection.execute(
        """
        SELECT state, category, kind, count, size
        FROM part JOIN total ON total.part = part.id WHERE scope = ? AND level = ? AND run = ?
        """,
        partition,
    )
    return {CountKey(*row[:3]): Sum(*row[3:]) for row in rows}


_FIND = """
    SELECT id, part, state, category, kind, size, digest, tags, alike, length(key),
        (SELECT said FROM text WHERE id = entry.id), source_run, thread, ordinal, inode, file_size, mtime_ns
    FROM entry WHERE path = ?
"""
_GROUP = """
    INSERT INTO alike VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = count + excluded.count, spare = spare + excluded.spare,
        since = min(since, excluded.since)
"""
_NO_GROUP = "DELETE FROM alike WHERE part = ? AND category = ? AND kind = ? AND name = ? AND count = 0"
_LATER = "~"  # than any time
_QUOTES = 4  # bytes that the key of an episode costs in a note, besides itself
_ADD = f"INSERT INTO entry (part, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
_CHANGE = f"""
    UPDATE entry SET reads = reads * (lineage = ?), read_at = iif(lineage = ?, read_at, ''), part = ?,
        {", ".join(f"{name} = ?" for name in COLUMNS)} WHERE id = ?
"""
_COUNT = """
    INSERT INTO total VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = count + excluded.count, size = size + excluded.size
"""
_TAGS_COLUMN, _ALIKE_COLUMN = COLUMNS.index("tags"), COLUMNS.index("alike")
_PLACE_COLUMNS = slice(COLUMNS.index("source_run"), COLUMNS.index("ordinal") + 1)
GroupKey = tuple[int, str, str, str]  # part, category, kind, name


class RowWriter:
    """Changes rows, their texts and the totals in one transaction; ``finish`` comes before its end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._parts: dict[PartitionKey, int] = {}
        self._sums: dict[tuple[int, str, str, str], Sum] = {}
        self._groups: dict[GroupKey, tuple[int, int, str]] = {}  # changes of their counts, their bytes and their age
        self._held: dict[str, tuple[int, int]] = {}  # changes of what the files of each folder add up to
        self._shrunk: set[int] = set()  # partitions that lost an entry
        self._old_texts: dict[int, set[int]] = {}  # by partition, as the new ones: written together, they cost less
        self._new_texts: dict[int, list[fts.NewText]] = {}

    def signature(self, path: str) -> Signature | None:
        """The record's signature in its row; None if there is no row."""
        found = self._connection.execute("SELECT inode, file_size, mtime_ns FROM entry WHERE path = ?", (path,))
        return next((Signature(*row) for row in found), None)

    def life(self, path: str) -> tuple[str, int]:
        """The id and the number of redactions in the record's row."""
        found = self._connection.execute("SELECT lineage, redactions FROM entry WHERE path = ?", (path,)).fetchone()
        return found or ("", 0)

    def put(self, row: Row) -> None:
        """Write the row of a record, and its text if that may have changed."""
        found = self._connection.execute(_FIND, (row.path,)).fetchone()
        signature = storable(row.signature)
        if found is not None and found[-3:] == signature:
            return
        self._hold(row.path, signature, 1)
        values, part = values_of(row), self._part((row.scope, row.level, row.run))
        if found is None:
            id, has_text = self._connection.execute(_ADD, (part, *values)).lastrowid or 0, False
        else:
            id, has_text = found[0], self._keeps_text(found, row, part=part, values=values)
            self._connection.execute(_CHANGE, (row.lineage, row.lineage, part, *values, id))  # other ids: read anew
            self._hold(row.path, _signature_in(found), -1)
            self._count(found, times=-1)
        if row.state == "live" and not has_text:
            self._new_texts.setdefault(part, []).append((id, row.key, row.content, row.tags, row.said))
        if row.state != "forgotten":
            self._add((part, row.state, row.category, row.kind), Sum(1, row.size))
            group = part, row.category, row.kind, values[_ALIKE_COLUMN]
            self._group(group, 1, spare=row.size - len(row.key) - _QUOTES, since=row.created_at)

    def remove(self, path: str) -> None:
        """Remove the row of this path, if there is one."""
        found = self._connection.execute(_FIND, (path,)).fetchone()
        if found is not None:
            self._connection.execute("DELETE FROM entry WHERE id = ?", (found[0],))
            self._hold(path, _signature_in(found), -1)
            self._count(found, times=-1)
            self._shrunk.add(found[1])
            if found[2] == "live":
                self._old_texts.setdefault(found[1], set()).add(found[0])

    def finish(self) -> None:
        """Write the new texts and the totals, and drop partitions without entries."""
        fts.replace_texts(self._connection, self._old_texts, self._new_texts)
        for key, change in self._sums.items():
            if change != NOTHING:
                self._connection.execute(_COUNT, (*key, *change))
        if self._sums:
            self._connection.execute("DELETE FROM total WHERE count = 0")
        for folder, (count, hashes) in self._held.items():
            known = self._connection.execute("SELECT count, hashes FROM held WHERE folder = ?", (folder,)).fetchone()
            noted = folder, count + (known or (0, 0))[0], hashes + (known or (0, 0))[1] & MASK
            self._connection.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?)", noted)
            if noted[1] == 0:
                self._connection.execute("DELETE FROM held WHERE folder = ?", (folder,))
        for group, (number, spare, since) in self._groups.items():
            if number or spare:
                self._connection.execute(_GROUP, (*group, number, spare, since))
            if number < 0:
                self._connection.execute(_NO_GROUP, group)
        for part in self._shrunk:
            if not self._one("SELECT EXISTS (SELECT 1 FROM entry WHERE part = ? AND state = 'live')", part):
                fts.drop(self._connection, part)
                if not self._one("SELECT EXISTS (SELECT 1 FROM entry WHERE part = ?)", part):
                    self._connection.execute("DELETE FROM part WHERE id = ?", (part,))

    def _keeps_text(self, found: tuple[Any, ...], row: Row, *, part: int, values: tuple[Any, ...]) -> bool:
        """Whether the text of an entry that has a row, and its place in a run, are still right; else it is removed."""
        id, earlier_part, was_live, is_live = found[0], found[1], found[2] == "live", row.state == "live"
        told = (row.digest, values[_TAGS_COLUMN], row.said, *values[_PLACE_COLUMNS])
        is_same = is_live and part == earlier_part and (*found[6:8], *found[10:14]) == told
        if was_live and not is_same:
            self._old_texts.setdefault(earlier_part, set()).add(id)
        if was_live and (not is_live or part != earlier_part):
            self._shrunk.add(earlier_part)
        return was_live and is_same

    def _hold(self, path: str, found: StoredSignature | None, times: int) -> None:
        """Count a file of a folder, or take it out (``times`` -1)."""
        folder, _, name = path[len(ENTRIES) + 1 :].rpartition("/")
        count, hashes = self._held.get(folder, (0, 0))
        self._held[folder] = count + times, hashes + times * file_hash(name, found)

    def _count(self, found: tuple[Any, ...], *, times: int) -> None:
        if found[2] != "forgotten":
            self._add(found[1:5], Sum(times, times * found[5]))
            spare = found[5] - found[9] - _QUOTES
            self._group((found[1], found[3], found[4], found[8]), times, spare=times * spare, since=_LATER)

    def _add(self, key: tuple[int, str, str, str], change: Sum) -> None:
        self._sums[key] = self._sums.get(key, NOTHING).plus(change)

    def _group(self, group: GroupKey, number: int, *, spare: int, since: str) -> None:
        if group[-1]:
            before = self._groups.get(group, (0, 0, _LATER))
            self._groups[group] = before[0] + number, before[1] + spare, min(before[2], since)

    def _part(self, partition: PartitionKey) -> int:
        if (found := self._parts.get(partition)) is None:
            self._connection.execute("INSERT OR IGNORE INTO part (scope, level, run) VALUES (?, ?, ?)", partition)
            found = self._one("SELECT id FROM part WHERE scope = ? AND level = ? AND run = ?", *partition)
            self._parts[partition] = found
        return found

    def _one(self, statement: str, *values: object) -> int:
        return int(self._connection.execute(statement, values).fetchone()[0])


def _signature_in(found: tuple[Any, ...]) -> StoredSignature | None:
    """The signature in a row of ``_FIND``."""
    return found[-3:] if found[-3] is not None else None
