"""FTS5 tables: the texts of live entries, in tables of their own for each partition.

A partition is visible or hidden as a whole. FTS5 counts words per table, so with tables for each partition nothing
hidden can change a score, an order or a count. The tables of partition 7 are:

* ``text_7``   key, content and tags as given, for snippets and for removing words again; and tokenized, for scores
* ``words_7``  their words, stemmed (FTS5 without content)
* ``counts_7`` how many entries hold each stem (an FTS5 vocabulary table over ``words_7``)
* ``grams_7``  their folded text in trigrams, for parts of words (FTS5 without content or positions)

Everything runs in the caller's transaction, except ``scrub``; one thread at a time uses a connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import to_json

from memfiles.index.text import tokenizer

WEIGHTS = (2.0, 1.0, 1.5)  # of key, content and tags when FTS5 chooses candidates
TABLES = (
    "CREATE TABLE text_part (part INTEGER PRIMARY KEY)",  # the partitions that have text
    "CREATE TABLE vector (model TEXT, digest BLOB, data BLOB, PRIMARY KEY (model, digest)) WITHOUT ROWID",
)
NewText = tuple[int, str, str, Sequence[str]]  # id, key, content and tags of an entry
_TAG_SEPARATOR = "\n"
_BUT = "AND rowid NOT IN (SELECT value FROM json_each(?))"


@dataclass(slots=True)
class StoredText:
    """The text of an entry as it was given; ``tags`` are separated by line breaks."""

    id: int
    key: str
    content: str
    tags: str

    @property
    def folded(self) -> str:
        """All of it, folded, as parts of words are looked for in it."""
        return tokenizer.fold(f"{self.key}\n{self.content}\n{self.tags}")


class TextSource(NamedTuple):
    """The content of an entry and the record that holds it."""

    id: int
    content: str
    key: str
    path: str
    revision: int
    ordinal: int


def put_many(connection: sqlite3.Connection, part: int, entries: Iterable[NewText]) -> None:
    """Index the texts of entries that have none in this partition."""
    texts = [
        StoredText(id, _storable(key), _storable(content), _storable(_TAG_SEPARATOR.join(tags)))
        for id, key, content, tags in entries
    ]
    if part not in present(connection, [part]):
        connection.execute("INSERT INTO text_part (part) VALUES (?)", (part,))
        for statement in _schema(int(part)):
            connection.execute(statement)
    rows = []
    for text in texts:
        digest = blake2b(text.content.encode("utf-8"), digest_size=16).digest()
        packed = tokenizer.tokenized(text.id, key=text.key, content=text.content, tags=text.tags).packed
        rows.append((text.id, text.key, text.content, text.tags, digest, packed))
    connection.executemany(
        f"INSERT INTO text_{part} (id, key, content, tags, digest, reading) VALUES (?, ?, ?, ?, ?, ?)", rows
    )
    connection.executemany(
        f"INSERT INTO words_{part} (rowid, key, content, tags) VALUES (?, ?, ?, ?)", map(_words, texts)
    )
    grams = [(text.id, text.folded) for text in texts]
    connection.executemany(f"INSERT INTO grams_{part} (rowid, text) VALUES (?, ?)", grams)


def remove(connection: sqlite3.Connection, part: int, id: int) -> None:
    """Remove the text of entry ``id``, if there is any."""
    statement = f"SELECT id, key, content, tags FROM text_{part} WHERE id = ?"  # one for all ids: prepared once
    for text in (StoredText(*row) for row in _rows_if_made(connection, statement, id)):
        connection.execute(
            f"INSERT INTO words_{part} (words_{part}, rowid, key, content, tags) VALUES ('delete', ?, ?, ?, ?)",
            _words(text),
        )
        connection.execute(
            f"INSERT INTO grams_{part} (grams_{part}, rowid, text) VALUES ('delete', ?, ?)", (text.id, text.folded)
        )
        connection.execute(f"DELETE FROM text_{part} WHERE id = ?", (id,))


def drop(connection: sqlite3.Connection, part: int) -> None:
    """Remove all texts of a partition, if there are any."""
    for table in ("text", "counts", "words", "grams"):
        connection.execute(f"DROP TABLE IF EXISTS {table}_{int(part)}")
    connection.execute("DELETE FROM text_part WHERE part = ?", (part,))


def scrub(connection: sqlite3.Connection) -> None:
    """Remove deleted words from the segments of FTS5, and vectors of contents that no entry has.

    FTS5 keeps deleted words until segments are merged. The caller must also compact the file: SQLite keeps deleted rows
    in free pages until VACUUM, and older pages in the write-ahead log until a checkpoint truncates it.
    """
    tokenizer.forget_queries()
    parts = all_parts(connection)
    digests = " UNION ALL ".join(f"SELECT digest FROM text_{part}" for part in parts)
    connection.execute(f"DELETE FROM vector WHERE digest NOT IN ({digests})" if digests else "DELETE FROM vector")
    for part in parts:
        for table in (f"words_{part}", f"grams_{part}"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def all_parts(connection: sqlite3.Connection) -> list[int]:
    """All partitions that have text."""
    return [part for (part,) in connection.execute("SELECT part FROM text_part ORDER BY part")]


def present(connection: sqlite3.Connection, parts: Iterable[int]) -> list[int]:
    """The given partitions that have text, in the order given."""
    wanted = "SELECT part FROM text_part WHERE part IN (SELECT value FROM json_each(?))"
    known = {part for (part,) in connection.execute(wanted, (as_json(parts),))}
    return [part for part in parts if part in known]


def texts(connection: sqlite3.Connection, part: int, ids: Iterable[int]) -> list[StoredText]:
    """The texts of the given entries that are indexed in the partition, in any order."""
    wanted = f"SELECT id, key, content, tags FROM text_{part} WHERE id IN (SELECT value FROM json_each(?))"
    return [StoredText(*row) for row in _rows_if_made(connection, wanted, as_json(ids))]


def sources(connection: sqlite3.Connection, part: int, ids: Iterable[int]) -> list[TextSource]:
    """The contents and records of the given entries that are indexed in the partition, in any order."""
    wanted = f"""SELECT id, text.content, entry.key, path, revision, ordinal FROM text_{part} AS text
                 JOIN entry USING (id) WHERE id IN (SELECT value FROM json_each(?))"""
    return [TextSource._make(row) for row in _rows_if_made(connection, wanted, as_json(ids))]


def tokens(connection: sqlite3.Connection, part: int, ids: Iterable[int]) -> list[tokenizer.TokenizedText]:
    """The tokens of the given entries that are indexed in the partition, in any order."""
    wanted = f"SELECT id, reading FROM text_{part} WHERE id IN (SELECT value FROM json_each(?))"
    try:
        return [tokenizer.unpacked(*row) for row in _rows_if_made(connection, wanted, as_json(ids))]
    except (ValueError, AttributeError) as error:
        damaged = sqlite3.DatabaseError("a text was changed after it was written")
        damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # as of a damaged file: the index is then built again
        raise damaged from error


def size(connection: sqlite3.Connection, part: int) -> int:
    """How many entries have text in the partition."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM words_{part}_docsize")
    return int(count)


def matches(connection: sqlite3.Connection, part: int, match: str, *, but: Collection[int] = ()) -> int:
    """How many entries of the partition an FTS5 expression matches, without the rows ``but``."""
    statement = f"SELECT count(*) FROM words_{part} WHERE words_{part} MATCH ?"
    ((count,),) = connection.execute(
        f"{statement} {_BUT}" if but else statement, (match, *([as_json(but)] if but else []))
    )
    return int(count)


def counts(connection: sqlite3.Connection, part: int, stems: Sequence[str]) -> dict[str, int]:
    """How many entries of the partition hold each of the stems; stems that no entry holds are left out."""
    statement = f"SELECT term, doc FROM json_each(?) AS asked CROSS JOIN counts_{part} ON term = asked.value"
    return dict(connection.execute(statement, (as_json(stems),)).fetchall())


def best(connection: sqlite3.Connection, part: int, match: str, *, limit: int, offset: int = 0) -> list[int]:
    """The entries that FTS5 ranks first for an expression, best first, newest first among equals."""
    table = f"words_{part}"
    rank = f"bm25({table}, {', '.join(map(str, WEIGHTS))})"
    rows = connection.execute(
        f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY {rank}, rowid DESC LIMIT ? OFFSET ?",
        (match, limit, offset),
    )
    return [row for (row,) in rows]


def tagged(connection: sqlite3.Connection, part: int, tag: str, *, limit: int, but: Collection[int] = ()) -> list[int]:
    """Entries of the partition with exactly this tag, in any order, without the rows ``but``.

    At most ``limit`` rows are read; so many that ``limit`` is reached are returned unchecked.
    """
    words = tokenizer.words_of(tokenizer.indexed(tag))
    if not words:
        return []
    left_out = _BUT if but else ""
    statement = f"SELECT rowid FROM words_{part} WHERE words_{part} MATCH ? {left_out} LIMIT ?"
    asked = f'tags : "{" ".join(words)}"', *([as_json(but)] if but else []), limit
    rows = connection.execute(statement, asked).fetchall()
    found = [row for (row,) in rows]
    if not found or len(found) == limit:
        return found
    return [text.id for text in texts(connection, part, found) if tag in text.tags.split(_TAG_SEPARATOR)]


def containing(connection: sqlite3.Connection, part: int, needle: str, *, limit: int) -> list[int]:
    """Entries whose folded text may contain ``needle`` (folded), newest first; the caller must check each."""
    if len(needle) < 3:
        statement = f"""SELECT id FROM text_{part} WHERE instr(lower(key || ' ' || content || ' ' || tags), ?)
                        ORDER BY id DESC LIMIT ?"""
        return [row for (row,) in connection.execute(statement, (needle, limit))]
    grams = dict.fromkeys(needle[at : at + 3].replace('"', '""') for at in range(min(len(needle) - 2, 64)))
    match = " AND ".join(f'"{gram}"' for gram in grams if "\0" not in gram)
    statement = f"SELECT rowid FROM grams_{part} WHERE grams_{part} MATCH ? ORDER BY rowid DESC LIMIT ?"
    return [row for (row,) in connection.execute(statement, (match, limit))] if match else []


def without_vector(connection: sqlite3.Connection, part: int, model: str, *, limit: int) -> list[tuple[bytes, str]]:
    """Digest and content of at most ``limit`` entries without a vector of this model."""
    statement = f"""SELECT digest, content FROM text_{part} AS text WHERE NOT EXISTS
                    (SELECT 1 FROM vector WHERE model = ? AND digest = text.digest) LIMIT ?"""
    return connection.execute(statement, (model, limit)).fetchall()


def vectors(connection: sqlite3.Connection, part: int, model: str) -> list[tuple[int, bytes]]:
    """Entries and their vectors of this model, newest first."""
    statement = f"""SELECT text.id, vector.data FROM text_{part} AS text JOIN vector
                    ON vector.model = ? AND vector.digest = text.digest ORDER BY text.id DESC"""
    return connection.execute(statement, (model,)).fetchall()


def _schema(part: int) -> Iterator[str]:
    yield f"""CREATE TABLE text_{part} (id INTEGER PRIMARY KEY, key TEXT, content TEXT, tags TEXT, digest BLOB,
              reading TEXT)"""
    yield f"CREATE VIRTUAL TABLE words_{part} USING fts5(key, content, tags, content='', {tokenizer.STEMMED})"
    yield f"CREATE VIRTUAL TABLE counts_{part} USING fts5vocab(words_{part}, row)"
    yield f"""CREATE VIRTUAL TABLE grams_{part} USING fts5(text, content='', detail=none, columnsize=0,
              tokenize="trigram case_sensitive 1")"""


def _storable(text: str) -> str:
    """The text without lone surrogates, which no encoding can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _words(text: StoredText) -> tuple[int, str, str, str]:
    return text.id, tokenizer.indexed(text.key), tokenizer.indexed(text.content), tokenizer.indexed(text.tags)


def _rows_if_made(connection: sqlite3.Connection, statement: str, value: int | str) -> list[tuple[Any, ...]]:
    """The rows of a statement about one partition; none if it has no tables yet."""
    try:
        return connection.execute(statement, (value,)).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise


def as_json(values: Iterable[int | str]) -> str:
    """A list as one parameter, so that a statement stays the same and is prepared once."""
    return to_json(list(values)).decode()
