"""Records that another user may not read: who that is, and how their rights change."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import memfiles
from memfiles.records.entry_codec import encode_entry
from memfiles.storage.atomic import Signature, is_settled
from tests.support.records import wait_until
from tests.support.saved import saved

NOBODY = 65534


@contextmanager
def as_nobody(directory: Path) -> Iterator[None]:
    """Be the user to whom this directory belongs, and not root, for a moment."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def settle(record: Path, *, is_changed: bool) -> None:
    """Have it differ from what the index read of it; or wait until its time tells that it does not."""
    if is_changed:
        os.utime(record)
    else:
        wait_until(lambda: is_settled(Signature(0, 0, record.stat().st_mtime_ns)))


def as_another_process(do: Callable[[], object], *, is_killed: bool) -> None:
    """Do it in a process of its own, which is killed right afterwards, or ends."""
    if not (child := os.fork()):
        status = 1
        try:
            do()
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            status = 0
        finally:
            os._exit(status)
    assert (signal.SIGKILL if is_killed else 0) == os.waitpid(child, 0)[1]


def entry_of_bob(desk: Path, **said: Any) -> Path:
    """An entry in a folder that is not known yet, as if it was the first of an agent."""
    entry = saved("drinks", "Ada drinks green tea.", agent="bob", given_id="a" * 32, **said)
    record = desk.parent / ".memory" / entry.path
    record.parent.mkdir()
    record.write_bytes(encode_entry(entry))
    return record


def note_of_tea(desk: Path) -> Path:
    """A note made of the entry ``tea``, as of ``entry_of_bob``; the other entry that says so is forgotten."""
    with memfiles.open(desk, watch=False) as memory:
        tea = memory.entries.get(memory.session("support"), "tea")
        assert tea is not None
        record = entry_of_bob(desk, made_of=(tea.id,))
        memory.entries.forget(memory.session("support"), key="tea/milk")
    return record
