"""This process's journal: changes that are durable but whose published files are not flushed yet.

The rules this file guards: a change whose frame was flushed survives a power cut until its file was
flushed; frames of changes that failed are void before the caller hears of it; threads that commit at the
same time share one flush. One file a process, held by a lock for as long as the process uses it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from filelock import lock_descriptor

from memfiles.atomic import sync_folder, sync_published
from memfiles.frames import HEADER_BYTES, FRAME_HEADER_BYTES, Version, encode_frame, encode_payload, encode_void, journal_header

FOLDER = ".journal"
SUFFIX = ".journal"
CAPACITY = 4 * 1024 * 1024
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(eq=False, slots=True)
class Ticket:
    """One commit on its way through the journal: where its frame stands, and what became of it."""

    paths: tuple[str, ...]
    payload: bytes
    number: int = 0
    offset: int = 0
    error: BaseException | None = None
    must_lead: bool = False
    gate: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Whoever waits for the gate waits until it is opened for it."""
        self.gate.acquire()

    @property
    def frame_bytes(self) -> int:
        """The length of the frame on disk."""
        return FRAME_HEADER_BYTES + len(self.payload)


class Journal:
    """Appends frames, shares flushes, and empties itself once the published files are flushed.

    ``flush`` False (durability ``os``) leaves out every flush; all else stays, so that a change of several
    records is still all or nothing when the process is killed.
    """

    def __init__(self, directory: int, *, new_id: Callable[[], str], flush: bool = True) -> None:
        """``directory`` is the memory directory's descriptor; nothing is created before the first frame."""
        self._directory = directory
        self._new_id = new_id
        self._flush = flush
        self._descriptor: int | None = None
        self.name = ""  # of the file, empty while there is none
        self._turn = threading.Lock()  # held by whoever writes new frames or empties the file
        self._queueing = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._has_leader = False
        self._publishing: set[Ticket] = set()
        self._published = threading.Condition()
        self._unsynced: dict[str, None] = {}  # paths in frames since the last checkpoint
        self._tail = HEADER_BYTES
        self._high_water = HEADER_BYTES  # beyond it the file is still zeros
        self._next_number = 1
        self._broken = False

    @property
    def is_dirty(self) -> bool:
        """Whether the file holds anything that a checkpoint would flush or overwrite."""
        return self._high_water > HEADER_BYTES

    @property
    def is_open(self) -> bool:
        """Whether this process has a journal file."""
        return self._descriptor is not None

    @property
    def frames_written(self) -> int:
        """How many frames this journal has numbered so far."""
        return self._next_number - 1

    def append(self, versions: Sequence[Version]) -> Ticket:
        """Make these versions durable together; ``OSError`` if they are not (then they never will be).

        The caller publishes them next and then calls ``published`` or, if that failed, ``void``.
        """
        ticket = Ticket(tuple(version.path for version in versions), encode_payload(versions))
        if self._joins_as_leader(ticket):
            with self._turn:
                self._write_waiting(leader=ticket)
            self._hand_over()
        if ticket.error is not None:
            raise ticket.error
        return ticket

    def published(self, ticket: Ticket) -> None:
        """The records of this ticket are at their paths."""
        with self._published:
            self._publishing.discard(ticket)
            self._published.notify_all()

    def void(self, ticket: Ticket) -> None:
        """Make sure that the frame of this ticket is never replayed; ``OSError`` if that cannot be known."""
        try:
            self._write(encode_void(ticket.number, ticket.frame_bytes), ticket.offset)
        finally:
            self.published(ticket)

    def checkpoint(self, *, scrub_token: bytes | None = None) -> None:
        """Flush the published files, then overwrite the frames: the files are all there is.

        With a token every byte ever written is overwritten and flushed, and the header shows the token.
        """
        with self._turn:
            if self._descriptor is not None:
                self._empty()
                self._scrub(scrub_token)

    def close(self) -> None:
        """Checkpoint and remove the file: after a clean close no journal is left."""
        with self._turn:
            if self._descriptor is None:
                return
            self._empty()
            os.unlink(f"{FOLDER}/{self.name}", dir_fd=self._directory)
            self._forget_file()

    def abandon(self) -> None:
        """Drop the descriptor without touching the file: for the child of a fork, whose parent owns it."""
        if self._descriptor is not None:
            self._forget_file()

    def _joins_as_leader(self, ticket: Ticket) -> bool:
        """Queue up. False once another thread has flushed this ticket with its own; True to flush for all who wait.

        A thread that was flushed for needs no lock to go on: the leader may be waiting for it to publish.
        """
        with self._queueing:
            self._waiting.append(ticket)
            lead, self._has_leader = not self._has_leader, True
        if lead:
            return True
        ticket.gate.acquire()
        return ticket.must_lead

    def _hand_over(self) -> None:
        """Let the first of those who came meanwhile lead next."""
        with self._queueing:
            following = self._waiting[0] if self._waiting else None
            self._has_leader = following is not None
        if following is not None:
            following.must_lead = True
            following.gate.release()

    def _write_waiting(self, *, leader: Ticket) -> None:
        """Write and flush the frames of everyone who waits, and let them go on; the turn is held."""
        tickets = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._make_room(sum(ticket.frame_bytes for ticket in tickets))
            frames = b"".join(self._placed(tickets))
            self._write(frames, tickets[0].offset)
        except BaseException as error:
            self._fail(tickets, error)
        for ticket in tickets:
            if ticket is not leader:
                ticket.gate.release()

    def _placed(self, tickets: list[Ticket]) -> list[bytes]:
        """The frames of these tickets, each given its number and its place behind the last one."""
        frames = []
        for ticket in tickets:
            ticket.number, ticket.offset = self._next_number, self._tail
            frames.append(encode_frame(ticket.number, ticket.payload))
            self._next_number += 1
            self._tail += ticket.frame_bytes
            self._unsynced.update(dict.fromkeys(ticket.paths))
        self._high_water = max(self._high_water, self._tail)
        with self._published:
            self._publishing.update(tickets)
        return frames

    def _fail(self, tickets: list[Ticket], error: BaseException) -> None:
        """Nobody's frame counts. What a failed flush left on the disk is unknown, so start a new file next."""
        self._broken = True
        self._tail = min([ticket.offset for ticket in tickets if ticket.number] or [self._tail])
        if self._descriptor is not None:
            os.pwrite(self._descriptor, bytes(FRAME_HEADER_BYTES), self._tail)
        for ticket in tickets:
            ticket.error = error
            self.published(ticket)

    def _make_room(self, needed: int) -> None:
        """Have a sound file with room for ``needed`` bytes; a single larger commit makes the file grow."""
        if self._broken:
            self._retire()
        if self._descriptor is None:
            self._create()
        elif self._tail > HEADER_BYTES and self._tail + needed > CAPACITY:
            self._empty()

    def _create(self) -> None:
        """A new file, written to its capacity: a later flush then has no metadata to write."""
        name, descriptor = self._create_locked()
        try:
            os.pwrite(descriptor, journal_header().ljust(CAPACITY, b"\0"), 0)
            if self._flush:
                sync_folder(self._directory, FOLDER)
        except BaseException:
            os.unlink(f"{FOLDER}/{name}", dir_fd=self._directory)
            os.close(descriptor)
            raise
        self._descriptor, self.name = descriptor, name
        self._tail = self._high_water = HEADER_BYTES

    def _create_locked(self) -> tuple[str, int]:
        """A new file's name and locked descriptor.

        A starting process may take a file that is not locked yet for a dead one's and remove it: then try again.
        """
        while True:
            name = self._new_id() + SUFFIX
            descriptor = os.open(f"{FOLDER}/{name}", _NEW, 0o600, dir_fd=self._directory)
            if lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink:
                return name, descriptor
            os.close(descriptor)

    def _retire(self) -> None:
        """Give up a file whose flush failed.

        It is removed once all that it made durable is flushed in place; if that fails as well it stays, for
        the next start to replay: a flush that failed once may say yes the next time without having written.
        """
        if self._descriptor is not None:
            with suppress(OSError):
                self._sync_published()
                os.unlink(f"{FOLDER}/{self.name}", dir_fd=self._directory)
            self._unsynced = {}
            self._forget_file()
        self._broken = False

    def _empty(self) -> None:
        """Flush what was published and forget the frames; the turn is held, so no new ones come."""
        self._sync_published()
        assert self._descriptor is not None
        os.pwrite(self._descriptor, bytes(FRAME_HEADER_BYTES), HEADER_BYTES)
        if self._high_water > CAPACITY:
            os.ftruncate(self._descriptor, CAPACITY)
            self._high_water = CAPACITY
        self._tail = HEADER_BYTES

    def _sync_published(self) -> None:
        with self._published:
            self._published.wait_for(lambda: not self._publishing)
        if self._flush:
            sync_published(self._directory, self._unsynced)
        self._unsynced = {}

    def _scrub(self, token: bytes | None) -> None:
        """Overwrite every byte ever used; with a token, flush that and show the token in the header."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, bytes(self._high_water - HEADER_BYTES), HEADER_BYTES)
        self._high_water = HEADER_BYTES
        if token is not None:
            self._write(journal_header(token), 0)

    def _write(self, data: bytes, offset: int) -> None:
        assert self._descriptor is not None
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written
        if self._flush:
            os.fdatasync(self._descriptor)

    def _forget_file(self) -> None:
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = None
        self.name = ""
        self._tail = self._high_water = HEADER_BYTES
