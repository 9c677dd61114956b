"""Entries: everything that can be done with them, in one place and with one meaning.

The surfaces (tools, command line, adapters) call this class and add nothing. It decides nothing itself: each of its
parts is one idea, and this is where they are put together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memfiles.entries.consolidation.consolidator import DEFAULT_SHARE, Applied, Consolidator
from memfiles.entries.consolidation.folding import Summariser
from memfiles.entries.consolidation.plan import Plan
from memfiles.entries.delete_many import delete_many
from memfiles.entries.drafts import Draft, drafts_of
from memfiles.entries.eviction import Room
from memfiles.entries.forget import Forgetter
from memfiles.entries.hydration.explanation import Explanation
from memfiles.entries.hydration.hydrator import Showing
from memfiles.entries.hydration.window import Hydration
from memfiles.entries.letting_go import ForgottenContent
from memfiles.entries.moves import Moves
from memfiles.entries.partitions import Caller, check_caller
from memfiles.entries.policy import EntryRules
from memfiles.entries.purge import Purger
from memfiles.entries.reader import EntryReader, checked_filters
from memfiles.entries.relocate import Relocator
from memfiles.entries.repository import EntryRepository, IndexUpdates
from memfiles.entries.results import Deleted, Exported, Forgotten, Found, Imported, Page, Results, Saved
from memfiles.entries.selector import Selector
from memfiles.entries.telemetry import Account
from memfiles.entries.transfer.exporter import ExportFormat, Exporting
from memfiles.entries.transfer.formats import Format
from memfiles.entries.transfer.importer import Importing
from memfiles.entries.watched import EntryFiles
from memfiles.entries.writer import EntryWriter
from memfiles.errors import MemfilesError
from memfiles.index.index import Index
from memfiles.index.queries import Counted, counted
from memfiles.index.rows import row_of
from memfiles.index.search.embedder import Embedder
from memfiles.records.entry import Tombstone
from memfiles.records.keys import entry_place
from memfiles.storage.events import RecordChanged, Refusals, Subscribers, utc_now
from memfiles.storage.record_kinds import ENTRIES
from memfiles.storage.store import Store

_log = logging.getLogger("memfiles")


class Entries:
    """The entries of one open memory. Threads may share it; every operation is told first whose session it is.

    A session reads what is at or below its level and writes at its level alone, as that is at the moment of the call.
    """

    def __init__(
        self,
        store: Store,
        *,
        rules: EntryRules,
        subscribers: Subscribers,
        origin: str | None = None,
        embedder: Embedder | None = None,
        summariser: Summariser | None = None,
        refusals: Refusals | None = None,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """Nothing is opened before the first use. ``origin`` is the id of this directory, if it is mirrored."""
        self.rules = rules
        self._account = Account(refusals or Refusals(), store=store.directory.name)
        self._now = now
        self._index = Index(store.directory, store.descriptor, read=self._row)
        updates = IndexUpdates(self._index)
        self.shelf = EntryRepository(store, ENTRIES, now=now, subscribers=subscribers, origin=origin, listener=updates)
        self.files = EntryFiles(store, self.shelf, self._index)
        room = Room(self._index, budget=rules.budget)
        self._moves = Moves(self.shelf, self._index)
        self._keeper = EntryWriter(self.shelf, self._moves, room, rules=rules, now=now)
        self._clearing = Purger(store, self.shelf, self._index, room=room, levels=rules.levels, now=now)
        self._finder = EntryReader(
            self.shelf, self._index, levels=rules.levels, now=now, embedder=embedder, begin=self._begin
        )
        self._showing = Showing(
            self.shelf, self._index, self._finder, levels=rules.levels, budget_bytes=rules.hydrate_bytes, now=now
        )
        self._reorganising = Consolidator(
            self.shelf, self._index, self._finder, rules=rules, now=now, summariser=summariser
        )
        self._exporting = Exporting(self.shelf, self._index, self._finder, levels=rules.levels)
        self._importing = Importing(self.shelf, self._keeper, rules=rules, now=now)
        self._letting_go = ForgottenContent(store, self.shelf, self._index)
        self._forgetting = Forgetter(
            self.shelf, self._index, self._finder, secrets=rules.secrets, now=now, scrub=self._letting_go.scrub
        )
        subscribers.add(self._heard)

    def save(
        self,
        session: Caller,
        key: str,
        content: str,
        *,
        tags: Sequence[str] | None = None,
        category: str | None = None,
        kind: Any = None,
        confidence: float | None = None,
        importance: float | None = None,
        pinned: bool | None = None,
        links: Sequence[str] | None = None,
        ttl: int | None = None,
        source: str | None = None,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Keep ``content`` under ``key`` at the session's level, in place of what it held there; durable on return.

        What is left out stays as it was, or is the usual. ``ttl`` is in seconds from the last change of the content.
        ``expected_revision`` 0 means that nothing is there yet. The same call made again (same caller, ``call_id`` and
        content) returns the first receipt. ``SizeExceeded``, ``BudgetExceeded``, ``SecretRefused``,
        ``RevisionConflict``, ``ReadOnly`` (an episode), ``LockTimeout``, ``StorageFailed``: nothing changed.
        """
        draft = Draft(key, content, tags, category, kind, confidence, importance, pinned, links, ttl, source=source)
        with self._account.of("save", session):
            return self._saved(session, [draft], expected_revision=expected_revision, call_id=call_id)[0]

    def save_many(self, session: Caller, drafts: Iterable[Draft | Mapping[str, Any]]) -> Sequence[Saved]:
        """Save several entries together, all or nothing, with one flush; errors as of ``save``."""
        with self._account.of("save", session):
            return self._saved(session, drafts_of(drafts))

    def get(self, session: Caller, key: str) -> Found | None:
        """What the session sees under ``key``, as it is on disk now; None if that is nothing, hidden or not."""
        with self._account.of("get", session):
            return self._finder.get(session, key)

    def search(
        self,
        session: Caller,
        query: str,
        *,
        max_results: int = 10,
        tags: Sequence[str] = (),
        category: str | None = None,
        kind: str | None = None,
        prefix: str | None = None,
        among: Iterable[str] | None = None,
        associate: bool = True,
    ) -> Results:
        """What the session sees that answers ``query``, best first; whatever is in the query, it never raises for it.

        ``prefix``: only keys that begin so; ``among``: only these keys. ``associate``: what is tied to a match may be
        found by that. ``InvalidArgument`` if ``max_results`` is not 1 to 50, or a filter cannot be one.
        """
        filters = checked_filters(tags=tags, category=category, kind=kind, prefix=prefix, among=among)
        with self._account.of("search", session):
            return self._finder.search(session, query, max_results=max_results, filters=filters, associate=associate)

    def list(
        self,
        session: Caller,
        *,
        prefix: str | None = None,
        tags: Sequence[str] = (),
        category: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """What the session sees by key, ``limit`` (1 to 100) at a time; ``cursor`` is the ``next`` of the last page."""
        filters = checked_filters(tags=tags, category=category, kind=kind, prefix=prefix)
        with self._account.of("list", session):
            return self._finder.page(session, filters=filters, limit=limit, cursor=cursor)

    def update(
        self,
        session: Caller,
        key: str,
        *,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        category: str | None = None,
        kind: Any = None,
        confidence: float | None = None,
        importance: float | None = None,
        pinned: bool | None = None,
        links: Sequence[str] | None = None,
        ttl: int | None = None,
        outcome: Any = None,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Change what is said of an entry that is there, at the session's level. ``EntryNotFound``; else as ``save``.

        ``outcome``: ``success`` or ``failure`` of what the entry advises.
        """
        draft = Draft(key, content, tags, category, kind, confidence, importance, pinned, links, ttl, outcome)
        with self._account.of("update", session), self._clearing.thinning_out(session):
            return self._keeper.update(session, draft, expected_revision=expected_revision, call_id=call_id)

    def delete(
        self, session: Caller, key: str, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Deleted:
        """Hide the entry of ``key`` at the session's level; ``restore`` brings it back. ``EntryNotFound``.

        ``RevisionConflict`` if it is not at ``expected_revision``: nothing changed.
        """
        with self._account.of("delete", session), self._clearing.thinning_out(session):
            return self._keeper.delete(session, key, expected_revision=expected_revision, call_id=call_id)

    def delete_many(self, session: Caller, keys: Iterable[str]) -> Sequence[Deleted]:
        """Hide the entries of these keys at the session's level, in one commit; those that were there are returned."""
        with self._account.of("delete", session), self._clearing.thinning_out(session):
            return delete_many(self.shelf, session, keys, now=self._now)

    def relocate(self, session: Caller, moves: Mapping[str, str]) -> None:
        """Give entries at the session's level other keys, in one commit; ``RevisionConflict`` if one is taken."""
        with self._account.of("relocate", session), self._clearing.thinning_out(session):
            Relocator(self.shelf, self._moves, rules=self.rules, now=self._now).relocate(session, moves)

    def restore(self, session: Caller, key: str, *, call_id: str | None = None) -> Saved:
        """Bring back what was deleted, evicted or expired under ``key`` at the session's level. ``EntryNotFound``."""
        with self._account.of("restore", session):
            return self._keeper.restore(session, key, call_id=call_id)

    def forget(
        self,
        session: Caller,
        *,
        key: str | None = None,
        uid: str | None = None,
        tag: str | None = None,
        kind: str | None = None,
        category: str | None = None,
        provenance: Mapping[str, str] | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> Forgotten:
        """Take the content of what is meant out of everything under the directory, for good; ``dry_run`` counts.

        Meant is what all that is said fits, at the session's level, hidden entries included; ``provenance`` by the
        names of its fields. Returns when no file holds it; the mirror's copy is replaced by the next push.
        ``InvalidArgument`` if nothing is said.
        """
        selector = Selector(key, uid, tag, kind, category, provenance or {})
        with self._account.of("forget", session):
            return self._forgetting.forget(session, selector, why=why, dry_run=dry_run)

    def hydrate(self, session: Caller, *, budget_bytes: int | None = None) -> Hydration:
        """The block of the system prompt with what fits into the budget; the same state gives the same bytes."""
        with self._account.of("hydrate", session):
            return self._showing.hydrate(session, budget_bytes=budget_bytes)

    def explain(self, session: Caller, key: str, *, budget_bytes: int | None = None) -> Explanation:
        """Why ``hydrate`` shows the entry of ``key`` or does not, in numbers."""
        check_caller(session)
        return self._showing.explain(session, key, budget_bytes=budget_bytes)

    def plan(self, session: Caller, *, share: float = DEFAULT_SHARE) -> Plan:
        """What would bring the agent's entries at the session's level down to this share of their budget."""
        check_caller(session)
        return self._reorganising.plan(session, share=share)

    def apply(self, session: Caller, plan: Plan) -> Applied:
        """Do what the plan says as one change, which ``undo`` takes back; ``RevisionConflict`` if it is out of date."""
        with self._account.of("consolidate", session):
            return self._reorganising.apply(session, plan)

    def undo(self, session: Caller, plan_id: str) -> Applied:
        """Have everything as it was before a plan; ``RevisionConflict`` if something that it changed, changed since."""
        with self._account.of("consolidate", session):
            return self._reorganising.undo(session, plan_id)

    def export(self, session: Caller, target: str | os.PathLike[str], *, format: ExportFormat = "markdown") -> Exported:
        """Write what the session may see to ``target``: a folder for ``markdown``, a file for ``jsonl``."""
        check_caller(session)
        return self._exporting.export(session, target, format=format)

    def import_(
        self, session: Caller, source: str | os.PathLike[str], *, format: Format | None = None, dry_run: bool = False
    ) -> Imported:
        """Take in the entries at ``source``, at the session's level, in one commit; the report says what was left out.

        ``format``: one of ours, or that of another program; told from what is there if it is left out.
        """
        with self._account.of("import", session):
            return self._importing.import_(session, source, format=format, dry_run=dry_run)

    def end_run(self, session: Caller) -> int:
        """Remove what belongs to the session's run alone, as its end does; how many entries that were."""
        check_caller(session, may_be_closed=True)
        return self._clearing.end_run(session)

    def counts(self) -> Sequence[Counted]:
        """How many entries each partition holds, for whoever looks after the directory."""
        self._finder.refresh()
        return self._index.ask(lambda connection: counted(connection, now=self._now()))

    def close(self) -> None:
        """Write down what the index knows and let go of it. May be called again."""
        self._index.close()

    def _saved(
        self,
        session: Caller,
        drafts: Sequence[Draft],
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Sequence[Saved]:
        saved = self._keeper.save(session, drafts, expected_revision=expected_revision, call_id=call_id)
        if any(each.evicted for each in saved):
            self._clearing.thin_out(session)
        return saved

    def _row(self, path: str) -> Any:
        """The row of what lies at ``path``; what is no revision yet is looked at again each time."""
        seen = self.shelf.look(path)
        if seen.record is None or seen.problem is not None:
            return None
        return row_of(seen.record, None if seen.by_hand else seen.signature)

    def _begin(self) -> None:
        """Finish what an earlier process was killed in the middle of."""
        try:
            self._forgetting.finish()
            self._forgetting.follow()
        except MemfilesError as error:
            _log.warning("what was forgotten may still lie about, and is removed at the next start: %s", error)

    def _heard(self, change: RecordChanged) -> None:
        """Of what was forgotten elsewhere, what was made of it here goes before anything is read again."""
        if change.origin == "local" or entry_place(change.path) is None:
            return
        record = self.shelf.find(change.path)
        if isinstance(record, Tombstone) or (record and record.sources) or self._forgetting.awaits(change.path):
            self._finder.begin_again()

    def let_go(self, paths: Sequence[str] = ()) -> None:
        """Have nothing but the notes on a mirror hold what these records, tombstones by now, once held.

        What was made of entries that were forgotten elsewhere is forgotten, too; errors as of ``forget``.
        """
        self._finder.refresh()
        self._forgetting.follow()
        self._letting_go.let_go(paths)
