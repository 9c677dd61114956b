"""Session: one agent at work, its level, its tools and the calls it makes with them.

The rules this file guards: the level of a session can rise and never falls, and counts from the moment it is raised.
A tool call never raises into an agent's loop, whatever the model sent. Access is checked again for every call.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgspec.structs import replace

from memfiles.entries.callers import SessionProvenance
from memfiles.errors import FileNotDeclared, InvalidArgument, MemfilesError, StorageFailed
from memfiles.files.user_files import UserEpoch
from memfiles.records import late_logger as _log
from memfiles.records.entry import RECALL_BYTES
from memfiles.records.keys import is_file_path, record_path, user_file_path, user_hash
from memfiles.records.levels import Levels
from memfiles.records.record import Actor, Record
from memfiles.secrets.gate import LABEL_BYTES_MAX, check_label
from memfiles.storage.events import AuditLog
from memfiles.tools import visibility
from memfiles.tools.arguments import AppendMemory, EditMemory, ReadMemory, parse_arguments, shortened
from memfiles.tools.definitions import APPEND, EDIT, READ, ToolDefinition, file_tools
from memfiles.tools.dialects import render
from memfiles.tools.results import INTERNAL, SESSION_CLOSED, UNKNOWN_TOOL, ToolResult, appended, edited, failed, refused
from memfiles.tools.visibility import RefLike, VisibleFile
from memfiles.workflow.fields import DELETE, FORGET

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entries.hydration.recall import Recall
    from memfiles.files.manager import MemoryManager
    from memfiles.storage.events import RecordChanged
    from memfiles.tools.entry_tools import Call, EntryAccess

_INTERNAL_ERROR = (
    "Internal error in the memory; the details were logged. If this was a change, read the current state before you "
    "try again: the change may or may not have been made."
)


class OpenRun:
    """The open sessions of one run in this process; it ends at each level with the last session that was there.

    A session that nobody refers to any more does not count.
    """

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
        self._turn = threading.Lock()

    def join(self, session: Session) -> None:
        """Count a session from now on."""
        with self._turn:
            self._sessions.add(session)

    def leave(self, session: Session) -> frozenset[str]:
        """Stop counting a session; returns the levels it was at and no other session was."""
        with self._turn:
            self._sessions.discard(session)
            return session.past_levels.difference(*(other.past_levels for other in self._sessions))


class Session:
    """One agent at work; made by ``Memory.session``. Threads may share it.

    ``level`` is the starting level. An agent's declared level is its usual start, not a ceiling: the level says how
    sensitive the data is that the session has met so far, and only the host knows that. ``entries`` are the entries
    of the workflow, None if it declares none; the session then has no tools for entries. ``open_run`` is shared by the
    sessions of its run. ``memory`` is what it belongs to, which stays open as long as somebody has the session.
    """

    def __init__(
        self,
        provenance: SessionProvenance,
        *,
        refs: Iterable[RefLike],
        manager: MemoryManager,
        levels: Levels,
        level: str,
        entries: EntryAccess | None = None,
        audit: AuditLog | None = None,
        open_run: OpenRun | None = None,
        memory: object = None,
    ) -> None:
        levels.rank(level)
        labels = {name: getattr(provenance, name) for name in ("user", "run", "channel", "thread", "actor")}
        manager.gate.labels.check(labels, allow=entries.allow if entries else ())
        self.provenance = provenance
        self.manager = manager
        self._refs = visibility.as_refs(refs)
        self._levels = levels
        self._level = level
        self._user = UserEpoch(provenance.user, provenance.epoch) if provenance.user is not None else None
        self.past_levels = frozenset({level})
        self._closed = False
        self._warned: dict[str, str] = {}
        self._lock = threading.Lock()
        self._entries = entries
        self.ends_run = entries is not None and entries.ends_run
        self.consolidates = entries is not None and entries.consolidates and not entries.read_only
        self.is_brief = False
        self._audit, self._memory = audit, memory
        of_files = {READ: self._read, APPEND: self._append, EDIT: self._edit}
        self._calls: dict[str, Call] = {name: partial(self._on_file, name, call) for name, call in of_files.items()}
        if entries is not None:
            self._calls |= entries.calls(self, self._calls)
        self._open_run = open_run or OpenRun()
        self._open_run.join(self)

    @property
    def agent(self) -> str:
        """The name of the calling agent."""
        return self.provenance.agent

    @property
    def level(self) -> str:
        """The current level of the session."""
        return self._level

    @property
    def entries(self) -> Entries | None:
        """The entries of the workflow; None if it declares none."""
        return self._entries.entries if self._entries else None

    def raise_level(self, level: str) -> str:
        """Raise the session to ``level`` for every call from now on; returns the level it is at.

        A lower level changes nothing. An undeclared level is an ``InvalidArgument``.
        """
        with self._lock:
            self._level = self._levels.raised(self._level, level)
            self.past_levels |= {self._level}
            return self._level

    def system_prompt(
        self, *, read_only: bool = False, query: str | None = None, budget_bytes: int | None = None
    ) -> str:
        """The memory's part of the system prompt, rendered afresh; "" if there is nothing to say.

        It holds the index card and, if the workflow declares entries, guidance on saving and the entries that fit into
        the declared bytes. With ``query``, the block of ``recall`` for it takes the place of those. ``budget_bytes`` is
        the size of either block; 0 leaves it out, for an agent that gets ``recall`` in a message of each turn. The same
        state gives the same text. ``read_only`` leaves out everything about changing memory, for a model without such
        tools. An unreadable part is left out and logged once, so that an agent can start on a failing disk.
        """
        self.check_open()
        entries = self._entries
        names = entries.tool_names if entries else None
        card = partial(visibility.card_of_files, read_only=read_only, tool_names=names)
        blocks = self._readable("memory files", lambda: [card(self.files())])
        if entries is not None:
            size = budget_bytes if query is None else 0
            blocks += self._readable("entries", lambda: entries.prompt(self, read_only=read_only, budget_bytes=size))
        if query is not None:
            blocks.append(self.recall(query, budget_bytes=RECALL_BYTES if budget_bytes is None else budget_bytes).text)
        return "\n\n".join(block for block in blocks if block)

    def recall(self, query: str, *, budget_bytes: int = RECALL_BYTES, include: Iterable[str] = ()) -> Recall:
        """What memory holds about ``query``: ``str()`` of it is a block of at most ``budget_bytes`` for this turn.

        Pinned entries come first, then those of the keys in ``include``, then the answers, each with its neighbours.
        ``data`` has them as values. The same state gives the same block. It is empty if nothing answers, if the
        workflow declares no entries, and if memory cannot be searched, which is logged once. ``InvalidArgument`` if an
        argument cannot be used or the session is closed.
        """
        from memfiles.entries.hydration.recall import Recall  # late: only users of entries need it

        self.check_open()
        nothing = Recall(query, budget_bytes=budget_bytes)
        if (entries := self.entries) is None:
            return nothing
        try:
            found = entries.recall(self, query, budget_bytes=budget_bytes, include=include)
        except InvalidArgument:
            raise
        except Exception as error:  # an agent's loop calls this
            self._warn("what was recalled", error)
            return replace(nothing, note="memory could not be searched")
        self._warned.pop("what was recalled", None)
        return found

    def definitions(self) -> list[ToolDefinition]:
        """The tools that the model has now, in the neutral form: those for memory files, then those for entries."""
        self.check_open()
        return self.definitions_for(**visibility.names_in(self.files()))

    def definitions_for(self, *, readable: Sequence[str], writable: Sequence[str]) -> list[ToolDefinition]:
        """The tools that the model would have with memory files of these names."""
        offered = self._entries.definitions if self._entries else file_tools
        return offered(readable=readable, writable=writable)

    def tools(self, dialect: str, *, strict: bool | None = None, examples: bool = False) -> list[dict[str, Any]]:
        """The tools that the model has now, in a vendor's shape.

        ``dialect``: ``anthropic``, ``bedrock`` (Converse), ``gemini``, ``mcp``, ``openai`` (Responses) or
        ``openai-chat``. ``dialects.Dialect`` explains ``strict`` and ``examples``.
        """
        return render(self.definitions(), dialect, strict=strict, examples=examples)

    def call(self, name: str, arguments: object = None, *, call_id: str | None = None) -> ToolResult:
        """Carry out a tool call of the model. Never raises: every failure is a result with ``is_error``.

        ``arguments`` is an object or its JSON text. ``call_id`` is the vendor's id of the call. A call that is repeated
        with the same id returns the first result and changes nothing. Leave it out where the vendor's ids are not
        unique within the session's run.
        """
        if self._closed:
            return refused("This session is closed; its memory can no longer be used.", code=SESSION_CLOSED)
        try:
            call = self._calls.get(name) if isinstance(name, str) else None
            return call(arguments, call_id) if call else self._unknown(name)
        except MemfilesError as error:
            return failed(error)
        except Exception:
            _log.exception("the call of tool %s failed", shortened(name))
            return refused(_INTERNAL_ERROR, code=INTERNAL)

    def files(self) -> list[VisibleFile]:
        """The memory files that the session may read now, sorted by name, and whether it may change them."""
        return visibility.visible_files(
            self._refs, self.manager, levels=self._levels, level=self._level, user=self._user
        )

    def owner_of(self, uid: str) -> UserEpoch | None:
        """The user to name to the manager: the session's for a file ``per: user``, None for one of all users."""
        return self._user if uid in self.manager.per_user else None

    def snapshots(self, uids: Iterable[str], *, call_id: str | None = None) -> list[Record]:
        """These memory files as they are now, read by this session; the caller has checked that it may see them."""
        records = [self.manager.snapshot(uid, user=self.owner_of(uid)) for uid in uids]
        if self._audit is not None and self._audit.reads:
            paths = [self._path(record.uid) for record in records]
            self._audit.record_read("read", paths, by=self.actor(call_id), level=self._level)
        return records

    def may_know(self, change: RecordChanged) -> bool:
        """Whether the session may hear of a change: only of records that it sees now.

        A forgotten entry has no key left, so its change is reported if the session sees its folder at that level.
        """
        if is_file_path(change.path):
            return any(self._path(file.card.uid) == change.path for file in self.files())
        return self._entries is not None and self._entries.sees(self, change)

    def actor(self, call_id: str | None) -> Actor:
        """The author of a call in the history; ``InvalidArgument`` if the id cannot be recorded."""
        if (call := recorded_id(call_id)) is not None:
            self.manager.gate.labels.check({"call_id": call})
        origin = self.provenance
        return Actor(self.agent, origin.run, call, origin.actor, user_hash(origin.user or "") or None)

    def refused(self, tool: str, error: MemfilesError) -> None:
        """Report the refusal of a memory file tool to the audit."""
        if self._audit is not None:
            self._audit.record_refusal(error, tool, by=self.actor(None), level=self._level)

    def close(self) -> None:
        """End the session: further tool calls are error results. Calling it again does nothing.

        The last open session of a run at a level removes the entries there that belong to the run alone; if that
        fails, they expire later. Where the workflow says ``consolidate: close``, it then merges and folds the others,
        which takes up to 20 seconds.
        """
        with self._lock:
            was_closed, self._closed = self._closed, True
        over = self._open_run.leave(self)
        if self._entries is not None and not was_closed:
            self._entries.end_run(self, levels=over)

    def check_open(self) -> None:
        """Raise ``InvalidArgument`` if the session is closed."""
        if self._closed:
            raise InvalidArgument(f"this session of agent {self.agent} is closed; ask the memory for a new one")

    def _readable(self, what: str, make: Callable[[], Iterable[str]]) -> list[str]:
        """The blocks up to the first that cannot be made."""
        made: list[str] = []
        try:
            made.extend(make())
        except Exception as error:  # an agent's loop calls this
            self._warn(what, error)
        else:
            self._warned.pop(what, None)
        return made

    def _warn(self, what: str, error: Exception) -> None:
        """Log once that a part of the prompt cannot be made."""
        if self._warned.get(what) != str(error):
            self._warned[what] = str(error)
            is_known = isinstance(error, MemfilesError)
            _log.warning("the prompt of agent %s lacks %s: %s", self.agent, what, error, exc_info=not is_known)

    def _on_file(self, tool: str, call: Call, sent: object, call_id: str | None) -> ToolResult:
        """One call of a tool for memory files; entries report their refusals themselves."""
        try:
            return call(sent, call_id)
        except MemfilesError as error:
            self.refused(tool, error)
            raise

    def _read(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(ReadMemory, sent, tool=READ)
        file = self._find(arguments.file)
        (record,) = self.snapshots([file.card.uid], call_id=call_id)
        if record.level != file.card.level:  # a deploy changed the level meanwhile: check access again
            self._find(arguments.file)
        if arguments.offset is None and arguments.limit is None:
            return ToolResult(record.content, data=_about(record))
        text, place = line_range(record, offset=arguments.offset or 1, limit=arguments.limit)
        return ToolResult(text, data=_about(record) | place)

    def _append(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(AppendMemory, sent, tool=APPEND)
        uid, by = self._writable(arguments.file), self.actor(call_id)
        return appended(self.manager.append(uid, arguments.content, by=by, user=self.owner_of(uid)))

    def _edit(self, sent: object, call_id: str | None) -> ToolResult:
        arguments = parse_arguments(EditMemory, sent, tool=EDIT)
        uid, by = self._writable(arguments.file), self.actor(call_id)
        texts = arguments.old_string, arguments.new_string
        return edited(self.manager.edit(uid, *texts, by=by, user=self.owner_of(uid)))

    def _find(self, wanted: str) -> VisibleFile:
        """A file that the session sees, by its name or uid; ``FileNotDeclared``, ``StorageFailed``."""
        of_users = set[str]()
        if self._user is None:  # it would see these with a user
            declared = (self.manager.per_user.get(ref.id) for ref in self._refs)
            seen = partial(visibility.is_readable, levels=self._levels, level=self._level)
            known = (file for file in declared if file is not None and seen(self.manager.levels.get(file.uid)))
            of_users = {name for file in known for name in (file.name, file.uid)}
        try:
            return visibility.find_file(self.files(), wanted, of_users=of_users)
        except FileNotDeclared as error:
            of_session: dict[str, Any] = {"levels": self._levels, "level": self._level, "user": self._user}
            if not visibility.is_any_unread(self._refs, self.manager, **of_session):
                raise
            # perhaps this one; which of them would tell that a hidden file exists
            raise StorageFailed(f"{error}; or try again later, as a memory file cannot be read now") from None

    def _path(self, uid: str) -> str:
        """The path of the session's record of a file."""
        owner = self.owner_of(uid)
        return record_path(uid) if owner is None else user_file_path(owner.name, uid)

    def _writable(self, wanted: str) -> str:
        """The uid of a file that the session may change now."""
        file = self._find(wanted)
        visibility.check_writable(file)
        return file.card.uid

    def _unknown(self, name: object) -> ToolResult:
        names = [tool.name for tool in self.definitions()]
        remedy = f"use one of {', '.join(names)}" if names else "no memory tools are available here"
        if name == FORGET and DELETE in names:
            remedy = f"this agent may not forget for good; use {DELETE}, which hides an entry, or another tool"
        return refused(f"unknown tool {shortened(name)}: {remedy}", code=UNKNOWN_TOOL)


def tools(
    refs: Iterable[RefLike], manager: MemoryManager, dialect: str, *, strict: bool | None = None, examples: bool = False
) -> list[dict[str, Any]]:
    """The tools for these references in a vendor's shape, by their modes alone: levels need a session."""
    definitions = file_tools(**visibility.names_in(visibility.visible_files(refs, manager)))
    return render(definitions, dialect, strict=strict, examples=examples)


def without_upkeep(session: Session, *, is_brief: bool = False) -> Session:
    """Make this the session of a person, whose close consolidates nothing.

    ``is_brief``: it serves one command, which leaves it to others to erase what is due.
    """
    session.consolidates, session.is_brief = False, is_brief
    return session


def line_range(record: Record, *, offset: int, limit: int | None) -> tuple[str, dict[str, int]]:
    """``limit`` lines from line ``offset`` (1-based), and their place: ``first_line, last_line, lines``.

    Only a line feed ends a line. An offset past the end is an ``InvalidArgument``.
    """
    lines = list(io.StringIO(record.content, newline="\n"))
    if offset > max(1, len(lines)):
        raise InvalidArgument(f"{record.name} has {len(lines)} lines: pass an offset from 1 to {max(1, len(lines))}")
    chosen = lines[offset - 1 :][:limit]
    place = {"first_line": offset, "last_line": offset - 1 + len(chosen), "lines": len(lines)}
    return "".join(chosen), place


def recorded_id(call_id: str | None) -> str | None:
    """A call id as the history holds it: as given, or its digest if a gateway packed kilobytes into it."""
    if isinstance(call_id, str) and len(call_id.encode(errors="replace")) > LABEL_BYTES_MAX:
        return "sha256:" + hashlib.sha256(call_id.encode(errors="replace")).hexdigest()
    check_label(call_id or None, what="call_id")
    return call_id or None


def _about(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("name", "revision", "size_bytes", "max_size_bytes")}
