"""Records in PostgreSQL: one truth for workers on many machines, by the contract of ``storage.record_store``.

psycopg, of the extra ``postgres``, is imported with the modules of this room alone, and they with the first store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from memfiles.errors import ExtraMissing

if TYPE_CHECKING:
    from pathlib import Path

    from memfiles.storage.home import MemoryHome
    from memfiles.storage.record_store import RecordStore

SCHEMES = ("postgresql://", "postgres://")
"""How the URL of a store begins that is not a directory."""

_NEEDED = 'records in PostgreSQL need psycopg: pip install "memfiles[postgres]"'


def home_at(url: str, *, cache: Path | None = None) -> MemoryHome:
    """The home at a URL, the same for the whole process; nothing is opened. ``ExtraMissing``, ``InvalidArgument``."""
    try:
        from memfiles.storage.postgres.home import home  # late: psycopg takes 0.2 s to load
    except ImportError as error:
        raise ExtraMissing(_NEEDED) from error
    return home(url, cache=cache)


def store_at(
    url: str, *, workspace: str = "", durability: Literal["fsync", "os"] = "fsync", lock_timeout: float = 30.0
) -> RecordStore:
    """Open the store at a URL. ``InvalidArgument``, ``StorageRefused``, ``StorageFailed``; ``ExtraMissing``."""
    try:
        from memfiles.storage.postgres.store import PostgresStore  # late, as above
    except ImportError as error:
        raise ExtraMissing(_NEEDED) from error
    return PostgresStore(url, workspace=workspace, durability=durability, lock_timeout=lock_timeout)
