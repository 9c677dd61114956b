"""The parts of the exam of stores: a place to examine, records to keep there, and processes at work on it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module

from memfiles.storage.atomic import Signature
from memfiles.storage.record_store import ChangeSet, NewVersion, Records, RecordStore

PATIENCE_SECONDS = 60.0
_AT = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class StorePlace:
    """A place for the records of a store, empty at first.

    ``opener`` names a function as ``module:function``, which opens the store when it is called with ``arguments``: here
    and in other processes. ``holds`` gives the names of what the store keeps, wherever that is, that holds some bytes.
    ``rounds`` is how often a process is killed where that takes luck. ``trouble``, of a store that is reached over a
    network, cuts connections again and again as long as its block lasts, before and after what they carry was done.
    """

    opener: str
    arguments: tuple[str, ...] = ()
    holds: Callable[[bytes], list[str]] | None = None
    rounds: int = 3
    trouble: Callable[[], AbstractContextManager[object]] | None = None

    @contextmanager
    def open(self) -> Iterator[RecordStore]:
        """A new handle for the store, closed with the block."""
        store = open_store(self.opener, *self.arguments)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def process(self, work: str, *arguments: object) -> Iterator[Worker]:
        """Another process that opens the store and does one of ``mirrors.testing.stores.worker``'s works."""
        with subprocess.Popen(
            [sys.executable, "-m", "mirrors.testing.stores.worker", work, json.dumps(arguments)]
            + [self.opener, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            try:
                yield Worker(process)
            finally:
                process.kill()


@dataclass(frozen=True)
class Worker:
    """A process at work, which tells what it has done line by line."""

    process: subprocess.Popen[str]

    def hear(self) -> str:
        """The next line that it prints, "" after the last one."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> list[str]:
        """End it with SIGKILL, in whatever it is doing; returns the lines that were not heard yet."""
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        return self.process.stdout.read().splitlines()


def open_store(opener: str, *arguments: str) -> RecordStore:
    """Call a function that is named as ``module:function``."""
    module, _, function = opener.partition(":")
    store: RecordStore = getattr(import_module(module), function)(*arguments)
    return store


def body_of(path: str, revision: int, text: str) -> bytes:
    """The bytes of a memory file's record with this content."""
    uid = path.removesuffix(".json")
    record = {
        **{"format": "memfiles/1", "type": "file", "uid": uid, "name": uid[:64], "description": "Of the exam."},
        **{"max_size_bytes": 64 << 20, "level": "PUBLIC"},
        **{"content": text, "sha256": hashlib.sha256(text.encode()).hexdigest(), "revision": revision},
        **{"created_at": _AT, "updated_at": _AT, "history": []},
    }
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()


def text_of(data: bytes) -> str:
    """The content in a record's bytes."""
    text: str = json.loads(data)["content"]
    return text


def read(records: Records, path: str) -> str | None:
    """The content of a record, None if there is none."""
    found = records.find(path)
    return text_of(found[0]) if found is not None else None


def next_version(records: Records, path: str, text: str) -> NewVersion:
    """The version with this content that follows the one in ``records``."""
    found = records.find(path)
    revision = json.loads(found[0])["revision"] if found is not None else 0
    return NewVersion(path, revision + 1, body_of(path, revision + 1, text), found[1] if found is not None else None)


def write(store: RecordStore, *versions: NewVersion) -> dict[str, Signature]:
    """Write exactly these versions in one change; returns their signatures."""
    _, signatures = store.change([version.path for version in versions], lambda _: (None, ChangeSet(versions)))
    return signatures


def put(store: RecordStore, texts: Mapping[str, str]) -> dict[str, Signature]:
    """Give records these contents in one change; returns their signatures."""
    _, signatures = store.change(
        texts, lambda records: (None, ChangeSet([next_version(records, *each) for each in texts.items()]))
    )
    return signatures


def append(store: RecordStore, paths: Iterable[str], line: str) -> None:
    """Add a line to each of these records in one change."""
    wanted = list(paths)

    def decide(records: Records) -> tuple[None, ChangeSet]:
        return None, ChangeSet(
            [next_version(records, path, (read(records, path) or "") + line + "\n") for path in wanted]
        )

    store.change(wanted, decide)


def lines(store: RecordStore, path: str) -> list[str]:
    """The lines in a record."""
    return (read(store, path) or "").splitlines()


def remove(store: RecordStore, paths: Sequence[str]) -> None:
    """Remove these records as they are."""

    def decide(records: Records) -> tuple[None, ChangeSet]:
        found = {path: records.signature(path) for path in paths}
        return None, ChangeSet(removed={path: at for path, at in found.items() if at is not None})

    store.change(paths, decide)
