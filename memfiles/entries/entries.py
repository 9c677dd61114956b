"""Entries: every operation on keyed memory, in one place and with one meaning.

The surfaces (tools, command line, adapters) call this class and add nothing. It decides nothing: it joins its parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from memfiles.entries.callers import Caller, OperationSpan, check_caller
from memfiles.entries.drafts import DEFAULT_SHARE, MAX_GONE, Deleted, Draft, EntryRules, Saved, drafts_of
from memfiles.entries.lazy import EntryFiles, LateParts
from memfiles.entries.questions import Selector, checked_filters
from memfiles.entries.reader import EntryDatabase, EntryReader, EntryRepository, row_at
from memfiles.entries.results import Forgotten, Found, Page, Results
from memfiles.index.database import Counted, counted
from memfiles.index.index import index_of
from memfiles.index.search.embedder import Embedder
from memfiles.records.entry import RECALL_BYTES, Kind
from memfiles.storage.events import AuditLog, Progress, Subscribers, utc_now
from memfiles.storage.fork_safety import collector_paused
from memfiles.storage.record_kinds import ENTRY_KIND
from memfiles.storage.record_store import RecordStore

if TYPE_CHECKING:  # these are loaded by the verbs that need them, as a command uses one of them
    from memfiles.entries.consolidation.application import Applied
    from memfiles.entries.consolidation.plan import Plan, Summariser
    from memfiles.entries.hydration.recall import Recall
    from memfiles.entries.hydration.window import Explanation, Hydration
    from memfiles.entries.log import EntryLog, Gone, Tombstones
    from memfiles.entries.purge import Purged
    from memfiles.entries.transfer.exchange import Exported, ExportFormat, Imported
    from memfiles.entries.transfer.formats import Format
    from memfiles.entries.users import Users


class Entries:
    """The entries of one open memory. Threads may share it; every operation takes the session that calls it first.

    A session reads entries at or below its level and writes at its level alone, as that is at the moment of the call.
    """

    parts: LateParts  # made by the verbs that need them

    def __init__(
        self,
        store: RecordStore,
        *,
        rules: EntryRules,
        subscribers: Subscribers,
        origin: str | None = None,
        embedder: Embedder | None = None,
        summariser: Summariser | None = None,
        audit: AuditLog | None = None,
        now: Callable[[], str] = utc_now,
        is_due: Callable[[], bool | None] | None = None,
    ) -> None:
        """Nothing is opened before the first use; ``origin`` is the id of a mirrored directory. See ``LateParts``."""
        self.rules, self._audit, self._name = rules, audit, store.name
        self._index = index = index_of(store, lambda path, among: row_at(self.repository, path, among))
        self.repository = repository = EntryRepository(
            store, ENTRY_KIND, now=now, subscribers=subscribers, origin=origin, listener=index
        )
        repository.note_loss = lambda revisions: self.parts.forgetter.note(revisions)
        repository.unfollowed = index.unfollowed
        self.files = EntryFiles(store, repository, index)
        late = lambda: self.parts.begin(), lambda it: self.parts.purger.erase(it)
        self._db = db = EntryDatabase(store, repository, index, rules, now, *late)
        self._reader = EntryReader(db, embedder=embedder)
        self.parts = LateParts(db, summariser, audit, self._reader.meaning, is_due)
        self._note_read = self.parts.log.note_read if audit is not None and audit.reads else lambda *_: None
        subscribers.add(lambda change: self.parts.forgetter.heard(change), foreign_only=True)
        subscribers.add(lambda change: self.parts.log.heard(change), foreign_only=True)

    @property
    def users(self) -> Users:
        """See ``Memory.users``."""
        return self.parts.users

    def save(
        self,
        session: Caller,
        key: str,
        content: str,
        *,
        tags: Sequence[str] | None = None,
        category: str | None = None,
        kind: Kind | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        pinned: bool | None = None,
        links: Sequence[str] | None = None,
        ttl: int | None = None,
        source: str | None = None,
        said_at: str | datetime | None = None,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Save ``content`` under ``key`` at the session's level, replacing the content there; durable on return.

        Arguments left out keep their stored values, or take the defaults. ``ttl`` is in seconds from the last change of
        the content. ``said_at`` is when the content was said, if not now: "last week" in it is seen from then.
        ``expected_revision`` 0: there must be no entry yet. A repeated call (same caller, ``call_id`` and content)
        returns the first receipt. ``SizeExceeded``, ``BudgetExceeded``, ``SecretRefused``, ``RevisionConflict``,
        ``ReadOnly`` (an episode), ``LockTimeout``, ``StorageFailed``: nothing changed.
        """
        draft = Draft(key, content, tags, category, kind, confidence, importance, pinned, links, ttl, None, said_at,
                      source)  # fmt: skip
        with self._span("save", session):
            return self._saved(session, [draft], expected_revision=expected_revision, call_id=call_id)[0]

    @collector_paused()
    def save_many(self, session: Caller, drafts: Iterable[Draft | Mapping[str, Any]]) -> Sequence[Saved]:
        """Save several entries together, all or nothing, with one flush; errors as of ``save``."""
        with self._span("save", session):
            return self._saved(session, drafts_of(drafts))

    def get(self, session: Caller, key: str) -> Found | None:
        """The entry that the session sees under ``key``, as it is on disk now; None if there is none, hidden or not."""
        with self._span("get", session):
            found = self._reader.get(session, key)
        self._note_read("get", session, [key] if found is not None else [])
        return found

    def search(
        self,
        session: Caller,
        query: str,
        *,
        max_results: int | None = None,
        budget_bytes: int | None = None,
        tags: Sequence[str] = (),
        category: str | None = None,
        kind: str | None = None,
        prefix: str | None = None,
        since: str | datetime | None = None,
        among: Iterable[str] | None = None,
        associate: bool = True,
    ) -> Results:
        """The visible entries that answer ``query``, best first; no text of a query raises.

        ``max_results`` is 1 to 50, by default 10, or 50 under a budget. ``budget_bytes``, 512 or more, bounds the JSON
        text of the results, as tools return it: an entry without room is shown by its snippet or left out, and each
        answer is followed by its neighbours. ``prefix``: only keys that begin with it; ``among``: only these keys;
        ``since``: only what changed from then on, as of ``audit``. ``associate``: also find entries that are tied to a
        match. ``InvalidArgument`` for other values.
        """
        asked: dict[str, Any] = {"tags": tags, "category": category, "kind": kind, "prefix": prefix, "among": among}
        chosen: dict[str, Any] = {"filters": checked_filters(**asked, since=since, now=self._db.now())}
        chosen |= {"associate": associate, "max_results": max_results}
        with self._span("search", session):
            if budget_bytes is None:
                results = self._reader.search(session, query, **chosen)
            else:
                within = self.parts.recalls.search_within
                results = within(self._reader, session, query, budget_bytes=budget_bytes, **chosen)
        self._note_read("search", session, [each.found.key for each in results.matches])
        return results

    def recall(
        self, session: Caller, query: str, *, budget_bytes: int = RECALL_BYTES, include: Iterable[str] = ()
    ) -> Recall:
        """What memory holds about ``query``, for one turn: a block of at most ``budget_bytes``, and its entries.

        Pinned entries come first, then those of the keys in ``include``, then the answers, each with its neighbours:
        what was saved just before and after it in the same run and thread. The same state gives the same bytes.
        ``InvalidArgument``, ``StorageFailed``.
        """
        asked: dict[str, Any] = {"budget_bytes": budget_bytes, "include": include}
        with self._span("recall", session):
            found: Recall = self.parts.recalls.recall(self._db, self._reader, session, query, **asked)
        self._note_read("recall", session, found.keys)
        return found

    def list(
        self,
        session: Caller,
        *,
        prefix: str | None = None,
        tags: Sequence[str] = (),
        category: str | None = None,
        kind: str | None = None,
        tags_any: Sequence[str] = (),
        kinds: Sequence[str] = (),
        since: str | datetime | None = None,
        order: Literal["key", "updated"] = "key",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The visible entries by key or, ``updated``, the last changed first; ``limit`` (1 to 100) at a time.

        ``since`` is as of ``audit``. ``cursor`` is the ``next`` of the last page of it, else ``InvalidArgument``.
        What does not change meanwhile is listed once, whatever is saved.
        """
        asked: dict[str, Any] = {"prefix": prefix, "tags": tags, "tags_any": tags_any, "category": category}
        asked |= {"kind": kind, "kinds": kinds, "since": since, "order": order, "cursor": cursor}
        with self._span("list", session):
            page = self._reader.page(session, limit=limit, **asked)
        self._note_read("list", session, [each.key for each in page.memories])
        return page

    def update(
        self,
        session: Caller,
        key: str,
        *,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        category: str | None = None,
        kind: Kind | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        pinned: bool | None = None,
        links: Sequence[str] | None = None,
        ttl: int | None = None,
        outcome: Literal["success", "failure"] | None = None,
        said_at: str | datetime | None = None,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Update an entry at the session's level with these arguments. ``EntryNotFound``; else errors as of ``save``.

        ``outcome`` counts a success or a failure of the advice in the entry. A ``said_at`` of "" takes it back.
        """
        draft = Draft(key, content, tags, category, kind, confidence, importance, pinned, links, ttl, outcome, said_at)
        with self._span("update", session), self.parts.purger.sweeping(session):
            return self.parts.writer.update(session, draft, expected_revision=expected_revision, call_id=call_id)

    def edit(
        self,
        session: Caller,
        key: str,
        old: str,
        new: str,
        *,
        expected_revision: int | None = None,
        call_id: str | None = None,
    ) -> Saved:
        """Replace the first occurrence of ``old`` in the content of an entry at the session's level.

        Changes by others in between are kept. ``EntryNotFound``, ``EditNoMatch``; else errors as of ``save``.
        """
        with self._span("update", session), self.parts.purger.sweeping(session):
            return self.parts.writer.edit(session, key, old, new, expected_revision=expected_revision, call_id=call_id)

    def delete(
        self, session: Caller, key: str, *, expected_revision: int | None = None, call_id: str | None = None
    ) -> Deleted:
        """Hide the entry of ``key`` at the session's level (``restore``). ``EntryNotFound``, ``RevisionConflict``."""
        with self._span("delete", session), self.parts.purger.sweeping(session):
            return self.parts.writer.delete(session, key, expected_revision=expected_revision, call_id=call_id)

    def delete_many(self, session: Caller, keys: Iterable[str]) -> Sequence[Deleted]:
        """Hide the entries of these keys at the session's level, in one commit; returns the entries that existed."""
        with self._span("delete", session), self.parts.purger.sweeping(session):
            return self.parts.writer.delete_many(session, keys)

    def relocate(self, session: Caller, moves: Mapping[str, str]) -> None:
        """Give entries at the session's level other keys, in one commit; ``RevisionConflict`` if one is taken."""
        with self._span("relocate", session), self.parts.purger.sweeping(session):
            self.parts.moves.relocate(self._db, session, moves)

    def renew(self, session: Caller, read: Sequence[tuple[Found, float]]) -> None:
        """Let entries that the session read, and others do not see, live for the seconds given with each."""
        self.parts.moves.renew(self._db, session, read)

    def restore(self, session: Caller, key: str, *, call_id: str | None = None) -> Saved:
        """Bring back the deleted, evicted or expired entry of ``key`` at the session's level. ``EntryNotFound``."""
        with self._span("restore", session):
            return self.parts.writer.restore(session, key, call_id=call_id)

    def forget(
        self,
        session: Caller,
        *,
        key: str | None = None,
        uid: str | None = None,
        id: str | None = None,
        tag: str | None = None,
        kind: str | None = None,
        category: str | None = None,
        provenance: Mapping[str, str] | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> Forgotten:
        """Remove the content of the selected entries from everything under the directory, for good; ``dry_run`` counts.

        An entry is selected if it matches every argument, at the session's level, hidden entries included;
        ``provenance`` maps names of its fields to values. Returns when no file holds the content; the mirror's copy is
        replaced by the next push. ``InvalidArgument`` if nothing is selected.
        """
        selector = Selector(key, uid, id, tag, kind, category, provenance or {})
        with self._span("forget", session):
            return self.parts.forgetter.forget(session, selector, why=why, dry_run=dry_run)

    def log(self, session: Caller, key: str) -> EntryLog:
        """The life of the entry that the session sees under ``key``, or that had it before; what it may know of it."""
        with self._span("log", session):
            return self.parts.log.log(session, key)

    def diff(self, session: Caller, key: str, from_revision: int, to_revision: int) -> str:
        """A unified diff between two revisions of that entry, empty when equal; ``RevisionUnknown`` beyond its log."""
        with self._span("diff", session):
            return self.parts.log.diff(session, key, from_revision, to_revision)

    def undo(
        self, session: Caller, key: str, to_revision: int | None = None, *,
        expected_revision: int | None = None, call_id: str | None = None,
    ) -> Saved:  # fmt: skip
        """Make the content before its last change, or at ``to_revision``, a new revision; errors as of ``save``."""
        with self._span("undo", session), self.parts.purger.sweeping(session):
            undo = self.parts.writer.undo
            return undo(session, key, to_revision, expected_revision=expected_revision, call_id=call_id)

    def deleted(self, session: Caller, *, limit: int = MAX_GONE) -> Gone:
        """The deleted, evicted and expired entries that the session may see, newest first; see ``restore``."""
        with self._span("deleted", session):
            return self.parts.log.deleted(session, limit=limit)

    def tombstones(self, session: Caller, *, limit: int = MAX_GONE) -> Tombstones:
        """What is left of the forgotten entries that the session could see, newest first."""
        with self._span("tombstones", session):
            return self.parts.log.tombstones(session, limit=limit)

    def hydrate(self, session: Caller, *, budget_bytes: int | None = None) -> Hydration:
        """The system-prompt block with the entries that fit the budget; the same state gives the same bytes."""
        with self._span("hydrate", session):
            block: Hydration = self.parts.recalls.hydrate(self._db, session, budget_bytes=budget_bytes)
        self._note_read("hydrate", session, block.keys)
        return block

    def explain(self, session: Caller, key: str, *, budget_bytes: int | None = None) -> Explanation:
        """Why ``hydrate`` shows the entry of ``key`` or not, in numbers."""
        shown: Explanation = self.parts.recalls.explain(self._db, session, key, budget_bytes=budget_bytes)
        return shown

    def plan(self, session: Caller, *, share: float = DEFAULT_SHARE, progress: Progress | None = None) -> Plan:
        """A plan that brings the agent's entries at the session's level down to this share of their budget."""
        return self.parts.consolidator.plan(session, share=share, progress=progress)

    def apply(self, session: Caller, plan: Plan) -> Applied:
        """Apply a plan as one change, which ``undo_plan`` takes back; ``RevisionConflict`` if it is out of date."""
        with self._span("consolidate", session), self.parts.purger.sweeping(session):
            return self.parts.consolidator.apply(session, plan)

    def undo_plan(self, session: Caller, plan_id: str) -> Applied:
        """Undo a plan; ``RevisionConflict`` if an entry that it changed has changed since."""
        with self._span("consolidate", session):
            return self.parts.consolidator.undo(session, plan_id)

    def export(
        self,
        session: Caller,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat = "markdown",
        progress: Progress | None = None,
    ) -> Exported:
        """Write the entries that the session may see to ``target``: a folder for ``markdown``, else a file.

        A ``zip`` holds the files of ``markdown``. Files of the same names are replaced, others are left alone; the
        report names the files of an earlier export whose entries are gone. ``progress(done, total)``: as for all verbs.
        ``InvalidArgument``, ``StorageFailed``.
        """
        return self.parts.exchange.export(session, target, format=format, progress=progress)

    def import_(
        self,
        session: Caller,
        source: str | os.PathLike[str],
        *,
        format: Format | None = None,
        dry_run: bool = False,
        take_over: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        """Import the entries at ``source`` at the session's level, in one commit; the report says what was skipped.

        ``format``: one of ours, or of another program; detected if it is left out. ``dry_run`` only reports.
        ``take_over`` also imports what was another agent's or another user's; without it that is an error.
        ``InvalidArgument`` if the source cannot be read, ``BudgetExceeded``, ``StorageFailed``: nothing was changed.
        """
        with self._span("import", session):
            given: dict[str, Any] = {"format": format, "dry_run": dry_run, "take_over": take_over}
            return self.parts.exchange.import_(session, source, **given, progress=progress)

    def end_run(self, session: Caller, *, levels: Iterable[str] | None = None) -> int:
        """Remove the entries of the session's run alone, at its level or at those given; returns their number."""
        check_caller(session, may_be_closed=True)
        return self.parts.purger.end_run(session, levels=[session.level] if levels is None else levels)

    def purge(self, *, dry_run: bool = False, progress: Progress | None = None) -> Purged:
        """See ``Memory.purge``."""
        return self.parts.purger.purge(dry_run=dry_run, progress=progress)

    def sweep(self) -> None:
        """Erase a portion of what ``purge`` would; a failure is only logged."""
        self.parts.purger.sweep(at_once=True)

    def counts(self) -> Sequence[Counted]:
        """The number of entries in each partition, for the operator of the directory."""
        self._db.refresh()
        return self._index.ask(lambda connection: counted(connection, now=self._db.now()))

    def close(self) -> None:
        """Save and close the index. May be called again."""
        self._index.close()

    def _saved(self, session: Caller, drafts: Sequence[Draft], **expected: Any) -> Sequence[Saved]:
        saved = self.parts.writer.save(session, drafts, **expected)
        if any(each.plan for each in saved):
            self.parts.purger.thin_out(session)
        self.parts.sweep(is_brief=session.is_brief)
        return saved

    def _span(self, op: str, session: Caller) -> OperationSpan:
        return OperationSpan(self._audit, op, session, store=self._name, readers=self.rules.readers)
