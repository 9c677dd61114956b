"""The files below a folder that somebody names, read without trusting it.

The rules this file guards: no link is followed below the folder, nothing but regular files is opened, and depth,
number and size are bounded before a byte is read, so that no folder can hang or exhaust the reader.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memfiles.entries.results import Skipped
from memfiles.entries.transfer.document import FILE_MAX_BYTES, printed
from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.storage import atomic

LINES_MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a file that holds many entries, and of all files of a folder together."""

FILES_MAX = 200_000
DEPTH_MAX = 16
_REPORTED_MAX = 1000

Wanted = Callable[[str, bool], bool]
"""Whether the file, or (True) the folder, at a path relative to the root is a part of the memory."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read: its path relative to the folder, with slashes, and its bytes."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    descriptor: int
    path: str
    depth: int

    def below(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name


def checked_path(path: object, *, what: str) -> str:
    """A path as text; ``InvalidArgument`` for what none can be."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str) or not named:
        raise InvalidArgument(f"{what} must be a path, not {type(path).__name__}")
    try:
        if "\0" not in named and os.fsencode(named):
            return named
    except UnicodeEncodeError:
        pass
    raise InvalidArgument(f"{what} {ascii(named[:80])} can be no path")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of one file of at most 256 MiB, else ``InvalidArgument``; never waits on a FIFO or a device."""
    try:
        folder, name = os.path.split(os.path.realpath(path))
        directory = atomic.open_directory(folder)
        try:
            read = atomic.read(directory, name, limit=LINES_MAX_BYTES)
        finally:
            os.close(directory)
    except (RecordCorrupt, OSError, ValueError) as error:
        raise InvalidArgument(f"{printed(os.fspath(path))} cannot be read: {_reason(error)}") from error
    if read is None:
        raise InvalidArgument(f"there is no file {printed(os.fspath(path))}")
    return read[0]


def read_folder(path: str | os.PathLike[str], wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    """Every wanted file below ``path``, by name, and a ``Skipped`` for everything that is none.

    The folder itself may be reached through a link. ``InvalidArgument`` if it cannot be opened, or holds more than
    200,000 files or 256 MiB: then nothing of it should be used.
    """
    try:
        root = atomic.open_directory(path)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{printed(os.fspath(path))} cannot be read: {_reason(error)}") from error
    yield from _bounded(_walk(_Place(root, "", 0), wanted))


def _bounded(walk: Iterator[SourceFile | Skipped]) -> Iterator[SourceFile | Skipped]:
    files = size = reports = 0
    for item in walk:
        if isinstance(item, Skipped):
            reports += 1
            if reports <= _REPORTED_MAX:
                yield item
            continue
        files, size = files + 1, size + len(item.data)
        if files > FILES_MAX or size > LINES_MAX_BYTES:
            raise InvalidArgument(
                f"the folder holds more than {FILES_MAX} files or {LINES_MAX_BYTES} bytes of them: import a part of it"
            )
        yield item
    if reports > _REPORTED_MAX:
        yield Skipped(".", f"and {reports - _REPORTED_MAX} more that are no part of a memory")


def _walk(place: _Place, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    """What is in an open folder and below; closes it."""
    try:
        for name in sorted(os.listdir(place.descriptor)):
            yield from _look(place, name, wanted)
    except OSError as error:
        yield Skipped(printed(place.path or "."), f"the folder cannot be read: {_reason(error)}")
    finally:
        os.close(place.descriptor)


def _look(place: _Place, name: str, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    path = place.below(name)
    try:
        found = os.stat(name, dir_fd=place.descriptor, follow_symlinks=False)
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            yield Skipped(printed(path), "this is a symbolic link, and none is followed")
        elif not wanted(path, stat.S_ISDIR(mode)):
            yield Skipped(printed(path), "this is no part of the memory")
        elif stat.S_ISREG(mode) and found.st_size > FILE_MAX_BYTES:
            yield Skipped(printed(path), f"it has {found.st_size} bytes; at most {FILE_MAX_BYTES} are read")
        elif not stat.S_ISDIR(mode):
            yield _file(place, name)
        elif place.depth >= DEPTH_MAX:
            yield Skipped(printed(path), f"this is more than {DEPTH_MAX} folders deep")
        else:
            descriptor = os.open(name, _FOLDER, dir_fd=place.descriptor)
            yield from _walk(_Place(descriptor, path, place.depth + 1), wanted)
    except OSError as error:
        yield Skipped(printed(path), f"it cannot be read: {_reason(error)}")


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _file(place: _Place, name: str) -> SourceFile | Skipped:
    path = place.below(name)
    try:
        path.encode()
        read = atomic.read(place.descriptor, name, limit=FILE_MAX_BYTES)
    except UnicodeEncodeError:
        return Skipped(printed(path), "its name is not UTF-8")
    except RecordCorrupt as error:
        return Skipped(printed(path), "it" + _reason(error).removeprefix(name))
    return SourceFile(path, read[0]) if read else Skipped(printed(path), "it was removed while the folder was read")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
