"""The bytes of a journal: numbered, checksummed frames, each with the new versions of its records.

The rules this file guards: a frame is read back only if it is complete, its checksum is right, its number follows the
one before and it names records only; the first frame that fails ends the journal. A voided frame keeps its position and
number. The header and every frame fill whole blocks of the disk, padded with zeros, so that each is written without
touching another; a file system that refuses direct writes gets them through the page cache; and nothing is durable
before it is flushed.

A frame holds a version whole, or as a *delta*: what to copy from the version before it of the same record, which an
earlier frame of the same journal holds at the revision before, and what is new. A delta is read back only if the
checksum of the whole result is right; else its frame says nothing, nor does any delta that builds on it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import astuple

from memfiles.records.history import common_prefix, common_suffix
from memfiles.records.keys import entry_place, uid_of
from memfiles.storage.atomic import Signature
from memfiles.storage.record_store import Sections

BLOCK_BYTES = 4096
SECTOR_BYTES = 512  # the block of most disks; databases rely on it, too, that writing one leaves its neighbours whole
HEADER_BYTES = BLOCK_BYTES
LARGEST_DELTA_RESULT = 1024 * 1024
LONGEST_CHAIN_BYTES = 64 * 1024 * 1024  # of all results of a chain of deltas, which recovery makes one after another
SCRUB_TOKEN_BYTES = 16
_MAGIC = b"memfiles-journal/3\n"
_MAGIC_2 = b"memfiles-journal/2\n"  # all versions whole
_MARKED_BYTES = 64  # the part of the header with marks, all in one sector
_FRAME = struct.Struct("<4sBQQI")
_CHECKSUM = struct.Struct("<I")
_ENTRY = struct.Struct("<HQQQqII")  # path, size, revision, inode, mtime (before 1970: negative), stored, checksum
_ENTRY_2 = struct.Struct("<HQQQq")
_COPY = struct.Struct("<III")  # how many new bytes follow, and what to copy after them: offset and length
_RECORD_END = b"]}\n"
_REWRITE = b"rewrite\n"
_FRAME_MAGIC = b"frm1"
_VOID, _WHOLE, _DATA = 0, 1, 2
_LAYOUTS = {_WHOLE: _ENTRY_2, _DATA: _ENTRY}  # format 2 wrote all versions whole
FRAME_HEADER_BYTES = _FRAME.size + _CHECKSUM.size
_AT_ONCE = 1024 * 1024
_REFUSED = (errno.EINVAL, errno.ENOTSUP)


class Version(Struct, frozen=True):
    """One new version of a record: its path, revision and bytes, and the signature of its staged file.

    ``sections`` are known of a version that is made, and not of one that is read back: they make no difference.
    """

    path: str
    revision: int
    data: bytes
    staged: Signature
    sections: Sections | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and astuple(self)[:-1] == astuple(other)[:-1]


class Base(Struct, frozen=True):
    """A version that a journal holds, for the delta of the next one. ``checksum`` is that of its start, if known.

    ``chain_bytes`` is the size of all results up to it since a version that stands whole.
    """

    version: Version
    checksum: int | None
    chain_bytes: int


class Frame(Struct, frozen=True):
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
    """Whether the published files must be rewritten before this journal may go."""
    return journal[:_MARKED_BYTES].endswith(_REWRITE)


def is_empty(journal: bytes) -> bool:
    """Whether nothing but zeros follows the header."""
    return not journal[HEADER_BYTES:].strip(b"\0")


def encode_payload(
    versions: Sequence[Version], *, bases: Mapping[str, Base | None] = {}, block_bytes: int = BLOCK_BYTES
) -> tuple[bytes, list[Base]]:
    """The part of a frame after its header, padded so that the frame fills whole blocks, and the bases of the next.

    ``bases`` are the latest versions in the same journal, by path.
    """
    parts: list[bytes] = []
    kept: list[Base] = []
    size = FRAME_HEADER_BYTES
    for version in versions:
        path, base = version.path.encode(), bases.get(version.path)
        made = _delta(base, version) if base is not None else None
        stored, checksum, following = made or (version.data, 0, Base(version, None, len(version.data)))
        inode, length, mtime_ns = version.staged
        entry = _ENTRY.pack(len(path), length, version.revision, inode, mtime_ns, len(stored), checksum)
        parts += (entry, path, stored)
        kept.append(following)
        size += len(entry) + len(path) + len(stored)
    parts.append(bytes(-size % block_bytes))
    return b"".join(parts), kept


def encode_frame(number: int, payload: bytes) -> tuple[bytes, bytes]:
    """The two parts of a frame; joining them would copy it once more."""
    return _header(number, _DATA, len(payload), zlib.crc32(payload)), payload


def encode_void(number: int, length: int) -> bytes:
    """The replacement of a frame of ``length`` bytes that must not be replayed."""
    size = length - FRAME_HEADER_BYTES
    return _header(number, _VOID, size, 0) + bytes(size)


def read_frames(journal: bytes) -> Iterator[Frame]:
    """The frames of a journal file, in order. One with a delta that cannot be made out has no versions."""
    if not journal.startswith((_MAGIC, _MAGIC_2)):
        return
    offset, previous, newest = HEADER_BYTES, None, dict[str, Version]()
    while header := _read_header(journal, offset):
        number, kind, size, checksum = header
        start, end = offset + FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES + size
        if end > len(journal) or (previous is not None and number != previous + 1):
            return
        payload = journal[start:end]
        if kind != _VOID and zlib.crc32(payload) != checksum:
            return
        try:
            versions = _read_versions(payload, newest, layout=_LAYOUTS[kind]) if kind in _LAYOUTS else ()
        except _BrokenChain:
            versions = ()
        except (struct.error, ValueError):  # the checksum is right, so the frame was forged
            return
        newest.update({version.path: version for version in versions})
        yield Frame(number, versions)
        offset, previous = end, number


class _BrokenChain(Exception):
    """The version that a delta builds on is not there, or is another one."""


def _delta(base: Base, version: Version) -> tuple[bytes, int, Base] | None:
    """The version as what changed since ``base``, its checksum and the next base; None if it is to stand whole."""
    before, old, new = base.version, base.version.data, version.data
    folded = base.chain_bytes + len(new)
    if before.sections is None or version.sections is None or before.revision + 1 != version.revision:
        return None
    if max(len(old), len(new)) > LARGEST_DELTA_RESULT or folded > LONGEST_CHAIN_BYTES:
        return None
    (old_end, old_history), (end, history) = before.sections, version.sections
    start = old[:old_end]
    if new.startswith(start):  # appended to
        known = base.checksum if base.checksum is not None else zlib.crc32(start)
        checksum, kept, tail = zlib.crc32(new[old_end:end], known), old_end, 0
    else:
        fresh = new[:end]
        checksum, kept = zlib.crc32(fresh), common_prefix(start, fresh)
        tail = common_suffix(start, fresh, most=min(old_end, end) - kept)
    later, later_at = _kept_history(old, old_history, new, history)
    parts = (
        _COPY.pack(0, 0, kept),
        *(_COPY.pack(end - tail - kept, old_end - tail, tail), new[kept : end - tail]),
        *(_COPY.pack(history - end, later_at, later), new[end:history]),
        *(_COPY.pack(len(new) - history - later, 0, 0), new[history + later :]),
    )
    if len(stored := b"".join(parts)) >= len(new):
        return None
    return stored, zlib.crc32(new[end:], checksum), Base(version, checksum, folded)


def _kept_history(old: bytes, old_history: int, new: bytes, history: int) -> tuple[int, int]:
    """How many bytes of the old history the new one begins with, and where they are: the oldest changes may be gone."""
    first = new[history : new.find(b"\n", history) + 1]
    at, end = old.find(first, old_history), len(old) - len(_RECORD_END)
    if first and 0 <= at <= end and new.startswith(old[at:end], history):
        return end - at, at
    return 0, 0


def _folded(old: bytes, delta: bytes, *, size: int) -> bytes:
    """The result of a delta; ``_BrokenChain`` if there is none of this size."""
    parts: list[bytes] = []
    at = 0
    while at < len(delta):
        new, offset, length = _COPY.unpack_from(delta, at)
        at += _COPY.size + new
        parts += (delta[at - new : at], old[offset : offset + length])
    if at != len(delta) or sum(map(len, parts)) != size:
        raise _BrokenChain
    return b"".join(parts)


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


def _read_versions(payload: bytes, newest: Mapping[str, Version], *, layout: struct.Struct) -> tuple[Version, ...]:
    """The versions in the payload of a frame; ``newest`` are those of the frames before, by path."""
    versions: list[Version] = []
    offset = 0
    while offset + layout.size <= len(payload):
        path_size, size, revision, inode, mtime_ns, *delta = layout.unpack_from(payload, offset)
        if path_size == 0:
            break
        stored, checksum = delta or (size, 0)
        start = offset + layout.size + path_size
        path, data = _checked_path(payload[start - path_size : start]), payload[start : start + stored]
        if stored < size:
            base = newest.get(path)
            if base is None or base.revision + 1 != revision or size > LARGEST_DELTA_RESULT:
                raise _BrokenChain
            data = _folded(base.data, data, size=size)
            if zlib.crc32(data) != checksum:
                raise _BrokenChain
        versions.append(Version(path, revision, data, Signature(inode, size, mtime_ns)))
        offset = start + stored
    if payload[offset:].strip(b"\0"):
        raise ValueError("unexpected bytes follow the records")
    return tuple(versions)


def _checked_path(path: bytes) -> str:
    found = path.decode()
    if uid_of(found) is None and entry_place(found) is None:
        raise ValueError(f"not the path of a record: {found[:80]!r}")
    return found


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

    def smallest(self, *, at: int) -> int:
        """The size of a block that can be written alone, tried by writing zeros ``at`` this offset."""
        if not self._is_direct:
            return BLOCK_BYTES
        try:
            os.pwrite(self._descriptor, memoryview(self._buffer)[:SECTOR_BYTES], at)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            return BLOCK_BYTES
        return SECTOR_BYTES

    def write(self, parts: Iterable[bytes], *, offset: int) -> None:
        """Write the parts one after another; together they must fill whole blocks."""
        filled = 0
        for part in parts:
            if filled + len(part) < _AT_ONCE:
                self._buffer[filled : filled + len(part)] = part
                filled += len(part)
                continue
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
