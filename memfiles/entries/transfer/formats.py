"""Which format a path is in, and the entries that it holds: ours, and those of other programs.

What cannot be told apart with certainty is not guessed: the caller is asked to name the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, get_args

from memfiles.entries.results import Skipped
from memfiles.entries.transfer import foreign, json_lines, markdown
from memfiles.entries.transfer.document import Parsed, joined, printed, text_in
from memfiles.entries.transfer.source_files import SourceFile, Wanted, checked_path, read_file, read_folder
from memfiles.errors import InvalidArgument

Format = Literal["markdown", "jsonl", "memory-directory", "memory-server", "claude-code"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Our two; a directory of Anthropic's memory tool; a graph of MCP's reference server; a memory of Claude Code."""

_LINES = (".jsonl", ".ndjson", ".json")
_LINE_PARSERS: dict[Format, Callable[..., Parsed]] = {
    "jsonl": json_lines.parse,
    "memory-server": foreign.knowledge_graph,
}
_GRAPH = "memory.jsonl"
_LOOKED_AT_MAX = 100


def read(path: str | os.PathLike[str], *, format: Format | None = None) -> Parsed:
    """The entries in the file or folder at ``path``, and what in it was not read and why.

    ``InvalidArgument`` if there is nothing, it cannot be opened, or its format cannot be told and is not given.
    """
    path = checked_path(path, what="the source")
    chosen = _checked(format) if format is not None else detect(path)
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
    """The format of what is at ``path``; ``InvalidArgument`` with the choices where it cannot be told."""
    if os.path.isdir(path):
        found = _format_of_folder(path)
    elif os.path.exists(path):
        found = _format_of_file(path)
    else:
        raise InvalidArgument(f"there is nothing at {printed(os.fspath(path))}")
    if found is None:
        raise InvalidArgument(
            f"the format of {printed(os.fspath(path))} cannot be told; say which it is: {', '.join(FORMATS)}"
        )
    return found


def _format_of_file(path: str | os.PathLike[str]) -> Format | None:
    name = os.path.basename(path)
    if name in (foreign.INDEX, *foreign.INSTRUCTIONS):
        return "claude-code"
    if name.endswith(_LINES):
        return _format_of_lines(read_file(path))
    return _format_of_markdown(read_file(path)) if name.endswith(markdown.SUFFIX) else None


def _format_of_folder(path: str | os.PathLike[str]) -> Format | None:
    if _is_memory_folder(path) or _has(path, *foreign.INSTRUCTIONS, "memory/" + foreign.INDEX, "projects"):
        return "claude-code"
    if _name(path) == "memories" or os.path.isdir(os.path.join(path, "memories")):
        return "memory-directory"
    if _has(path, _GRAPH):
        return _format_of_lines(read_file(os.path.join(path, _GRAPH)))
    formats = (_format_of_markdown(data) for data in _first_files(path))
    return next((found for found in formats if found), None)


def _format_of_lines(data: bytes) -> Format | None:
    """By the first line that is an object."""
    for found, _ in json_lines.objects(data, where=""):
        if not isinstance(found, Skipped):
            if found.get("type") in ("entity", "relation") and "key" not in found:
                return "memory-server"
            return "jsonl" if "key" in found else None
    return None


def _format_of_markdown(data: bytes) -> Format | None:
    text = text_in(data, "")
    fields = markdown.fields_in(markdown.split(text)[0], where="") if isinstance(text, str) else text
    if isinstance(fields, Skipped):
        return None
    if "key" in fields:
        return "markdown"
    return "claude-code" if {"name", "description"} <= fields.keys() else None


def _first_files(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Some Markdown files directly in the folder."""
    files = read_folder(path, lambda name, is_folder: not is_folder and name.endswith(markdown.SUFFIX))
    return islice((item.data for item in files if isinstance(item, SourceFile)), _LOOKED_AT_MAX)


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(path))


def _has(path: str | os.PathLike[str], *names: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in names)


def _is_memory_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is Claude Code's memory of one project, in which every Markdown file is a topic."""
    return _has(path, foreign.INDEX)


def _parsed(found: Iterable[SourceFile | Skipped], format: Format) -> Parsed:
    items = list(found)
    present = frozenset(item.path for item in items if isinstance(item, SourceFile))
    parts = []
    for item in items:
        if isinstance(item, Skipped):
            parts.append(Parsed(skipped=(item,)))
        elif format == "claude-code":
            parts.append(foreign.claude_code_file(item.data, path=item.path, present=present))
        elif format == "markdown":
            parts.append(markdown.parse(item.data, where=printed(item.path)))
        else:
            parts.append(foreign.memory_file(item.data, path=item.path))
    return joined(parts)


def _is_shown(path: str, is_folder: bool) -> bool:
    return not path.rpartition("/")[2].startswith(".")


def _is_markdown(path: str, is_folder: bool) -> bool:
    return _is_shown(path, is_folder) and (is_folder or path.endswith(markdown.SUFFIX))


def _is_claude_code(path: str, is_folder: bool) -> bool:
    """A project's folder, or the one in which Claude Code keeps all projects: its instructions, rules and memories."""
    steps = path.removeprefix(".claude/").split("/")
    memory = steps[0] in ("memory", "rules") or (steps[0] == "projects" and steps[2:3] in ([], ["memory"]))
    if is_folder:
        return memory or path == ".claude"
    return steps[-1] in foreign.INSTRUCTIONS if len(steps) == 1 else memory and path.endswith(markdown.SUFFIX)


def _wanted(format: Format, path: str | os.PathLike[str]) -> Wanted:
    if format == "claude-code" and not _is_memory_folder(path) and _name(path) != "memory":
        return _is_claude_code
    return _is_shown if format == "memory-directory" else _is_markdown


def _checked(format: str) -> Format:
    for known in FORMATS:
        if known == format:
            return known
    raise InvalidArgument(f"the format {printed(str(format))!r} is not known; use one of {', '.join(FORMATS)}")
