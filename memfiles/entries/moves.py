"""Where entries went when they got other keys or places, and what they were before that.

The rule this file guards: a move is told by the cause of what is hidden where the entry was, whoever had it there;
so it can be followed to both sides, also over several moves; and each leads to where the entry is now, as a key in
between may be used again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from memfiles.entries import decisions as saving
from memfiles.entries.repository import EntryRepository, entry_at
from memfiles.index import queries as reading
from memfiles.index.index import Index
from memfiles.index.rows import Row
from memfiles.records.entry import MOVED, Entry, EntryRecord, moved_to
from memfiles.records.keys import entry_place
from memfiles.records.record import Stamp


class Moves:
    """The moves of the entries of one open memory."""

    def __init__(self, shelf: EntryRepository, index: Index) -> None:
        self._shelf = shelf
        self._index = index

    def before(self, paths: Iterable[str]) -> list[Entry]:
        """What the entries at these paths were before they got there, by one move or several, whoever had it."""
        left: dict[str, list[str]] = {}
        for row in self._retired():
            left.setdefault(row.cause, []).append(row.path)
        known = list(paths)
        ends = set(known)
        for path in known:  # which grows: something may have moved more than once
            known += left.pop(moved_to(path), ())
        return self.read(path for path in dict.fromkeys(known) if path not in ends)

    def sources(self, paths: Collection[str]) -> list[str]:
        """From where something got to these paths by one move that can still be told, whoever had it there."""
        if not paths:
            return []
        self._index.catch_up()
        causes = {moved_to(path) for path in paths}
        return [row.path for row in self._retired() if row.cause in causes]

    def after(self, entries: Sequence[Entry]) -> list[Entry]:
        """Where else these entries went, by one move or several; what they said is there."""
        known, left = {entry.path for entry in entries}, list(entries)
        for entry in left:  # which grows: what it became may have moved on
            target = entry.retired.target if entry.retired is not None else ""
            if target not in known and entry_place(target) is not None:
                known.add(target)
                left += self.read([target])
        return left[len(entries) :]

    def targets(self) -> list[str]:
        """The paths to which something moved that can still be told, sorted."""
        return sorted({row.cause.removeprefix(MOVED) for row in self._retired()})

    def read(self, paths: Iterable[str]) -> list[Entry]:
        """The entries at these paths, hidden or not; what is none is left out."""
        return [entry for path in paths if (entry := entry_at(self._shelf, path)) is not None]

    def _retired(self) -> list[Row]:
        return self._index.ask(
            lambda connection: reading.retired_by(connection, reading.all_parts(connection), prefix=MOVED)
        )


def clear(records: dict[str, EntryRecord | None], shadows: Sequence[str], stamp: Stamp, *, for_: str) -> None:
    """Delete what would shadow the entry that was just saved at the path ``for_``; its sources lead on to there."""
    for path in shadows:
        found = records[path]
        if isinstance(found, Entry) and found.is_live(stamp.at):
            unchecked = replace(stamp, expected_revision=None)
            records[path] = saving.delete(found, unchecked, key=found.key, cause=moved_to(for_)).entry
    if causes := {moved_to(path): moved_to(for_) for path in shadows}:
        records |= {path: lead_on(record, stamp, causes) for path, record in records.items()}


def lead_on(record: EntryRecord | None, stamp: Stamp, causes: Mapping[str, str]) -> EntryRecord | None:
    """What a move hid, hidden by the next one of the same entry: ``causes`` says for each which; all else as it is."""
    if not isinstance(record, Entry) or record.retired is None or record.retired.cause not in causes:
        return record
    retired = replace(record.retired, cause=causes[record.retired.cause])
    return saving.resaid(record.amended(retired=retired), stamp, op="delete")
