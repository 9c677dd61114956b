"""Naming profiles: the tools that a session is offered, and the profile ``compact``, which has few and short ones.

The rules this file guards: a tool of ``compact`` that serves memory files and entries does to either what the tools of
the other profiles do, by the same code and under the same rules. A key that is the name of a visible memory file, and
of no visible entry, means that file; what the session cannot see changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.records.entry import Kind
from memfiles.tools.arguments import FILE_ALIASES, LineCount, TextArgument
from memfiles.tools.definitions import APPEND, EDIT, READ, ToolDefinition, ToolTemplate, file_tools
from memfiles.tools.entry_definitions import (
    ENTRY_ALIASES,
    OPERATIONS,
    EntryArguments,
    ForgetEntry,
    ResultCount,
    SaidAt,
    Texts,
    entry_tools,
    none_if_empty,
    small,
)
from memfiles.workflow.declared import Before
from memfiles.workflow.fields import COMPACT, TOOL_NAMES, ToolNames, ToolOperation, operations_of

Meant = tuple[str, dict[str, Any]]
"""The tool for memory files or the operation on entries that a call stands for, and its arguments."""

Word = Annotated[TextArgument | None, Before(none_if_empty)]
_FILE_NAMES = ("filename", "file_name", "filepath", "file_path", "memory_file", "uid")  # others may mean a key


class _Compact(EntryArguments, frozen=True, kw_only=True):
    """Arguments whose names say what they are, so that few of them have a description."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **FILE_ALIASES, **ENTRY_ALIASES, "file": _FILE_NAMES, "limit": FILE_ALIASES["limit"]
    }  # fmt: skip


class ReadEither(_Compact, frozen=True, kw_only=True):
    """The arguments of a read."""

    file: Word = None
    key: Word = None
    offset: Annotated[LineCount | None, Meta(description="First line of a file, from 1.")] = None
    limit: Annotated[LineCount | None, Meta(description="Lines.")] = None


class WriteEither(_Compact, frozen=True, kw_only=True):
    """The arguments of a write: an addition to a file, or a save or update of an entry."""

    file: Word = None
    key: Annotated[Word, Meta(description="Such as customers/ada/plan.")] = None
    content: TextArgument | None = None
    tags: Texts | None = None
    category: Annotated[
        Word,
        Meta(
            description="core (always shown), daily (some days), conversation (this run), workspace (all agents) or "
            "your own."
        ),
    ] = None
    kind: Annotated[Kind | None, Before(small), Meta(description="An episode never changes.")] = None
    outcome: Annotated[
        Literal["success", "failure"] | None, Before(small), Meta(description="Of following the entry.")
    ] = None
    said_at: SaidAt = None


class EditEither(_Compact, frozen=True, kw_only=True):
    """The arguments of an edit."""

    file: Word = None
    key: Word = None
    old_string: TextArgument
    new_string: TextArgument


class LookForEntries(EntryArguments, frozen=True, kw_only=True):
    """The arguments of a search, or of a list if there is no query."""

    query: Annotated[Word, Meta(description="Words or a question.")] = None
    prefix: Annotated[Word, Meta(description="Start of the keys.")] = None
    tags: Annotated[Texts | None, Meta(description="All of these.")] = None
    max_results: Annotated[ResultCount | None, Meta(description="By default 10.")] = None
    cursor: Annotated[Word, Meta(description="The next of the last list.")] = None


class DeleteEntry(EntryArguments, frozen=True, kw_only=True):
    """The arguments of a delete."""

    key: TextArgument


_EITHER: dict[ToolOperation, ToolTemplate] = {
    "read": ToolTemplate(
        ReadEither,
        "Read a memory file, or an entry by its key: pass file or key. A file comes exactly as stored; for an unknown "
        "key, found is false.",
        ({}, {"key": "customers/ada/plan"}),
        read_only=True,
    ),
    "write": ToolTemplate(
        WriteEither,
        "Keep something for later runs. With file, content is added at its end: end it with a newline. With key, it "
        "replaces the entry's text; what you leave out stays. Use one key for one thing, and full sentences. Never "
        "store passwords, keys, tokens or whole conversations. All arguments but file and content are for entries.",
        (
            {"key": "customers/ada/plan", "content": "Ada moved from Free to Pro on 2026-11-21.", "tags": ["ada"]},
            {"content": "- Bob moved to the Pro plan.\n"},
            {"key": "how-to/refund", "outcome": "success"},
        ),
        destructive=True,
        idempotent=False,
    ),
    "edit": ToolTemplate(
        EditEither,
        "Replace text in a memory file or an entry: pass file or key. Read it first and copy old_string exactly; an "
        "empty new_string deletes it. Only the first match is replaced; the result says how many there were.",
        ({"key": "customers/ada/plan", "old_string": "on Free", "new_string": "on Pro"},),
        destructive=True,
        idempotent=False,
    ),
    "look": ToolTemplate(
        LookForEntries,
        "Search entries, best match first, then again with what you found; without query, list their keys. Search "
        "before you answer from memory or save. Long texts are cut: read them by key.",
        ({"query": "Which plan is Ada on?"}, {"prefix": "customers/"}),
        read_only=True,
    ),
    "forget": ToolTemplate(
        ForgetEntry,
        "Forget an entry for good: its text is removed everywhere, and nobody can restore it. For when somebody asks "
        "you to forget something about them.",
        OPERATIONS["forget"].examples,
        destructive=True,
    ),
    "delete": ToolTemplate(
        DeleteEntry,
        "Delete an entry that is wrong or no longer needed. Only a person can restore it. To correct it, write it "
        "again.",
        OPERATIONS["delete"].examples,
        destructive=True,
    ),
}


def offered(
    tool_names: ToolNames,
    *,
    readable: Sequence[str],
    writable: Sequence[str],
    forgets: bool = False,
    read_only: bool = False,
) -> list[ToolDefinition]:
    """The tools under one naming profile: those for memory files of these names, and those for entries.

    ``forgets``: the agent may forget entries for good; ``read_only``: it may change none.
    """
    if tool_names != COMPACT:
        of_entries = entry_tools(tool_names, forgets=forgets, read_only=read_only)
        return file_tools(readable=readable, writable=writable) + of_entries
    files = {"read": sorted(readable), "write": sorted(writable), "edit": sorted(writable)}
    chosen = ((name, it, files.get(it, [])) for name, it in operations_of(tool_names, forgets=forgets).items())
    return [
        template(operation).named(name, output={}, files=names)
        for name, operation, names in chosen
        if not read_only or template(operation).read_only or names
    ]


def every_tool() -> list[ToolDefinition]:
    """A tool of each name that any session may have, for frameworks that want tools before there is a session.

    Of a name in several profiles it is the first; ``file`` is any text, as no session says which files there are.
    """
    found: dict[str, ToolDefinition] = {}
    for tool_names in TOOL_NAMES:
        for tool in offered(tool_names, readable=["any"], writable=["any"], forgets=True):
            found.setdefault(tool.name, with_any_file(tool))
    return list(found.values())


def with_any_file(tool: ToolDefinition) -> ToolDefinition:
    """The tool with any text as its ``file``; the index card of the prompt has the names."""
    properties = dict(tool.parameters["properties"])
    if "file" in properties:
        properties["file"] = {key: value for key, value in properties["file"].items() if key != "enum"}
    return replace(tool, parameters=tool.parameters | {"properties": properties})


def template(operation: ToolOperation) -> ToolTemplate:
    """The operation as ``compact`` has it."""
    return _EITHER.get(operation) or OPERATIONS[operation]


def meaning_of(operation: ToolOperation, given: dict[str, Any], *, tool: str, is_file: Callable[[str], bool]) -> Meant:
    """The operation and arguments that a call of a ``compact`` tool stands for.

    ``is_file`` says whether a key is the name of a file.
    """
    if operation == "look":
        return _look(given, tool=tool)
    if operation not in ("read", "write", "edit"):
        return operation, given
    if len(given.keys() & {"file", "key"}) != 1:
        raise InvalidArgument(f"{tool}: pass 'file' for a memory file, or 'key' for an entry, and not both")
    if "key" in given and is_file(given["key"]):
        given = {"file": given.pop("key"), **given}
    if "file" in given:
        return _on_file(operation, given, tool=tool)
    if operation == "edit":
        return "edit", {"key": given["key"], "old": given["old_string"], "new": given["new_string"]}
    return _on_entry(operation, given, tool=tool)


def _on_file(operation: ToolOperation, given: dict[str, Any], *, tool: str) -> Meant:
    if operation != "write":
        return (READ if operation == "read" else EDIT), given
    _refuse(given.keys() - {"file", "content"}, "is only for entries: leave it out, or pass a key", tool=tool)
    if "content" not in given:
        raise InvalidArgument(f"{tool}: 'content' is missing: pass the text to add")
    return APPEND, given


def _on_entry(operation: ToolOperation, given: dict[str, Any], *, tool: str) -> Meant:
    if operation == "read":
        _refuse(given.keys() - {"key"}, "is only for memory files: an entry is read as a whole", tool=tool)
        return "get", given
    if given.keys() == {"key"}:
        raise InvalidArgument(f"{tool}: 'content' is missing: pass the text to save")
    return "save" if "content" in given and "outcome" not in given else "update", given


def _look(given: dict[str, Any], *, tool: str) -> Meant:
    if "query" not in given:
        count = {"limit": given.pop("max_results")} if "max_results" in given else {}
        return "list", given | count
    _refuse(given.keys() & {"cursor"}, "continues a list: leave out 'query'", tool=tool)
    return "search", given


def _refuse(names: set[str], why: str, *, tool: str) -> None:
    if names:
        raise InvalidArgument(f"{tool}: {min(names)!r} {why}")
