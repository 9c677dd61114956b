"""Why a file cannot be read, and whether that says anything about the file.

The rule this file guards: only what is wrong with the file itself makes it a broken record, which is set aside. What
another user owns, or the system cannot open just now, may hold all that was ever acknowledged.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NoReturn

from memfiles.errors import RecordCorrupt

_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.ESTALE)


def refuse_unopened(error: OSError, directory: int, path: str) -> NoReturn:
    """Raise what it means that the file at ``path`` of ``directory`` could not be opened, no link being followed.

    ``RecordCorrupt`` if that is the file's fault, else an ``OSError``.
    """
    if error.errno in _NOT_THE_FILES_FAULT:
        raise error
    if error.errno in (errno.ELOOP, errno.EMLINK):
        raise RecordCorrupt(f"{path} is a symbolic link, not a file") from None
    if error.errno == errno.EACCES:
        _refuse_foreign(directory, path)
    raise RecordCorrupt(f"{path} cannot be opened: {error.strerror}") from error


def _refuse_foreign(directory: int, path: str) -> None:
    """Raise ``PermissionError`` for a file of another user: one command that was run as root leaves such a record."""
    owner, reader = os.stat(path, dir_fd=directory, follow_symlinks=False).st_uid, os.geteuid()
    if owner != reader:
        what = f"{path} belongs to user {owner} and may not be read by user {reader}: give it to that one (chown)"
        raise PermissionError(errno.EACCES, what)


def kind_of(mode: int) -> str:
    """What a file that is no regular one is, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")
