"""Every state that a power cut may leave of what was recorded.

The rules: what was flushed is there. Of the other changes of a folder's names any number of the last ones is missing,
in each folder for itself. Of the other writes to a file each is there or missing, or only some of its sectors are, and
a file that was to grow may have its new size and zeros instead of data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tests.durability.recorder import Change, Node, Recording, names_in

_SECTOR = 512
_PAGE = 4096


class Content(NamedTuple):
    """What is in a file: its bytes up to the last that is not zero, its size, and its time."""

    data: bytes
    size: int
    mtime_ns: int | None


Tree = dict[str, Content | None]  # None for a folder


def states(recording: Recording, moment: int) -> Iterator[tuple[int, Tree]]:
    """What may be on the disk if the power goes at this moment, each state once, with its hash."""
    folders = [node for node in recording.nodes() if node.is_folder and _pending(node, moment)]
    seen: set[int] = set()
    for kept in product(*(range(len(_pending(node, moment)) + 1) for node in folders)):
        names = {id(node): number for node, number in zip(folders, kept, strict=True)}
        files = dict(_walk(recording.root, "", names, moment))
        for tree in _with_contents(files, moment):
            key = hash(tuple(sorted((path, content) for path, content in tree.items())))
            if key not in seen:
                seen.add(key)
                yield key, tree


def build(tree: Tree, path: Path) -> None:
    """Make this state real."""
    for name, content in sorted(tree.items()):
        target = path / name
        if content is None:
            target.mkdir(mode=0o700)
            continue
        with target.open("wb") as file:
            file.write(content.data)
            file.truncate(content.size)
        if content.mtime_ns is not None:
            os.utime(target, ns=(content.mtime_ns, content.mtime_ns))


def _pending(node: Node, moment: int) -> list[Change]:
    return [change for change in node.changes if change.at < moment < change.flushed]


def _walk(node: Node, path: str, kept: dict[int, int], moment: int) -> Iterator[tuple[str, Node]]:
    """The nodes below a folder, by path, when so many of its unflushed changes are there."""
    flushed = [change for change in node.changes if change.flushed <= moment]
    names = names_in(node, flushed + _pending(node, moment)[: kept.get(id(node), 0)])
    for name, child in names.items():
        yield path + name, child
        if child.is_folder:
            yield from _walk(child, f"{path}{name}/", kept, moment)


def _with_contents(files: dict[str, Node], moment: int) -> Iterator[Tree]:
    """All files with all that was written to them, or with nothing of it; and each in every way among such files."""
    unsure = [path for path, node in files.items() if not node.is_folder and _pending(node, moment)]
    whole: Tree = {path: None if node.is_folder else _content(node, moment) for path, node in files.items()}
    nothing: Tree = {path: _lost(files[path], moment)[-1] for path in unsure}
    zeros: Tree = {path: _lost(files[path], moment)[0] for path in unsure}
    yield from (whole, whole | nothing, whole | zeros)
    for path in unsure:
        for lost in _lost(files[path], moment):
            yield whole | {path: lost}
            yield whole | nothing | {path: lost}
        for torn in _torn(files[path], moment):
            yield whole | {path: torn}


def _content(node: Node, moment: int, *, without: int = 0) -> Content:
    """What is in a file without the last ``without`` of its unflushed changes."""
    pending = _pending(node, moment)
    flushed = [change for change in node.changes if change.flushed <= moment]
    data, size = b"", 0
    for change in flushed + pending[: len(pending) - without]:
        data, size = _changed(data, size, change)
    return Content(data, size, node.mtime_ns)


def _changed(data: bytes, size: int, change: Change) -> tuple[bytes, int]:
    """The bytes (without the zeros at the end) and the size of a file after a change."""
    if change.kind == "truncate":
        return data[: change.offset], change.offset
    end = change.offset + len(change.data) + change.zeros
    filled = data.ljust(change.offset, b"\0")[: change.offset] + change.data
    rest = data[end:]
    return (filled.ljust(end, b"\0") + rest if rest else filled), max(size, end)


def _lost(node: Node, moment: int) -> list[Content]:
    """The file with its new size but zeros in the place of what was lost; then without its last unflushed writes."""
    pending = len(_pending(node, moment))
    old, new = _content(node, moment, without=pending), _content(node, moment)
    zeros = old._replace(size=max(old.size, new.size))
    return [zeros, *(_content(node, moment, without=number) for number in range(1, pending + 1))]


def _torn(node: Node, moment: int) -> Iterator[Content]:
    """The file with only some sectors or pages of its last write."""
    old, new, last = _content(node, moment, without=1), _content(node, moment), _pending(node, moment)[-1]
    if last.kind != "write":
        return
    length = max(len(old.data), len(new.data))
    before, after = old.data.ljust(length, b"\0"), new.data.ljust(length, b"\0")
    start, end = last.offset, last.offset + len(last.data)
    for step in (_SECTOR, _PAGE):
        borders = range(start - start % step + step, end, step)
        for border in {*borders[:2], *borders[-1:]}:
            yield new._replace(data=after[:border] + before[border:])
            yield new._replace(data=before[:border] + after[border:])
