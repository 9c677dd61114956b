"""Deleting many entries at once: all that are meant are hidden in one commit, or none is.

The rule this file guards: only what lies at the caller's own level goes. What is hidden can be restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeGuard

from memfiles.entries import decisions as saving
from memfiles.entries.drafts import listed
from memfiles.entries.partitions import Caller, own_level
from memfiles.entries.repository import EntryRepository, RecordsByPath
from memfiles.entries.results import Deleted
from memfiles.records.entry import Entry, EntryRecord
from memfiles.records.keys import check_key
from memfiles.records.record import Stamp


def delete_many(
    shelf: EntryRepository, caller: Caller, keys: Iterable[str], *, now: Callable[[], str]
) -> list[Deleted]:
    """Hide the entries of these keys at the caller's level; returned are those that were there, by key."""
    stamp, own = Stamp(now(), caller.actor(None)), own_level(caller)
    paths = [partition.path(key) for key in {check_key(key) for key in listed(keys, "keys")} for partition in own]

    def decide(records: RecordsByPath) -> tuple[list[Entry], list[Entry]]:
        found = filter(is_there, records.values())
        hidden = [saving.delete(record, stamp, key=record.key).entry for record in found]
        return hidden, hidden

    def is_there(record: EntryRecord | None) -> TypeGuard[Entry]:
        return isinstance(record, Entry) and record.is_live(stamp.at)

    present = [path for path in paths if is_there(shelf.find(path))]
    hidden = shelf.change(present, decide) if present else []
    return sorted((Deleted(entry.key, entry.level, entry.revision) for entry in hidden), key=lambda gone: gone.key)
