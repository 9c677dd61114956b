"""Import sources: detects the format of a path and reads the entries below it, without trusting the files.

The rules this file guards: a format that cannot be detected with certainty is not guessed; no link is followed below
the folder, only regular files are opened, and depth, number and size are bounded before a byte is read, so no folder
can hang or exhaust the reader.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from memfiles.entries.transfer import formats
from memfiles.entries.transfer.document import FILE_MAX_BYTES, Parsed, Skipped, joined, printed, text_in
from memfiles.entries.transfer.formats import FORMATS, Format
from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.storage import atomic
from memfiles.storage.atomic import Descriptor

LINES_MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of a file with many entries, and of all files of a folder together."""

FILES_MAX = 200_000
DEPTH_MAX = 16
_REPORTED_MAX = 1000
_SAMPLED_MAX = 100  # files that are read to detect the format of a folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINES = (".jsonl", ".ndjson", ".json")
_LINE_PARSERS: dict[Format, Callable[..., Parsed]] = {
    "jsonl": formats.parse_lines,
    "memory-server": formats.knowledge_graph,
}
_GRAPH = "memory.jsonl"
Wanted = Callable[[str, bool], bool]
"""Whether the file, or (True) the folder, at a path relative to the root is a part of the memory."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read: its path relative to the folder, with slashes, and its bytes."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    descriptor: int
    path: str
    depth: int


def read(path: str | os.PathLike[str], *, format: Format | None = None) -> Parsed:
    """The entries in the file or folder at ``path``, and what was skipped and why.

    ``InvalidArgument`` if there is nothing, it cannot be opened, or its format is not given and cannot be detected.
    """
    path = checked_path(path, what="the source")
    if format is not None and format not in FORMATS:
        raise InvalidArgument(f"the format {printed(str(format))!r} is unknown; use one of {', '.join(FORMATS)}")
    chosen = format or detect(path)
    folder = os.path.isdir(path)
    if chosen in _LINE_PARSERS:
        lines = os.path.join(path, _GRAPH) if folder else path
        return _LINE_PARSERS[chosen](read_file(lines), where=printed(os.path.basename(lines)))
    if chosen == "memory-directory" and folder and os.path.basename(path) != "memories":
        inner = os.path.join(path, "memories")
        path = inner if os.path.isdir(inner) and not os.path.islink(inner) else path
    if folder:
        return _parsed(read_folder(path, _wanted(chosen, path)), chosen)
    return _parsed([SourceFile(os.path.basename(path), read_file(path))], chosen)


def detect(path: str | os.PathLike[str]) -> Format:
    """The format of the file or folder at ``path``; ``InvalidArgument`` with the choices if it cannot be detected."""
    name = printed(os.fspath(path))
    if not os.path.exists(path):
        raise InvalidArgument(f"{name} does not exist")
    found = _format_of_folder(path) if os.path.isdir(path) else _format_of_file(path)
    if found is None:
        raise InvalidArgument(f"cannot detect the format of {name}: name one of {', '.join(FORMATS)}")
    return found


def _format_of_file(path: str | os.PathLike[str]) -> Format | None:
    name = os.path.basename(path)
    if name in (formats.INDEX, *formats.INSTRUCTIONS):
        return "claude-code"
    if name.endswith(_LINES):
        return _format_of_lines(read_file(path))
    return _format_of_markdown(read_file(path)) if name.endswith(formats.SUFFIX) else None


def _format_of_folder(path: str | os.PathLike[str]) -> Format | None:
    if _has(path, formats.INDEX, *formats.INSTRUCTIONS, "memory/" + formats.INDEX, "projects"):
        return "claude-code"
    if _name(path) == "memories" or os.path.isdir(os.path.join(path, "memories")):
        return "memory-directory"
    if _has(path, _GRAPH):
        return _format_of_lines(read_file(os.path.join(path, _GRAPH)))
    files = read_folder(path, lambda name, is_folder: not is_folder and name.endswith(formats.SUFFIX))
    sample = islice((item.data for item in files if isinstance(item, SourceFile)), _SAMPLED_MAX)
    return next((format for data in sample if (format := _format_of_markdown(data))), None)


def _format_of_lines(data: bytes) -> Format | None:
    """The format, by the first line that is an object."""
    for found, _ in formats.line_objects(data, where=""):
        if not isinstance(found, Skipped):
            if found.get("type") in ("entity", "relation") and "key" not in found:
                return "memory-server"
            return "jsonl" if "key" in found else None
    return None


def _format_of_markdown(data: bytes) -> Format | None:
    text = text_in(data, "")
    fields = formats.fields_in(formats.split(text)[0], where="") if isinstance(text, str) else text
    if isinstance(fields, Skipped):
        return None
    if "key" in fields:
        return "markdown"
    return "claude-code" if {"name", "description"} <= fields.keys() else None


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(path))


def _has(path: str | os.PathLike[str], *names: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in names)


def _parsed(found: Iterable[SourceFile | Skipped], format: Format) -> Parsed:
    items = list(found)
    present = frozenset(item.path for item in items if isinstance(item, SourceFile))
    parts = []
    for item in items:
        if isinstance(item, Skipped):
            parts.append(Parsed(skipped=(item,)))
        elif format == "claude-code":
            parts.append(formats.claude_code_file(item.data, path=item.path, present=present))
        elif format == "markdown":
            parts.append(formats.parse_markdown(item.data, where=printed(item.path)))
        else:
            parts.append(formats.memory_file(item.data, path=item.path))
    return joined(parts)


def _is_shown(path: str, is_folder: bool) -> bool:
    return not path.rpartition("/")[2].startswith(".")


def _is_markdown(path: str, is_folder: bool) -> bool:
    return _is_shown(path, is_folder) and (is_folder or path.endswith(formats.SUFFIX))


def _is_claude_code(path: str, is_folder: bool) -> bool:
    """A project's folder, or the one in which Claude Code keeps all projects: its instructions, rules and memories."""
    steps = path.removeprefix(".claude/").split("/")
    memory = steps[0] in ("memory", "rules") or (steps[0] == "projects" and steps[2:3] in ([], ["memory"]))
    if is_folder:
        return memory or path == ".claude"
    return steps[-1] in formats.INSTRUCTIONS if len(steps) == 1 else memory and path.endswith(formats.SUFFIX)


def _wanted(format: Format, path: str | os.PathLike[str]) -> Wanted:
    if format == "claude-code" and not _has(path, formats.INDEX) and _name(path) != "memory":  # not of one project
        return _is_claude_code
    return _is_shown if format == "memory-directory" else _is_markdown


def checked_path(path: object, *, what: str) -> str:
    """A path as text; ``InvalidArgument`` for a value that cannot be one."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str) or not named:
        raise InvalidArgument(f"{what} must be a path, not {type(path).__name__}")
    try:
        if "\0" not in named and os.fsencode(named):
            return named
    except UnicodeEncodeError:
        pass
    raise InvalidArgument(f"{what} {ascii(named[:80])} is not a valid path")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of one file of at most 256 MiB, else ``InvalidArgument``; never waits on a FIFO or a device."""
    try:
        folder, name = os.path.split(os.path.realpath(path))
        read = atomic.read(Descriptor.of_directory(folder), name, limit=LINES_MAX_BYTES)
    except (RecordCorrupt, OSError, ValueError) as error:
        raise InvalidArgument(f"{printed(os.fspath(path))} cannot be read: {_reason(error)}") from error
    if read is None:
        raise InvalidArgument(f"there is no file {printed(os.fspath(path))}")
    return read[0]


def read_folder(path: str | os.PathLike[str], wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    """Every wanted file below ``path``, by name, and a ``Skipped`` for everything else.

    The folder itself may be reached through a link. ``InvalidArgument`` if it cannot be opened, or holds more than
    200,000 files or 256 MiB: then nothing of it should be used.
    """
    try:
        root = Descriptor.of_directory(path)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{printed(os.fspath(path))} cannot be read: {_reason(error)}") from error
    yield from _bounded(_walk(_Place(root, "", 0), wanted))


def _bounded(walk: Iterator[SourceFile | Skipped]) -> Iterator[SourceFile | Skipped]:
    files = size = reports = 0
    for item in walk:
        if isinstance(item, Skipped):
            reports += 1
            if reports <= _REPORTED_MAX:
                yield item
            continue
        files, size = files + 1, size + len(item.data)
        if files > FILES_MAX or size > LINES_MAX_BYTES:
            raise InvalidArgument(
                f"the folder holds more than {FILES_MAX} files or {LINES_MAX_BYTES} bytes of them: import a part of it"
            )
        yield item
    if reports > _REPORTED_MAX:
        yield Skipped(".", f"and {reports - _REPORTED_MAX} more that are not a part of the memory")


def _walk(place: _Place, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    """The contents of an open folder and below."""
    try:
        for name in sorted(os.listdir(place.descriptor)):
            yield from _look(place, name, wanted)
    except OSError as error:
        yield Skipped(printed(place.path or "."), f"the folder cannot be read: {_reason(error)}")


def _look(place: _Place, name: str, wanted: Wanted) -> Iterator[SourceFile | Skipped]:
    path = f"{place.path}/{name}" if place.path else name
    try:
        found = os.stat(name, dir_fd=place.descriptor, follow_symlinks=False)
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            yield Skipped(printed(path), "this is a symbolic link, which is not followed")
        elif not wanted(path, stat.S_ISDIR(mode)):
            yield Skipped(printed(path), "this is not a part of the memory")
        elif stat.S_ISREG(mode) and found.st_size > FILE_MAX_BYTES:
            yield Skipped(printed(path), f"it has {found.st_size} bytes; at most {FILE_MAX_BYTES} are read")
        elif not stat.S_ISDIR(mode):
            yield _file(place, name, path)
        elif place.depth >= DEPTH_MAX:
            yield Skipped(printed(path), f"this is more than {DEPTH_MAX} folders deep")
        else:
            descriptor = Descriptor(os.open(name, _FOLDER, dir_fd=place.descriptor))
            yield from _walk(_Place(descriptor, path, place.depth + 1), wanted)
    except OSError as error:
        yield Skipped(printed(path), f"it cannot be read: {_reason(error)}")


def _file(place: _Place, name: str, path: str) -> SourceFile | Skipped:
    try:
        path.encode()
        read = atomic.read(place.descriptor, name, limit=FILE_MAX_BYTES)
    except UnicodeEncodeError:
        return Skipped(printed(path), "its name is not UTF-8")
    except RecordCorrupt as error:
        return Skipped(printed(path), "it" + _reason(error).removeprefix(name))
    return SourceFile(path, read[0]) if read else Skipped(printed(path), "it was removed while the folder was read")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
