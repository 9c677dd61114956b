"""A machine with entries and a mirror, as the tests of the synchronisation drive it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry
from memfiles.records.marks import EntryRecord, Mark
from memfiles.storage.events import RecordChanged, Subscribers, utc_now
from memfiles.storage.store import Durability
from memfiles.sync.dispatcher import Dispatcher
from memfiles.sync.engine import Sync
from memfiles.sync.ledger import Ledger
from memfiles.sync.mirror import Mirror
from memfiles.sync.status import SyncSettings
from memfiles.workflow.workflow import MemoryFile
from tests.support.records import declared, files_of
from tests.support.saved import Visitor, deleted, files_holding, refaceted, resaved, saved, saved_over

AGENT = "support"
RULES = EntryRules(budget=Budget(max_entries=100_000))


class EntryMachine:
    """A memory directory with one memory file, its entries, and its synchronisation; a context manager."""

    def __init__(
        self,
        directory: Path,
        mirror: Mirror,
        *,
        files: Iterable[MemoryFile] = (),
        rules: EntryRules = RULES,
        now: Callable[[], str] = utc_now,
        durability: Durability = "fsync",
        dispatcher: type[Dispatcher] = Dispatcher,
        **settings: Any,
    ) -> None:
        """``settings`` are those of the synchronisation."""
        self.directory = directory
        self.told: list[RecordChanged] = []
        self.book = Ledger(directory, mirror="the shared one")
        self.manager = MemoryManager(
            directory, mirror, durability=durability, secrets="off", origin=self.book.meta.origin, now=now
        )
        declared_files = list(files) or [declared("notes", content="# notes\n")]
        self.manager.restore(declared_files)
        self.subscribers = subscribers = Subscribers()
        origin = self.book.meta.origin()
        self.entries = Entries(files_of(self.manager), rules=rules, subscribers=subscribers, origin=origin, now=now)
        self.manager.with_users(declared_files, lambda: self.entries.users)
        self.shelf = self.entries.repository
        release = self.entries.users.follow
        self.replica = self.manager.replica.with_entries(self.shelf, release_forgotten=release)
        chosen = SyncSettings(**settings)
        self.sync = Sync(self.replica, mirror=mirror, ledger=self.book, settings=chosen, now=now, dispatcher=dispatcher)
        self.manager.subscribe(self.sync.notice)
        subscribers.add(self.sync.notice)
        subscribers.add(self.told.append)
        self.sync.start(hydrated=self.manager.take_hydrated())

    def close(self) -> None:
        self.sync.close()
        self.entries.close()
        self.manager.close()

    def __enter__(self) -> EntryMachine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def save(self, key: str, content: str, **said: Any) -> None:
        """Save under a key, whatever lies there."""
        self.save_all({key: content}, **said)

    def save_all(self, values: Mapping[str, str], **said: Any) -> None:
        """Save all of these in one commit."""
        keys = {saved(key, agent=AGENT, **said).path: key for key in values}

        def decide(records: Mapping[str, EntryRecord | None]) -> tuple[None, list[EntryRecord]]:
            return None, [self._saved(there, keys[path], values[keys[path]], **said) for path, there in records.items()]

        self.shelf.change(keys, decide)

    def say(self, key: str, **facets: Any) -> None:
        """Say something else of an entry."""
        self._change(key, lambda entry: refaceted(entry, at=utc_now(), **facets))

    def delete(self, key: str) -> None:
        """Hide an entry."""
        self._change(key, lambda entry: deleted(entry, at=utc_now()))

    def forget(self, key: str) -> None:
        """Forget an entry, and everything that may hold its content here."""
        self.entries.forget(Visitor(AGENT), key=key)

    def record(self, key: str) -> EntryRecord | None:
        """What lies on the disk under a key."""
        return self.shelf.look(saved(key, agent=AGENT).path).record

    def content(self, key: str) -> str | None:
        """The content under a key; None if there is none, or what was forgotten."""
        record = self.record(key)
        return record.content if isinstance(record, Entry) else None

    def body(self, key: str) -> bytes:
        """The bytes on the disk under a key."""
        return (self.directory / saved(key, agent=AGENT).path).read_bytes()

    def bodies(self) -> dict[str, bytes]:
        """The bytes of all entries on the disk, by path."""
        return bodies_in(self.directory)

    def flush(self, timeout: float = 120.0) -> bool:
        return self.sync.flush(timeout)

    def pull(self) -> None:
        self.sync.pull(60)

    def holding(self, text: str) -> list[str]:
        """The files under the directory that hold a text."""
        return files_holding(self.directory, text)

    def _change(self, key: str, change: Callable[[Entry], EntryRecord]) -> None:
        path = saved(key, agent=AGENT).path

        def decide(records: Mapping[str, EntryRecord | None]) -> tuple[None, list[EntryRecord]]:
            there = records[path]
            assert isinstance(there, Entry)
            return None, [change(there)]

        self.shelf.change([path], decide)

    def _saved(self, there: EntryRecord | None, key: str, content: str, **said: Any) -> Entry:
        at = utc_now()
        if isinstance(there, Mark):
            return saved_over(there, key, content, at=at, given_id=uuid.uuid4().hex)
        if there is not None:
            return replace(resaved(there, content, at=at), retired=None)
        return saved(key, content, agent=AGENT, at=at, given_id=uuid.uuid4().hex, **said)


def bodies_in(directory: Path) -> dict[str, bytes]:
    """The bytes of all entries under a directory, a mirror's or a machine's, by path."""
    found = {path.relative_to(directory).as_posix(): path for path in directory.glob("entries/*/*.json")}
    return {path: file.read_bytes() for path, file in sorted(found.items())}


def bodies_of(mirror: Mirror) -> dict[str, bytes]:
    """The bytes of all entries in a mirror, by path."""
    found = {key: mirror.get(key) for key, _ in mirror.list("entries/")}
    return {key: stored.body for key, stored in found.items() if stored is not None}


def record_in(mirror: Mirror, key: str) -> EntryRecord | None:
    """What a mirror has under a key."""
    path = saved(key, agent=AGENT).path
    stored = mirror.get(path)
    return decode_entry(stored.body, path=path) if stored is not None else None


def objects_holding(mirror: Mirror, text: str) -> list[str]:
    """The objects of a mirror that hold a text, the pack's included."""
    stored = {key: mirror.get(key) for key, _ in mirror.list()}
    return [key for key, found in stored.items() if found is not None and text.encode() in found.body]
