"""Entry tools: parse the arguments, call ``Entries``, return one compact JSON object.

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

_CHANGES = ("save", "update", "delete")
Call = Callable[[object, str | None], ToolResult]


@dataclass(frozen=True, slots=True)
class EntryAccess:
    """The entries of a workflow, and the tools for them under the names of a profile; threads may share it.

    ``ends_run``: closing the session ends its run and removes the entries of that run alone.
    """

    entries: Entries
    tool_names: ToolNames = "default"
    ends_run: bool = True

    def definitions(self) -> list[ToolDefinition]:
        """The tools under the names of the naming profile."""
        return entry_definitions.entry_tools(self.tool_names)

    def calls(self, caller: Caller) -> dict[str, Call]:
        """The function for each tool name; it takes the arguments as sent and the call id."""
        operations = operations_of(self.tool_names).items()
        return {name: partial(self._call, caller, operation, name) for name, operation in operations}

    def sees(self, caller: Caller, change: RecordChanged) -> bool:
        """Whether the change is of an entry that the session sees, shadowed or not."""
        view = view_of(caller, self.entries.rules.levels)
        return is_in_view(view, change.path, key=change.name, level=change.level)

    def prompt(self, caller: Caller, *, read_only: bool = False) -> Iterator[str]:
        """The prompt blocks about entries: guidance if the session can save, then the entries that fit."""
        yield "" if read_only else entry_definitions.guidance(operations_of(self.tool_names)).removesuffix("\n")
        yield self.entries.hydrate(caller).text

    def _call(
        self, caller: Caller, operation: ToolOperation, tool: str, sent: object, call_id: str | None
    ) -> ToolResult:
        """One call: a result with the object as its data and, in compact JSON, as its text."""
        given = parse_arguments(entry_definitions.OPERATIONS[operation].arguments, sent, tool=tool).given()
        if operation == "recall":
            operation, given = _recalled(given, tool=tool)
        if operation in _CHANGES:
            given["call_id"] = call_id
        done = getattr(self.entries, operation)(caller, **given)  # each method has the name of its operation
        data = {"found": False, "key": given["key"]} if done is None else done.to_dict()  # hidden or not
        return ToolResult(json.dumps(data, ensure_ascii=False, separators=(",", ":")), data=data)


def _recalled(given: dict[str, Any], *, tool: str) -> tuple[ToolOperation, dict[str, Any]]:
    """The operation that a recall stands for, and its arguments."""
    if "key" in given and not given.get("query"):
        return "get", {"key": given["key"]}
    if "query" in given and "key" not in given:
        return "search", given
    raise InvalidArgument(f"{tool}: pass 'key' to get one entry, or 'query' to search, and not both")
