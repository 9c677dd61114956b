"""The request that every process overwrite its journal, so that what was redacted is in none.

The rule this file guards: one asks at a time and holds the request's lock until it is answered; a request
whose lock is free is that of a dead process and is removed by the next start.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import lock_descriptor

from memfiles.errors import LockTimeout, RecordCorrupt
from memfiles.storage import descriptors
from memfiles.storage.journal import FOLDER
from memfiles.storage.journal_frames import SCRUB_TOKEN_BYTES

PATH = f"{FOLDER}/scrub-request"
_POLL_SECONDS = 0.02
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def asked(directory: int, *, timeout: float) -> Iterator[bytes]:
    """Ask for as long as the block runs; the request's token. ``LockTimeout`` if others keep asking so long."""
    deadline = time.monotonic() + timeout
    while (descriptor := _locked(directory, create=True)) is None:
        if time.monotonic() >= deadline:
            raise LockTimeout("another process has been redacting all the time: redact again")
        time.sleep(_POLL_SECONDS)
    try:
        token = os.urandom(SCRUB_TOKEN_BYTES // 2).hex().encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, token, 0)
        yield token
    finally:
        _withdraw(directory, descriptor)


def token(directory: int) -> bytes:
    """The token of the present request, empty if there is none that can be read."""
    try:
        found = descriptors.read(directory, PATH, limit=SCRUB_TOKEN_BYTES)
    except (OSError, RecordCorrupt):
        return b""
    return found[0] if found else b""


def forget_dead(directory: int) -> None:
    """Remove a request that nobody waits for any more."""
    descriptor = _locked(directory, create=False)
    if descriptor is not None:
        _withdraw(directory, descriptor)


def _locked(directory: int, *, create: bool) -> int | None:
    """The descriptor of the request, locked; None if another has it (or, not to ``create``, if there is none).

    What lies there and is not a file of its own (a FIFO, a hard link to another file) is removed first.
    """
    try:
        descriptor = os.open(PATH, _OPEN | (os.O_CREAT if create else 0), 0o600, dir_fd=directory)
    except FileNotFoundError:
        return None
    is_ours = False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            descriptors.remove(directory, PATH)
        else:
            is_ours = lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink == 1
    finally:
        if not is_ours:
            os.close(descriptor)
    return descriptor if is_ours else None


def _withdraw(directory: int, descriptor: int) -> None:
    """Remove the request while it is still locked: whoever locks it next must find that it is no more."""
    try:
        descriptors.remove(directory, PATH)
    finally:
        os.close(descriptor)
