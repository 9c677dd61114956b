"""Images of an index in a PostgreSQL store, for tests: made, read, replaced."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from memfiles.entries.entries import Entries
from memfiles.index.image import PART_BYTES, ImageKeeper
from memfiles.records.entry import Entry
from memfiles.records.marks import erased
from memfiles.storage.record_store import RecordStore, RemoteStore
from tests.index.test_store_cache import ANN, found
from tests.support.postgres import SCHEMA, PostgresServer

AT = "2026-05-04T09:00:00.000Z"
WORDS = ["quagmire", "xylophone"]


def keeper_of(entries: Entries) -> ImageKeeper:
    keeper = entries._index._keeper
    assert keeper is not None
    return keeper


def fill(entries: Entries, *, count: int = 300) -> None:
    """More entries than go without tables of their own, and make an image of them."""
    entries.save_many(ANN, [{"key": f"k{number}", "content": f"zebra {number}"} for number in range(count)])
    entries.save(ANN, "secret", " ".join(WORDS))
    keep_image(entries)


def keep_image(entries: Entries) -> None:
    """Have an image kept now."""
    keeper = keeper_of(entries)
    keeper.wait()
    keeper.least = 1
    keeper.renew()
    found(entries, "zebra")
    keeper.wait()
    keeper.renew()


def let_claim(server: PostgresServer, workspace: str) -> None:
    """Have the next image wanted at once."""
    with server.admin() as admin:
        admin.execute(f"UPDATE {SCHEMA}.image_state SET claimed = '-infinity' WHERE workspace = %s", (workspace,))


def epoch(entries: Entries) -> object:
    """What tells an index that was built from one that was fetched."""
    return entries._index.ask(lambda rows: rows.execute("SELECT epoch FROM text_part ORDER BY part").fetchall())


def image(server: PostgresServer, workspace: str) -> list[bytes]:
    """The parts of the image, packed, without the empty one at the end."""
    with server.admin() as admin:
        query = f"SELECT data FROM {SCHEMA}.image WHERE workspace = %s ORDER BY part"
        return [data for (data,) in admin.execute(query, (workspace,), binary=True)][:-1]


def replace_image(server: PostgresServer, workspace: str, parts: list[bytes]) -> None:
    """Put other parts in the place of those of the image, as anyone may who may change records."""
    with server.admin() as admin:
        for number, part in enumerate([*parts, b""]):
            admin.execute(
                f"INSERT INTO {SCHEMA}.image (workspace, part, id, format, data) SELECT workspace, %s, id, format, %s"
                f" FROM {SCHEMA}.image WHERE workspace = %s AND part = 0 ON CONFLICT (workspace, part)"
                " DO UPDATE SET data = excluded.data",
                (number, part, workspace),
            )


def packed(file: bytes) -> list[bytes]:
    return [zlib.compress(file[at : at + PART_BYTES]) for at in range(0, len(file), PART_BYTES)]


def rewritten(parts: list[bytes], path: Path, statement: str) -> list[bytes]:
    """The image after a statement."""
    path.write_bytes(b"".join(map(zlib.decompress, parts)))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.executescript(statement)
    return packed(path.read_bytes())


def entry_of(entries: Entries, key: str) -> Entry:
    ((path,),) = entries._index.ask(
        lambda rows: rows.execute("SELECT path FROM entry WHERE key = ?", (key,)).fetchall()
    )
    entry = entries.repository.look(path).record
    assert isinstance(entry, Entry)
    return entry


def bury(entries: Entries, key: str) -> None:
    """Commit the mark in place of an entry, and nothing that comes after it."""
    entry = entry_of(entries, key)
    entries.repository.change([entry.path], lambda records: (None, [erased(entry, AT)]))


def remote(store: RecordStore) -> RemoteStore:
    assert isinstance(store, RemoteStore)
    return store
