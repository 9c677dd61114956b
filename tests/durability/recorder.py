"""What a process does to a directory, as a list of changes of which each is on the disk from some flush on.

Recorded from the system calls themselves, so that no call can be forgotten; one that changes files and is not known
here is an error.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.durability.tracer import Call, Traced

_NEVER = 1 << 60
_LOST = _NEVER + 1  # whatever later flushes say
_FROM_HERE = (1 << 32) - 100
_DUPLICATE = (0, 1030)  # F_DUPFD, F_DUPFD_CLOEXEC
_EXCHANGE = 2
_FORGOTTEN = {"truncate", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range", "fallocate", "symlinkat"}
_FORGOTTEN |= {"rename", "link", "unlink", "rmdir", "creat", "open", "openat2", "sync", "sync_file_range"}


@dataclass(eq=False)
class Node:
    """A file or a folder, and what was done to it in order."""

    is_folder: bool
    mtime_ns: int | None = None
    changes: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class Change:
    """One change of one node: bytes written, a new size, or names linked, unlinked, renamed or exchanged.

    Zeros at the end of what was written are only counted: most of a journal is zeros.
    """

    kind: Literal["write", "truncate", "link", "unlink", "rename", "exchange"]
    at: int
    offset: int = 0
    data: bytes = b""
    zeros: int = 0
    names: tuple[str, ...] = ()
    target: Node | None = None
    flushed: int = _NEVER


@dataclass(eq=False)
class Recording:
    """What happened, on a clock that ticks with every event; ``flushes`` and ``acknowledged`` are such moments."""

    root: Node
    clock: int = 0
    flushes: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Every node that ever was."""
        seen, waiting = set(), [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                waiting += [change.target for change in node.changes if change.target is not None]
                yield node


def record(run: Callable[[], None], top: Path, *, pretended: str = "", lost_flush: str = "") -> Recording:
    """Record what ``run`` does below the folder ``top``, in a process of its own.

    ``pretended`` names a flush that only pretends to do its work. ``lost_flush``: the first fsync of the file of
    that name fails, and what it was to flush is never written, whatever later flushes say, unless written again.
    """
    recorder = _Recorder(top)
    with Traced(lambda: run) as child:
        for call in child.calls():
            recorder.take(child, call, pretended=pretended, lost_flush=lost_flush)
    return recorder.recording


def names_in(folder: Node, changes: list[Change]) -> dict[str, Node]:
    """The names in a folder after these of its changes."""
    names: dict[str, Node] = {}
    for change in changes:
        if change.kind == "link":
            assert change.target is not None
            names[change.names[0]] = change.target
        elif change.kind == "unlink":
            del names[change.names[0]]
        elif change.kind == "rename":
            names[change.names[1]] = names.pop(change.names[0])
        elif change.kind == "exchange":
            one, other = change.names
            names[one], names[other] = names[other], names[one]
    return names


class _Recorder:
    """Follows the descriptors of one process and turns its calls into changes."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.recording = Recording(_as_it_is(top))
        self._open: dict[int, tuple[Node, int]] = {}  # the node of a descriptor, and its position
        self._has_failed = False

    def take(self, child: Traced, call: Call, *, pretended: str, lost_flush: str) -> None:
        """Let one call happen and record what it did."""
        action = getattr(self, f"_{call.name}", None)
        if call.name in {"fsync", "fdatasync", "syncfs"}:
            self._flush(child, call, pretended=pretended, lost_flush=lost_flush)
        elif action is not None:
            given = self._given(child, call)
            result = child.complete()
            self.recording.clock += 1
            if result >= 0:
                action(call, given, result)
        elif call.name in _FORGOTTEN and child.place(call).startswith(str(self._top)):
            raise NotImplementedError(f"{call.name} changes files and is not recorded")

    def _given(self, child: Traced, call: Call) -> bytes | str | tuple[str, str]:
        """The text or the bytes that a call was given, read before it happens."""
        first, second, third, fourth, *_ = call.arguments
        if call.name in {"write", "pwrite64"}:
            return child.memory(second, third) if first in self._open else b""
        if call.name in {"renameat", "renameat2", "linkat"}:
            return child.text(second), child.text(fourth)
        if call.name == "utimensat":
            return child.memory(third, 32) if third else b""
        if call.name == "mkdir":
            return child.text(first)
        return child.text(second) if call.name in {"openat", "mkdirat", "unlinkat"} else b""

    def _flush(self, child: Traced, call: Call, *, pretended: str, lost_flush: str) -> None:
        known = self._open.get(call.arguments[0])
        if known is None:
            return
        node, _ = known
        nodes = list(self.recording.nodes()) if call.name == "syncfs" else [node]
        pending = [change for node in nodes for change in node.changes if change.flushed == _NEVER]
        self.recording.clock += 1
        self.recording.flushes.append(self.recording.clock)
        if call.name == pretended:
            child.refuse(0)
        elif lost_flush and not self._has_failed and Path(child.place(call)).name == lost_flush:
            self._has_failed = True
            child.refuse(errno.EIO)
            for change in pending:
                change.flushed = _LOST
        else:
            child.complete()
            self.recording.clock += 1
            for change in pending:
                change.flushed = self.recording.clock

    def _change(self, node: Node, change: Change) -> None:
        change.at = self.recording.clock
        node.changes.append(change)

    def _find(self, folder: int, path: str) -> tuple[Node | None, str]:
        """The node of the folder a path leads to, and the last name of the path; no node outside."""
        node: Node | None = self._open[folder][0] if folder in self._open else None
        if path.startswith("/"):
            node = self.recording.root if f"{path}/".startswith(f"{self._top}/") else None
            path = os.path.relpath(path, self._top)
        *folders, name = path.split("/")
        for step in folders:
            node = names_in(node, node.changes).get(step) if node is not None else None
        return node, name

    def _openat(self, call: Call, given: str, result: int) -> None:
        self._open.pop(result, None)
        folder, name = self._find(call.arguments[0] & 0xFFFFFFFF, given)
        if folder is None:
            return
        node = folder if name == "." else names_in(folder, folder.changes).get(name)
        if node is None:
            node = Node(is_folder=False)
            self._change(folder, Change("link", 0, names=(name,), target=node))
        elif call.arguments[2] & os.O_TRUNC:
            self._change(node, Change("truncate", 0))
        self._open[result] = (node, 0)

    def _mkdirat(self, call: Call, given: str, _: int) -> None:
        folder, name = self._find(call.arguments[0] & 0xFFFFFFFF, given)
        if folder is not None:
            self._change(folder, Change("link", 0, names=(name,), target=Node(is_folder=True)))

    def _mkdir(self, _: Call, given: str, __: int) -> None:
        folder, name = self._find(_FROM_HERE, given)
        if folder is not None:
            self._change(folder, Change("link", 0, names=(name,), target=Node(is_folder=True)))

    def _unlinkat(self, call: Call, given: str, _: int) -> None:
        folder, name = self._find(call.arguments[0] & 0xFFFFFFFF, given)
        if folder is not None:
            self._change(folder, Change("unlink", 0, names=(name,)))

    def _renameat2(self, call: Call, given: tuple[str, str], _: int) -> None:
        self._moved(call, given, "exchange" if call.arguments[4] & _EXCHANGE else "rename")

    def _renameat(self, call: Call, given: tuple[str, str], _: int) -> None:
        self._moved(call, given, "rename")

    def _moved(self, call: Call, given: tuple[str, str], kind: Literal["rename", "exchange"]) -> None:
        folder, source = self._find(call.arguments[0] & 0xFFFFFFFF, given[0])
        other, target = self._find(call.arguments[2] & 0xFFFFFFFF, given[1])
        if folder is not other:
            raise NotImplementedError("a name was moved from one folder to another")
        if folder is not None:
            self._change(folder, Change(kind, 0, names=(source, target)))

    def _linkat(self, call: Call, given: tuple[str, str], _: int) -> None:
        folder, source = self._find(call.arguments[0] & 0xFFFFFFFF, given[0])
        other, target = self._find(call.arguments[2] & 0xFFFFFFFF, given[1])
        if folder is not None and other is not None:
            node = names_in(folder, folder.changes)[source]
            self._change(other, Change("link", 0, names=(target,), target=node))

    def _write(self, call: Call, given: bytes, result: int) -> None:
        descriptor = call.arguments[0]
        if descriptor in self._open:
            node, position = self._open[descriptor]
            self._change(node, _write_of(given[:result], position))
            self._open[descriptor] = (node, position + result)
        elif descriptor > 2:
            self.recording.acknowledged.append(self.recording.clock)

    def _pwrite64(self, call: Call, given: bytes, result: int) -> None:
        if call.arguments[0] in self._open:
            node, _ = self._open[call.arguments[0]]
            self._change(node, _write_of(given[:result], call.arguments[3]))

    def _ftruncate(self, call: Call, _: bytes, __: int) -> None:
        if call.arguments[0] in self._open:
            self._change(self._open[call.arguments[0]][0], Change("truncate", 0, offset=call.arguments[1]))

    def _utimensat(self, call: Call, given: bytes, _: int) -> None:
        if call.arguments[0] in self._open and given:
            seconds, nanoseconds = struct.unpack_from("<qq", given, 16)
            self._open[call.arguments[0]][0].mtime_ns = seconds * 10**9 + nanoseconds

    def _close(self, call: Call, _: bytes, __: int) -> None:
        self._open.pop(call.arguments[0], None)

    def _fcntl(self, call: Call, _: bytes, result: int) -> None:
        if call.arguments[1] in _DUPLICATE and call.arguments[0] in self._open:
            self._open[result] = self._open[call.arguments[0]]


def _as_it_is(path: Path) -> Node:
    """What lies at a path when the recording begins: all of it is on the disk."""
    if path.is_dir():
        folder = Node(is_folder=True)
        for child in sorted(path.iterdir()):
            folder.changes.append(Change("link", 0, names=(child.name,), target=_as_it_is(child), flushed=0))
        return folder
    node = Node(is_folder=False, mtime_ns=path.stat().st_mtime_ns)
    node.changes.append(_write_of(path.read_bytes(), 0))
    node.changes[0].flushed = 0
    return node


def _write_of(data: bytes, offset: int) -> Change:
    filled = data.rstrip(b"\0")
    return Change("write", 0, offset=offset, data=filled, zeros=len(data) - len(filled))
