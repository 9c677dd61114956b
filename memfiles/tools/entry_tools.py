"""Entry tools of one session: parse the arguments, call ``Entries``, return one compact JSON object.

The rule this file guards: ``text`` and ``data`` of a result are the same object. Nothing is decided here: ``Entries``
decides for every call what a session may see and where it saves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memfiles.entries.callers import is_in_view, view_of
from memfiles.errors import InvalidArgument
from memfiles.tools import entry_definitions
from memfiles.tools.arguments import parse_arguments
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.results import ToolResult
from memfiles.workflow.fields import ToolNames, ToolOperation, operations_of

if TYPE_CHECKING:
    from memfiles.entries.callers import Caller
    from memfiles.entries.entries import Entries
    from memfiles.storage.events import RecordChanged

Call = Callable[[object, str | None], ToolResult]


@dataclass(frozen=True, slots=True)
class EntryAccess:
    """The entries of a workflow and the naming profile of their tools.

    ``ends_run``: closing the session ends its run and removes the entries of that run alone.
    """

    entries: Entries
    tool_names: ToolNames = "default"
    ends_run: bool = True

    def tools(self, caller: Caller) -> EntryTools:
        """The tools for one session."""
        return EntryTools(self, caller)

    def sees(self, caller: Caller, change: RecordChanged) -> bool:
        """Whether the change is of an entry that the session sees, shadowed or not."""
        view = view_of(caller, self.entries.rules.levels)
        return is_in_view(view, change.path, key=change.name, level=change.level)

    def prompt(self, caller: Caller, *, read_only: bool = False) -> Iterator[str]:
        """The prompt blocks about entries: guidance if the session can save, then the entries that fit."""
        yield "" if read_only else entry_definitions.guidance(operations_of(self.tool_names)).removesuffix("\n")
        yield self.entries.hydrate(caller).text


class EntryTools:
    """The tools for entries of one session. It keeps nothing between calls; threads may share it."""

    def __init__(self, access: EntryAccess, caller: Caller) -> None:
        self._entries = access.entries
        self._caller = caller
        self._tool_names = access.tool_names
        self._functions: dict[ToolOperation, Callable[..., ToolResult]] = {
            "save": self._save,
            "get": lambda sent, _, tool: self._found(parse_arguments(entry_definitions.GetEntry, sent, tool=tool).key),
            "search": lambda sent, _, tool: self._matching(
                parse_arguments(entry_definitions.SearchEntries, sent, tool=tool)
            ),
            "recall": self._recall,
            "list": self._list,
            "delete": self._delete,
            "update": self._update,
        }

    def definitions(self) -> list[ToolDefinition]:
        """The tools under the names of the naming profile."""
        return entry_definitions.entry_tools(self._tool_names)

    def calls(self) -> dict[str, Call]:
        """The function for each tool name; it takes the arguments as sent and the call id."""
        operations = operations_of(self._tool_names).items()
        return {name: partial(self._functions[operation], tool=name) for name, operation in operations}

    def _save(self, sent: object, call_id: str | None, tool: str) -> ToolResult:
        said = parse_arguments(entry_definitions.SaveEntry, sent, tool=tool)
        facets = said.given("key", "content")
        return _result(self._entries.save(self._caller, said.key, said.content, call_id=call_id, **facets).to_dict())

    def _recall(self, sent: object, _: str | None, tool: str) -> ToolResult:
        said = parse_arguments(entry_definitions.RecallEntries, sent, tool=tool)
        if said.key is not None and not said.query:
            return self._found(said.key)
        if said.query is not None and said.key is None:
            return self._matching(said)
        raise InvalidArgument(f"{tool}: pass 'key' to get one entry, or 'query' to search, and not both")

    def _list(self, sent: object, _: str | None, tool: str) -> ToolResult:
        said = parse_arguments(entry_definitions.ListEntries, sent, tool=tool)
        return _result(self._entries.list(self._caller, **said.given()).to_dict())

    def _delete(self, sent: object, call_id: str | None, tool: str) -> ToolResult:
        said = parse_arguments(entry_definitions.DeleteEntry, sent, tool=tool)
        return _result(self._entries.delete(self._caller, said.key, call_id=call_id).to_dict())

    def _update(self, sent: object, call_id: str | None, tool: str) -> ToolResult:
        said = parse_arguments(entry_definitions.UpdateEntry, sent, tool=tool)
        return _result(self._entries.update(self._caller, said.key, call_id=call_id, **said.given("key")).to_dict())

    def _found(self, key: str) -> ToolResult:
        found = self._entries.get(self._caller, key)
        return _result(not_found(key) if found is None else found.to_dict())

    def _matching(self, said: entry_definitions.SearchEntries | entry_definitions.RecallEntries) -> ToolResult:
        return _result(self._entries.search(self._caller, **said.given()).to_dict())


def _result(data: dict[str, Any]) -> ToolResult:
    """A result with the object as its data and, in compact JSON, as its text."""
    return ToolResult(json.dumps(data, ensure_ascii=False, separators=(",", ":")), data=data)


def not_found(key: str) -> dict[str, Any]:
    """The JSON object for a key under which the session sees nothing, hidden or not."""
    return {"found": False, "key": key}
