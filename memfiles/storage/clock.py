"""The wall clock, in the one form in which records tell time. Order is never taken from it."""

from __future__ import annotations

import time

_second = (0, "")  # the last second that was written out: that costs five times as much as the rest


def utc_now() -> str:
    """The present moment as ``2026-11-21T09:00:00.000Z``."""
    global _second
    second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
    known, text = _second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = (second, text)
    return f"{text}.{millisecond:03d}Z"
