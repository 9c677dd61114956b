"""Before which of its system calls a sweep stops a process.

Killed before a call that can change no file, it leaves what it leaves when it is killed before the next: the calls that
can are all that a sweep needs. A flush changes what a power cut leaves, not what a kill does. With MEMFILES_EVERY_CALL
set it stops before all the others as well, which takes long.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tests.durability.tracer import Call

EVERY_CALL = bool(os.environ.get("MEMFILES_EVERY_CALL"))
LONGEST_SECONDS = 3600 if EVERY_CALL else 300
_HARMLESS = {"read", "pread64", "close", "stat", "fstat", "newfstatat", "lseek", "getdents64", "fcntl", "flock"}
_MAKING = os.O_CREAT | os.O_TRUNC
_OF_POWER = {"fsync", "fdatasync", "exit_group"}  # the last one too: a kill then is the end that comes after it
_IN_RUNS = {"pwrite64"}  # SQLite's, many in a row


def stops(calls: Iterable[Call], *, every: bool = False, flushes: bool = True) -> Iterator[Call]:
    """The calls that can change a file, of a run of SQLite's writes the first two; with ``flushes``, or for a kill.

    All of them if ``every`` one is asked for, here or in the environment.
    """
    earlier = ("", "")
    for call in calls:
        is_asked_for = every or EVERY_CALL
        if is_asked_for or (can_change_files(call) and (flushes or call.name not in _OF_POWER)):
            if is_asked_for or call.name not in _IN_RUNS or earlier != (call.name, call.name):
                yield call
            earlier = (earlier[1], call.name)


def can_change_files(call: Call) -> bool:
    """Whether a call may leave something else on the disk."""
    if call.name == "openat":
        return bool(call.arguments[2] & _MAKING)
    return call.name not in _HARMLESS and not call.name.startswith("#")
