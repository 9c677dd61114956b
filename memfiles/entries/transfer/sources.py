"""Import sources: detects the format of a path and reads the entries below it, without trusting the files.

The rule this file guards: a format that cannot be detected with certainty is not guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from memfiles.entries.transfer import exports, formats, notes
from memfiles.entries.transfer.archives import Archive
from memfiles.entries.transfer.document import FILE_MAX_BYTES, Parsed, Skipped, as_one, printed, text_in
from memfiles.entries.transfer.folders import (
    LINES_MAX_BYTES,
    NOT_A_PART,
    Folder,
    SourceFile,
    Wanted,
    limit_reports,
    read_file,
)
from memfiles.entries.transfer.formats import FORMATS, SUFFIX, Format
from memfiles.errors import InvalidArgument

EXPORT_MAX_BYTES = 4 * 1024 * 1024 * 1024
"""The most bytes of all files of another program's export, which are read one after the other."""

_SAMPLED_MAX, _LISTED_MAX, _SAMPLED_DEPTH = 100, 10_000, 3  # of the files by which a folder's format is detected
_LINES = (".jsonl", ".ndjson", ".json")
_ZIP = ".zip"
_LINE_PARSERS: dict[Format, Callable[..., Parsed]] = {
    "jsonl": formats.parse_lines,
    "memory-server": exports.knowledge_graph,
}
_EXPORT_PARSERS: dict[Format, Callable[[Iterable[SourceFile]], Parsed]] = {
    "mem0": exports.mem0,
    "chatgpt": exports.chatgpt,
    "claude": exports.claude,
}
_GRAPH = "memory.jsonl"
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")
_OF_CHATGPT = frozenset({"chat.html", "user.json", "message_feedback.json", "export_manifest.json"})
_OF_CLAUDE = frozenset({"conversations.json", "users.json", "memories.json", "projects.json"})
_PART_OF_CLAUDE = re.compile(
    r"(?:conversations|memories|projects|users)-\d{3}(?:\.zip|/)"
    r"|(?:(?:memories|projects)/)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json"
)
Tree = Folder | Archive


def read(path: str | os.PathLike[str], *, format: Format | None = None) -> Parsed:
    """The entries in the file, folder or zip archive at ``path``, and what was skipped and why.

    ``InvalidArgument`` if there is nothing, it cannot be opened, or its format is not given and cannot be detected.
    """
    path = checked_path(path, what="the source")
    if format is not None and format not in FORMATS:
        raise InvalidArgument(f"the format {printed(str(format))!r} is unknown; use one of {', '.join(FORMATS)}")
    chosen = format or detect(path)
    tree = _tree(path)
    if chosen in _LINE_PARSERS:
        data, where = _lines(path, tree)
        return _LINE_PARSERS[chosen](data, where=where)
    if chosen in _EXPORT_PARSERS:
        return _exported(path, tree, chosen)
    if tree is None:
        return _parsed([SourceFile(os.path.basename(path), read_file(path))], chosen)
    if chosen == "memory-directory" and tree.name != "memories" and isinstance(tree, Folder):
        inner = os.path.join(path, "memories")
        tree = Folder(inner) if os.path.isdir(inner) and not os.path.islink(inner) else tree
    return _parsed(limit_reports(tree.files(_wanted(chosen, tree), most=FILE_MAX_BYTES), most=LINES_MAX_BYTES), chosen)


def _tree(path: str) -> Tree | None:
    """The files below a folder or in an archive; None for a single file."""
    if os.path.isdir(path):
        return Folder(path)
    return Archive(path) if path.endswith(_ZIP) and os.path.isfile(path) else None


def detect(path: str | os.PathLike[str]) -> Format:
    """The format of what is at ``path``; ``InvalidArgument`` with the choices if it cannot be detected."""
    name = printed(os.fspath(path))
    if not os.path.exists(path):
        raise InvalidArgument(f"{name} does not exist")
    tree = _tree(os.fspath(path))
    found = _format_of_file(path) if tree is None else _format_of_tree(tree)
    if found is None:
        raise InvalidArgument(f"cannot detect the format of {name}: name one of {', '.join(FORMATS)}")
    return found


def _format_of_file(path: str | os.PathLike[str]) -> Format | None:
    name = os.path.basename(path)
    if name in (notes.INDEX, *notes.INSTRUCTIONS):
        return "claude-code"
    if name.endswith(_LINES):
        data = read_file(path)
        found = None if _ARRAY.match(data) else _format_of_lines(data)  # an array is one line of hundreds of MiB
        return found or exports.format_of(next(exports.values(data, where=""), None))
    return _format_of_markdown(read_file(path)) if name.endswith(SUFFIX) else None


def _format_of_tree(tree: Tree) -> Format | None:
    paths = set(tree.paths())
    roots = {"".join(path.partition("/")[:2]) for path in paths}
    if notes.VAULT + "/" in roots:
        return "notes"
    if any(map(_CONVERSATIONS.fullmatch, roots)) and not roots.isdisjoint(_OF_CHATGPT):
        return "chatgpt"
    if len(roots & _OF_CLAUDE) > 1 or any(map(_PART_OF_CLAUDE.fullmatch, paths | roots)):
        return "claude"
    if not paths.isdisjoint((notes.INDEX, *notes.INSTRUCTIONS, "memory/" + notes.INDEX)) or "projects/" in roots:
        return "claude-code"
    if tree.name == "memories" or "memories/" in roots:
        return "memory-directory"
    if _GRAPH in paths:
        return _format_of_lines(_graph(tree))
    sampled = [_sampled(tree, depth) for depth in (1, _SAMPLED_DEPTH)]
    own = next((format for format in sampled[0] if format not in (None, "notes")), None)
    return own or next(("notes" for found in sampled if found.count("notes") * 2 > len(found)), None)


def _sampled(tree: Tree, depth: int) -> list[Format | None]:
    """The formats of some Markdown files at most so deep: a folder that merely holds some notes is not one of notes."""

    def wanted(path: str, is_folder: bool) -> bool:
        return _is_markdown(path, is_folder) and path.count("/") + is_folder < depth

    found = islice(tree.files(wanted, most=FILE_MAX_BYTES), _LISTED_MAX)
    files = (_format_of_markdown(item.data) for item in found if isinstance(item, SourceFile))
    return list(islice(files, _SAMPLED_MAX))


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
    if {"name", "description"} <= fields.keys():
        return "claude-code"
    return "notes" if notes.is_note(fields) else None


def _lines(path: str, tree: Tree | None) -> tuple[bytes, str]:
    """The bytes of the file with many entries, and its name."""
    if tree is None:
        return read_file(path), printed(os.path.basename(path))
    return _graph(tree), _GRAPH


def _graph(tree: Tree) -> bytes:
    for item in tree.files(lambda name, is_folder: name == _GRAPH, most=LINES_MAX_BYTES):
        if isinstance(item, SourceFile):
            return item.data
    raise InvalidArgument(f"there is no file {_GRAPH} in {printed(tree.name)}")


def _exported(path: str, tree: Tree | None, format: Format) -> Parsed:
    """The entries in another program's export: one file, or all its JSON files, also those in archives side by side."""
    if tree is None:
        return _EXPORT_PARSERS[format]([SourceFile(os.path.basename(path), read_file(path))])
    inner = [Archive(os.path.join(path, name)) for name in sorted(tree.paths())
             if isinstance(tree, Folder) and name.endswith(_ZIP) and "/" not in name]  # fmt: skip
    skipped, others = list[Skipped](), 0

    def files() -> Iterator[SourceFile]:
        nonlocal others
        found = chain.from_iterable(each.files(_is_json, most=LINES_MAX_BYTES) for each in (tree, *inner))
        for item in limit_reports(found, most=EXPORT_MAX_BYTES):
            if isinstance(item, SourceFile):
                yield item
            elif item.why != NOT_A_PART:
                skipped.append(item)
            else:
                others += 1

    parsed = _EXPORT_PARSERS[format](files())
    if others > len(inner):
        skipped.append(Skipped(printed(tree.name), f"{others - len(inner)} other files and folders of the export"))
    return as_one([parsed, Parsed(skipped=tuple(skipped))])


def _parsed(found: Iterable[SourceFile | Skipped], format: Format) -> Parsed:
    items = list(found)
    files = [item for item in items if isinstance(item, SourceFile)]
    present = frozenset(file.path for file in files)
    skipped = Parsed(skipped=tuple(item for item in items if isinstance(item, Skipped)))
    if format == "notes":
        return as_one([notes.notes(files), skipped])
    parts = []
    for item in items:
        if isinstance(item, Skipped):
            parts.append(Parsed(skipped=(item,)))
        elif format == "claude-code":
            parts.append(notes.claude_code_file(item.data, path=item.path, present=present))
        elif format == "markdown":
            parts.append(formats.parse_markdown(item.data, where=printed(item.path)))
        else:
            parts.append(notes.memory_file(item.data, path=item.path))
    return as_one(parts)


def _is_json(path: str, is_folder: bool) -> bool:
    return _is_shown(path, is_folder) and (is_folder or path.endswith(_LINES))


def _is_shown(path: str, is_folder: bool) -> bool:
    return not path.rpartition("/")[2].startswith(".")


def _is_markdown(path: str, is_folder: bool) -> bool:
    return _is_shown(path, is_folder) and (is_folder or path.endswith(SUFFIX))


def _is_claude_code(path: str, is_folder: bool) -> bool:
    """A project's folder, or the one in which Claude Code keeps all projects: its instructions, rules and memories."""
    steps = path.removeprefix(".claude/").split("/")
    memory = steps[0] in ("memory", "rules", *notes.AGENT_MEMORY)
    memory = memory or (steps[0] == "projects" and steps[2:3] in ([], ["memory"]))
    if is_folder:
        return memory or path == ".claude"
    return steps[-1] in notes.INSTRUCTIONS if len(steps) == 1 else memory and path.endswith(SUFFIX)


def _wanted(format: Format, tree: Tree) -> Wanted:
    if format == "claude-code" and notes.INDEX not in set(tree.paths()) and tree.name != "memory":  # not of one project
        return _is_claude_code
    return _is_shown if format == "memory-directory" else _is_markdown


def checked_path(path: object, *, what: str) -> str:
    """A path as text; ``InvalidArgument`` for a value that cannot be one."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str):
        raise InvalidArgument(f"{what} must be a path, not {type(path).__name__}")
    if not named:
        raise InvalidArgument(f"{what} must be a path, not an empty text")
    try:
        if "\0" not in named and os.fsencode(named):
            return named
    except UnicodeEncodeError:
        pass
    raise InvalidArgument(f"{what} {ascii(named[:80])} is not a valid path")
