"""The sync: keeps the memory directory and a mirror equal, off the write path.

``engine`` runs it, ``schedule`` says what is due when, ``reconciler`` reconciles a record with its copy in the mirror,
and ``ledger`` keeps what the mirror acknowledged. The names here load when first used, as mirrors import the contract
from this package and need nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfiles.sync.engine import Sync
    from memfiles.sync.status import NullSync, SyncReport, SyncSettings, SyncStatus, settings_of

_MODULES = {
    "NullSync": "status",
    "Sync": "engine",
    "SyncReport": "status",
    "SyncSettings": "status",
    "SyncStatus": "status",
    "settings_of": "status",
}

__all__ = ["NullSync", "Sync", "SyncReport", "SyncSettings", "SyncStatus", "settings_of"]


def __getattr__(name: str) -> object:
    """Load a name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
