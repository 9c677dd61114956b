"""A derived database may be lost at any time, and is never trusted after a power cut."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memfiles.errors import StorageFailed
from memfiles.storage.derived_database import DatabaseLost, DerivedDatabase, DerivedFile, boot_id

FILE = DerivedFile(
    path=".state/some.sqlite",
    title="some database",
    format=3,
    tables=("CREATE TABLE meta (key TEXT PRIMARY KEY, value)", "CREATE TABLE word (word TEXT)"),
    journal_mode="DELETE",
    pragmas=("synchronous = OFF", "secure_delete = ON"),
    patience_seconds=0.01,
)


def opened(directory: Path) -> DerivedDatabase:
    return DerivedDatabase(FILE, directory)


def write(database: DerivedDatabase, *words: str) -> None:
    with database.transaction() as connection:
        connection.executemany("INSERT INTO word VALUES (?)", [(word,) for word in words])


def words(database: DerivedDatabase) -> list[str]:
    return [word for (word,) in database.connection().execute("SELECT word FROM word ORDER BY word")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[DerivedDatabase]:
    database = opened(tmp_path)
    yield database
    database.close()


def set_boot(directory: Path, boot: str) -> None:
    with closing(sqlite3.connect(directory / FILE.path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'boot'", (boot,))


def test_a_failed_transaction_changes_nothing(database: DerivedDatabase) -> None:
    """It is rolled back, and the next one begins anew."""
    write(database, "kept")
    with pytest.raises(ZeroDivisionError), database.transaction() as connection:
        connection.execute("INSERT INTO word VALUES ('lost')")
        raise ZeroDivisionError

    assert ["kept"] == words(database)


def test_a_file_of_another_boot_is_lost_unless_it_was_settled(tmp_path: Path, database: DerivedDatabase) -> None:
    """Only what was flushed is trusted after a power cut."""
    write(database, "word")
    set_boot(tmp_path, "an earlier boot")
    with pytest.raises(DatabaseLost, match="some database was in use when the machine went down"):
        opened(tmp_path).connection()
    set_boot(tmp_path, boot_id())
    database.settle()
    set_boot(tmp_path, "an earlier boot")
    other = opened(tmp_path)

    with pytest.raises(DatabaseLost):
        other.connection()
    database.start_over()
    write(database, "word")
    database.settle()
    assert ["word"] == words(other)
    other.close()


def test_a_file_of_another_format_is_lost(tmp_path: Path, database: DerivedDatabase) -> None:
    """An older or newer memfiles left it."""
    database.connection().execute("PRAGMA user_version = 2")

    with pytest.raises(DatabaseLost, match="another format"):
        opened(tmp_path).connection()


@pytest.mark.parametrize("damage", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_lost_and_can_be_started_over(
    tmp_path: Path, database: DerivedDatabase, damage: bytes
) -> None:
    """The next use finds an empty database."""
    (tmp_path / ".state").mkdir()
    (tmp_path / FILE.path).write_bytes(damage)
    with pytest.raises(DatabaseLost, match=FILE.path):
        database.connection()
    database.start_over()

    assert [] == words(database)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, database: DerivedDatabase) -> None:
    """It is lost as well; starting over removes the link, never its target."""
    (tmp_path / ".state").mkdir()
    target = tmp_path / "target"
    target.write_bytes(b"")
    (tmp_path / FILE.path).symlink_to(target)
    with pytest.raises(DatabaseLost, match="not a regular file"):
        database.connection()
    database.start_over()

    assert [] == words(database)
    assert b"" == target.read_bytes()


def test_it_is_private_whatever_the_umask(tmp_path: Path, database: DerivedDatabase) -> None:
    """It holds text, so only its owner may read it."""
    old = os.umask(0)
    try:
        write(database, "word")
    finally:
        os.umask(old)

    assert 0o600 == (tmp_path / FILE.path).stat().st_mode & 0o777


def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path, database: DerivedDatabase) -> None:
    """Another process may have started it over."""
    write(database, "old")
    was_current = database.is_current
    opened(tmp_path).start_over()

    assert (True, False) == (was_current, database.is_current)
    assert [] == words(database)


def test_a_deleted_memory_directory_is_not_brought_back(tmp_path: Path) -> None:
    """Nobody asked for it."""
    database = opened(tmp_path / "memory")
    write(database, "word")
    for path in [tmp_path / "memory" / FILE.path, tmp_path / "memory" / ".state", tmp_path / "memory"]:
        path.unlink() if path.is_file() else path.rmdir()

    with pytest.raises(StorageFailed, match="cannot be used: No such file or directory$"):
        database.connection()
    assert [] == list(tmp_path.iterdir())


def test_a_locked_database_is_unusable_and_not_lost(tmp_path: Path, database: DerivedDatabase) -> None:
    """The message tells what to do, and everything is there later."""
    write(database, "word")
    with closing(sqlite3.connect(tmp_path / FILE.path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageFailed, match="locked by another process") as failure:
            write(database, "another")

    assert not isinstance(failure.value, DatabaseLost)
    assert ["word"] == words(database)


def test_compacting_leaves_nothing_of_what_was_deleted(tmp_path: Path, database: DerivedDatabase) -> None:
    """It cannot while another process reads, and says so."""
    write(database, "needle")
    database.connection().execute("DELETE FROM word")
    other = opened(tmp_path)
    reading = other.connection()
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM word").fetchone()
    while_read = database.compact()
    other.close()

    assert (False, True) == (while_read, database.compact())
    assert b"needle" not in (tmp_path / FILE.path).read_bytes()


def test_a_transaction_that_was_interrupted_is_rolled_back(database: DerivedDatabase) -> None:
    """An interrupt may come when it has begun and nothing guards it yet; the next one works, without what it wrote."""
    write(database, "word")
    connection = database.connection()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM word")

    write(database, "another")
    assert ["another", "word"] == sorted(words(database))


def test_a_copy_holds_what_a_trusted_file_holds(tmp_path: Path, database: DerivedDatabase) -> None:
    """Nothing is copied from a file of another boot, or from none."""
    with closing(sqlite3.connect(":memory:")) as target:
        of_none = database.copy_into(target)
        write(database, "word")
        of_this = database.copy_into(target)
        copied = target.execute("SELECT word FROM word").fetchall()
        set_boot(tmp_path, "an earlier boot")

        assert (False, True, False) == (of_none, of_this, database.copy_into(target))
        assert [("word",)] == copied
