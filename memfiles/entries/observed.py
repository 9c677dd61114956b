"""What is known of an entry's record, and what a look at its file makes of that: pure decisions for the shelf.

The rules this file guards: a version written by memfiles is told from one changed by hand, which becomes a revision
over what was known before; and whoever subscribed is told of every change once, whoever made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memfiles.errors import RecordCorrupt
from memfiles.records.entry import MAX_ENTRY_BYTES, Entry, EntryRecord
from memfiles.records.file_changes import absorb
from memfiles.records.record import NOBODY
from memfiles.storage.atomic import Signature, is_settled
from memfiles.storage.events import Origin, RecordChanged

REMOVED = "remove"
"""The ``op`` that is told when the file of an entry is gone: which is not to forget, for a mirror brings it back."""

_SAVED_NS = 500_000_000  # a file this long untouched is not in the middle of being saved
_UNKNOWN_NS = 5_000_000_000  # as long as another process has, which may know the last good version


@dataclass(frozen=True, slots=True)
class ObservedEntry:
    """A record as last seen, and how it relates to the file.

    ``by_hand``: someone changed the file; the record is what that makes, not yet written. ``problem``: why the file
    cannot be used; the record is then the last good one, if one is known. ``settled``: no change within the same tick
    of the kernel's clock can have the same signature. ``stored``: the last version known to have been on disk, if that
    is not the record. ``news``: where a change came from that the subscribers have not been told of. ``is_ours``: this
    process wrote it, and told of it. ``is_first``: the first version that this process read, so whether it is a change
    is not known; if something points at one, it is.
    """

    record: EntryRecord | None
    signature: Signature | None
    by_hand: bool = False
    problem: str | None = None
    settled: bool = True
    stored: EntryRecord | None = None
    news: Origin | None = None
    is_ours: bool = False
    is_first: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the file is this record."""
        return self.signature is not None and not self.by_hand and self.problem is None

    @property
    def is_told(self) -> bool:
        """Whether there is nothing to do about it."""
        return not self.by_hand and self.problem is None and self.news is None

    @property
    def last_stored(self) -> EntryRecord | None:
        """The version that the next one is compared with."""
        return self.record if self.is_plain else self.stored

    @property
    def is_saved(self) -> bool:
        """Whether nobody can be in the middle of saving a broken file, or of putting back what it was before."""
        patience = _SAVED_NS if self.record is not None else _UNKNOWN_NS
        return self.signature is None or is_settled(self.signature, for_ns=patience)


NOTHING = ObservedEntry(None, None)


def judged(found: EntryRecord, signature: Signature, *, before: ObservedEntry | None, at: str) -> ObservedEntry:
    """Tell a version written by memfiles from one changed by hand; ``RecordCorrupt`` if that is over the cap.

    What is put where a file was removed is taken as it is: a key may begin anew.
    """
    settled, known = is_settled(signature), before.last_stored if before is not None else None
    news, is_first = _origin_of(found, before), _is_first(found, before)
    stored = ObservedEntry(found, signature, settled=settled, news=news, is_first=is_first)
    if not isinstance(found, Entry):
        return stored
    last = known.text if isinstance(known, Entry) else None
    is_new = last is None or found.revision > last.revision or (before is not None and before.signature is None)
    if found.text.is_intact and (is_new or found == known):
        return stored
    text = absorb(found.text, known=last, at=at)
    if text.size_bytes > MAX_ENTRY_BYTES:
        raise RecordCorrupt(f"{found.path}: changed by hand to {text.size_bytes} bytes, over {MAX_ENTRY_BYTES}")
    made = replace(found, text=text)
    return ObservedEntry(made, signature, by_hand=True, settled=settled, stored=known, news="external")


def broken(signature: Signature, *, before: ObservedEntry | None, problem: str) -> ObservedEntry:
    """What is known when the file cannot be used."""
    settled = is_settled(signature)
    if before is None:
        return ObservedEntry(None, signature, problem=problem, settled=settled)
    good = before.record or before.stored
    news: Origin | None = "restored" if good is not None else None
    return ObservedEntry(good, signature, problem=problem, settled=settled, stored=before.last_stored, news=news)


def gone(before: ObservedEntry | None) -> ObservedEntry:
    """What is known when there is no file: the entry is no more. That a run took its entries with it is no news."""
    if before is None:
        return NOTHING
    last = before.last_stored
    is_news = before.signature is not None and isinstance(last, Entry) and not last.run
    return ObservedEntry(None, None, stored=last, news="external" if is_news else before.news)


def told_of(seen: ObservedEntry) -> list[RecordChanged]:
    """What is to be told of what came from elsewhere."""
    if seen.news is None:
        return []
    if seen.record is not None:
        kept = f"{seen.problem}; what was there is in quarantine, and the last good version was put back"
        return [event_of(seen.record, seen.news, warning=kept if seen.news == "restored" else None)]
    last = seen.stored
    if not isinstance(last, Entry):
        return []
    return [replace(event_of(last, seen.news), op=REMOVED, by=NOBODY)]


def events_of(before: ObservedEntry, record: EntryRecord, origin: Origin) -> Sequence[RecordChanged]:
    """What is to be told when ``record`` was written over what was seen: first what nobody was told of yet."""
    return [*told_of(before), *([event_of(record, origin)] if record is not before.record else [])]


def event_of(record: EntryRecord, origin: Origin, *, warning: str | None = None) -> RecordChanged:
    """That this record is there now."""
    if not isinstance(record, Entry):
        return RecordChanged(
            record.uid, "", record.revision, "forget", origin, warning, record.path, record.level, record.by
        )
    history = record.text.history
    op, by = (history[-1].op, history[-1].by) if history else ("save", NOBODY)
    return RecordChanged(record.uid, record.key, record.revision, op, origin, warning, record.path, record.level, by)


def _origin_of(found: EntryRecord, before: ObservedEntry | None) -> Origin | None:
    """Where a sound version came from that was not read before; None if there is nothing new to tell."""
    if before is None or _is_first(found, before):
        return None
    if found == before.last_stored and before.signature is not None:
        return before.news if before.is_plain else None
    return "process"


def _is_first(found: EntryRecord, before: ObservedEntry | None) -> bool:
    if before is None or (before.signature is None and before.stored is None):
        return True
    return before.is_first and found == before.record
