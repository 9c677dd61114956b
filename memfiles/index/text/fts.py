"""FTS5 tables: the texts of live entries, and the words of each partition apart from those of all others.

A partition is visible or hidden as a whole. FTS5 counts words per table, so with tables for each partition nothing
hidden can change a score, an order or a count. All texts are in the table ``text``, as given, for snippets and for
removing words again; and tokenized, for scores. The words of partition 7 are in:

* ``words_7``  their stems, and the moments of which they tell (FTS5 without content)
* ``counts_7`` how many entries hold each stem (an FTS5 vocabulary table over ``words_7``)
* ``grams_7``  their folded text in trigrams, for parts of words (FTS5 without content or positions)

Only a partition that ever had more than ``SMALL`` entries has these tables in the file: with tables for each of 10,000
users, every connection would read 40,000 definitions. For a small partition, the same tables are filled in this
connection's memory when it is searched (0.4 ms for 20 entries), so its answers are those of a large one. These tables
are slots: the least recently used one is refilled.

Everything runs in the caller's transaction, except ``scrub``; one thread at a time uses a connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Literal

from memfiles.index.text import tokenizer
from memfiles.records import NamedTuple, to_json

WEIGHTS = (2.0, 1.0, 1.5, 1.0)  # of key, content, tags and moments when FTS5 chooses candidates
SMALL = 256  # entries
GONE = 4096  # changes of a partition whose removed texts are noted
SLOTS = 8  # of small partitions; more only while one search needs more
TABLES = (
    """
    CREATE TABLE text (
        id INTEGER PRIMARY KEY, part INT, key TEXT, content TEXT, tags TEXT, said TEXT, digest BLOB, reading TEXT,
        stamp INT
    )
    """,
    "CREATE INDEX text_by_part ON text (part, stamp)",
    # the partitions that have text, and of how many entries; ``version`` changes with it, and is null where a partition
    # has tables of its own; ``stamp`` counts its changes, and a text has that of its own, since the ``epoch`` began
    "CREATE TABLE text_part (part INTEGER PRIMARY KEY, version INT, size INT, epoch INT, stamp INT)",
    # the rows whose texts were removed with the last changes of a partition, for those who remember its rows
    "CREATE TABLE text_gone (part INT, stamp INT, id INT, PRIMARY KEY (part, stamp, id)) WITHOUT ROWID",
    "CREATE TABLE vector (model TEXT, digest BLOB, data BLOB, PRIMARY KEY (model, digest)) WITHOUT ROWID",
)
# id, key, content and tags of an entry, and when it was said, if that is known
NewText = tuple[int, str, str, Sequence[str]] | tuple[int, str, str, Sequence[str], str]
_TAG_SEPARATOR = "\n"
_BUT = "AND rowid NOT IN (SELECT value FROM json_each(?))"
_COUNT = """
    INSERT INTO text_part (part, version, size, epoch, stamp) VALUES (:part, random(), :more, random(), :changes)
    ON CONFLICT DO UPDATE SET
        size = size + :more, version = iif(version IS NULL, NULL, random()), stamp = stamp + :changes
    RETURNING version, size, stamp
"""
_EXPIRED_TEXTS = """
    FROM json_each(:parts) AS p CROSS JOIN entry AS e INDEXED BY entry_by_expiry ON e.part = p.value
    WHERE e.state = 'live' AND e.expires_at IS NOT NULL AND e.expires_at <= :now AND e.digest <> ''
"""


class StoredText(NamedTuple):
    """The text of an entry as it was given; ``tags`` are separated by line breaks, and ``said`` is a moment or ""."""

    id: int
    key: str
    content: str
    tags: str
    said: str = ""

    @property
    def folded(self) -> str:
        """All of it, folded, as parts of words are looked for in it."""
        return tokenizer.fold(f"{self.key}\n{self.content}\n{self.tags}")


class PartState(NamedTuple):
    """The version of a partition's texts: the epoch and the stamp, which change with them, and their number."""

    epoch: int = 0
    stamp: int = -1
    size: int = 0


class PartTexts:
    """The texts of one partition, to be searched on one connection; made by ``open_texts``."""

    def __init__(self, connection: sqlite3.Connection, part: int, name: str, *, state: PartState) -> None:
        """``name`` is what the names of its tables end in, ``state`` has the number of entries that have text."""
        self.part, self.state, self.size = part, state, state.size
        self._connection = connection
        self._words, self._counts, self._grams = f"words_{name}", f"counts_{name}", f"grams_{name}"

    def matches(self, match: str, *, but: Collection[int] = ()) -> int:
        """How many entries an FTS5 expression matches, without the rows ``but``."""
        statement = f"SELECT count(*) FROM {self._words} WHERE {self._words} MATCH ?"
        ((count,),) = self._connection.execute(
            f"{statement} {_BUT}" if but else statement, (match, *([as_json(but)] if but else []))
        )
        return int(count)

    def counts(self, stems: Sequence[str]) -> dict[str, int]:
        """How many entries hold each of the stems; stems that no entry holds are left out."""
        statement = f"SELECT term, doc FROM json_each(?) AS asked CROSS JOIN {self._counts} ON term = asked.value"
        return dict(self._connection.execute(statement, (as_json(stems),)).fetchall())

    def best(self, match: str, *, limit: int, offset: int = 0) -> list[int]:
        """The entries that FTS5 ranks first for an expression, best first, newest first among equals."""
        table = self._words
        rank = f"bm25({table}, {', '.join(map(str, WEIGHTS))})"
        rows = self._connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY {rank}, rowid DESC LIMIT ? OFFSET ?",
            (match, limit, offset),
        )
        return [row for (row,) in rows]

    def all(self, match: str) -> list[int]:
        """The entries that an FTS5 expression matches, in any order: much faster than ``best``, which ranks them."""
        statement = f"SELECT rowid FROM {self._words} WHERE {self._words} MATCH ?"
        return [row for (row,) in self._connection.execute(statement, (match,))]

    def tagged(self, tag: str, *, limit: int, but: Collection[int] = ()) -> list[int]:
        """Entries with exactly this tag, in any order, without the rows ``but``.

        At most ``limit`` rows are read; so many that ``limit`` is reached are returned unchecked.
        """
        written, spelled = tokenizer.as_written(tag), tokenizer.indexed(tag)  # what is spelled out stands at the end
        words = tokenizer.stems_of(written) or tokenizer.stems_of(spelled)
        if not words:
            return []
        statement = f"SELECT rowid FROM {self._words} WHERE {self._words} MATCH ? {_BUT if but else ''} LIMIT ?"
        asked = f'tags : "{" ".join(words)}"', *([as_json(but)] if but else []), limit
        found = [row for (row,) in self._connection.execute(statement, asked)]
        if not found or len(found) == limit:
            return found
        return [text.id for text in texts(self._connection, found) if tag in text.tags.split(_TAG_SEPARATOR)]

    def containing(self, needle: str, *, limit: int) -> list[int]:
        """Entries whose folded text may contain ``needle`` (folded), newest first; the caller must check each."""
        if len(needle) < 3:
            statement = """SELECT id FROM text WHERE part = ? AND instr(lower(key || ' ' || content || ' ' || tags), ?)
                           ORDER BY id DESC LIMIT ?"""
            return [row for (row,) in self._connection.execute(statement, (self.part, needle, limit))]
        grams = dict.fromkeys(needle[at : at + 3].replace('"', '""') for at in range(min(len(needle) - 2, 64)))
        match = " AND ".join(f'"{gram}"' for gram in grams if "\0" not in gram)
        statement = f"SELECT rowid FROM {self._grams} WHERE {self._grams} MATCH ? ORDER BY rowid DESC LIMIT ?"
        return [row for (row,) in self._connection.execute(statement, (match, limit))] if match else []


def open_texts(connection: sqlite3.Connection, parts: Sequence[int]) -> list[PartTexts]:
    """The texts of the given partitions that have any, in the order given, each once."""
    known = _known(connection, parts)
    slots = _filled(connection, {part: version for part, (version, _) in known.items() if version is not None})
    return [
        PartTexts(connection, part, f"s{slots[part]}" if part in slots else str(part), state=known[part][1])
        for part in dict.fromkeys(parts)
        if part in known
    ]


def replace_texts(
    connection: sqlite3.Connection, removed: Mapping[int, Collection[int]], added: Mapping[int, Sequence[NewText]]
) -> None:
    """Remove the texts of the entries with these ids, if there are any, and index those of entries that have none.

    Both are given by partition. The words are written last, by row: FTS5 writes a segment whenever a row is lower than
    the last one, or another statement opens a savepoint, and each segment makes searches slower.
    """
    held = {part: texts(connection, sorted(ids)) for part, ids in removed.items()}
    words = {part: tokens_of(connection, [text.id for text in found]) for part, found in held.items() if found}
    counted = {}
    for part in dict.fromkeys([*words, *added]):
        gone, more = len(held.get(part, ())), len(added.get(part, ()))
        counts = {"part": part, "more": more - gone, "changes": gone or 1}
        counted[part] = connection.execute(_COUNT, counts).fetchone()
    for part in words:
        ids, stamp = [text.id for text in held[part]], counted[part][-1]
        connection.executemany("INSERT INTO text_gone VALUES (?, ?, ?)", [(part, stamp, id) for id in ids])
        connection.execute("DELETE FROM text_gone WHERE part = ? AND stamp <= ?", (part, stamp - GONE))
        connection.executemany("DELETE FROM text WHERE id = ?", [(id,) for id in ids])
    new = {part: _put_texts(connection, part, entries, stamp=counted[part][-1]) for part, entries in added.items()}
    for part, (version, size, _) in counted.items():
        if version is None:
            _drop_words(connection, part, held.get(part, ()), words.get(part, ()))
            _put_words(connection, str(int(part)), *new.get(part, ((), ())))
        elif size > SMALL:
            connection.execute("UPDATE text_part SET version = NULL WHERE part = ?", (part,))
            make_tables(connection, str(int(part)), schema="main")
            _put_words(connection, str(int(part)), *_texts_of(connection, part))


def _put_texts(
    connection: sqlite3.Connection, part: int, entries: Sequence[NewText], *, stamp: int
) -> tuple[list[StoredText], list[tokenizer.TokenizedText]]:
    """Write the texts of entries and their tokens, and return both."""
    new = [
        StoredText(id, _storable(key), _storable(content), _storable(_TAG_SEPARATOR.join(tags)), *said)
        for id, key, content, tags, *said in sorted(entries, key=itemgetter(0))
    ]
    read = tokenizer.tokenized(new)
    rows = []
    for text, tokens in zip(new, read, strict=True):
        digest = blake2b(text.content.encode("utf-8"), digest_size=16).digest()
        rows.append((*text, part, digest, tokens.packed, stamp))
    columns = "id, key, content, tags, said, part, digest, reading, stamp"
    connection.executemany(f"INSERT INTO text ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return new, read


def drop(connection: sqlite3.Connection, part: int) -> None:
    """Remove all texts of a partition, if there are any."""
    if _has_tables(connection, part):
        for table in ("counts", "words", "grams"):
            connection.execute(f"DROP TABLE {table}_{int(part)}")
    connection.execute("DELETE FROM text WHERE part = ?", (part,))
    connection.execute("DELETE FROM text_part WHERE part = ?", (part,))
    connection.execute("DELETE FROM text_gone WHERE part = ?", (part,))


def scrub(connection: sqlite3.Connection) -> None:
    """Remove deleted words from the segments of FTS5 and from the slots, and vectors of contents that no entry has.

    FTS5 keeps deleted words until segments are merged. The caller must also compact the file: SQLite keeps deleted rows
    in free pages until VACUUM, and older pages in the write-ahead log until a checkpoint truncates it.
    """
    tokenizer.forget_queries()
    for slot, *_ in _slots(connection):
        _empty(connection, slot)
    connection.execute("DELETE FROM vector WHERE digest NOT IN (SELECT digest FROM text)")
    for (part,) in connection.execute("SELECT part FROM text_part WHERE version IS NULL").fetchall():
        for table in (f"words_{part}", f"grams_{part}"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def with_text(connection: sqlite3.Connection, parts: Iterable[int]) -> list[int]:
    """The given partitions that have text, in the order given."""
    known = _known(connection, parts)
    return [part for part in parts if part in known]


def texts(connection: sqlite3.Connection, ids: Iterable[int]) -> list[StoredText]:
    """The texts of the given entries that have any, in any order."""
    wanted = "SELECT id, key, content, tags, said FROM text WHERE id IN (SELECT value FROM json_each(?))"
    return [StoredText(*row) for row in connection.execute(wanted, (as_json(ids),))]


def tokens_of(connection: sqlite3.Connection, ids: Iterable[int]) -> list[tokenizer.TokenizedText]:
    """The tokens of the given entries that have text, in any order."""
    wanted = "SELECT text.id, reading FROM json_each(?) AS asked CROSS JOIN text ON text.id = asked.value"
    return [_read(*row) for row in connection.execute(wanted, (as_json(ids),))]


def _read(id: int, reading: str) -> tokenizer.TokenizedText:
    try:
        return tokenizer.unpacked(id, reading)
    except (ValueError, AttributeError) as error:
        damaged = sqlite3.DatabaseError("a text was changed after it was written")
        damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # as of a damaged file: the index is then built again
        raise damaged from error


def part_state(connection: sqlite3.Connection, part: int) -> PartState:
    """The state of a partition."""
    found = connection.execute("SELECT epoch, stamp, size FROM text_part WHERE part = ?", (part,)).fetchone()
    return PartState(*(found or (0, 0, 0)))


def removed_rows(connection: sqlite3.Connection, part: int, *, since: PartState, now: PartState) -> set[int] | None:
    """The rows whose texts were removed or replaced since a state; None if that is not known any more."""
    if since.epoch != now.epoch or since.stamp < now.stamp - GONE:
        return None
    rows = connection.execute("SELECT id FROM text_gone WHERE part = ? AND stamp > ?", (part, since.stamp))
    return {id for (id,) in rows}


class RunRow(NamedTuple):
    """An entry in the order of its run and thread."""

    id: int
    run: tuple[str, str]
    ordinal: int


def in_runs(connection: sqlite3.Connection, part: int, *, since: int = -1) -> list[RunRow]:
    """The entries that were put in the partition after the stamp ``since``, run by run in the order of saving."""
    all = """SELECT id, source_run, thread, ordinal FROM entry INDEXED BY entry_near
             WHERE part = ? AND source_run > '' AND state = 'live' AND digest <> '' AND ?
             ORDER BY source_run, thread, ordinal"""
    new = """SELECT id, source_run, thread, ordinal FROM text JOIN entry USING (id)
             WHERE text.part = ? AND stamp > ? AND source_run > ''"""
    rows = connection.execute(all if since < 0 else new, (part, since))
    return [RunRow(id, (run, thread), ordinal) for id, run, thread, ordinal in rows]


def _known(connection: sqlite3.Connection, parts: Iterable[int]) -> dict[int, tuple[int | None, PartState]]:
    """The versions (None of one with tables of its own) and states of the given partitions that have text."""
    wanted = "SELECT part, version, epoch, stamp, size FROM text_part WHERE part IN (SELECT value FROM json_each(?))"
    return {
        part: (version, PartState(*state)) for part, version, *state in connection.execute(wanted, (as_json(parts),))
    }


def _has_tables(connection: sqlite3.Connection, part: int) -> bool:
    statement = "SELECT 1 FROM text_part WHERE part = ? AND version IS NULL"
    return connection.execute(statement, (part,)).fetchone() is not None


def _texts_of(connection: sqlite3.Connection, part: int) -> tuple[list[StoredText], list[tokenizer.TokenizedText]]:
    """The texts of a partition, and their tokens."""
    statement = "SELECT id, key, content, tags, said, reading FROM text WHERE part = ?"
    rows = connection.execute(statement, (part,)).fetchall()
    return [StoredText(*row[:-1]) for row in rows], [_read(row[0], row[-1]) for row in rows]


def make_tables(connection: sqlite3.Connection, name: str, *, schema: Literal["main", "temp"]) -> None:
    """Create the tables for the words of one partition, or of a slot."""
    of = f"temp, words_{name}" if schema == "temp" else f"words_{name}"
    trigrams = 'tokenize="trigram case_sensitive 1"'
    for table in (
        f"words_{name} USING fts5(key, content, tags, moments, content='', {tokenizer.CUT})",
        f"counts_{name} USING fts5vocab({of}, row)",
        f"grams_{name} USING fts5(text, content='', detail=none, columnsize=0, {trigrams})",
    ):
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {schema}.{table}")


def _put_words(
    connection: sqlite3.Connection, name: str, new: Sequence[StoredText], read: Sequence[tokenizer.TokenizedText]
) -> None:
    connection.executemany(
        f"INSERT INTO words_{name} (rowid, key, content, tags, moments) VALUES (?, ?, ?, ?, ?)",
        ((tokens.id, *tokens.columns) for tokens in read),
    )
    grams = [(text.id, text.folded) for text in new]
    connection.executemany(f"INSERT INTO grams_{name} (rowid, text) VALUES (?, ?)", grams)


def _drop_words(
    connection: sqlite3.Connection, part: int, old: Sequence[StoredText], read: Sequence[tokenizer.TokenizedText]
) -> None:
    columns = "key, content, tags, moments"
    connection.executemany(
        f"INSERT INTO words_{part} (words_{part}, rowid, {columns}) VALUES ('delete', ?, ?, ?, ?, ?)",
        ((tokens.id, *tokens.columns) for tokens in read),
    )
    grams = [(text.id, text.folded) for text in old]
    connection.executemany(f"INSERT INTO grams_{part} (grams_{part}, rowid, text) VALUES ('delete', ?, ?)", grams)


def _filled(connection: sqlite3.Connection, versions: Mapping[int, int]) -> dict[int, int]:
    """The slots that hold the words of these small partitions, filled if needed; those used last are kept."""
    if not versions:
        return {}
    known = _slots(connection)
    found = {part: slot for slot, part, version in known if part in versions and versions[part] == version}
    others = [slot for slot, *_ in known if slot not in found.values()]
    count = len(known)
    for part, version in versions.items():
        if part in found:
            continue
        if others and count >= SLOTS:
            slot = others.pop(0)
        else:
            slot, count = count, count + 1
            make_tables(connection, f"s{slot}", schema="temp")
        _empty(connection, slot)  # also of what is left of a search that was interrupted
        _put_words(connection, f"s{slot}", *_texts_of(connection, part))
        connection.execute("INSERT OR REPLACE INTO slot (slot, part, version) VALUES (?, ?, ?)", (slot, part, version))
        found[part] = slot
    used = "UPDATE slot SET used = (SELECT ifnull(max(used), 0) + 1 FROM slot) WHERE slot = ?"
    connection.executemany(used, [(slot,) for slot in found.values()])
    return found


def _slots(connection: sqlite3.Connection) -> list[tuple[int, int, int]]:
    """The slots of this connection, each with its partition and version, the least recently used first."""
    connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS slot (slot INTEGER PRIMARY KEY, part INT, version INT, used INT)"
    )
    return connection.execute("SELECT slot, part, version FROM slot ORDER BY used").fetchall()


def _empty(connection: sqlite3.Connection, slot: int) -> None:
    """Remove all words from a slot; it is known as empty first, so that a failure leaves no half of a partition."""
    connection.execute("UPDATE slot SET part = NULL WHERE slot = ?", (slot,))
    for table in (f"words_s{slot}", f"grams_s{slot}"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def _storable(text: str) -> str:
    """The text without lone surrogates, which no encoding can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def as_json(values: Iterable[int | str]) -> str:
    """A list as one parameter, so that a statement stays the same and is prepared once."""
    return to_json(list(values)).decode()


def has_expired_texts(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> bool:
    """Whether these partitions hold texts of expired entries, which would count in scores."""
    asked = {"parts": as_json(parts), "now": now}
    return connection.execute(f"SELECT 1 {_EXPIRED_TEXTS} LIMIT 1", asked).fetchone() is not None


def remove_expired_texts(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> None:
    """Remove the texts of expired entries in these partitions.

    Their rows stay, with the digest of no content: so the text is written again when the entry is renewed, even with
    the same content.
    """
    asked = {"parts": as_json(parts), "now": now}
    expired: dict[int, list[int]] = {}
    for id, part in connection.execute(f"SELECT e.id, e.part {_EXPIRED_TEXTS}", asked).fetchall():
        expired.setdefault(part, []).append(id)
        connection.execute("UPDATE entry SET digest = '' WHERE id = ?", (id,))
    replace_texts(connection, expired, {})
