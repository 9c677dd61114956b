"""This process's journal: changes that are durable, but whose published files are not flushed yet.

The rules this file guards: a change whose frame was flushed survives a power cut until its own file is flushed; a
frame that failed or was voided is never replayed; and the journal file is removed only once every published file it
names is flushed. Each process has one journal file and holds its lock for as long as it uses it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto

from msgspec import Struct

from memfiles.records import late_logger as _log
from memfiles.storage.atomic import reason, sync_folder, sync_published
from memfiles.storage.journal_frames import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    Base,
    BlockWriter,
    Version,
    encode_frame,
    encode_payload,
    encode_void,
    journal_header,
)
from memfiles.storage.locks import forks_so_far, lock_descriptor

FOLDER = ".journal"
SUFFIX = ".journal"
CAPACITY = 4 * 1024 * 1024
BEGINNING = 64 * 1024  # and the least that it grows by: all of it is written to the disk, also for a few changes
SMALLEST = 16 * 1024  # on a disk that is nearly full
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
BASES_BYTES = CAPACITY  # of versions kept in memory, for deltas of the next ones
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FramePosition(Struct, frozen=True):
    """The number of a frame, and its offset and length in the file, in bytes."""

    number: int
    offset: int
    length: int


class JournalFile:
    """One locked, preallocated file, written in whole blocks. One thread at a time may use it."""

    def __init__(self, name: str, descriptor: int, *, capacity: int, unflushed_in: int | None) -> None:
        """Take over a file that holds nothing but a header and zeros; its name is flushed after its first frame.

        ``unflushed_in`` is the directory's descriptor, or None to leave out every flush.
        """
        self.name = name
        self.capacity = capacity
        self.tail = HEADER_BYTES  # the end of the last frame
        self.high_water = HEADER_BYTES  # beyond it the file is still zeros
        self._descriptor = descriptor
        self._flush = unflushed_in is not None
        self._unflushed_in = unflushed_in
        self._blocks = BlockWriter(descriptor, directly=self._flush)
        self.block_bytes = self._blocks.smallest(at=HEADER_BYTES)

    @classmethod
    def create(cls, directory: int, *, new_id: Callable[[], str], flush: bool) -> JournalFile:
        """Create a file, written to its capacity, so that a later flush has no metadata to write."""
        try:
            return cls._create(directory, min(BEGINNING, CAPACITY), new_id=new_id, flush=flush)
        except OSError as error:
            if error.errno not in _FULL_DISK:
                raise
            return cls._create(directory, SMALLEST, new_id=new_id, flush=flush)

    @classmethod
    def _create(cls, directory: int, capacity: int, *, new_id: Callable[[], str], flush: bool) -> JournalFile:
        """Create a locked file; try again if a starting process removed it before it was locked, or after a fork.

        The child of a fork has the descriptor without knowing, and would keep the lock beyond our life.
        """
        while True:
            name, forks = new_id() + SUFFIX, forks_so_far()
            descriptor = os.open(f"{FOLDER}/{name}", _NEW, 0o600, dir_fd=directory)
            try:
                if lock_descriptor(descriptor) and os.fstat(descriptor).st_nlink:
                    if os.pwrite(descriptor, journal_header().ljust(capacity, b"\0"), 0) < capacity:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    if forks is not None and forks == forks_so_far():
                        return cls(name, descriptor, capacity=capacity, unflushed_in=directory if flush else None)
                    os.unlink(f"{FOLDER}/{name}", dir_fd=directory)
            except BaseException:
                os.close(descriptor)
                with suppress(OSError):  # else the next start takes it for a dead process's
                    os.unlink(f"{FOLDER}/{name}", dir_fd=directory)
                raise
            os.close(descriptor)

    def append(self, payloads: Sequence[bytes], *, first_number: int) -> list[FramePosition]:
        """Write a frame for each payload, all with one flush. If that fails, none of them counts."""
        start = end = self.tail
        positions: list[FramePosition] = []
        parts: list[bytes] = []
        for number, payload in enumerate(payloads, first_number):
            positions.append(FramePosition(number, end, length := FRAME_HEADER_BYTES + len(payload)))
            parts += encode_frame(number, payload)
            end += length
        self.tail, self.high_water = end, max(self.high_water, end)
        try:
            self.write(parts, start)
            if (directory := self._unflushed_in) is not None:  # after the file, whose flush often does this as well
                sync_folder(directory, FOLDER)
                sync_folder(directory)
                self._unflushed_in = None
        except BaseException:
            self.tail = start
            with suppress(OSError):
                self.end_at_tail()
            raise
        return positions

    def grow(self, needed: int) -> bool:
        """Grow, by about a fourth, until ``needed`` bytes follow the last frame; False if there is no such room.

        That is, beyond ``CAPACITY``, or if the disk is or was nearly full. False as well once a frame goes beyond the
        capacity: zeros written there would destroy the frame.
        """
        end = self.tail + needed
        if end > CAPACITY or self.capacity < BEGINNING or self.high_water > self.capacity:
            return False
        step = max(BEGINNING, self.capacity // 4 // BEGINNING * BEGINNING)
        capacity = min(CAPACITY, self.capacity + -(-(end - self.capacity) // step) * step)
        added, disk = capacity - self.capacity, os.fstatvfs(self._descriptor)
        if disk.f_bavail * disk.f_frsize < 2 * added:  # at least half of the room is left to others
            return False
        try:
            self._blocks.write([bytes(added)], offset=self.capacity)  # flushed with the next frame
        except OSError as error:
            if error.errno not in _FULL_DISK:
                raise
            os.ftruncate(self._descriptor, self.capacity)
            return False
        self.capacity = capacity
        return True

    def end_at_tail(self) -> None:
        """Ensure on disk that no frame follows the last good one."""
        self.write([bytes(self.block_bytes)], self.tail)

    def clear(self) -> None:
        """Make all frames invalid, and shrink a file that had to grow."""
        self._blocks.write([bytes(self.block_bytes)], offset=HEADER_BYTES)
        if self.high_water > self.capacity:
            os.ftruncate(self._descriptor, self.capacity)
            self.high_water = self.capacity
        self.tail = HEADER_BYTES

    def scrub(self, token: bytes | None) -> None:
        """Overwrite every byte ever used; with a token, flush that and show the token in the header."""
        self._blocks.write([bytes(self.high_water - HEADER_BYTES)], offset=HEADER_BYTES)
        self.high_water = HEADER_BYTES
        if token is not None:
            self.write([journal_header(token)], 0)

    def write(self, parts: Iterable[bytes], offset: int) -> None:
        """Write whole blocks and flush them."""
        self._blocks.write(parts, offset=offset)
        if self._flush:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file, which gives up its lock. May be called again, also after an interrupt."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class JournalState(Enum):
    """The state of the journal's file; ``Journal`` has the transitions."""

    ABSENT = auto()
    SOUND = auto()
    BROKEN = auto()
    UNSURE = auto()
    CLOSED = auto()


class Journal:
    """Appends frames, and empties its file once the published files are flushed.

    ======  ========================================  =============================================================
    State   The file                                  Next
    ======  ========================================  =============================================================
    ABSENT  does not exist                            ``append``: SOUND; ``close``: CLOSED
    SOUND   takes frames                              a write or flush of the file fails: BROKEN; a flush of
                                                      published files fails: UNSURE; ``leave``, ``abandon``: ABSENT
    BROKEN  takes no more frames, as what a failed    ``append``, ``retire_broken``: the published files are flushed
            flush left on the disk is unknown         and the file removed: ABSENT; that flush fails: UNSURE
    UNSURE  is needed for recovery: published files   any use: marked for a rewrite and left: ABSENT, or CLOSED
            may not be on the disk, and a flush that
            failed once may succeed the next time
            without having written anything
    CLOSED  is gone, or was left for recovery         none: a thread still writing must not create another file
    ======  ========================================  =============================================================

    ``append`` and ``void`` need the ``turn``, held until what was appended is published, so that no checkpoint in
    between takes a frame whose record is not at its path. ``flush`` False (durability ``os``) leaves out every flush;
    all else stays, so that a change of several records is all or nothing in a kill.
    """

    def __init__(self, directory: int, *, new_id: Callable[[], str], flush: bool = True) -> None:
        """``directory`` is the memory directory's descriptor. No file is created before the first frame."""
        self.turn = threading.Lock()
        self._directory = directory
        self._new_id = new_id
        self._flush = flush
        self._state = JournalState.ABSENT
        self._file: JournalFile | None = None
        self._unsynced: dict[str, Base | None] = {}  # by path, what is in frames since the last checkpoint
        self._bases_bytes = 0
        self._next_number = 1
        self._has_left = False  # a file that is still to be recovered from

    @property
    def name(self) -> str:
        """The name of the file, empty while there is none."""
        file = self._file  # other threads may drop it meanwhile
        return file.name if file is not None else ""

    @property
    def is_dirty(self) -> bool:
        """Whether the file holds anything that a checkpoint would flush or overwrite."""
        file = self._file
        return file is not None and file.high_water > HEADER_BYTES

    @property
    def frames_written(self) -> int:
        """How many frames this journal has numbered so far."""
        return self._next_number - 1

    def append(self, groups: Sequence[Sequence[Version]]) -> list[FramePosition]:
        """Make each group of versions durable as one frame, all with one flush; the turn is held.

        ``OSError`` if that failed: then no frame counts. Next, the caller publishes them, or voids what it could not.
        """
        while True:
            bases, block = self._unsynced, self._file.block_bytes if self._file is not None else HEADER_BYTES
            frames = [encode_payload(versions, bases=bases, block_bytes=block) for versions in groups]
            payloads = [payload for payload, _ in frames]
            file = self._file_with_room(FRAME_HEADER_BYTES * len(payloads) + sum(map(len, payloads)))
            if bases is self._unsynced:  # else a checkpoint took what the deltas build on
                break
        first_number, self._next_number = self._next_number, self._next_number + len(payloads)
        try:
            positions = file.append(payloads, first_number=first_number)
        except BaseException:
            self._break()
            raise
        for _, kept in frames:
            self._keep(kept)
        return positions

    def void(self, position: FramePosition) -> None:
        """Ensure that this frame is never replayed; ``OSError`` if that is uncertain. The turn is held."""
        if self._file is None:
            raise OSError(errno.EBADF, "the journal was given up")
        void = encode_void(position.number, position.length)
        self._file.write([void[: self._file.block_bytes]], position.offset)  # if torn, it would end the journal
        self._unsynced, self._bases_bytes = dict.fromkeys(self._unsynced), 0  # no delta may build on it

    def checkpoint(self, *, scrub_token: bytes | None = None) -> bool:
        """Flush the published files, then overwrite every byte of the frames: the files are all there is.

        With a token, the overwriting is flushed and the header shows the token. False if an earlier flush failed: then
        the file was left, to be recovered from.
        """
        with self.turn:
            if self._state is JournalState.UNSURE:
                self.leave()
                return False
            if self._file is not None:
                try:
                    self._empty(self._file)
                    self._file.scrub(scrub_token)
                except BaseException:
                    self._break()
                    raise
            return True

    def close(self) -> bool:
        """Checkpoint and remove the file; False if a file was left, now or before, to be recovered from."""
        with self.turn:
            try:
                if self._file is not None and self._state is not JournalState.UNSURE:
                    self._empty(self._file)
                    self._remove(self._file)
            finally:
                self.leave(then=JournalState.CLOSED)
            return not self._has_left

    def leave(self, *, then: JournalState = JournalState.ABSENT) -> None:
        """Release the file as it is, if there is one: the next recovery replays it. The turn is held."""
        if self._file is not None:
            self._has_left = True
            if self._state is JournalState.UNSURE:
                try:
                    self._file.write([journal_header(rewrite=True)], 0)
                except OSError as error:
                    _log.warning(
                        "%s could not be marked for a rewrite of its records: %s", self._file.name, reason(error)
                    )
        self._forget_file(then)

    def retire_broken(self) -> None:
        """Give up a broken file at once, and not only before the next frame."""
        with self.turn:
            if self._file is not None and self._state is not JournalState.SOUND:
                self._retire(self._file)

    def abandon(self) -> None:
        """Close the descriptor without touching the file: for a forked child, whose parent owns the journal."""
        self._forget_file(JournalState.ABSENT)

    def _file_with_room(self, needed: int) -> JournalFile:
        """A sound file with room for ``needed`` bytes; a single commit larger than ``CAPACITY`` goes beyond it."""
        if self._state is JournalState.CLOSED:
            raise OSError(errno.ESHUTDOWN, "the memory was closed meanwhile")
        if self._file is not None and self._state is not JournalState.SOUND:
            self._retire(self._file)
        if self._file is None:
            created = JournalFile.create(self._directory, new_id=self._new_id, flush=self._flush)
            self._file, self._state = created, JournalState.SOUND
        if self._file.tail + needed > self._file.capacity:
            self._make_room(self._file, needed)
        return self._file

    def _make_room(self, file: JournalFile, needed: int) -> None:
        """Grow or empty the file: a first frame beyond its end would leave no room for deltas on it."""
        try:
            while file.tail + needed > file.capacity and not file.grow(needed) and file.tail > HEADER_BYTES:
                self._empty(file)
        except BaseException:
            self._break()
            raise

    def _retire(self, file: JournalFile) -> None:
        """Give up a broken file: remove it once all that it made durable is flushed in place, else leave it.

        Before another frame is written, a failed one must certainly not count: both would have the same revision.
        """
        file.end_at_tail()
        if self._state is JournalState.BROKEN:
            with suppress(OSError):
                self._sync_published()
                self._remove(file)
        self.leave()

    def _empty(self, file: JournalFile) -> None:
        """Flush what was published and drop the frames; the turn is held, so no new ones come."""
        if self._state is JournalState.BROKEN:
            file.end_at_tail()
        self._sync_published()
        file.clear()

    def _break(self) -> None:
        """Take no more frames, as a write to the file failed."""
        if self._state is JournalState.SOUND:
            self._state = JournalState.BROKEN

    def _sync_published(self) -> None:
        try:
            if self._flush:
                sync_published(self._directory, self._unsynced)
        except BaseException:
            self._state = JournalState.UNSURE
            raise
        self._unsynced, self._bases_bytes = {}, 0

    def _keep(self, bases: Iterable[Base]) -> None:
        """Note what was appended: each as the base of the next version, if they are not too many to keep in memory."""
        for base in bases:
            before = self._unsynced.get(base.version.path)
            gone = len(before.version.data) if before is not None else 0
            grown = self._bases_bytes + len(base.version.data) - gone
            is_kept = grown <= BASES_BYTES and base.version.sections is not None
            self._unsynced[base.version.path] = base if is_kept else None
            self._bases_bytes = grown if is_kept else self._bases_bytes - gone

    def _remove(self, file: JournalFile) -> None:
        """Remove a file that holds nothing that is not flushed in place."""
        os.unlink(f"{FOLDER}/{file.name}", dir_fd=self._directory)
        self._forget_file(JournalState.ABSENT)

    def _forget_file(self, then: JournalState) -> None:
        """Close the file, also in an interrupt: its lock would have every forget wait for this process."""
        file, self._file, self._state, self._unsynced, self._bases_bytes = self._file, None, then, {}, 0
        if file is not None:
            try:
                file.close()
            finally:
                file.close()
