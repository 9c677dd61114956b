"""Entries in from files: everything that may be saved, and a report of everything that may not.

The rules this file guards: an import is one commit and goes through every gate that a save goes through; it writes at
the session's level alone; what was forgotten stays forgotten, and what is newer here stays as it is; what is not taken
in is reported with its place and the reason; and a file that was exported and not changed is imported without a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memfiles.entries.decisions import Past
from memfiles.entries.drafts import Draft, check_draft, check_switch, gate_labels
from memfiles.entries.partitions import Caller, Partition, own_level, view_of
from memfiles.entries.policy import EntryRules
from memfiles.entries.repository import EntryRepository
from memfiles.entries.results import Imported, Skipped
from memfiles.entries.transfer.document import Document, is_time, provenance_in
from memfiles.entries.transfer.exporter import document_of
from memfiles.entries.transfer.formats import Format, read
from memfiles.entries.writer import EntryWriter, ImportedDraft
from memfiles.errors import MemfilesError
from memfiles.records.entry import GENERAL, Entry, Tombstone

_SOURCE = "import"


class Importing:
    """Reads files into one open memory."""

    def __init__(
        self, shelf: EntryRepository, keeper: EntryWriter, *, rules: EntryRules, now: Callable[[], str]
    ) -> None:
        """``now`` is the latest that anything imported can have happened."""
        self._shelf = shelf
        self._keeper = keeper
        self._rules = rules
        self._now = now

    def import_(
        self, caller: Caller, source: str | os.PathLike[str], *, format: Format | None = None, dry_run: bool = False
    ) -> Imported:
        """Take in what is at ``source`` for the caller, at its level; ``dry_run`` only reports.

        ``InvalidArgument`` if nothing there can be read at all, ``BudgetExceeded`` if it is more than is kept,
        ``StorageFailed``: nothing was changed.
        """
        check_switch(dry_run, what="dry_run")
        parsed = read(source, format=format)
        sorted_out = [self._sort(caller, document) for document in parsed.documents]
        skipped = [*parsed.skipped, *(found for found in sorted_out if isinstance(found, Skipped))]
        taken = [found for found in sorted_out if isinstance(found, ImportedDraft)]
        unchanged = sum(found is None for found in sorted_out)
        added = sum(not each.is_there for each in taken)
        if not dry_run and taken:
            self._keeper.take_in(caller, taken)
        return Imported(added, len(taken) - added, unchanged, tuple(skipped), dry_run)

    def _sort(self, caller: Caller, document: Document) -> ImportedDraft | Skipped | None:
        """What becomes of a document: it is taken in, or skipped for a reason; None if all it says is known."""
        level = document.level or caller.level
        view = view_of(caller, self._rules.levels)
        place = self._place(caller, document, level)
        if isinstance(place, Skipped):
            return place
        before = self._shelf.find(place.path(document.key)) if place in view else None
        if isinstance(before, Entry) and before.retired is None and _says_the_same(document, before):
            return None
        if level != caller.level:
            return Skipped(document.where, f"it is at level {level}, and this session writes at {caller.level} alone")
        if isinstance(before, Tombstone):
            return Skipped(document.where, f"what was under its key was forgotten at {before.at}")
        if isinstance(before, Entry) and (reason := _keeps(before, document)) is not None:
            return Skipped(document.where, reason)
        try:
            gate_labels(_origin(document), self._rules.secrets, self._rules.allow)
            checked = check_draft(
                _draft(document), secrets=self._rules.secrets, allow=self._rules.allow, scan=self._rules.scan
            )
        except MemfilesError as error:
            return Skipped(document.where, str(error))
        past = _past(document, latest=self._now())
        if (problem := self._too_large(document) or self._over(document, past)) is not None:
            return Skipped(document.where, problem)
        return ImportedDraft(checked, place, past, isinstance(before, Entry))

    def _place(self, caller: Caller, document: Document, level: str) -> Partition | Skipped:
        """Where a document belongs at its level."""
        if level not in self._rules.levels.names:
            known = ", ".join(self._rules.levels.names)
            return Skipped(document.where, f"its level {level[:40]!r} is not declared; declared are {known}")
        category = self._rules.category(document.category or GENERAL)
        own = own_level(caller, level)
        if category.is_of_one_run and len(own) < 3:
            return Skipped(document.where, f"category {category.name} belongs to a run, and this session has none")
        return own[-1] if category.is_shared else own[-3] if category.is_of_one_run else own[-2]

    def _too_large(self, document: Document) -> str | None:
        most = self._rules.budget.max_bytes
        size = len(document.content.encode())
        return f"it is {size} bytes and the whole budget is {most}" if most is not None and size > most else None

    def _over(self, document: Document, past: Past) -> str | None:
        """Why nobody would see the entry; None if it lives."""
        expires_at = past.expires_at or self._rules.expiry(document.category or GENERAL, past.updated_at)
        return f"its time was over at {expires_at}" if expires_at is not None and expires_at <= self._now() else None


def _says_the_same(document: Document, entry: Entry) -> bool:
    """Whether the entry already is what the document says; what it does not say, it does not ask for."""
    known = document_of(entry)
    untold = {name: known.extra[name] for name in ("made_of", "provenance") if name in known.extra}
    said = replace(document, level=known.level, extra={**untold, **document.extra, **_more_used(document, entry)})
    fields = ("category", "kind", "created", "updated")
    filled = {name: getattr(said, name) or getattr(known, name) for name in fields}
    return replace(said, **filled) == known


def _more_used(document: Document, entry: Entry) -> dict[str, int]:
    """How often the entry is known to have been of use, by either, where it was."""
    extra: dict[str, Any] = dict(document.extra)
    counts = {name: max(extra.get(name, 0), getattr(entry, name)) for name in ("successes", "failures")}
    return {name: count for name, count in counts.items() if count}


def _origin(document: Document) -> tuple[str, ...]:
    extra: dict[str, Any] = dict(document.extra)
    return tuple(extra.get("provenance", ()))


def _keeps(entry: Entry, document: Document) -> str | None:
    """Why the entry stays as it is; None if the document is to be taken in."""
    if document.updated is not None and document.updated < entry.updated_at:
        return f"the entry here is newer: it changed at {entry.updated_at}, this one at {document.updated}"
    if document.updated is not None and entry.retired is not None and document.updated <= entry.retired.at:
        return f"it was {entry.retired.state} here at {entry.retired.at}, after this was written: restore it by its key"
    if entry.kind == "episode" and entry.retired is None and document.content != entry.content:
        return "the entry here is an episode, which never changes"
    return None


def _draft(document: Document) -> Draft:
    extra: dict[str, Any] = dict(document.extra)
    return Draft(
        document.key,
        document.content,
        tags=document.tags,
        category=document.category,
        kind=document.kind,  # type: ignore[arg-type]
        confidence=extra.get("confidence"),
        importance=extra.get("importance"),
        pinned=extra.get("pinned"),
        links=extra.get("links"),
        source=_SOURCE,
    )


def _past(document: Document, *, latest: str) -> Past:
    """What the document tells of earlier times, none of it later than now."""
    extra: dict[str, Any] = dict(document.extra)
    updated = _time(document.updated, latest) or latest
    return Past(
        created_at=min(_time(document.created, latest) or latest, updated),
        updated_at=updated,
        expires_at=_time(extra.get("expires_at"), None),
        successes=extra.get("successes", 0),
        failures=extra.get("failures", 0),
        made_of=extra.get("made_of", ()),
        provenance=provenance_in(extra["provenance"]) if "provenance" in extra else None,
    )


def _time(said: str | None, latest: str | None) -> str | None:
    """A time as a record has it; None if it is none, and never later than ``latest``."""
    if said is None or not is_time(said):
        return latest
    return said if latest is None else min(said, latest)
