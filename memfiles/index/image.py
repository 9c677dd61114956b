"""The image of an index: a copy in the store, so that a fresh worker fetches the index in place of building it.

The rules this file guards: an image is a copy of what is derived and nothing more, without any word of what was deleted
or of what belongs to one run; it is input from outside until its schema and pages were checked; and what it says counts
only where the record's version is the one that it says, as every row is compared with the records after it was fetched.

100,000 entries take half a minute to build, and about a second to fetch: 150 MB, a third of that on the way.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from memfiles.errors import MemfilesError
from memfiles.index.database import FORMAT, PATH, IndexUnusable, create_tables
from memfiles.index.rows import RowWriter
from memfiles.index.text import fts
from memfiles.index.text.languages import made_with
from memfiles.records import late_logger as _log
from memfiles.storage import atomic
from memfiles.storage.derived_database import DerivedDatabase
from memfiles.storage.fork_safety import start_thread
from memfiles.storage.record_store import IndexImages

PART_BYTES = 4 * 2**20
PARTS_MAX = 128
"""Together 512 MiB, about 300,000 entries: a larger index is built by each worker."""

LEAST_ENTRIES = 5_000
"""Fewer are built faster than anybody waits for."""

PAUSE_SECONDS = 600.0
"""How often a process asks whether an image is wanted, and how often one is made."""

BUILT_SECONDS, STOP_SECONDS = 10.0, 1.0
"""For how long a close waits for an image: if this process had to build the index, and else until it stops."""

AtRest = Callable[[Callable[[], sqlite3.Connection]], sqlite3.Connection]
_FILES = "image-"
_AT_ONCE = 4  # parts in memory
_PAGES, _STEPS = 1024, 100_000  # of a copy and of a statement, after which it is seen whether to stop
_EMPTIED = ("meta", "folder", "intent")  # what is known of the process and of its files
_OF_RUNS = "SELECT path FROM part JOIN entry ON entry.part = part.id WHERE run <> ''"
_ENTRIES = "SELECT coalesce(sum(count), 0) FROM held"
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master"
_WORDS = re.compile(r"words_([0-9]{1,18})")


def image_format(versions: int) -> int:
    """The number of images of this program that other processes with the same ``versions`` may use."""
    return FORMAT << 20 | versions & 0xFFFFF


_FORMAT = image_format(made_with())


class ImageKeeper:
    """Has an image of this process's index kept in the store, if one is wanted.

    That is done in a thread. Nobody waits for it but ``close``, for some seconds, in a process that had to build the
    index: it was begun there, and others would have to build theirs as well.
    """

    def __init__(self, images: IndexImages, database: DerivedDatabase, folder: Path, *, descriptor: int) -> None:
        """``folder`` is that of the index, with its ``descriptor``."""
        self._images, self._database = images, database
        self._folder, self._descriptor = folder, descriptor
        self._must_fetch, self.least = True, LEAST_ENTRIES
        self._has_built = False
        self.renew()
        with suppress(OSError):
            for name in atomic.names(descriptor):
                if name.startswith(_FILES):  # of a process that was killed: the folder is this one's now
                    self._remove(name)

    def renew(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._asking = threading.Lock()
        self._next, self._is_closed, self._must_stop = 0.0, False, False
        self._thread: threading.Thread | None = None

    def fetch(self) -> None:
        """Put the image in the place of an index that is not there, once; without one, or with a bad one, nothing."""
        if not self._must_fetch:
            return
        try:
            if (self._folder / PATH).exists():
                return
            self._must_fetch, self._has_built = False, True
            self._has_built = not self._fetch(_file("fetched"))
        except (MemfilesError, sqlite3.Error, OSError, ValueError, zlib.error, RuntimeError) as error:
            self._must_fetch = False
            _log.info("the index is built, as its image in the store cannot be used: %s", error)

    def _fetch(self, name: str) -> bool:
        path = self._folder / name
        try:
            if is_there := _unpack(self._images.parts(format=_FORMAT), path):
                _check(path)
                self._database.start_over()  # a log of an earlier file there would be replayed over this one
                atomic.make_folder(self._descriptor, os.path.dirname(PATH))
                atomic.move(self._descriptor, name, to=PATH)
            return is_there
        finally:
            self._remove(name)

    def begin(self, at_rest: AtRest) -> None:
        """Check now and then whether an image is wanted.

        ``at_rest`` does something while the index has every commit up to then and nobody writes it, or raises an error.
        """
        with self._asking:
            if time.monotonic() < self._next or (self._thread is not None and self._thread.is_alive()):
                return
            self._next = time.monotonic() + PAUSE_SECONDS
            thread = threading.Thread(target=self._run, args=(at_rest,), name="memfiles-image", daemon=True)
            if start_thread(thread):
                self._thread = thread

    def close(self) -> None:
        """Begin no other image, and stop one that is being made unless it is worth some seconds."""
        self._is_closed = True
        if self._has_built:
            self.wait(BUILT_SECONDS)
        self._must_stop = True
        self.wait(STOP_SECONDS)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until an image that was begun is kept, at most so long."""
        with self._asking:
            thread, self._next = self._thread, float("inf")
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _check_stopped(self, *_: object) -> None:
        if self._must_stop:
            raise IndexUnusable("the index is closed")

    def _run(self, at_rest: AtRest) -> None:
        try:
            self._keep(at_rest)
        except (MemfilesError, sqlite3.Error, OSError) as error:
            _log.info("no image of the index was kept in the store: %s", error)
        finally:
            self._remove(_file("made"))

    def _remove(self, name: str) -> None:
        """Remove what is left of an image that was being made or checked, if possible."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                atomic.remove(self._descriptor, name + suffix)

    def _keep(self, at_rest: AtRest) -> None:
        """1. ask what was erased up to now; 2. take that in; 3. copy; 4. keep it, unless more was erased meanwhile.

        What is copied is what the index has at the end of 2: a thread that writes it then, or that could not, has the
        text still there.
        """
        with closing(_read_only(self._folder / PATH)) as source:
            entries = int(source.execute(_ENTRIES).fetchone()[0])
        if entries < self.least or self._is_closed:
            return
        erased = self._images.claim(format=_FORMAT, changed=entries // 10, pause=PAUSE_SECONDS)
        if erased is None:
            return
        try:
            path = self._copied(at_rest)
        except BaseException:
            self._images.give()
            raise
        if path.stat().st_size <= PART_BYTES * PARTS_MAX:
            self._images.keep(self._packed(path), format=_FORMAT, erased=erased)

    def _copied(self, at_rest: AtRest) -> Path:
        with closing(at_rest(self._database.reading)) as source:
            atomic.create(self._descriptor, name := _file("made"), b"", flush=False)
            with closing(sqlite3.connect(path := self._folder / name, isolation_level=None)) as copy:
                source.backup(copy, pages=_PAGES, progress=self._check_stopped, sleep=0.0)
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            copy.set_progress_handler(lambda: self._must_stop, _STEPS)
            _clean(copy)
        return path

    def _packed(self, path: Path) -> Iterator[bytes]:
        self._check_stopped()
        with path.open("rb") as file:
            while part := file.read(PART_BYTES):
                yield zlib.compress(part, 1)
                self._check_stopped()


def _file(what: str) -> str:
    """The name of a file of this process alone, as a forked child shares the folder."""
    return f"{_FILES}{os.getpid()}-{what}.sqlite"


def _clean(copy: sqlite3.Connection) -> None:
    """Take out what belongs to a run, a process or its reads, and every word and page of what was deleted."""
    for pragma in ("journal_mode = DELETE", "journal_mode = MEMORY", "temp_store = MEMORY"):  # no other files
        copy.execute(f"PRAGMA {pragma}")
    copy.execute("BEGIN")
    writer = RowWriter(copy)
    for (path,) in copy.execute(_OF_RUNS).fetchall():
        writer.remove(path)
    writer.finish()
    for table in _EMPTIED:
        copy.execute(f"DELETE FROM {table}")
    copy.execute("UPDATE entry SET reads = 0, read_at = '' WHERE reads > 0")
    copy.execute("COMMIT")
    fts.scrub(copy)
    copy.execute("VACUUM")


def _unpack(parts: Iterator[bytes], path: Path) -> bool:
    """Write the file, some parts at a time; whether there were any."""
    number = 0
    with ThreadPoolExecutor(2) as pool:
        while some := list(islice(parts, _AT_ONCE)):
            if (number := number + len(some)) > PARTS_MAX:
                raise ValueError(f"it has more than {PARTS_MAX} parts")
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path, how, 0o600), "wb") as file:
                file.writelines(pool.map(_unpacked, some))
    return number > 0


def _unpacked(part: bytes) -> bytes:
    packed = zlib.decompressobj()
    found = packed.decompress(part, PART_BYTES)
    if not packed.eof:
        raise ValueError("a part of it is too large, or not whole")
    return found


def _check(path: Path) -> None:
    """``ValueError``: this is not an index as this program makes it. Nothing of it is executed before that is known."""
    with closing(_read_only(path)) as found:
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            found.execute(f"PRAGMA {pragma}")
        schema = {*found.execute(_SCHEMA)}
        if schema != _expected([name for _, name, *_ in schema]):
            raise ValueError("its tables are others")
        if found.execute("PRAGMA user_version").fetchone() != (FORMAT,):
            raise ValueError("it has another format")
        if found.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise ValueError("it is damaged")
        if found.execute("SELECT count(*) FROM meta").fetchone() != (0,):
            raise ValueError("it has notes of another process")


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _expected(names: Iterable[str]) -> set[tuple[str, str, str, str | None]]:
    """The schema of an index with tables for those partitions that these names are of."""
    with closing(sqlite3.connect(":memory:")) as made:
        create_tables(made)
        for part in filter(None, map(_WORDS.fullmatch, names)):
            fts.make_tables(made, part[1], schema="main")
        return {*made.execute(_SCHEMA)}
