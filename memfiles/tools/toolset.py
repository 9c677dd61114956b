"""The tools one caller has at this moment, and the calls it makes with them.

The rules this file guards: a tool call never raises into an agent's loop, whatever it was given; and what the
caller may touch is asked anew for every call.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.record import Actor, Record
from memfiles.tools.arguments import AppendMemory, EditMemory, ReadMemory, parse_arguments, shortened
from memfiles.tools.definitions import APPEND, EDIT, READ, ToolDefinition, file_tools
from memfiles.tools.dialects import render
from memfiles.tools.result import INTERNAL, UNKNOWN_TOOL, ToolResult, appended, edited, failed, refused
from memfiles.tools.visibility import RefLike, VisibleFile, check_writable, find_file, visible_files

if TYPE_CHECKING:
    from memfiles.files.manager import MemoryManager
    from memfiles.tools.entry_tools import EntryTools

_log = logging.getLogger("memfiles")
_SORRY = (
    "something went wrong inside the memory, and the details were logged. If this was a change, read what is there "
    "before you try again: it may or may not have been made"
)


class ToolCaller(Protocol):
    """Whom a toolset works for; ``session.Session`` is one."""

    @property
    def manager(self) -> MemoryManager:
        """Where the memory files are."""
        ...

    def files(self) -> list[VisibleFile]:
        """The files the caller may read at this moment, by name."""
        ...

    def actor(self, call_id: str | None) -> Actor:
        """Who makes the call of that id; ``InvalidArgument`` if the id cannot be recorded."""
        ...

    def refused(self, tool: str, error: MemfilesError) -> None:
        """A call of a tool for memory files ended with this error."""
        ...


class Toolset:
    """The memory tools of one caller. It keeps nothing between calls; threads may share it."""

    def __init__(self, caller: ToolCaller, entries: EntryTools | None = None) -> None:
        self._caller = caller
        self._entries = entries
        self._calls = {READ: self._read, APPEND: self._append, EDIT: self._edit} | (entries.calls() if entries else {})

    def definitions(self) -> list[ToolDefinition]:
        """The tools that can be used now: those for files as ``file_tools`` says, then all those for entries."""
        return definitions_of(self._caller.files()) + (self._entries.definitions() if self._entries else [])

    def call(self, name: str, arguments: object = None, *, call_id: str | None = None) -> ToolResult:
        """Carry out one tool call. ``arguments`` are an object or its JSON text; every failure is a result."""
        try:
            call = self._calls.get(name) if isinstance(name, str) else None
            return call(arguments, call_id) if call else self._unknown(name)
        except MemfilesError as error:
            if name in (READ, APPEND, EDIT):  # the entries tell of their own
                self._caller.refused(name, error)
            return failed(error)
        except Exception:
            _log.exception("the call of tool %s failed", shortened(name))
            return refused(_SORRY, code=INTERNAL)

    def _read(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(ReadMemory, sent, tool=READ)
        file = find_file(self._caller.files(), arguments.file)
        record = self._caller.manager.snapshot(file.card.uid)
        if record.level != file.card.level:  # a deploy came in between and moved the file: judge again
            find_file(self._caller.files(), arguments.file)
        if arguments.offset is None and arguments.limit is None:
            return ToolResult(record.content, data=_about(record))
        text, place = line_range(record, offset=arguments.offset or 1, limit=arguments.limit)
        return ToolResult(text, data=_about(record) | place)

    def _append(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(AppendMemory, sent, tool=APPEND)
        uid, by = self._writable(arguments.file), self._caller.actor(call_id)
        return appended(self._caller.manager.append(uid, arguments.content, by=by))

    def _edit(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(EditMemory, sent, tool=EDIT)
        uid, by = self._writable(arguments.file), self._caller.actor(call_id)
        old, new = arguments.old_string, arguments.new_string
        return edited(self._caller.manager.edit(uid, old, new, by=by))

    def _writable(self, wanted: str) -> str:
        """The uid of a file that may be changed now."""
        file = find_file(self._caller.files(), wanted)
        check_writable(file)
        return file.card.uid

    def _unknown(self, name: object) -> ToolResult:
        names = ", ".join(tool.name for tool in self.definitions())
        here = f"use one of {names}" if names else "no memory tool can be used here"
        return refused(f"there is no tool {shortened(name)}: {here}", code=UNKNOWN_TOOL)


def tools(
    refs: Iterable[RefLike],
    manager: MemoryManager,
    dialect: str,
    *,
    strict: bool | None = None,
    examples: bool = False,
) -> list[dict[str, Any]]:
    """The tools for these references in a vendor's shape, by their modes alone: levels are a session's."""
    return render(definitions_of(visible_files(refs, manager)), dialect, strict=strict, examples=examples)


def definitions_of(files: Iterable[VisibleFile]) -> list[ToolDefinition]:
    """The tools with which these files can be used."""
    shown = list(files)
    readable = [file.card.name for file in shown]
    return file_tools(readable=readable, writable=[file.card.name for file in shown if file.writable])


def line_range(record: Record, *, offset: int, limit: int | None) -> tuple[str, dict[str, int]]:
    """``limit`` lines from line ``offset`` (1-based), and where they stand: ``first_line, last_line, lines``.

    A line ends with a line feed and nothing else. An offset past the end is an ``InvalidArgument``.
    """
    lines = list(io.StringIO(record.content, newline="\n"))
    if offset > max(1, len(lines)):
        raise InvalidArgument(f"{record.name} has {len(lines)} lines: pass an offset from 1 to {max(1, len(lines))}")
    chosen = lines[offset - 1 :][:limit]
    place = {"first_line": offset, "last_line": offset - 1 + len(chosen), "lines": len(lines)}
    return "".join(chosen), place


def _about(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "revision": record.revision,
        "size_bytes": record.size_bytes,
        "max_size_bytes": record.max_size_bytes,
    }
