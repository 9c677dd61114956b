"""Records, declarations and clocks for the tests to start from, and what they look at afterwards."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

from hypothesis import settings
from msgspec import StructMeta

from memfiles.files.manager import MemoryManager
from memfiles.records import file_changes
from memfiles.records.declared_metadata import Metadata, seed
from memfiles.records.file_changes import Redaction
from memfiles.records.record import Actor, Record, Stamp
from memfiles.records.redactions import NONCE_BYTES
from memfiles.storage.locks import RecordLocks
from memfiles.storage.store import Store, with_files
from memfiles.workflow.workflow import MemoryFile
from tests.support.stores import kept_in

SEEDED_AT = "2026-11-21T09:00:00.000Z"
LATER = "2026-11-21T10:00:00.000Z"
PATIENCE_SECONDS = 60.0
_MUCH_BYTES = 16 << 20


def files_of(manager: MemoryManager) -> Store:
    """The open store of a memory directory."""
    assert (store := with_files(manager.records)) is not None
    return store


def held(store: Store, *paths: str) -> AbstractContextManager[None]:
    """Hold the locks of these records, as another process would."""
    return RecordLocks(store.descriptor, timeout=PATIENCE_SECONDS).hold(paths)


many_times = settings(max_examples=50, deadline=None)
"""How often a test looks for a counterexample; never how fast, on a machine that does other things as well."""


class TickingClock:
    """Tells a time one second later each time it is asked."""

    def __init__(self) -> None:
        self._seconds = itertools.count()

    def __call__(self) -> str:
        minutes, seconds = divmod(next(self._seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-11-21T{hours % 24:02}:{minutes:02}:{seconds:02}.000Z"


def unchecked(**fields: Any) -> MemoryFile:
    """A declaration that nothing has looked at yet, as a program may make one."""
    given = {"uid": "notes", "name": "notes", "max_size_bytes": 100, **fields}
    return cast("MemoryFile", StructMeta.__call__(MemoryFile, **given))


def declared(
    uid: str = "notes", *, content: str = "", cap: int = 4096, description: str = "What is known.", **more: Any
) -> MemoryFile:
    """A declared memory file whose name is its uid."""
    said = {"description": description, "max_size_bytes": cap, "level": "INTERNAL", "content": content, **more}
    return MemoryFile(uid=uid, name=uid, **said)


def seeded(content: str = "", *, uid: str = "notes", cap: int = 4096) -> Record:
    """The first revision of a memory file; unlike a declaration, it may be over its cap."""
    return seed(uid, Metadata(uid, "What is known.", cap, "INTERNAL"), content=content, at=SEEDED_AT)


def stamp(call: str | None = None, *, agent: str | None = None, expected: int | None = None) -> Stamp:
    """When a change is made and by whom."""
    return Stamp(LATER, Actor(agent=agent, call=call), expected)


def redact(record: Record, stamp: Stamp, *, text: str) -> tuple[Record | None, Redaction]:
    """A redaction with random bytes of its own."""
    return file_changes.redact(record, stamp, text=text, nonce=os.urandom(NONCE_BYTES))


def files_under(directory: Path) -> dict[str, bytes]:
    """The bytes of every file under a directory, by relative path; of huge ones the beginning.

    What a store keeps that stands for a directory under it counts as well. If a file goes meanwhile, which may be under
    another name then, all are read again.
    """
    while True:
        found = kept_in(directory)
        try:
            for path in directory.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        found[str(path.relative_to(directory))] = file.read(_MUCH_BYTES)
        except FileNotFoundError:
            continue
        return found


def records_in(directory: Path) -> dict[str, bytes]:
    """The bytes of every memory file's record, by file name."""
    kept = {path: body for path, body in kept_in(directory).items() if "/" not in path}
    return kept | {path.name: path.read_bytes() for path in directory.glob("*.json")}


def rewrite(path: Path, **fields: Any) -> None:
    """Change fields of a record as a person would with an editor that writes in place."""
    fields = {**json.loads(path.read_text("utf-8")), **fields}
    path.write_text(json.dumps(fields, indent=2, ensure_ascii=False), "utf-8")


@contextmanager
def no_thread_starts() -> Iterator[None]:
    """The process can start no thread, as where it has as many as it may have."""
    before = threading.stack_size(1 << 47)  # more than there are addresses
    try:
        yield
    finally:
        threading.stack_size(before)


def wait_until(holds: Callable[[], object], *, what: str = "the awaited", seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as something holds; fail when it does not within a generous time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} seconds"
        time.sleep(0.01)


def put_folder(path: Path) -> None:
    """Put a folder where a record is."""
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def put_fifo(path: Path) -> None:
    """Put a FIFO where a record is."""
    path.unlink()
    os.mkfifo(path)
