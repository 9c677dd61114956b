"""Records in PostgreSQL: one truth for workers on many machines, by the contract of ``storage.record_store``.

psycopg, of the extra ``postgres``, is imported with the modules of this room alone, and they with the first store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memfiles.errors import ExtraMissing

if TYPE_CHECKING:
    from pathlib import Path

    from memfiles.storage.home import MemoryHome

SCHEMES = ("postgresql://", "postgres://")
"""How the URL of a store begins that is not a directory."""


def home_at(url: str, *, cache: Path | None = None) -> MemoryHome:
    """The home at a URL, the same for the whole process; nothing is opened. ``ExtraMissing``, ``InvalidArgument``."""
    try:
        from memfiles.storage.postgres.home import home  # late: psycopg takes 0.2 s to load
    except ImportError as error:
        raise ExtraMissing('records in PostgreSQL need psycopg: pip install "memfiles[postgres]"') from error
    return home(url, cache=cache)
