"""Recovery: what a start does with the journals, temp files and scrub requests that dead processes left.

The rules this file guards: a journal is replayed only when its lock is free; a frame's version replaces a file only if
that file is missing, unreadable, older, or a damaged copy of that very version; whatever may be a hand edit is
quarantined first, and so is a version kept out by another of the same revision; and a journal is removed only after
every file it names is flushed.

A scrub request asks every process to overwrite its journal, so that redacted text is in none. One process asks at a
time and holds the request's lock until it is answered; a request whose lock is free is a dead process's.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO, FileIO
from typing import Literal

from memfiles.errors import LockTimeout, RecordCorrupt
from memfiles.records.entry_codec import inspect
from memfiles.records.keys import ENTRIES, TEMP_PREFIX, staged_path
from memfiles.records.record import MAX_RECORD_BYTES
from memfiles.storage import atomic, quarantine
from memfiles.storage.entry_folders import UnlistedFolders, folder_times
from memfiles.storage.journal import FOLDER, SUFFIX
from memfiles.storage.journal_frames import (
    SCRUB_TOKEN_BYTES,
    Version,
    is_empty,
    must_rewrite,
    read_frames,
    scrub_token_in,
)
from memfiles.storage.locks import RecordLocks, lock_descriptor

SweptEntries = Literal["none", "agents", "all"]
_LONGEST_DEATH = 10.0  # seconds from the first lock to the last that a dying process releases
_POLL_SECONDS = 0.002
SCRUB_REQUEST = f"{FOLDER}/scrub-request"
_REQUEST_POLL_SECONDS = 0.02
_NOT_A_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO, errno.ENODEV)
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def journal_names(directory: int) -> list[str]:
    """The names of all journal files, of live and dead processes."""
    try:
        return sorted(name for name in atomic.names(directory, FOLDER) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


def recover(directory: int, locks: RecordLocks, *, at: str, flush: bool, among: SweptEntries = "all") -> None:
    """Replay and remove every journal whose process is dead, then remove dead writers' temp files.

    ``among``: the entries (there may be 100,000, in a folder for each of 10,000 users) among which they are looked for
    even if no process was dead: those of ``agents`` without users, ``all`` or ``none``.
    """
    deadline = time.monotonic() + _LONGEST_DEATH
    while True:
        for name in journal_names(directory):
            if _recover_journal(directory, name, locks, at=at, flush=flush):
                among = "all"
        if _sweep(directory, at=at, among=among):
            if (request := _locked_request(directory, create=False)) is not None:
                _withdraw(directory, request)  # of a dead process
            return
        if time.monotonic() >= deadline:
            raise LockTimeout(
                "a process that was killed during a change still holds its journal: check whether it is still running"
            )
        time.sleep(_POLL_SECONDS)


def is_needed(directory: int) -> bool:
    """Whether a dead process left a journal; changes nothing."""
    for name in journal_names(directory):
        with _dead_journal(directory, name) as data:
            if data is not None:
                return True
    return False


def may_hold_content(directory: int, name: str, *, token: bytes) -> bool:
    """Whether a live process's journal may still hold what the scrub request ``token`` is to remove."""
    data = _journal_bytes(directory, name)
    return not is_empty(data) and scrub_token_in(data) != token


def may_hold_version(directory: int, name: str, paths: Collection[str]) -> bool:
    """Whether a journal, of a live or a dead process, may hold a version of one of these records."""
    frames = read_frames(_journal_bytes(directory, name))
    return any(not frame.versions or any(version.path in paths for version in frame.versions) for frame in frames)


def sync_journals(directory: int) -> None:
    """Flush what was overwritten in the journals, and which are gone, as their processes may not have done it yet."""
    for name in journal_names(directory):
        with suppress(RecordCorrupt), _open_journal(directory, name) or BytesIO():  # only a journal can be flushed
            atomic.sync_file(directory, f"{FOLDER}/{name}")
    atomic.sync_folder(directory, FOLDER)


def _recover_journal(directory: int, name: str, locks: RecordLocks, *, at: str, flush: bool) -> bool:
    """Replay a journal if its process is dead, flush what it names and remove it; returns whether it was dead."""
    with _dead_journal(directory, name, at=at) as data:
        if data is None:
            return False
        versions = _newest_versions(data)
        replay = partial(_replay, directory, at=at, flush=flush, always=must_rewrite(data))
        locks.while_held(versions, lambda: [replay(version) for version in versions.values()])
        if flush:
            atomic.sync_published(directory, versions)
        atomic.remove(directory, f"{FOLDER}/{name}")
        if flush:
            atomic.sync_folder(directory, FOLDER)
        return True


@contextmanager
def _dead_journal(directory: int, name: str, *, at: str | None = None) -> Iterator[bytes | None]:
    """The bytes of a journal that no process uses, locked while the block runs; None if one does.

    Anything else with the name of a journal is quarantined, or left alone if there is no time ``at`` for the note.
    """
    try:
        file = _open_journal(directory, name)
    except RecordCorrupt as error:
        file = None
        if at is not None:
            quarantine.set_aside(directory, f"{FOLDER}/{name}", reason=str(error), at=at)
    if file is None:
        yield None
        return
    with file:
        is_free = lock_descriptor(file.fileno()) and os.fstat(file.fileno()).st_nlink > 0
        yield file.readall() if is_free else None


def _newest_versions(journal: bytes) -> dict[str, Version]:
    """The newest version of each record in the journal's sound frames, by path."""
    newest: dict[str, Version] = {}
    for frame in read_frames(journal):
        for version in frame.versions:
            known = newest.get(version.path)
            if known is None or version.revision >= known.revision:
                newest[version.path] = version
    return newest


def _replay(directory: int, version: Version, *, at: str, flush: bool, always: bool) -> None:
    """Put a journaled version in place unless the file is as new; the record's lock is held.

    ``always``: also over an identical file, because a flush of it failed.
    """
    try:
        found = atomic.read(directory, version.path, limit=MAX_RECORD_BYTES)
    except RecordCorrupt as error:
        quarantine.set_aside(directory, version.path, reason=f"{error}; replaced by the journal's version", at=at)
        found = None
    if found is not None:
        if not _is_outdated(*found, by=version) and not (always and found[0] == version.data):
            _keep_if_other(directory, version, found[0], at=at)
            return
        if _may_be_by_hand(directory, version.path, *found):
            reason = "edited by hand, or damaged, while the journal held a newer version, which replaced it"
            quarantine.keep_copy(directory, version.path, found[0], reason=reason, at=at)
    atomic.drop_temp(directory, version.path)
    atomic.make_folders(directory, version.path.rpartition("/")[0], flush=flush)  # someone may have removed it by hand
    atomic.stage(directory, version.path, version.data, flush=flush)
    atomic.publish(directory, version.path)
    atomic.drop_temp(directory, version.path)


def _keep_if_other(directory: int, version: Version, found: bytes, *, at: str) -> None:
    """Quarantine a journaled version if the file is a different version of the same revision.

    Our own writes never lead to that, but a file may have been copied here from a backup or another machine.
    """
    record = inspect(found)
    if found != version.data and record is not None and record.is_intact and record.revision == version.revision:
        reason = f"revision {version.revision} in the journal; the file stays, as another version of that revision"
        quarantine.keep_copy(directory, version.path, version.data, reason=reason, at=at)


def _is_outdated(data: bytes, seen: atomic.Signature, *, by: Version) -> bool:
    """Whether the file must be replaced: it is unreadable, older, or that very version damaged by a power cut."""
    if data == by.data:
        return False
    record = inspect(data)
    if record is None or record.revision < by.revision:
        return True
    is_that_version = (seen.inode, seen.mtime_ns) == (by.staged.inode, by.staged.mtime_ns)
    return is_that_version and not record.is_intact


def _may_be_by_hand(directory: int, path: str, data: bytes, seen: atomic.Signature) -> bool:
    """Whether a file about to be replaced may be a hand edit: neither a sound version nor the remains of one."""
    record = inspect(data)
    if not data.strip(b"\0") or (record is not None and record.is_intact):
        return False
    journaled = _journaled_versions(directory)
    return not any((version.path, version.staged.mtime_ns) == (path, seen.mtime_ns) for version in journaled)


def _sweep(directory: int, *, at: str, among: SweptEntries) -> bool:
    """Remove dead writers' temp files; False while one holds a change whose journal is not free yet.

    A temp file whose record's lock is free is a dead writer's. But a dying process releases its locks one after
    another: if its journal names the staged version, that must be replayed before the temp file goes.
    """
    temps = _temp_files(directory, among=among)
    found = {temp: path for temp in temps if (path := staged_path(temp)) is not None}
    if not found:
        return True
    locks, swept = RecordLocks(directory, timeout=0.0), True
    dead = {temp: seen for temp, path in found.items() if (seen := _if_free(directory, locks, temp, path)) is not None}
    staged = {(found[temp], seen.inode, seen.mtime_ns) for temp, seen in dead.items()}
    journaled = (
        {key: each for each in _journaled_versions(directory) if (key := _key_of(each)) in staged} if dead else {}
    )
    for temp, seen in dead.items():
        with suppress(LockTimeout), locks.hold([found[temp]]):
            version = journaled.get((found[temp], seen.inode, seen.mtime_ns))
            if version is not None and _is_unpublished(directory, version):
                swept = False
            elif atomic.signature(directory, temp) == seen:
                _remove_temp(directory, temp, at=at)
    return swept


def _temp_files(directory: int, *, among: SweptEntries) -> list[str]:
    """The temp files; what is not a folder among the entries, such as a link, is left alone."""
    found = [name for name in atomic.names(directory) if name.startswith(TEMP_PREFIX)]
    with suppress(OSError):
        left_out = UnlistedFolders(directory)
        for folder in folder_times(directory, users=among == "all", unlisted=left_out) if among != "none" else ():
            with suppress(OSError):
                names = atomic.names(directory, f"{ENTRIES}/{folder}")
                found += [f"{ENTRIES}/{folder}/{name}" for name in names if name.startswith(TEMP_PREFIX)]
    return sorted(found)


def _if_free(directory: int, locks: RecordLocks, temp: str, path: str) -> atomic.Signature | None:
    """The signature of a temp file; None if its record's lock is held."""
    with suppress(LockTimeout), locks.hold([path]):
        return atomic.signature(directory, temp)
    return None


def _journaled_versions(directory: int) -> Iterator[Version]:
    """Every version in any journal; all of them together may take far more memory than the journals."""
    for name in journal_names(directory):
        for frame in read_frames(_journal_bytes(directory, name)):
            yield from frame.versions


def _key_of(version: Version) -> tuple[str, int, int]:
    """The path of a version, and the inode and time of its staged file."""
    return version.path, version.staged.inode, version.staged.mtime_ns


def _is_unpublished(directory: int, version: Version) -> bool:
    """Whether the file is older than a journaled version; the record's lock is held."""
    try:
        found = atomic.read(directory, version.path, limit=MAX_RECORD_BYTES)
    except RecordCorrupt:
        return True
    return found is None or _is_outdated(*found, by=version)


def _remove_temp(directory: int, temp: str, *, at: str) -> None:
    try:
        atomic.remove(directory, temp)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        quarantine.set_aside(directory, temp, reason="a folder at the temp name of a record", at=at)


def _journal_bytes(directory: int, name: str) -> bytes:
    """The bytes of a journal, also of one that is held; none if it is gone or not a file."""
    try:
        with _open_journal(directory, name) or BytesIO() as file:
            return file.read()
    except RecordCorrupt:
        return b""


def _open_journal(directory: int, name: str) -> FileIO | None:
    """A journal's file, None if it is gone; ``RecordCorrupt`` if what has its name is not a file."""
    try:
        file = FileIO(f"{FOLDER}/{name}", opener=lambda path, _: os.open(path, _OPEN, dir_fd=directory))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        raise RecordCorrupt(f"not a journal: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RecordCorrupt("not a journal: not a regular file")
    return file


@contextmanager
def request_scrub(directory: int, *, timeout: float) -> Iterator[bytes]:
    """Request a scrub while the block runs; yields the token. ``LockTimeout`` if others keep requesting one."""
    deadline = time.monotonic() + timeout
    while (request := _locked_request(directory, create=True)) is None:
        if time.monotonic() >= deadline:
            raise LockTimeout("other processes kept removing text from the journals; do it again")
        time.sleep(_REQUEST_POLL_SECONDS)
    try:
        token = os.urandom(SCRUB_TOKEN_BYTES // 2).hex().encode()
        os.ftruncate(request.fileno(), 0)
        os.pwrite(request.fileno(), token, 0)
        yield token
    finally:
        _withdraw(directory, request)


def requested_scrub(directory: int) -> bytes:
    """The token of the current request, empty if there is none."""
    try:
        found = atomic.read(directory, SCRUB_REQUEST, limit=SCRUB_TOKEN_BYTES)
    except (OSError, RecordCorrupt):
        return b""
    return found[0] if found else b""


def _locked_request(directory: int, *, create: bool) -> FileIO | None:
    """The request, locked until it is closed; None if another process holds it, or if there is none to open.

    Anything but a file of its own (a FIFO, a hard link to another file) is removed first.
    """
    flags = _OPEN | (os.O_CREAT if create else 0)
    try:  # an object, so that an interrupt anywhere leaves no descriptor that is locked for ever
        request = FileIO(SCRUB_REQUEST, opener=lambda path, _: os.open(path, flags, 0o600, dir_fd=directory))
    except FileNotFoundError:
        return None
    is_ours = False
    try:
        found = os.fstat(request.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            atomic.remove(directory, SCRUB_REQUEST)
        else:
            is_ours = lock_descriptor(request.fileno()) and os.fstat(request.fileno()).st_nlink == 1
    finally:
        if not is_ours:
            request.close()
    return request if is_ours else None


def _withdraw(directory: int, request: FileIO) -> None:
    """Remove the request while it is still locked: the next to lock it must find that it is gone."""
    try:
        atomic.remove(directory, SCRUB_REQUEST)
    finally:
        request.close()
