"""Folder events: which files in a folder were changed, as the system says (inotify).

Without a library: watchdog wakes three threads for each event and takes 60 us for it, an entry of a batch takes 1.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Iterable, Iterator

from memfiles.records import late_logger as _log
from memfiles.records.keys import TEMP_PREFIX
from memfiles.storage.atomic import Descriptor
from memfiles.storage.entry_folders import Pause, in_parts, no_pause

# <sys/inotify.h>
_CLOSED_AFTER_WRITING, _MOVED_FROM, _MOVED_TO, _CREATED, _DELETED = 0x8, 0x40, 0x80, 0x100, 0x200
_LOST, _IGNORED, _IS_FOLDER, _ONLY_FOLDERS, _NO_LINKS = 0x4000, 0x8000, 0x40000000, 0x01000000, 0x02000000
_ONCE = 0x80000000  # then the watch ends
_RARE = _LOST | _IGNORED | _IS_FOLDER
_CHANGES = _CLOSED_AFTER_WRITING | _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED  # reading a file causes none
_USED_UP = {
    errno.ENOSPC: "the watches are used up: fs.inotify.max_user_watches",
    errno.EMFILE: "the queues for events are used up: fs.inotify.max_user_instances",
}
_HEADER = struct.Struct("iIII")  # the watch, what happened, a number that joins two events, the length of the name
SWEEP_SECONDS = 30.0  # after which every file is examined in any case
_READ_BYTES = 1 << 20  # all that the system keeps (16,384 events), if names are short
_HIDDEN = ord(TEMP_PREFIX)
_DEEPEST = 8  # folders below the folder, deeper than any record
_libc = ctypes.CDLL(None, use_errno=True)


class FolderEvents:
    """The system's events for one folder. One thread uses it; any may ``interrupt`` it.

    For a flat folder with few files, only the first event after a ``start`` comes in, and it names nothing: making,
    reading and parsing the seven events of a commit takes a twentieth of the commit's time.
    """

    def __init__(self, folder: str, *, is_deep: bool = False, pause: Pause = no_pause) -> None:
        """``folder`` is not a link; ``is_deep``: subfolders count as well."""
        self._pause = pause
        self._folder = folder
        self._is_deep = is_deep
        self.have_names = is_deep  # else only the next event comes in, as no more are needed to examine every file
        self._queue: Descriptor | None = None
        self._opened: Descriptor | None = None  # the folder, so that no other gets its inode number
        self._root = -1  # its watch
        self._watched: dict[int, str] = {}  # the folders by their watches, relative to the folder, with a slash each
        self._unwatched = 0
        self._are_lost = self._has_moved = False
        self._warned: set[str] = set()

    @property
    def are_on(self) -> bool:
        """Whether events are coming in."""
        return self._queue is not None

    @property
    def are_incomplete(self) -> bool:
        """Whether every file must be examined: events were lost, or the folder or one in it was moved."""
        return self._has_moved or self._is_broken()

    def start(self, *, with_names: bool = False) -> None:
        """Start to receive events. If the system provides none (its watches may be used up), that is logged once.

        Without names, which a deep folder needs, only the next event comes in.
        """
        if not hasattr(_libc, "inotify_init1"):
            return
        if self._is_broken():
            self.close()
        self._has_moved = False
        self.have_names = with_names or self._is_deep
        try:
            if self._queue is None:
                self._open()
            elif not self._is_deep:
                self._root = self._watch(self._queue, "")
        except OSError as error:
            self.close()
            why = error.strerror or error
            self._warn("no events for %s (%s): its records are checked every second", self._folder, why)

    def wait(self, seconds: float) -> bool:
        """Wait for events, at most ``seconds``; returns whether there are some."""
        if self._queue is None:
            return False
        if not hasattr(select, "poll"):  # eventlet takes it out of the module
            return bool(select.select([self._queue], [], [], max(0.0, seconds))[0])
        poll = select.poll()
        poll.register(self._queue, select.POLLIN)  # a local name would keep it open in a forked child
        return bool(poll.poll(max(0.0, 1000 * seconds)))

    def read(self) -> set[str]:
        """The paths, relative to the folder, of the files that events named since the last call."""
        found: set[str] = set()
        data, position = self._read(), 0
        if not self.have_names:
            return found
        while position < len(data):
            watch, what, _, length = _HEADER.unpack_from(data, position)
            start, position = position + _HEADER.size, position + _HEADER.size + length
            if what & _RARE:
                found.update(self._follow(watch, what, data[start:position]))
            elif data[start] != _HIDDEN and (folder := self._watched.get(watch)) is not None:
                found.add(folder + _name(data[start:position]))
        return found

    def interrupt(self) -> None:
        """End a ``wait`` in another thread: the end of the watch counts as an event."""
        if (queue := self._queue) is not None:
            _libc.inotify_rm_watch(queue, self._root)

    def close(self) -> None:
        """Stop receiving events until the next ``start``."""
        self._queue = self._opened = None
        self._watched, self._unwatched, self._are_lost = {}, 0, False

    def _is_broken(self) -> bool:
        """Whether events were lost, or the folder at the path is another one now."""
        if self._are_lost or self._opened is None:
            return self._are_lost
        try:
            return not os.path.samestat(os.stat(self._folder), os.fstat(self._opened))
        except OSError:
            return True

    def _open(self) -> None:
        self._opened = Descriptor.of_directory(self._folder)
        queue = Descriptor(_checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)))
        self._root = self._watch(queue, "")
        self._queue = queue
        for _ in self._below(queue, "") if self._is_deep else ():
            pass
        if self._unwatched:
            number = len(self._watched)
            self._warn(
                "%s has %d folders, and the system has watches for %d of them (fs.inotify.max_user_watches): changes "
                "by hand in the others are noticed within %.0f seconds or at the user's next session, not at once",
                self._folder, number + self._unwatched, number, SWEEP_SECONDS,
            )  # fmt: skip

    def _watch(self, queue: int, folder: str) -> int:
        path = os.fsencode(f"{self._folder}/{folder}")
        how = _ONLY_FOLDERS | _NO_LINKS if self.have_names else _ONLY_FOLDERS | _NO_LINKS | _ONCE
        watch = _checked(_libc.inotify_add_watch(queue, path, _CHANGES | how))
        if self.have_names:
            self._watched[watch] = folder
        return watch

    def _below(self, queue: int, folder: str) -> Iterator[str]:
        """Watch the folders in a folder; the files in it and in them."""
        if folder.count("/") > _DEEPEST:
            return
        try:
            with os.scandir(f"{self._folder}/{folder}") as found:
                names = [(each.name, each.is_dir(follow_symlinks=False)) for each in in_parts(found, self._pause)]
        except OSError:  # it is gone, or may not be read
            return
        for name, is_folder in names:
            if is_folder:
                yield from self._enter(queue, f"{folder}{name}/")
            else:
                yield folder + name

    def _enter(self, queue: int, folder: str) -> Iterator[str]:
        """Watch a folder and those in it; the files in all of them."""
        try:
            self._watch(queue, folder)
        except OSError as error:
            self._unwatched += error.errno == errno.ENOSPC
        yield from self._below(queue, folder)

    def _read(self) -> bytes:
        try:
            return os.read(self._queue, _READ_BYTES) if self._queue is not None else b""
        except BlockingIOError:
            return b""

    def _follow(self, watch: int, what: int, name: bytes) -> Iterable[str]:
        """Watch a new folder, or stop watching one that was moved away; returns the files in a new one."""
        if what & (_LOST | _IGNORED):
            self._watched.pop(watch, None)
            self._are_lost = self._are_lost or watch in (-1, self._root)
        elif self._is_deep and self._queue is not None and (folder := self._watched.get(watch)) is not None:
            path = f"{folder}{_name(name)}/"
            self._has_moved = self._has_moved or bool(what & (_MOVED_FROM | _MOVED_TO))  # with the files in it
            if what & (_CREATED | _MOVED_TO):
                return self._enter(self._queue, path)
            if what & _MOVED_FROM:
                for each in [each for each, of in self._watched.items() if of.startswith(path)]:
                    _libc.inotify_rm_watch(self._queue, each)
                    del self._watched[each]
        return ()

    def _warn(self, message: str, *details: object) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message, *details)


def _name(padded: bytes) -> str:
    return os.fsdecode(padded.rstrip(b"\0"))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, _USED_UP.get(number) or os.strerror(number))
    return result
