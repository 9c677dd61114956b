"""The texts of entries whose time is over: taken out before a search, so that they shift no score and no order.

Their rows stay as they are, but for the digest, which is that of no content: so the text is put back when the entry
is renewed, even with the same content.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pydantic_core import to_json

from memfiles.index.text import fts as texts

_DUE = """
    FROM json_each(:parts) AS p CROSS JOIN entry AS e INDEXED BY entry_by_expiry ON e.part = p.value
    WHERE e.state = 'live' AND e.expires_at IS NOT NULL AND e.expires_at <= :now AND e.digest <> ''
"""


def is_due(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> bool:
    """Whether these partitions hold texts of entries that have expired."""
    return connection.execute(f"SELECT 1 {_DUE} LIMIT 1", _values(parts, now)).fetchone() is not None


def take_out(connection: sqlite3.Connection, parts: Sequence[int], *, now: str) -> None:
    """Have no text of entries of these partitions that have expired."""
    for id, part in connection.execute(f"SELECT e.id, e.part {_DUE}", _values(parts, now)).fetchall():
        texts.remove(connection, part, id)
        connection.execute("UPDATE entry SET digest = '' WHERE id = ?", (id,))


def _values(parts: Sequence[int], now: str) -> dict[str, str]:
    return {"parts": to_json(list(parts)).decode(), "now": now}
