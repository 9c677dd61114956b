"""Import of entries from files: those that may be saved, and a report of the rest.

The rules this file guards: an import is one commit and passes the same checks as a save; it writes at the session's
level alone; forgotten entries stay forgotten, and newer entries here stay as they are; every skipped document is
reported with its place and the reason; and importing an unchanged export changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from memfiles.entries.callers import Caller, Partition, own_level, view_of
from memfiles.entries.decisions import Past
from memfiles.entries.drafts import Draft
from memfiles.entries.reader import EntryDatabase
from memfiles.entries.transfer.document import Document, Skipped, provenance_in
from memfiles.entries.transfer.exporter import document_of
from memfiles.entries.transfer.formats import Format
from memfiles.entries.transfer.sources import read
from memfiles.entries.writer import EntryWriter, ImportedDraft
from memfiles.errors import MemfilesError
from memfiles.records.entry import FACETS, GENERAL, Entry
from memfiles.records.keys import check_switch
from memfiles.records.marks import Mark

_SOURCE = "import"


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import, or of a trial (``dry_run``), and the skipped documents."""

    added: int
    updated: int
    unchanged: int
    skipped: tuple[Skipped, ...]
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "added": self.added,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "skipped": [{"where": each.where, "why": each.why} for each in self.skipped],
            "dry_run": self.dry_run,
        }


class Importer:
    """Reads files into one open memory."""

    def __init__(self, db: EntryDatabase, writer: EntryWriter) -> None:
        self._db = db
        self._writer = writer

    def import_(
        self, caller: Caller, source: str | os.PathLike[str], *, format: Format | None = None, dry_run: bool = False
    ) -> Imported:
        """Import the entries at ``source`` at the caller's level; ``dry_run`` only reports.

        ``InvalidArgument`` if the source cannot be read, ``BudgetExceeded`` if it is over a budget, ``StorageFailed``:
        nothing was changed.
        """
        check_switch(dry_run, what="dry_run")
        parsed = read(source, format=format)
        now = self._db.now()  # once: entries without times of their own must not be told apart by a tick of the clock
        judged = [self._judge(caller, document, now=now) for document in parsed.documents]
        skipped = [*parsed.skipped, *(each for each in judged if isinstance(each, Skipped))]
        taken = [each for each in judged if isinstance(each, ImportedDraft)]
        unchanged = sum(each is None for each in judged)
        added = sum(not each.is_there for each in taken)
        if not dry_run and taken:
            self._writer.take_in(caller, taken)
        return Imported(added, len(taken) - added, unchanged, tuple(skipped), dry_run)

    def _judge(self, caller: Caller, document: Document, *, now: str) -> ImportedDraft | Skipped | None:
        """Whether a document is imported or skipped, and why; None if it would change nothing."""
        level, extra = document.level or caller.level, dict[str, Any](document.extra)
        view = view_of(caller, self._db.rules.levels)
        place = self._place(caller, document, level)
        if isinstance(place, Skipped):
            return place
        before = self._db.repository.look(place.path(document.key)).record if place in view else None
        if isinstance(before, Entry) and before.retired is None and _says_the_same(document, before):
            return None
        if level != caller.level:
            return Skipped(document.where, f"it is at level {level}, but this session only writes at {caller.level}")
        if isinstance(before, Mark) and self._db.is_grave(before):
            return Skipped(document.where, f"the entry of its key was forgotten at {before.at}")
        if isinstance(before, Entry) and (reason := _keeps(before, document)) is not None:
            return Skipped(document.where, reason)
        try:
            self._db.rules.check_labels({"the provenance": "\n".join(extra.get("provenance", ()))})
            said = extra | {name: getattr(document, name) for name in ("category", "kind", "tags")}
            facets = {name: said.get(name) for name, _ in FACETS}
            checked = self._db.rules.check(Draft(document.key, document.content, source=_SOURCE, **facets))
        except MemfilesError as error:
            return Skipped(document.where, str(error))
        past = _past(document, latest=now)
        if (problem := self._problem(document, past, now=now)) is not None:
            return Skipped(document.where, problem)
        return ImportedDraft(checked, place, past, isinstance(before, Entry))

    def _place(self, caller: Caller, document: Document, level: str) -> Partition | Skipped:
        if level not in self._db.rules.levels.names:
            known = ", ".join(self._db.rules.levels.names)
            return Skipped(document.where, f"its level {level[:40]!r} is not declared (declared: {known})")
        category = self._db.rules.category(document.category or GENERAL)
        own = own_level(caller, level)
        if category.is_of_one_run and len(own) < 3:
            return Skipped(document.where, f"category {category.name} belongs to a run, and this session has none")
        return own[-1] if category.is_shared else own[-3] if category.is_of_one_run else own[-2]

    def _problem(self, document: Document, past: Past, *, now: str) -> str | None:
        """Why the entry would be over the budget alone, or expired at once; None if it would not."""
        most, size = self._db.rules.budget.max_bytes, len(document.content.encode())
        if most is not None and size > most:
            return f"it is {size} bytes and the whole budget is {most}"
        expires_at = past.expires_at or self._db.rules.expiry(document.category or GENERAL, past.updated_at)
        return f"it expired at {expires_at}" if expires_at is not None and expires_at <= now else None


def _says_the_same(document: Document, entry: Entry) -> bool:
    """Whether the entry already has every value in the document."""
    known = document_of(entry)
    said = dict[str, Any](document.extra)
    unspecified = {name: known.extra[name] for name in ("made_of", "provenance") if name in known.extra}
    highest = {name: max(said.get(name, 0), getattr(entry, name)) for name in ("successes", "failures")}
    counts = {name: count for name, count in highest.items() if count}
    merged = replace(document, level=known.level, extra={**unspecified, **said, **counts})
    fields = ("category", "kind", "created", "updated")
    filled = {name: getattr(merged, name) or getattr(known, name) for name in fields}
    return replace(merged, **filled) == known


def _keeps(entry: Entry, document: Document) -> str | None:
    """Why the entry here wins; None if the document does."""
    if document.updated is not None and document.updated < entry.updated_at:
        return f"the entry here is newer: it changed at {entry.updated_at}, this one at {document.updated}"
    if document.updated is not None and entry.retired is not None and document.updated <= entry.retired.at:
        return f"it was {entry.retired.state} here at {entry.retired.at}, after this was written: restore it by its key"
    if entry.kind == "episode" and entry.retired is None and document.content != entry.content:
        return "the entry here is an episode, which never changes"
    return None


def _past(document: Document, *, latest: str) -> Past:
    """The past of a document, no time in it later than now."""
    extra = dict[str, Any](document.extra)  # the types were checked when it was read
    updated = min(document.updated or latest, latest)
    return Past(
        created_at=min(document.created or latest, updated),
        updated_at=updated,
        expires_at=extra.get("expires_at"),
        successes=extra.get("successes", 0),
        failures=extra.get("failures", 0),
        made_of=extra.get("made_of", ()),
        provenance=provenance_in(extra["provenance"]) if "provenance" in extra else None,
    )
