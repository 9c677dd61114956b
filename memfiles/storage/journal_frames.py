"""The bytes of a journal: numbered, checksummed frames, each with the whole new versions of its records.

The rules this file guards: a frame is read back only if it is complete, its checksum is right, its number follows the
one before and it names records only; the first frame that fails ends the journal. A voided frame keeps its position and
number. The header and every frame fill whole blocks, padded with zeros, so that each is written without touching
another; a file system that refuses direct writes gets them through the page cache; and nothing is durable before it is
flushed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from memfiles.records.keys import entry_place, uid_of
from memfiles.storage.atomic import Signature

BLOCK_BYTES = 4096
HEADER_BYTES = BLOCK_BYTES
SCRUB_TOKEN_BYTES = 16
_MAGIC = b"memfiles-journal/2\n"
_MARKED_BYTES = 64  # the part of the header with marks, all in one sector
_FRAME = struct.Struct("<4sBQQI")
_CHECKSUM = struct.Struct("<I")
_ENTRY = struct.Struct("<HQQQq")  # a clock may stand before 1970
_REWRITE = b"rewrite\n"
_FRAME_MAGIC = b"frm1"
_DATA, _VOID = 1, 0
FRAME_HEADER_BYTES = _FRAME.size + _CHECKSUM.size
_AT_ONCE = 1024 * 1024
_REFUSED = (errno.EINVAL, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Version:
    """One new version of a record: its path, revision and bytes, and the signature of its staged file."""

    path: str
    revision: int
    data: bytes
    staged: Signature


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was read back; a voided one has no versions."""

    number: int
    versions: tuple[Version, ...]


def journal_header(scrub_token: bytes = b"", *, rewrite: bool = False) -> bytes:
    """The first block of a journal file; the token is that of the last scrub request it answered.

    ``rewrite``: a flush of published files failed, so files that look right may not be on the disk.
    """
    marks = (_MAGIC + scrub_token[:SCRUB_TOKEN_BYTES]).ljust(_MARKED_BYTES, b"\0")
    if rewrite:
        marks = marks[: -len(_REWRITE)] + _REWRITE
    return marks.ljust(HEADER_BYTES, b"\0")


def scrub_token_in(journal: bytes) -> bytes:
    """The token of the last scrub request this journal answered."""
    return journal[len(_MAGIC) : len(_MAGIC) + SCRUB_TOKEN_BYTES].rstrip(b"\0")


def must_rewrite(journal: bytes) -> bool:
    """Whether the published files must be written anew before this journal may go."""
    return journal[:_MARKED_BYTES].endswith(_REWRITE)


def is_empty(journal: bytes) -> bool:
    """Whether nothing but zeros follows the header."""
    return not journal[HEADER_BYTES:].strip(b"\0")


def encode_payload(versions: Sequence[Version]) -> bytes:
    """The part of a frame after its header, padded so that the frame fills whole blocks."""
    parts: list[bytes] = []
    for version in versions:
        path = version.path.encode()
        inode, size, mtime_ns = version.staged
        parts.append(_ENTRY.pack(len(path), size, version.revision, inode, mtime_ns))
        parts += (path, version.data)
    length = FRAME_HEADER_BYTES + sum(map(len, parts))
    parts.append(bytes(-length % BLOCK_BYTES))
    return b"".join(parts)


def encode_frame(number: int, payload: bytes) -> tuple[bytes, bytes]:
    """The two parts of a frame; joining them would copy it once more."""
    return _header(number, _DATA, len(payload), zlib.crc32(payload)), payload


def encode_void(number: int, length: int) -> bytes:
    """The replacement of a frame of ``length`` bytes that must not be replayed."""
    size = length - FRAME_HEADER_BYTES
    return _header(number, _VOID, size, 0) + bytes(size)


def read_frames(journal: bytes) -> Iterator[Frame]:
    """The frames of a journal file, in order."""
    if not journal.startswith(_MAGIC):
        return
    offset, previous = HEADER_BYTES, None
    while header := _read_header(journal, offset):
        number, kind, size, checksum = header
        start, end = offset + FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES + size
        if end > len(journal) or (previous is not None and number != previous + 1):
            return
        payload = journal[start:end]
        if kind == _DATA and zlib.crc32(payload) != checksum:
            return
        try:
            yield Frame(number, tuple(_read_versions(payload)) if kind == _DATA else ())
        except (struct.error, ValueError):  # the checksum is right, so the frame was forged
            return
        offset, previous = end, number


def _header(number: int, kind: int, size: int, checksum: int) -> bytes:
    head = _FRAME.pack(_FRAME_MAGIC, kind, number, size, checksum)
    return head + _CHECKSUM.pack(zlib.crc32(head))


def _read_header(journal: bytes, offset: int) -> tuple[int, int, int, int] | None:
    head = journal[offset : offset + _FRAME.size]
    end = offset + FRAME_HEADER_BYTES
    if len(journal) < end or _CHECKSUM.unpack(journal[offset + _FRAME.size : end])[0] != zlib.crc32(head):
        return None
    magic, kind, number, size, checksum = _FRAME.unpack(head)
    return (number, kind, size, checksum) if magic == _FRAME_MAGIC else None


def _read_versions(payload: bytes) -> Iterator[Version]:
    offset = 0
    while offset + _ENTRY.size <= len(payload):
        path_size, data_size, revision, inode, mtime_ns = _ENTRY.unpack_from(payload, offset)
        if path_size == 0:
            break
        start = offset + _ENTRY.size
        path = payload[start : start + path_size].decode()
        if uid_of(path) is None and entry_place(path) is None:
            raise ValueError(f"not the path of a record: {path[:80]!r}")
        data = payload[start + path_size : start + path_size + data_size]
        yield Version(path, revision, data, Signature(inode, data_size, mtime_ns))
        offset = start + path_size + data_size
    if payload[offset:].strip(b"\0"):
        raise ValueError("unexpected bytes follow the records")


class BlockWriter:
    """Writes whole blocks to one descriptor, past the page cache if the file system allows; one caller at a time.

    A direct write of a few blocks with its flush takes a fifth less time than one through the page cache.
    """

    def __init__(self, descriptor: int, *, directly: bool) -> None:
        """The caller keeps owning the descriptor. ``directly`` False leaves its flags as they are."""
        self._descriptor = descriptor
        self._is_direct = directly and _set_direct(descriptor, wanted=True)
        # shared memory: a fork during a direct write must not move the pages being written
        self._buffer = mmap.mmap(-1, _AT_ONCE)

    def write(self, parts: Iterable[bytes], *, offset: int) -> None:
        """Write the parts one after another; together they must fill whole blocks."""
        filled = 0
        for part in parts:
            start = 0
            while start < len(part):
                taken = min(len(part) - start, _AT_ONCE - filled)
                self._buffer[filled : filled + taken] = part[start : start + taken]
                start, filled = start + taken, filled + taken
                if filled == _AT_ONCE:
                    self._put(filled, offset)
                    filled, offset = 0, offset + filled
        self._put(filled, offset)

    def _put(self, length: int, offset: int) -> None:
        """Write the first ``length`` bytes of the buffer."""
        written = 0
        with memoryview(self._buffer) as view:
            while written < length:
                try:
                    written += os.pwrite(self._descriptor, view[written:length], offset + written)
                except OSError as error:
                    if not self._is_direct or error.errno not in _REFUSED:
                        raise
                    _set_direct(self._descriptor, wanted=False)
                    self._is_direct = False


def _set_direct(descriptor: int, *, wanted: bool) -> bool:
    """Turn direct writes on or off; False if the system has none."""
    with suppress(OSError, AttributeError):  # AttributeError: no O_DIRECT
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
        return True
    return False
