"""Folders of records on disk: their files, when each folder last changed, and the feed and the listings made of that.

The rule this file guards: the feed misses no record that was put in place or removed, because that gives its folder
another time, and a folder that changed within the last tick of the clock counts as changed until it has been looked at
after it. A point of the feed is the times of all folders.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import TypeVar

from msgspec import Struct

from memfiles.errors import StorageFailed
from memfiles.records import late_logger as _log
from memfiles.records.keys import ENTRIES, FILES, TEMP_PREFIX, USERS, entry_place, is_entry_folder, uid_of
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor, Signature, file_hash, is_of_one_file, is_settled, reason
from memfiles.storage.fork_safety import renew_in_child
from memfiles.storage.record_store import Changes, Records, RecordStore

MASK = 2**63 - 1  # the largest integer of SQLite; some file systems use larger inode numbers
StoredSignature = tuple[int, int, int]  # a signature as stored in the index
UNKNOWN = (-1, -1, -1)  # of a file that cannot be examined: no row has it
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_POLL_SECONDS = 0.05
_POLL_SHARE = 25  # looking at the folders takes so much less time than waiting
_FILES_AT_ONCE = 128
_COMPARED_MAX = 4096  # folders that are remembered
Folders = Collection[str] | None
"""Folders of entries, as in their paths; None for all."""
Pause = Callable[[], None]
"""A pause that long work in a background thread calls now and then; it ends the work by raising."""
T = TypeVar("T")
_Times = Mapping[str, object]  # by folder: when it changed, in a list if that is too recent to tell from a later change


def no_pause() -> None:
    """The pause of work that somebody waits for."""


def in_parts(found: Iterable[T], pause: Pause) -> Iterator[T]:
    """All that was found, with a pause after each 128."""
    for number, each in enumerate(found, 1):
        yield each
        if not number % _FILES_AT_ONCE:
            pause()


class FolderSum(Struct, frozen=True):
    """The number of files in a folder, and the sum of their hashes: of name, inode, size and modification time."""

    number: int = 0
    hashes: int = 0


def folder_times(directory: int, *, users: bool = True, unlisted: UnlistedFolders | None = None) -> dict[str, int]:
    """When each folder last changed that can hold entries by its name, in nanoseconds: of agents and their users.

    The users of an agent that cannot be listed at the moment are left out and noted in ``unlisted``, if that is given.
    """
    found = dict(_times_in(directory, ""))
    for agent in [*found, FILES] if users else ():
        above = f"{agent}/{USERS}"
        with nullcontext() if unlisted is None else unlisted.noted(above):
            found.update(_times_in(directory, f"{above}/"))
    if unlisted is not None:
        for folder in unlisted.keys() - found.keys():  # they may be gone
            with unlisted.noted(folder):
                next(_listed(directory, f"{ENTRIES}/{folder}"), None)
    return found


def _times_in(directory: int, above: str) -> Iterator[tuple[str, int]]:
    for each in _listed(directory, f"{ENTRIES}/{above}".removesuffix("/")):
        name = above + each.name
        if is_entry_folder(name) and each.is_dir(follow_symlinks=False):
            with suppress(FileNotFoundError):
                yield name, each.stat(follow_symlinks=False).st_mtime_ns


def files(directory: int, folder: str, left_over: list[str]) -> Iterator[tuple[str, StoredSignature]]:
    """The path and signature of every file in a folder of entries; temp files are added to ``left_over`` instead."""
    start = f"{ENTRIES}/{folder}/"
    for each in _listed(directory, f"{ENTRIES}/{folder}"):
        if each.name.startswith(TEMP_PREFIX):
            left_over.append(start + each.name)
            continue
        try:
            status = each.stat(follow_symlinks=False)
        except OSError as error:
            if _is_there(error):
                yield start + each.name, UNKNOWN
            continue
        yield start + each.name, (status.st_ino & MASK, status.st_size & MASK, status.st_mtime_ns & MASK)


def folder_sum(directory: int, folder: str, pause: Pause = no_pause) -> FolderSum:
    """The sum of the files in a folder of entries; a temp file makes it one that no rows have."""
    count = hashes = 0
    for each in in_parts(_listed(directory, f"{ENTRIES}/{folder}"), pause):
        try:
            status = each.stat(follow_symlinks=False)
        except OSError as error:
            count += _is_there(error)
            continue
        count += 1
        hashes += file_hash(each.name, (status.st_ino & MASK, status.st_size & MASK, status.st_mtime_ns & MASK))
    return FolderSum(count, hashes & MASK)


class ComparedFolders:
    """The folders whose files were compared with their rows since the start of this process."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.are_all = False

    def missing(self, folders: Iterable[str]) -> list[str]:
        """The folders among these that were not compared."""
        return [] if self.are_all else [folder for folder in folders if folder not in self._names]

    def add(self, folders: Folders = None) -> None:
        """These folders were compared, or all; of very many some are forgotten, as comparing again costs little."""
        if folders is None or len(self._names) > _COMPARED_MAX:
            self._names.clear()
        self.are_all |= folders is None
        self._names.update(folders or ())


class UnlistedFolders(dict[str, str]):
    """Folders of entries, or of users, that could not be listed when that was last tried, and why: each is logged once.

    ``returned`` are those that were listed since, until their entries were compared.
    """

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor."""
        super().__init__()
        self._directory = directory
        self.returned: set[str] = set()

    @contextmanager
    def noted(self, folder: str) -> Iterator[None]:
        """List a folder in this block, which ends where that is not possible at the moment."""
        try:
            yield
        except OSError as error:
            if not is_of_one_file(error):
                raise
            agent = folder.removesuffix(f"/{USERS}")
            if self.keys().isdisjoint((folder, agent, f"{agent}/{USERS}")):
                _log.warning("%s; it is left out until it can be", reason(self._failure(agent) or error))
            self[folder] = reason(error)
        else:
            if folder in self:
                self.returned.add(folder)
                del self[folder]

    def sum(self, folder: str, pause: Pause) -> FolderSum:
        """As ``folder_sum``; of a folder that cannot be listed, a sum that no rows have."""
        with self.noted(folder):
            return folder_sum(self._directory, folder, pause)
        return FolderSum(-1)

    def listed_again(self) -> set[str]:
        """The folders among them that can be listed now or are gone, and the ``returned`` ones."""
        return self.returned | {folder for folder in list(self) if self._failure(folder) is None}

    def take(self, folders: Folders) -> set[str]:
        """Remove and return the ``returned`` ones among these folders, or all: they are compared now."""
        taken = set(self.returned) if folders is None else self.returned.intersection(folders)
        self.returned -= taken
        return taken

    def topmost(self) -> dict[str, str]:
        """By path, why these cannot be listed; one below another that cannot be is not named."""
        found, failure = dict[str, str](), cache(self._failure)
        for folder, why in list(self.items()):
            agent, users, _ = folder.partition(f"/{USERS}")
            above = next((each for each in (agent, agent + users) if failure(each) is not None), folder)
            found[f"{ENTRIES}/{above}"] = reason(failed) if (failed := failure(above)) is not None else why
        return found

    def _failure(self, folder: str) -> OSError | None:
        """Why a folder cannot be listed at the moment; None if it can be, or is gone."""
        try:
            next(_listed(self._directory, f"{ENTRIES}/{folder}"), None)
        except OSError as error:
            return error if is_of_one_file(error) else None
        return None


def _is_there(error: OSError) -> bool:
    """Whether a file is there that cannot be examined; False if it is gone. Any other error is raised."""
    if not (is_gone := isinstance(error, FileNotFoundError)) and not is_of_one_file(error):
        raise error
    return not is_gone


def stamp(directory: int, folder: str) -> int:
    """Set the time of a folder to now, in nanoseconds, so that any later change is seen; returns that time."""
    now = time.time_ns()
    os.utime(f"{ENTRIES}/{folder}", ns=(now, now), dir_fd=directory, follow_symlinks=False)
    return now


def changes(directory: int, since: str | None) -> Changes:
    """The records put in place or removed since a point; see ``RecordStore.changes``."""
    times, known = _folders(directory), _times_at(since)
    changed = [folder for folder in times if times[folder] != known.get(folder) or isinstance(times[folder], list)]
    records = {path: seen for folder in changed for path, seen in _records_in(directory, folder)}
    return Changes(json.dumps(times), records, frozenset([*changed, *(known.keys() - times)]))


def listed(directory: int) -> tuple[dict[str, Signature], dict[str, str]]:
    """All records, and by path why folders of them cannot be listed at the moment."""
    unlisted, found = UnlistedFolders(directory), dict(_records_in(directory, ""))
    for folder in folder_times(directory, unlisted=unlisted):
        with unlisted.noted(folder):
            found.update(_records_in(directory, f"{ENTRIES}/{folder}"))
    return found, unlisted.topmost()


def wait(directory: int, since: str, *, seconds: float) -> bool:
    """Whether there are changes after a point within some seconds; see ``RecordStore.wait``."""
    known, deadline = _times_at(since), time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if _folders(directory) != known:
            return True
        if (now := time.monotonic()) >= deadline:
            return False
        time.sleep(min(max(_POLL_SECONDS, _POLL_SHARE * (now - begun)), deadline - now))


class RecordListing:
    """The files of all records on disk: their paths and signatures. Entries count once ``has_entries`` is set."""

    def __init__(
        self, file_paths: Callable[[], list[str]], store: Records, directory: int, *, recover: Callable[[], None]
    ) -> None:
        """``directory`` is the memory directory's descriptor. ``recover`` removes temp files of dead processes."""
        self.file_paths = file_paths
        self.has_entries = False
        self.unlisted = UnlistedFolders(directory)  # as far as ``entries_in`` was asked for them
        self._store, self._directory, self._recover = store, directory, recover

    def paths(self) -> list[str]:
        """The paths of all records: memory files, then entries."""
        return [*self.file_paths(), *self.entry_paths()]

    def entry_paths(self) -> list[str]:
        """The paths of entries, private ones included."""
        return [path for folder in self.folders() for path in self.entries_in(folder)]

    def folders(self) -> dict[str, int]:
        """The folders of entries, and when a record was last put in place or removed there (ns)."""
        if not self.has_entries:
            return {}
        with atomic.storage_failure("the entries cannot be listed"):
            return folder_times(self._directory, unlisted=self.unlisted)

    def entries_in(self, folder: str) -> dict[str, Signature]:
        """By path, the signatures of the entries in a folder; removes temp files, which may hold forgotten text."""
        left_over, found = list[str](), dict[str, Signature]()
        with atomic.storage_failure("the entries cannot be listed"), self.unlisted.noted(folder):
            every = files(self._directory, folder, left_over)
            found = {path: Signature(*seen) for path, seen in every if entry_place(path) is not None}
        if left_over:
            self._recover()
        return found

    def signatures(self, paths: Iterable[str]) -> dict[str, Signature]:
        """By path, the signatures of the records that exist."""
        found = ((path, self._signature(path)) for path in paths)
        return {path: seen for path, seen in found if seen is not None}

    def _signature(self, path: str) -> Signature | None:
        try:
            return self._store.signature(path)
        except StorageFailed as error:
            if not is_of_one_file(error):
                raise
            return Signature(*UNKNOWN)


class FeedListing:
    """The records of a store without files, as its feed lists them; see ``RecordListing``.

    The time of a folder is a number that grows whenever a record in it changes.
    """

    def __init__(self, file_paths: Callable[[], list[str]], store: RecordStore) -> None:
        self.file_paths = file_paths
        self.has_entries, self.unlisted = False, UnlistedFolders(-1)
        self._store = store
        self._forget()
        renew_in_child(self, FeedListing._forget)

    def _forget(self) -> None:
        self._following = threading.Lock()
        self._point: str | None = None
        self._known: dict[str, dict[str, Signature]] = {}
        self._times: dict[str, int] = {}

    def paths(self) -> list[str]:
        return [*self.file_paths(), *self.entry_paths()]

    def entry_paths(self) -> list[str]:
        return [path for folder in self.folders() for path in self.entries_in(folder)]

    def folders(self) -> dict[str, int]:
        self._follow()
        return {folder: at for folder, at in self._times.items() if folder} if self.has_entries else {}

    def entries_in(self, folder: str) -> dict[str, Signature]:
        """See ``RecordListing``: those of the last look at the folders."""
        with self._following:
            return dict(self._known.get(folder, {}))

    def signatures(self, paths: Iterable[str]) -> dict[str, Signature]:
        self._follow()
        with self._following:
            found = ((path, self._known.get(_folder_of(path), {}).get(path)) for path in paths)
            return {path: seen for path, seen in found if seen is not None}

    def _follow(self) -> None:
        with self._following:
            changes = self._store.changes(self._point)
            if self._point is None:
                self._known = {}
            for path, signature in changes.records.items():
                known = self._known.setdefault(folder := _folder_of(path), {})
                if signature is None:
                    known.pop(path, None)
                else:
                    known[path] = signature
                self._times[folder] = self._times.get(folder, 0) + 1
            self._point = changes.until


def _folder_of(path: str) -> str:
    """The folder of an entry below that of all entries, "" of a memory file."""
    return path.rpartition("/")[0].removeprefix(f"{ENTRIES}/")


def _folders(directory: int) -> dict[str, object]:
    found = {"": os.fstat(directory).st_mtime_ns}
    found |= {f"{ENTRIES}/{name}": at for name, at in folder_times(directory).items()}
    return {folder: at if is_settled(Signature(0, 0, at)) else [at] for folder, at in found.items()}


def _times_at(point: str | None) -> _Times:
    """The times in a point, none if it means nothing."""
    try:
        times = json.loads(point or "{}")
    except ValueError:
        return {}
    return times if isinstance(times, dict) else {}


def _records_in(directory: int, folder: str) -> Iterator[tuple[str, Signature]]:
    start = f"{folder}/" if folder else ""
    for each in _listed(directory, folder or "."):
        if uid_of(each.name) is not None if not folder else entry_place(start + each.name) is not None:
            with suppress(FileNotFoundError):
                status = each.stat(follow_symlinks=False)
                yield start + each.name, Signature(status.st_ino, status.st_size, status.st_mtime_ns)


def _listed(directory: int, folder: str) -> Iterator[os.DirEntry[str]]:
    """The files in a folder; none if it does not exist, is not a folder, or is a link."""
    try:
        descriptor = Descriptor.of_folder(directory, folder)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return
        raise OSError(error.errno, f"the folder {folder} cannot be listed: {error.strerror}") from error
    with os.scandir(descriptor) as found:
        yield from found
