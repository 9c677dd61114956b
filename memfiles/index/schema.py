"""The tables of the index, and the number that changes when they do."""

from __future__ import annotations

FORMAT = 4
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE folder (name TEXT PRIMARY KEY, mtime_ns INT) WITHOUT ROWID",
    "CREATE TABLE intent (token TEXT, path TEXT, PRIMARY KEY (token, path)) WITHOUT ROWID",
    "CREATE TABLE part (id INTEGER PRIMARY KEY, scope TEXT, level TEXT, run TEXT, UNIQUE (scope, level, run))",
    """
    CREATE TABLE entry (
        id INTEGER PRIMARY KEY, path TEXT UNIQUE, part INT, key TEXT, tags TEXT, links TEXT, category TEXT,
        kind TEXT, pinned INT, kept INT, importance REAL, confidence REAL, size INT, successes INT, failures INT,
        created_at TEXT, updated_at TEXT, expires_at TEXT, source_run TEXT, thread TEXT, ordinal INT, provenance TEXT,
        state TEXT, retired_at TEXT, cause TEXT, revision INT, digest TEXT, inode INT, file_size INT, mtime_ns INT,
        sources TEXT, reads INT NOT NULL DEFAULT 0, read_at TEXT NOT NULL DEFAULT ''
    )
    """,
    """
    CREATE TABLE total (
        part INT, state TEXT, category TEXT, kind TEXT, count INT, size INT,
        PRIMARY KEY (part, state, category, kind)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX entry_by_key ON entry (part, key) WHERE state = 'live'",
    "CREATE INDEX entry_by_time ON entry (part, kept, updated_at, ordinal, key) WHERE state = 'live'",
    """
    CREATE INDEX entry_by_worth ON entry (
        part, category, kind, kept, importance, confidence, read_at, updated_at, ordinal
    ) WHERE state = 'live'
    """,
    "CREATE INDEX entry_by_expiry ON entry (part, expires_at) WHERE state = 'live' AND expires_at IS NOT NULL",
    "CREATE INDEX entry_by_retirement ON entry (part, retired_at) WHERE state IN ('deleted', 'evicted')",
    "CREATE INDEX entry_by_cause ON entry (cause) WHERE cause <> ''",
    "CREATE INDEX entry_by_sources ON entry (part) WHERE sources <> '[]'",
)
