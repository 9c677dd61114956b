"""The sync: keeps the memory directory and a mirror equal, off the write path.

``engine`` runs it, ``dispatcher`` says what is due when, ``reconciler`` reconciles a record with its copy in the
mirror, and ``ledger`` keeps what the mirror acknowledged. The names here load when first used, as mirrors import the
contract from this package and need nothing else.

Other rooms use ``bulk_reads``, ``downloads``, ``ledger``, ``mirror``, ``replica`` and ``status``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfiles.sync.engine import Sync as Sync
    from memfiles.sync.status import NullSync as NullSync
    from memfiles.sync.status import SyncReport as SyncReport
    from memfiles.sync.status import SyncSettings as SyncSettings
    from memfiles.sync.status import SyncStatus as SyncStatus
    from memfiles.sync.status import settings_of as settings_of

_STATUS = ("NullSync", "SyncReport", "SyncSettings", "SyncStatus", "settings_of")
_MODULES = {"Sync": "engine", **dict.fromkeys(_STATUS, "status")}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Load a name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
