"""How many entries there are, of everybody: for whoever looks after a directory, never for a session."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

_LIVE_AND_EXPIRED = "entry WHERE entry.part = part.id AND state = 'live' AND expires_at <= :now"
_STATEMENT = f"""
    SELECT scope, level, run,
        coalesce(sum(count) FILTER (WHERE state = 'live'), 0) - (SELECT count(*) FROM {_LIVE_AND_EXPIRED}),
        coalesce(sum(total.size) FILTER (WHERE state = 'live'), 0)
            - (SELECT coalesce(sum(entry.size), 0) FROM {_LIVE_AND_EXPIRED}),
        (SELECT count(*) FROM {_LIVE_AND_EXPIRED}),
        coalesce(sum(count) FILTER (WHERE state <> 'live'), 0)
    FROM part JOIN total ON total.part = part.id
    GROUP BY part.id ORDER BY scope, level, run
"""


class Counted(NamedTuple):
    """What one folder holds at one level, of one run or of none alone: what can be seen, and what is hidden."""

    folder: str
    level: str
    run: str
    entries: int
    size_bytes: int
    expired: int
    retired: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self._asdict()


def counted(connection: sqlite3.Connection, *, now: str) -> list[Counted]:
    """Every folder, level and run that holds anything, sorted."""
    rows = (Counted(*row) for row in connection.execute(_STATEMENT, {"now": now}))
    return [each for each in rows if each.entries or each.expired or each.retired]
