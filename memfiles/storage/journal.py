"""This process's journal: changes that are durable but whose published files are not flushed yet.

The rules this file guards: a change whose frame was flushed survives a power cut until its file was
flushed; a frame that failed or was voided is never replayed; and the file goes away only when every
published file it speaks of is flushed. One file a process, held by a lock for as long as it is in use.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from filelock import lock_descriptor

from memfiles.storage.atomic import sync_folder, sync_published
from memfiles.storage.journal_frames import (
    BLOCK_BYTES,
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    BlockWriter,
    Version,
    encode_frame,
    encode_payload,
    encode_void,
    journal_header,
)

FOLDER = ".journal"
SUFFIX = ".journal"
CAPACITY = 4 * 1024 * 1024
SMALLEST = 64 * 1024  # on a disk that is nearly full
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FramePosition:
    """Where a frame stands in the file."""

    number: int
    offset: int
    length: int


class Journal:
    """Appends frames, and empties itself once the published files are flushed.

    ``append`` and ``void`` need the ``turn``, held until what was appended is published, so that a checkpoint
    in between never takes a frame whose record is not at its path. ``flush`` False (durability ``os``) leaves
    out every flush; all else stays, so that a change of several records is all or nothing in a kill.
    """

    def __init__(self, directory: int, *, new_id: Callable[[], str], flush: bool = True) -> None:
        """``directory`` is the memory directory's descriptor; nothing is created before the first frame."""
        self.turn = threading.Lock()
        self.name = ""  # of the file, empty while there is none
        self._directory = directory
        self._new_id = new_id
        self._flush = flush
        self._descriptor: int | None = None
        self._blocks: BlockWriter | None = None  # of the descriptor
        self._capacity = CAPACITY
        self._unsynced: dict[str, None] = {}  # paths in frames since the last checkpoint
        self._tail = HEADER_BYTES
        self._high_water = HEADER_BYTES  # beyond it the file is still zeros
        self._next_number = 1
        self._broken = False  # the file takes no more frames
        self._unsure = False  # a flush of published files failed
        self._is_closed = False
        self._has_left = False  # a file that is still to be recovered from

    @property
    def is_dirty(self) -> bool:
        """Whether the file holds anything that a checkpoint would flush or overwrite."""
        return self._high_water > HEADER_BYTES

    @property
    def frames_written(self) -> int:
        """How many frames this journal has numbered so far."""
        return self._next_number - 1

    def append(self, groups: Sequence[Sequence[Version]]) -> list[FramePosition]:
        """Make each group of versions durable as one frame, all with one flush; the turn is held.

        ``OSError`` if that failed: then no frame counts. Next the caller publishes, or voids what it could not.
        """
        payloads = [encode_payload(versions) for versions in groups]
        try:
            self._make_room(sum(map(len, payloads)) + FRAME_HEADER_BYTES * len(payloads))
        except OSError:
            self._broken = True
            raise
        start = self._tail
        places = self._place(payloads)
        try:
            frames = [encode_frame(place.number, payload) for place, payload in zip(places, payloads, strict=True)]
            self._write(chain.from_iterable(frames), start)
        except BaseException:
            self._fail(start)
            raise
        self._unsynced.update((version.path, None) for versions in groups for version in versions)
        return places

    def void(self, place: FramePosition) -> None:
        """Make sure that this frame is never replayed; ``OSError`` if that cannot be known. The turn is held."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the journal was given up")
        self._write([encode_void(place.number, place.length)], place.offset)

    def checkpoint(self, *, scrub_token: bytes | None = None) -> bool:
        """Flush the published files, then overwrite every byte of the frames: the files are all there is.

        With a token that is flushed as well, and the header shows the token. False if an earlier flush failed:
        then the file was left, to be recovered from.
        """
        with self.turn:
            if self._unsure:
                self.leave()
                return False
            if self._descriptor is not None:
                self._empty()
                self._scrub(scrub_token)
            return True

    def close(self) -> bool:
        """Checkpoint and remove the file: after a clean close no journal is left. False: one was, now or before."""
        with self.turn:
            self._is_closed = True  # a thread that is still writing must not make another file
            if self._unsure:
                self.leave()
            elif self._descriptor is not None:
                try:
                    self._empty()
                    self._remove()
                finally:
                    self.leave()
            return not self._has_left

    def leave(self) -> None:
        """Let go of the file as it is: whoever recovers next replays it. The turn is held."""
        if self._descriptor is None:
            return
        self._has_left = True
        if self._unsure:
            with suppress(OSError):
                self._write([journal_header(rewrite=True)], 0)
        self._forget_file()

    def mend(self) -> None:
        """Give up a file that takes no more frames now, and not only before the next frame."""
        with self.turn:
            if self._broken:
                self._retire()

    def abandon(self) -> None:
        """Drop the descriptor without touching the file: for the child of a fork, whose parent owns it."""
        if self._descriptor is not None:
            self._forget_file()

    def _place(self, payloads: Sequence[bytes]) -> list[FramePosition]:
        """A number and a place behind the last frame for each payload."""
        places = []
        for payload in payloads:
            place = FramePosition(self._next_number, self._tail, FRAME_HEADER_BYTES + len(payload))
            places.append(place)
            self._next_number += 1
            self._tail += place.length
        self._high_water = max(self._high_water, self._tail)
        return places

    def _fail(self, start: int) -> None:
        """Nothing from ``start`` on counts. What a failed flush left on the disk is unknown: start a new file next."""
        self._broken = True
        self._tail = start
        with suppress(OSError):
            self._end_at_tail()

    def _end_at_tail(self) -> None:
        """Have on the disk that no frame follows the last good one."""
        self._write([bytes(BLOCK_BYTES)], self._tail)

    def _make_room(self, needed: int) -> None:
        """Have a sound file with room for ``needed`` bytes; a single larger commit makes the file grow."""
        if self._is_closed:
            raise OSError(errno.ESHUTDOWN, "the memory was closed meanwhile")
        if self._broken:
            self._retire()
        if self._descriptor is None:
            self._create()
        elif self._tail > HEADER_BYTES and self._tail + needed > self._capacity:
            self._empty()

    def _create(self) -> None:
        """A new file, written to its capacity: a later flush then has no metadata to write."""
        try:
            self._create_of(CAPACITY)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._create_of(SMALLEST)

    def _create_of(self, capacity: int) -> None:
        name, descriptor = self._create_locked()
        try:
            if os.pwrite(descriptor, journal_header().ljust(capacity, b"\0"), 0) < capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._flush:
                sync_folder(self._directory, FOLDER)
                sync_folder(self._directory)
            blocks = BlockWriter(descriptor, directly=self._flush)
        except BaseException:
            self._discard(name, descriptor)
            raise
        self._descriptor, self._blocks, self.name, self._capacity = descriptor, blocks, name, capacity
        self._tail = self._high_water = HEADER_BYTES

    def _create_locked(self) -> tuple[str, int]:
        """A new file's name and locked descriptor.

        A starting process may take a file that is not locked yet for a dead one's and remove it: then try again.
        """
        while True:
            name = self._new_id() + SUFFIX
            descriptor = os.open(f"{FOLDER}/{name}", _NEW, 0o600, dir_fd=self._directory)
            try:
                if lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink:
                    return name, descriptor
            except BaseException:
                self._discard(name, descriptor)
                raise
            os.close(descriptor)

    def _discard(self, name: str, descriptor: int) -> None:
        """Undo the creation of a file; where that fails, it is a dead one's for the next start."""
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(f"{FOLDER}/{name}", dir_fd=self._directory)

    def _retire(self) -> None:
        """Give up a file whose flush failed, or that of the files it speaks of.

        Before any other frame is written it must be certain that the failed one does not count: both would be
        the same revision. The file is removed once all that it made durable is flushed in place; else it stays,
        for the next start to write that anew: a flush that failed once may say yes the next time without having
        written.
        """
        if self._descriptor is None:
            self._broken = False
            return
        self._end_at_tail()
        if not self._unsure:
            with suppress(OSError):
                self._sync_published()
                self._remove()
        self.leave()

    def _empty(self) -> None:
        """Flush what was published and forget the frames; the turn is held, so no new ones come."""
        if self._broken:
            self._end_at_tail()
        self._sync_published()
        assert self._descriptor is not None
        self._put([bytes(BLOCK_BYTES)], HEADER_BYTES)
        if self._high_water > self._capacity:
            os.ftruncate(self._descriptor, self._capacity)
            self._high_water = self._capacity
        self._tail = HEADER_BYTES

    def _sync_published(self) -> None:
        try:
            if self._flush:
                sync_published(self._directory, self._unsynced)
        except BaseException:
            self._broken = self._unsure = True
            raise
        self._unsynced = {}

    def _scrub(self, token: bytes | None) -> None:
        """Overwrite every byte ever used; with a token, flush that and show the token in the header."""
        self._put([bytes(self._high_water - HEADER_BYTES)], HEADER_BYTES)
        self._high_water = HEADER_BYTES
        if token is not None:
            self._write([journal_header(token)], 0)

    def _write(self, parts: Iterable[bytes], offset: int) -> None:
        """Have whole blocks on the disk."""
        self._put(parts, offset)
        if self._flush:
            assert self._descriptor is not None
            os.fdatasync(self._descriptor)

    def _put(self, parts: Iterable[bytes], offset: int) -> None:
        assert self._blocks is not None
        self._blocks.write(parts, offset=offset)

    def _remove(self) -> None:
        """Remove the file, which holds nothing that is not flushed in place."""
        os.unlink(f"{FOLDER}/{self.name}", dir_fd=self._directory)
        self._forget_file()

    def _forget_file(self) -> None:
        """Close the file; an interrupt in between must not leave a number that is soon another file's."""
        descriptor, self._descriptor, self._blocks, self.name = self._descriptor, None, None, ""
        self._tail = self._high_water = HEADER_BYTES
        self._unsynced, self._broken, self._unsure = {}, False, False
        assert descriptor is not None
        os.close(descriptor)
