"""In place of a synchronisation where no mirror is declared: there is nothing to do, and it is done."""

from __future__ import annotations

from collections.abc import Callable

from memfiles.sync.reports import SyncReport, SyncSettings, SyncStatus


class NullSync:
    """Takes the calls that ``Sync`` takes."""

    settings = SyncSettings()

    def __init__(self, status: Callable[[], SyncStatus] = SyncStatus) -> None:
        """``status`` reads the status of a mirror that nothing is pushed to; without it nothing is behind."""
        self._status = status

    def status(self) -> SyncStatus:
        """How far the mirror is behind."""
        return self._status()

    def flush(
        self,
        timeout: float = 30.0,
        *,
        insist: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """True at once."""
        return True

    def push(self, timeout: float = 300.0, *, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        """Nothing is pushed."""
        return SyncReport({}, ())

    def pull(self, timeout: float = 300.0, *, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        """Nothing is fetched."""
        return SyncReport({}, ())

    def close(self, timeout: float = 0.0) -> bool:
        """True: nothing is left."""
        return True
