"""Entry tools: parse the arguments, call ``Entries``, return one compact JSON object.

The rule this file guards: ``text`` and ``data`` of a result are the same object. Nothing is decided here: ``Entries``
decides for every call what a session may see and where it saves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memfiles.entries.callers import is_in_view, view_of
from memfiles.errors import EntryNotFound, InvalidArgument, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.tools.arguments import parse_arguments, shortened
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.results import ToolResult
from memfiles.workflow.fields import COMPACT, ToolNames, ToolOperation, operations_of

if TYPE_CHECKING:
    from memfiles.entries.callers import Caller
    from memfiles.entries.entries import Entries
    from memfiles.storage.events import RecordChanged
    from memfiles.tools.session import Session

_CHANGES = ("save", "update", "edit", "delete")
Call = Callable[[object, str | None], ToolResult]


class EntryAccess(Struct, frozen=True):
    """The entries of a workflow, and the tools for them under the names of a profile; threads may share it.

    ``opened`` returns the entries; they are opened by what needs them. ``allow`` are the exceptions of their secrets
    gate. ``ends_run``: closing the session ends its run and removes the entries of that run alone. ``forgets`` and
    ``read_only`` are about the agent: it may forget entries for good, or change none. ``consolidates``: closing the
    session merges duplicates and folds episodes.
    """

    opened: Callable[[], Entries]
    allow: tuple[str, ...] = ()
    tool_names: ToolNames = "default"
    ends_run: bool = True
    forgets: bool = False
    read_only: bool = False
    consolidates: bool = False

    @property
    def entries(self) -> Entries:
        """The open entries."""
        return self.opened()

    def definitions(self, *, readable: Sequence[str], writable: Sequence[str]) -> list[ToolDefinition]:
        """The tools under the names of the naming profile, those for memory files of these names included."""
        from memfiles.tools import profiles  # late: the session of a command may have no use for tools

        allowed = {"forgets": self.forgets, "read_only": self.read_only}
        return profiles.offered(self.tool_names, readable=readable, writable=writable, **allowed)

    def calls(self, session: Session, of_files: Mapping[str, Call]) -> dict[str, Call]:
        """The function for each tool name; it takes the arguments as sent and the call id.

        ``of_files`` are the functions for memory files, by their usual names. Every agent gets the ones that change
        entries: ``Entries`` refuses a call and says why.
        """
        operations = operations_of(self.tool_names, forgets=self.forgets).items()
        if self.tool_names == COMPACT:
            either = {**of_files}  # before those of the entries are added to it
            return {
                name: partial(self._call_either, session, either, operation, name) for name, operation in operations
            }
        return {name: partial(self._call, session, operation, name) for name, operation in operations}

    def end_run(self, session: Session, *, levels: Iterable[str]) -> None:
        """Remove the entries of the session's run alone at these levels, and consolidate the others if declared."""
        over = list(levels)
        if session.ends_run:
            try:
                self.entries.end_run(session, levels=over)
            except MemfilesError as error:
                run = session.provenance.run
                _log.warning("entries of run %s were not removed and will expire: %s", run, error)
        if session.consolidates:
            self.entries.parts.consolidator.close_run(session, levels=over)

    def sees(self, caller: Caller, change: RecordChanged) -> bool:
        """Whether the change is of an entry that the session sees, shadowed or not: one that is erased was hidden."""
        if change.op == "purge":
            return False
        view = view_of(caller, self.entries.rules.levels)
        return is_in_view(view, change.path, key=change.name, level=change.level)

    def prompt(self, caller: Caller, *, read_only: bool = False, budget_bytes: int | None = None) -> Iterator[str]:
        """The prompt blocks about entries: guidance if the session can save, then the entries that fit."""
        from memfiles.tools import entry_definitions  # late, as above

        is_silent, operations = read_only or self.read_only, operations_of(self.tool_names)
        yield "" if is_silent else entry_definitions.guidance(operations).removesuffix("\n")
        if budget_bytes != 0:
            yield self.entries.hydrate(caller, budget_bytes=budget_bytes).text

    def _call(
        self, caller: Caller, operation: ToolOperation, tool: str, sent: object, call_id: str | None
    ) -> ToolResult:
        """One call: a result with the object as its data and, in compact JSON, as its text."""
        from memfiles.tools import entry_definitions  # late, as above

        given = parse_arguments(entry_definitions.OPERATIONS[operation].arguments, sent, tool=tool).given()
        if operation == "recall":
            operation, given = _recalled(given, tool=tool)
        return self._done(caller, operation, given, call_id)

    def _call_either(
        self,
        session: Session,
        of_files: Mapping[str, Call],
        operation: ToolOperation,
        tool: str,
        sent: object,
        call_id: str | None,
    ) -> ToolResult:
        """One call of a tool that serves memory files and entries."""
        from memfiles.tools import profiles  # late, as above

        def is_file(key: str) -> bool:
            return any(file.card.name == key for file in session.files()) and self.entries.get(session, key) is None

        given = parse_arguments(profiles.template(operation).arguments, sent, tool=tool).given()
        name, arguments = profiles.meaning_of(operation, given, tool=tool, is_file=is_file)
        if name in of_files:
            return of_files[name](arguments, call_id)
        return self._done(session, name, arguments, call_id)

    def _done(self, caller: Caller, operation: str, given: dict[str, Any], call_id: str | None) -> ToolResult:
        """The result of one operation with checked arguments."""
        if operation in _CHANGES:
            given["call_id"] = call_id
        done = getattr(self.entries, operation)(caller, **given)  # each method has the name of its operation
        if operation == "forget" and not done.count:
            raise EntryNotFound(f"there is no entry {shortened(given['key'])} at this session's level to forget")
        data = {"found": False, "key": given["key"]} if done is None else done.to_dict()  # hidden or not
        return ToolResult(json.dumps(data, ensure_ascii=False, separators=(",", ":")), data=data)


def _recalled(given: dict[str, Any], *, tool: str) -> tuple[ToolOperation, dict[str, Any]]:
    """The operation that a recall stands for, and its arguments."""
    if "key" in given and not given.get("query"):
        return "get", {"key": given["key"]}
    if "query" in given and "key" not in given:
        return "search", given
    raise InvalidArgument(f"{tool}: pass 'key' to get one entry, or 'query' to search, and not both")
