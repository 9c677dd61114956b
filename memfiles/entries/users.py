"""Users: whom an agent keeps memory for, all that is kept for one of them, and forgetting it for good.

These verbs are for the operator of a memory directory, not for a session: they go across agents and levels.

The rules this file guards: a user who was forgotten stays forgotten on every machine, whenever it meets what it kept;
and what remains names nobody. A forget leaves one tombstone, of the user's epoch. Entries carry the epoch in which they
were saved, and an entry of a dead one is forgotten wherever it is met. A user who comes back begins the next epoch.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from memfiles.entries.budgets import Budget
from memfiles.entries.decisions import RecordsByPath
from memfiles.entries.drafts import MAX_GONE
from memfiles.entries.forget import Forgetter
from memfiles.entries.reader import EntryDatabase, EntryRepository, entry_at
from memfiles.entries.results import Forgotten
from memfiles.errors import InvalidArgument, MemfilesError, StorageFailed
from memfiles.index import database
from memfiles.records import late_logger
from memfiles.records.entry import Entry
from memfiles.records.keys import (
    ENTRIES,
    FILES,
    TEMP_SUFFIX,
    USERS,
    agent_folder,
    check_switch,
    check_user,
    check_whole,
    entry_place,
    id_path,
    next_epoch,
    scope_folder,
    user_hash,
)
from memfiles.records.marks import EntryRecord, Mark, is_tombstone
from memfiles.records.record import Actor, Stamp
from memfiles.secrets.gate import check_label
from memfiles.storage import atomic
from memfiles.storage.atomic import storage_failure
from memfiles.storage.events import AuditEvent, AuditLog, Progress, reported
from memfiles.storage.fork_safety import collector_paused
from memfiles.storage.store import sweep, with_files

UserOrder = Literal["name", "updated", "share"]
USER_ORDERS: tuple[UserOrder, ...] = get_args(UserOrder)
_OWNER = "@users"  # no agent can have this name: no session sees the tombstone of a user
_GRAVES = scope_folder(_OWNER, "u").rpartition("/")[0]


class UserSummary(Struct, frozen=True):
    """The memory of one user: its agents, the number and bytes of visible entries, and the last change.

    ``files`` is the number of memory files of the user's own, whose bytes count as well. ``share`` is how much of a
    budget the user's entries use where that is most: each agent and level has a budget of its own for each user.
    """

    user: str
    agents: tuple[str, ...]
    entries: int
    size_bytes: int
    updated_at: str
    files: int = 0
    share: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self) | {"agents": list(self.agents)}


class UserTombstone(Struct, frozen=True):
    """The remains of a forgotten user: a hash of the name, when, by whom, and why."""

    user: str
    at: str
    by: Actor
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"user": self.user, "at": self.at, "by": self.by.to_dict(), "why": self.why}


class UserExport(Struct, frozen=True):
    """The result of an export: the number of entries, and the files that hold them, relative to ``target``."""

    count: int
    target: str
    files: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"exported": self.count, "target": self.target, "files": list(self.files)}


class Users:
    """The users of one open memory. Threads may share it."""

    def __init__(self, db: EntryDatabase, forgetter: Forgetter, *, audit: AuditLog | None) -> None:
        self._db = db
        self._forgetter = forgetter
        self._audit = audit

    @property
    def repository(self) -> EntryRepository:
        """The records of all users, and all entries."""
        return self._db.repository

    def release(self, paths: Sequence[str]) -> None:
        """Remove the earlier content of these records from all that is derived from them; errors as of ``forget``."""
        self._forgetter.release(paths)

    def strike(self, revisions: Mapping[str, int]) -> None:
        """Delete the notes of forgets at earlier revisions than these, by path: that content is gone."""
        self._forgetter.strike(revisions)

    def epoch_of(self, user: str) -> str:
        """The epoch of a user now: the one before the first forget, or another one after each."""
        epoch = user_hash(user)
        while self._db.is_forgotten(epoch):
            epoch = next_epoch(epoch)
        return epoch

    def list(
        self,
        *,
        user: str | None = None,
        level: str | None = None,
        order: UserOrder = "name",
        limit: int | None = None,
        skip: int = 0,
    ) -> Sequence[UserSummary]:
        """The users of whom something is kept, also for others, by ``order``.

        That is their ``name``; ``updated``, the last changed first; or ``share``, the fullest budget first. ``user`` is
        one of them; ``level`` leaves out what is above it. ``limit`` is the most after the first ``skip``. The order
        ``name`` reads a record for each user that there is, the others for each that they return.
        """
        if order not in USER_ORDERS:
            raise InvalidArgument(f"order must be one of {', '.join(USER_ORDERS)}")
        check_whole(skip, what="skip", least=0)
        end = None if limit is None else skip + check_whole(limit, what="limit", least=1)
        readable = None if level is None else self._db.rules.levels.readable(session=level)
        self._db.refresh()
        found: dict[str, list[database.UserTally]] = defaultdict(list)
        hashed = "" if user is None else user_hash(check_user(user))
        for tally in self._db.index.ask(partial(database.user_tallies, user=user or "", hashed=hashed)):
            if readable is None or tally.level in readable:
                found[user_hash(tally.user) or tally.scope.rpartition("/")[2]].append(tally)
        if order == "name":
            return sorted(self._summaries(found.values()), key=attrgetter("user"))[skip:end]
        latest = sorted(found.values(), key=lambda held: max(it.updated_at for it in held), reverse=True)
        if order == "share":
            latest.sort(key=partial(_share, budget=self._db.rules.budget), reverse=True)
        return [*self._summaries(latest[skip:end])]

    def _summaries(self, found: Iterable[Sequence[database.UserTally]]) -> Iterator[UserSummary]:
        for held in found:
            entries = [entry_at(self._db.repository, tally.path) for tally in held]
            known = [(entry, tally) for entry, tally in zip(entries, held, strict=True) if entry is not None]
            if known:
                yield _summary(known, self._db.rules.budget)

    def tombstones(self, user: str | None = None, *, limit: int = MAX_GONE) -> Sequence[UserTombstone]:
        """What is left of the users who were forgotten, or of this one, the latest first: it names nobody."""
        check_whole(limit, what="limit", least=1, most=MAX_GONE)
        self._db.refresh()
        if user is None:
            find = partial(database.user_tombstones, owner=_GRAVES, limit=limit)
            marks = [self._db.mark(path) for path in self._db.index.ask(find)]
        else:
            marks, epoch = [], user_hash(check_user(user))
            while is_tombstone(mark := self._db.mark(id_path(epoch))):
                marks.insert(0, mark)
                epoch = next_epoch(epoch)
        return [UserTombstone(it.user or it.uid, it.at, it.by, it.why) for it in marks[:limit] if it is not None]

    @collector_paused()
    def export(
        self, user: str, target: str | os.PathLike[str], *, actor: str | None = None, progress: Progress | None = None
    ) -> UserExport:
        """Write all that is kept for a user to a folder: one JSON Lines file for each agent, readable by ``import``.

        Entries that the user's sessions saved for others are in files of their own, and the user's memory files are
        copied, named by their uids with ``.md``. Deleted entries are left out. A ``target`` that ends in .zip becomes
        an archive of these files. ``progress(done, total)`` is called for each entry. ``StorageFailed`` if it cannot
        be written.
        """
        from memfiles.entries.transfer.archives import packed  # late, as in ``_exported``
        from memfiles.entries.transfer.exchange import checked_target, make_folder, write_file

        target = checked_target(target, self._db.store)
        self._check_actor(actor)
        owned = self._entries_of(user, self.epoch_of(check_user(user)), progress)
        entries = [entry for entry in owned if self._db.is_live(entry)]
        files: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            name = agent_folder(entry.agent) + (".jsonl" if entry.user else ".shared.jsonl")
            files[f"{entry.key}.md" if entry.agent == FILES else name].append(entry)
        path, written = Path(target), {name: _exported(held) for name, held in files.items()}
        try:
            if path.suffix == ".zip":
                write_file(path, packed(written))
            else:
                make_folder(path)
                for name, text in written.items():
                    write_file(path / name, text)
        except OSError as error:
            raise StorageFailed(f"{path} cannot be written: {error.strerror}") from error
        self._log("export-user", user, count=len(entries), actor=actor)
        return UserExport(len(entries), target, tuple(sorted(files)))

    def forget(
        self,
        user: str,
        *,
        why: str = "",
        actor: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Forget all that is kept for a user, in every agent and at every level, for good; ``dry_run`` only counts.

        Also every entry for others in which the user's sessions wrote, as a whole, what cannot be read in the user's
        folders, and all of that on other machines, once they meet the tombstone: it holds a hash of the name, when it
        was, ``actor`` and ``why``. The user may come back, with nothing. ``progress(done, total)`` is called for each
        portion of entries. Raises as ``Entries.forget`` does, and ``StorageFailed`` if a file cannot be removed.
        """
        check_switch(dry_run, what="dry_run")
        self._check_actor(actor)
        epoch = self.epoch_of(check_user(user))
        entries = self._entries_of(user, epoch)
        if dry_run:
            return _forgotten(entries, dry_run=True)
        stamp = Stamp(self._db.now(), Actor(actor=actor))
        why = self._forgetter.checked_why(why)
        self._bury(epoch, stamp, user=user, why=why)  # 1 durable: from now on its entries are forgotten where met
        entries = list({entry.path: entry for entry in (*entries, *self._entries_of(user, epoch))}.values())
        self._repair(user)  # 2 what cannot be read is the user's too
        self._forgetter.follow(progress)  # 3 the entries of the epoch, and the notes made of them
        shared = [entry for entry in entries if not entry.user]  # their readers do not learn for whom
        self._forgetter.forget_entries(shared, Stamp(stamp.at), why="")  # 4
        self._forgetter.release([])  # 5 kept copies, also unreadable ones
        self._log("forget-user", user, count=len(entries), actor=actor)
        self._blank_audit()  # 6
        return _forgotten(entries)

    def begin(self) -> bool:
        """Finish the forgets that a kill interrupted, and follow those of others; whether all of that succeeded.

        A failure is only logged.
        """
        is_done = self._forgetter.begin()
        try:
            self._blank_audit()
        except MemfilesError as error:
            late_logger.warning("forgotten users may be named in the audit yet; the next start tries again: %s", error)
        return is_done

    def follow(self) -> None:
        """Forget what other machines forgot, and remove it from all but the ledger; errors as of ``Entries.forget``."""
        self._db.refresh()  # every file: one may have been put back by hand
        self._forgetter.follow()
        self._forgetter.release([])
        self._blank_audit()

    def _blank_audit(self) -> None:
        """Take the names of runs, calls and actors of forgotten users out of this memory's audit, once for each."""
        if self._audit is None:
            return
        paths = self._db.index.ask(partial(database.not_blanked, owner=_GRAVES))
        if paths and self._audit.blank_runs(paths, self._user_at):
            self._db.index.change(lambda connection: database.note_blanked(connection, paths))

    def _user_at(self, path: str) -> str:
        return it.user or it.uid if (it := self._db.mark(path)) is not None else ""

    def _check_actor(self, actor: str | None) -> None:
        check_label(actor, what="actor")
        self._db.rules.check_labels({"actor": actor})

    def _entries_of(self, user: str, epoch: str, progress: Progress | None = None) -> Sequence[Entry]:
        """All entries of the user in this epoch, hidden ones too, and what the sessions saved for others."""
        self._db.refresh()
        paths = self._db.index.ask(lambda opened: database.of_user(opened, epoch=epoch, user=user))
        return self._db.entries(reported(paths, progress))

    def _repair(self, user: str) -> None:
        """Quarantine or restore broken files of the user, and remove files that are not records.

        ``StorageFailed`` if something in the user's folders cannot be read or removed.
        """
        store, repository = with_files(self._db.store), self._db.repository
        if store is None:
            return
        root = store.descriptor
        sweep(store)  # temp files of dead writers
        with storage_failure("a folder of the user cannot be emptied: correct that, and forget the user again"):
            folders = [f"{ENTRIES}/{agent}/{USERS}/{user_hash(user)}" for agent in _names(root, ENTRIES)]
            for path in [f"{folder}/{name}" for folder in folders for name in _names(root, folder)]:
                if entry_place(path) is not None:
                    repository.notice(path, at_once=True)
                elif not path.endswith(TEMP_SUFFIX):  # of a live writer
                    atomic.remove_all(root, path)

    def _bury(self, epoch: str, stamp: Stamp, *, user: str, why: str) -> None:
        def decide(records: RecordsByPath) -> tuple[None, list[EntryRecord]]:
            known = records[path]
            if is_tombstone(known):
                return None, []
            revision, origins = (known.revision, known.origins) if known is not None else (0, {})
            of = user_hash(user)
            mark = Mark(epoch, _OWNER, lowest, "tombstone", revision + 1, stamp.at, stamp.by, why, user=of)
            return None, [mark.with_origins(origins)]

        path, lowest = id_path(epoch), self._db.rules.levels.lowest
        self._db.repository.change([path], decide)

    def _log(self, op: str, user: str, *, count: int, actor: str | None = None) -> None:
        if self._audit is not None:
            self._audit.record(AuditEvent(op, count=count, user=user_hash(user), actor=actor))


def _names(root: int, folder: str) -> Sequence[str]:
    try:
        return atomic.names(root, folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _exported(held: Sequence[Entry]) -> bytes:
    """The content of a file of an export."""
    if held[0].agent == FILES:
        return held[0].text.content_bytes
    from memfiles.entries.transfer import formats  # late: every memory with entries has users, and few export them
    from memfiles.entries.transfer.exchange import document_of

    documents = map(document_of, sorted(held, key=attrgetter("key")))
    return b"".join(formats.render_line(document) for document in documents)


def _summary(known: Sequence[tuple[Entry, database.UserTally]], budget: Budget) -> UserSummary:
    entries, tallies = [entry for entry, _ in known], [tally for _, tally in known]
    agents = {entry.agent if entry.user else entry.provenance.agent or entry.agent for entry in entries}
    files = sum(tally.entries for entry, tally in known if entry.agent == FILES)
    return UserSummary(
        entries[0].user or entries[0].provenance.user or "",
        tuple(sorted(agents - {FILES})),
        sum(tally.entries for tally in tallies) - files,
        sum(tally.size_bytes for tally in tallies),
        max(tally.updated_at for tally in tallies),
        files,
        round(_share(tallies, budget), 4),
    )


def _share(tallies: Sequence[database.UserTally], budget: Budget) -> float:
    """How much of a budget the entries of a user's own use where that is most."""
    own = [tally for tally in tallies if not tally.user and not tally.scope.startswith(f"{FILES}/")]
    limits = [(it.entries, budget.max_entries) for it in own] + [(it.size_bytes, budget.max_bytes) for it in own]
    return max((used / most for used, most in limits if most), default=0.0)


def _forgotten(entries: Sequence[Entry], *, dry_run: bool = False) -> Forgotten:
    return Forgotten(len(entries), tuple(sorted({entry.key for entry in entries})), dry_run)
