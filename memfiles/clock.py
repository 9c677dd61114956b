"""The wall clock, in the one form in which records tell time. Order is never taken from it."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """The present moment as ``2026-11-21T09:00:00.000Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
