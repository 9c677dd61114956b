"""The machine's boot id: tells whether a derived database was closed before a power cut."""

from __future__ import annotations

from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """What is another after every start of the machine; the same for ever where the system does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return "unknown"
