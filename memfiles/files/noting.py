"""Noting which records are sound when a process starts and ends, so that the next start need not read them."""

from __future__ import annotations

from contextlib import suppress

from memfiles.files import start_cache as unchanged
from memfiles.files.start_cache import CacheRow
from memfiles.records.keys import uid_of
from memfiles.records.record import Record
from memfiles.storage.record_kinds import Observed
from memfiles.storage.repository import RecordRepository

_WORTH_NOTING = 16  # fewer files are read as quickly as the note


class Noting:
    """The notes of one open directory."""

    def __init__(self) -> None:
        self._noted: dict[str, CacheRow] = {}

    def begin(self, noted: dict[str, CacheRow]) -> None:
        """Go on with the notes that a restore found and trusted."""
        self._noted = noted

    def save(self, live: RecordRepository[Record], directory: int) -> None:
        """Note what is known of the live files, if there is news and they are many; a failure costs time later."""
        fresh = {path.removesuffix(".json"): note for path, seen in live.known().items() if (note := _fresh_note(seen))}
        is_news = any(self._noted.get(uid) != note for uid, note in fresh.items())
        if is_news and len(self._noted) + len(fresh) >= _WORTH_NOTING:
            declared = {uid_of(path) for path in live.paths()}
            self._noted = {uid: note for uid, note in (self._noted | fresh).items() if uid in declared}
            with suppress(OSError):
                unchanged.save(directory, self._noted)


def _fresh_note(seen: Observed[Record]) -> CacheRow | None:
    """What to note of a file that was read or written since the start; nothing if it may be about to change."""
    if not seen.is_plain or not seen.settled or seen.record is None or seen.signature is None:
        return None
    return unchanged.note(seen.record, seen.signature)
