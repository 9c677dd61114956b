"""What a start does with the journals and temp files that dead processes left.

The rules this file guards: a journal is replayed only when its lock is free; a frame's version replaces a
file only if that file is missing, unreadable, older, or a damaged copy of that very version; whatever may be
someone's work by hand is kept in quarantine first; and a journal goes away only after every file it speaks
of is flushed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import lock_descriptor

from memfiles import atomic, quarantine
from memfiles.errors import LockTimeout, RecordCorrupt
from memfiles.frames import Version, is_empty, read_frames, scrub_token_in
from memfiles.journal import FOLDER, SUFFIX
from memfiles.keys import TEMP_PREFIX, staged_path
from memfiles.locks import RecordLocks
from memfiles.record import MAX_RECORD_BYTES, inspect

_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def journal_names(directory: int) -> list[str]:
    """The names of all journal files, of the living and the dead."""
    try:
        descriptor = os.open(FOLDER, _OPEN_FOLDER, dir_fd=directory)
    except FileNotFoundError:
        return []
    try:
        return sorted(name for name in os.listdir(descriptor) if name.endswith(SUFFIX))
    finally:
        os.close(descriptor)


def recover(directory: int, locks: RecordLocks, *, at: str, flush: bool) -> None:
    """Replay and remove every journal whose process is dead, then remove dead writers' temp files."""
    for name in journal_names(directory):
        with _dead_journal(directory, name) as data:
            if data is not None:
                versions = _newest_versions(data)
                with locks.hold(versions):
                    for version in versions.values():
                        _replay(directory, version, at=at, flush=flush)
                _remove_journal(directory, name, versions=versions, flush=flush)
    _sweep(directory)


def is_needed(directory: int) -> bool:
    """Whether a dead process left a journal, looked at without changing anything."""
    for name in journal_names(directory):
        with _dead_journal(directory, name) as data:
            if data is not None:
                return True
    return False


def may_hold_content(directory: int, name: str, *, token: bytes) -> bool:
    """Whether a living process's journal may still hold what the scrub request ``token`` is to remove."""
    try:
        descriptor = os.open(f"{FOLDER}/{name}", _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        data = _read_all(descriptor)
    finally:
        os.close(descriptor)
    return not is_empty(data) and scrub_token_in(data) != token


@contextmanager
def _dead_journal(directory: int, name: str) -> Iterator[bytes | None]:
    """The bytes of a journal that no process uses, which is ours while the block runs; None if one does."""
    try:
        descriptor = os.open(f"{FOLDER}/{name}", _OPEN, dir_fd=directory)
    except FileNotFoundError:
        yield None
        return
    try:
        free = lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink > 0
        yield _read_all(descriptor) if free else None
    finally:
        os.close(descriptor)


def _newest_versions(journal: bytes) -> dict[str, Version]:
    """For each record the newest version in the journal's sound frames."""
    newest: dict[str, Version] = {}
    for frame in read_frames(journal):
        for version in frame.versions:
            known = newest.get(version.path)
            if known is None or version.revision >= known.revision:
                newest[version.path] = version
    return newest


def _replay(directory: int, version: Version, *, at: str, flush: bool) -> None:
    """Put a journaled version in place unless the file there is as new; the record's lock is held."""
    try:
        found = atomic.read(directory, version.path, limit=MAX_RECORD_BYTES)
    except RecordCorrupt as error:
        quarantine.set_aside(directory, version.path, reason=f"{error}; the journal's version took its place", at=at)
        found = None
    if found is not None:
        if not _is_outdated(*found, by=version):
            return
        if _may_be_by_hand(*found, replaced_by=version):
            reason = "changed by hand while the journal held a newer version, which took its place"
            quarantine.keep_copy(directory, version.path, found[0], reason=reason, at=at)
    atomic.drop(directory, version.path)
    atomic.stage(directory, version.path, version.data, flush=flush)
    atomic.publish(directory, version.path)
    atomic.drop(directory, version.path)


def _is_outdated(data: bytes, seen: atomic.Signature, *, by: Version) -> bool:
    """Whether the file must be replaced: unreadable, older, or the very version, damaged by a power cut."""
    if data == by.data:
        return False
    record = inspect(data)
    if record is None or record.revision < by.revision:
        return True
    is_that_version = (seen.inode, seen.mtime_ns) == (by.staged.inode, by.staged.mtime_ns)
    return is_that_version and not record.is_intact


def _may_be_by_hand(data: bytes, seen: atomic.Signature, *, replaced_by: Version) -> bool:
    """Whether a file about to be replaced is neither ours nor what a power cut leaves of one of ours."""
    if not data.strip(b"\0") or seen.mtime_ns == replaced_by.staged.mtime_ns:
        return False
    record = inspect(data)
    return record is None or not record.is_intact


def _remove_journal(directory: int, name: str, *, versions: dict[str, Version], flush: bool) -> None:
    """Flush all that the journal spoke of, then let it go."""
    if flush:
        atomic.sync_published(directory, versions)
    atomic.remove(directory, f"{FOLDER}/{name}")
    if flush:
        atomic.sync_folder(directory, FOLDER)


def _sweep(directory: int) -> None:
    """Remove the temp files whose record's lock is free: their writers are dead and recovered from."""
    for temp in sorted(name for name in os.listdir(directory) if name.startswith(TEMP_PREFIX)):
        path = staged_path(temp)
        if path is not None:
            with suppress(LockTimeout), RecordLocks(directory, timeout=0.0).hold([path]):
                atomic.remove(directory, temp)


def _read_all(descriptor: int) -> bytes:
    chunks, offset = [], 0
    while chunk := os.pread(descriptor, 1 << 20, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
