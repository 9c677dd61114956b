"""Files of earlier versions, written over for the next version instead of making and removing a file each time.

On ext4 making a file costs more than everything else in a change but the flush, since inodes freed within the
last minutes are looked at and passed over. The rule this file guards: a file is written over only if this
process made it, it has no second name, and nobody has it open, nor can open it until it is whole (a write
lease, held meanwhile). Where the system gives no lease, every version gets a new file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from contextlib import suppress

from memfiles import atomic
from memfiles.errors import MemfilesError
from memfiles.keys import temp_path
from memfiles.locks import RecordLocks

_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Spares:
    """What lies under the temp names of records that this process changed, by the record's path.

    Every method but ``drop_all`` needs the record's lock, which also guards the record's entries here.
    """

    def __init__(self, directory: int) -> None:
        """``directory`` is the memory directory's descriptor."""
        self._directory = directory
        self._published: dict[str, int] = {}  # the inode of the version that this process published last
        self._spare: dict[str, int] = {}  # the inode of the one before it, under the temp name

    def take(self, path: str) -> int | None:
        """A descriptor to write the next version of ``path`` to; None if a new file has to be made for it."""
        inode = self._spare.pop(path, None)
        if inode is None:
            return None
        with suppress(OSError):
            descriptor = os.open(temp_path(path), _OPEN, dir_fd=self._directory)
            if _is_ours_alone(descriptor, inode):
                return descriptor
            os.close(descriptor)
        self._drop(path)
        return None

    def keep(self, path: str, *, published: int) -> None:
        """The version with this inode was just published: keep the one before it, if this process made that too."""
        before = self._published.get(path)
        self._published[path] = published
        if before is not None:
            self._spare[path] = before
        else:
            self._drop(path)

    def drop_all(self, locks: RecordLocks) -> None:
        """Remove every spare that still lies under its temp name; what cannot be removed is for the next start."""
        for path in list(self._spare):
            with suppress(KeyError, OSError, MemfilesError), locks.hold([path]):
                del self._spare[path]
                if atomic.is_outdated(self._directory, path):
                    self._drop(path)

    def _drop(self, path: str) -> None:
        with suppress(OSError):
            atomic.drop(self._directory, path)


def _is_ours_alone(descriptor: int, inode: int) -> bool:
    """Whether this is the file it should be and nobody else can read it while the descriptor is open.

    A reader that comes meanwhile waits until the descriptor is closed. The system tells the holder of the lease
    by a signal: not by SIGIO, which would end the process, but by one that is ignored unless someone asks for it.
    """
    found = os.fstat(descriptor)
    if found.st_ino != inode or found.st_nlink != 1 or not stat.S_ISREG(found.st_mode):
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except (AttributeError, OSError):
        return False
    return True
