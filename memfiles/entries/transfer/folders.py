"""Folders and single files as sources of an import.

The rule this file guards: no link is followed below the folder, only regular files are opened, and depth, number and
size are bounded before a byte is read, so no folder can hang or exhaust the reader.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from msgspec import Struct

from memfiles.entries.transfer.document import Skipped, printed
from memfiles.errors import InvalidArgument, RecordCorrupt, reason_of
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor

LINES_MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of a file with many entries, and of all files of a folder together."""

FILES_MAX = 200_000
DEPTH_MAX = 16
NOT_A_PART = "this is not a part of the memory"
_REPORTED_MAX = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Wanted = Callable[[str, bool], bool]
"""Whether the file, or (True) the folder, at a path relative to the root is a part of the memory."""


class SourceFile(Struct, frozen=True):
    """A file that was read: its path relative to the folder, with slashes, and its bytes."""

    path: str
    data: bytes


class _Place(Struct, frozen=True):
    descriptor: int
    path: str
    depth: int
    most: int


class Folder:
    """The files in a folder on disk, by path."""

    def __init__(self, path: str) -> None:
        self.name = os.path.basename(os.path.abspath(path))
        self._path = path

    def paths(self) -> Iterator[str]:
        """The paths of what lies in it and in its own folders, which end with a slash."""
        for path in self._names(""):
            yield path
            if path.endswith("/"):
                yield from self._names(path)

    def files(self, wanted: Wanted, *, most: int) -> Iterator[SourceFile | Skipped]:
        """Every wanted file of at most ``most`` bytes, by name, and a ``Skipped`` for everything else.

        The folder itself may be reached through a link. ``InvalidArgument`` if it cannot be opened.
        """
        try:
            root = Descriptor.of_directory(self._path)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"{printed(self._path)} cannot be read: {reason_of(error)}") from error
        yield from _walk(_Place(root, "", 0, most), wanted)

    def _names(self, below: str) -> Iterator[str]:
        try:
            with os.scandir(os.path.join(self._path, below)) as found:
                yield from [below + each.name + "/" * each.is_dir(follow_symlinks=False) for each in found]
        except OSError:
            return


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of one file of at most 256 MiB, else ``InvalidArgument``; never waits on a FIFO or a device."""
    try:
        folder, name = os.path.split(os.path.realpath(path))
        read = atomic.read(Descriptor.of_directory(folder), name, limit=LINES_MAX_BYTES)
    except (RecordCorrupt, OSError, ValueError) as error:
        raise InvalidArgument(f"{printed(os.fspath(path))} cannot be read: {reason_of(error)}") from error
    if read is None:
        raise InvalidArgument(f"there is no file {printed(os.fspath(path))}")
    return read[0]


def limit_reports(walk: Iterator[SourceFile | Skipped], *, most: int) -> Iterator[SourceFile | Skipped]:
    """The files and reports of a source, the reports only up to a number.

    ``InvalidArgument`` after 200,000 files, or after ``most`` bytes: then nothing of it should be used.
    """
    files = size = reports = 0
    for item in walk:
        if isinstance(item, Skipped):
            reports += 1
            if reports <= _REPORTED_MAX:
                yield item
            continue
        files, size = files + 1, size + len(item.data)
        if files > FILES_MAX or size > most:
            raise InvalidArgument(f"this is more than {FILES_MAX} files or {most} bytes of them: import a part of it")
        yield item
    if reports > _REPORTED_MAX:
        yield Skipped(".", f"and {reports - _REPORTED_MAX} more that are not a part of the memory")


def _walk(place: _Place, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    """The contents of an open folder and below."""
    try:
        for name in sorted(os.listdir(place.descriptor)):
            yield from _look(place, name, wanted)
    except OSError as error:
        yield Skipped(printed(place.path or "."), f"the folder cannot be read: {reason_of(error)}")


def _look(place: _Place, name: str, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    path = f"{place.path}/{name}" if place.path else name
    try:
        found = os.stat(name, dir_fd=place.descriptor, follow_symlinks=False)
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            yield Skipped(printed(path), "this is a symbolic link, which is not followed")
        elif not wanted(path, stat.S_ISDIR(mode)):
            yield Skipped(printed(path), NOT_A_PART)
        elif stat.S_ISREG(mode) and found.st_size > place.most:
            yield Skipped(printed(path), f"it has {found.st_size} bytes; at most {place.most} are read")
        elif not stat.S_ISDIR(mode):
            yield _file(place, name, path)
        elif place.depth >= DEPTH_MAX:
            yield Skipped(printed(path), f"this is more than {DEPTH_MAX} folders deep")
        else:
            descriptor = Descriptor(os.open(name, _FOLDER, dir_fd=place.descriptor))
            yield from _walk(_Place(descriptor, path, place.depth + 1, place.most), wanted)
    except OSError as error:
        yield Skipped(printed(path), f"it cannot be read: {reason_of(error)}")


def _file(place: _Place, name: str, path: str) -> SourceFile | Skipped:
    try:
        path.encode()
        read = atomic.read(place.descriptor, name, limit=place.most)
    except UnicodeEncodeError:
        return Skipped(printed(path), "its name is not UTF-8")
    except RecordCorrupt as error:
        return Skipped(printed(path), "it" + reason_of(error).removeprefix(name))
    return SourceFile(path, read[0]) if read else Skipped(printed(path), "it was removed while the folder was read")
