"""The stores as the exam of record stores opens them, here and in other processes: few imports, as it starts many."""

from __future__ import annotations

import time
from pathlib import Path

from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import Store


def directory_store(directory: str) -> RecordStore:
    """The directory store."""
    return Store(Path(directory), now=lambda: time.strftime("%Y-%m-%dT%H:%M:%S.000Z"))


def postgres_store(url: str) -> RecordStore:
    """The PostgreSQL store."""
    from memfiles.storage.postgres.store import PostgresStore  # late: the other stores load no psycopg

    return PostgresStore(url)
