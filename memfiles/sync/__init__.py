"""The mirror and the directory kept equal, beside the work and never in its way.

``engine`` runs it, ``schedule`` says what is due when, ``reconciling`` brings one record and its copy together over
``replica`` (the record here) and the mirror (the copy there), and ``bookkeeping`` remembers what was acknowledged.
"""

from __future__ import annotations

from memfiles.sync.engine import Sync
from memfiles.sync.nothing import NoSync
from memfiles.sync.reports import SyncReport, SyncSettings, SyncStatus, settings_of

__all__ = ["NoSync", "Sync", "SyncReport", "SyncSettings", "SyncStatus", "settings_of"]
