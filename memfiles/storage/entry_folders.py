"""Entry folders on disk: their files, and when each folder last changed."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress

from memfiles.records.keys import ENTRIES, FILES, TEMP_PREFIX, USERS, entry_path, entry_place
from memfiles.storage.atomic import Descriptor

MASK = 2**63 - 1  # the largest integer of SQLite; some file systems use larger inode numbers
StoredSignature = tuple[int, int, int]  # a signature as stored in the index
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_ANY_UID = "0" * 40


def folder_times(directory: int, *, users: bool = True) -> dict[str, int]:
    """When each folder last changed that can hold entries by its name, in nanoseconds: of agents and their users."""
    found = dict(_times_in(directory, ""))
    for agent in [*found, FILES] if users else ():
        found.update(_times_in(directory, f"{agent}/{USERS}/"))
    return found


def _times_in(directory: int, above: str) -> Iterator[tuple[str, int]]:
    for each in _listed(directory, f"{ENTRIES}/{above}".removesuffix("/")):
        name = above + each.name
        if entry_place(entry_path(name, _ANY_UID)) is not None and each.is_dir(follow_symlinks=False):
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
        except FileNotFoundError:
            continue
        yield start + each.name, (status.st_ino & MASK, status.st_size & MASK, status.st_mtime_ns & MASK)


def stamp(directory: int, folder: str) -> int:
    """Set the time of a folder to now, in nanoseconds, so that any later change is seen; returns that time."""
    now = time.time_ns()
    os.utime(f"{ENTRIES}/{folder}", ns=(now, now), dir_fd=directory, follow_symlinks=False)
    return now


def _listed(directory: int, folder: str) -> Iterator[os.DirEntry[str]]:
    """The files in a folder; none if it does not exist, is not a folder, or is a link."""
    try:
        descriptor = Descriptor.of_folder(directory, folder)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return
        raise
    with os.scandir(descriptor) as found:
        yield from found
