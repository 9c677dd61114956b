"""A session: who is calling now, at which level, and what it therefore sees and may do.

The rule this file guards: the level of a session can rise and never falls, and counts from the moment it is
raised.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.keys import entry_place
from memfiles.records.levels import Levels
from memfiles.records.record import Actor
from memfiles.storage.events import Refusals
from memfiles.tools.dialects import render
from memfiles.tools.index_card import card_of_files
from memfiles.tools.result import SESSION_CLOSED, ToolResult, refused
from memfiles.tools.toolset import Toolset
from memfiles.tools.visibility import Clearance, RefLike, VisibleFile, as_refs, visible_files

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.files.manager import MemoryManager
    from memfiles.storage.events import RecordChanged
    from memfiles.tools.definitions import ToolDefinition
    from memfiles.tools.entry_tools import EntryAccess

LABEL_MAX_BYTES = 255
_log = logging.getLogger("memfiles")


@dataclass(frozen=True, slots=True)
class SessionProvenance:
    """Where a session's changes come from. ``run`` stands in the history as the change's session."""

    agent: str
    run: str | None = None
    channel: str | None = None
    thread: str | None = None

    def __post_init__(self) -> None:
        for what in ("agent", "run", "channel", "thread"):
            check_label(getattr(self, what), what=what)


class Session:
    """One agent at work; made by ``Memory.session``. Threads may share it.

    ``level`` is where the session starts. An agent's declared level is only the usual start, no ceiling: the level
    tells what the session has met so far, and it is the host that knows. ``entries`` are those of the workflow, None
    where it declares none: then there are no tools for them.
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
        refusals: Refusals | None = None,
    ) -> None:
        levels.rank(level)
        self.provenance = provenance
        self.manager = manager
        self._refs = as_refs(refs)
        self._levels = levels
        self._level = level
        self._closed = False
        self._complaints: dict[str, str] = {}
        self._changing = threading.Lock()
        self._entries = entries
        self._refusals = refusals or Refusals()
        self._toolset = Toolset(self, entries.tools(self) if entries else None)

    @property
    def agent(self) -> str:
        """The agent that is calling."""
        return self.provenance.agent

    @property
    def level(self) -> str:
        """The level the session is at now."""
        return self._level

    @property
    def entries(self) -> Entries | None:
        """Where the entries are; None if the workflow declares none."""
        return self._entries.entries if self._entries else None

    def raise_level(self, level: str) -> str:
        """Put the session at ``level`` if that is higher, for every call from now on; returns the level it is at.

        A lower level changes nothing; an undeclared one is an ``InvalidArgument``.
        """
        with self._changing:
            self._level = self._levels.raised(self._level, level)
            return self._level

    def system_prompt(self, *, read_only: bool = False) -> str:
        """What the model shall be told of its memory, rendered afresh; "" where there is nothing to tell.

        The index card; then, if the workflow declares entries, what to save and how, and the entries that fit into the
        declared bytes. The same state gives the same text. ``read_only``: the model has no tools that change anything,
        so it is told nothing of them. What cannot be read just now is left out, and logged once: an agent whose disk
        fails still begins.
        """
        self.check_open()
        blocks = self._readable("memory files", self._card(read_only=read_only))
        if self._entries is not None:
            blocks += self._readable("entries", self._entries.prompt(self, read_only=read_only))
        return "\n\n".join(block for block in blocks if block)

    def definitions(self) -> list[ToolDefinition]:
        """The tools the model has now, in no vendor's shape."""
        self.check_open()
        return self._toolset.definitions()

    def tools(self, dialect: str, *, strict: bool | None = None, examples: bool = False) -> list[dict[str, Any]]:
        """The tools the model has now, in a vendor's shape.

        ``dialect``: ``anthropic``, ``bedrock`` (Converse), ``gemini``, ``mcp``, ``openai`` (Responses) or
        ``openai-chat``.
        ``strict`` and ``examples`` are explained at ``dialects.Dialect``.
        """
        return render(self.definitions(), dialect, strict=strict, examples=examples)

    def call(self, name: str, arguments: object = None, *, call_id: str | None = None) -> ToolResult:
        """Carry out a tool call of the model; never raises, every failure is a result with ``is_error``.

        ``arguments`` are an object or its JSON text. ``call_id`` is the vendor's id of the call: when the same call
        is made again with the same id, it is answered with what it did the first time and changes nothing. Pass none
        where the vendor's ids are not unique within the session's run.
        """
        if self._closed:
            return refused("this session is closed: no memory can be used any more", code=SESSION_CLOSED)
        return self._toolset.call(name, arguments, call_id=call_id)

    def files(self) -> list[VisibleFile]:
        """The memory files the session may read at this moment, by name, and whether it may change them."""
        return visible_files(self._refs, self.manager, clearance=Clearance(self._levels, self._level))

    def may_know(self, change: RecordChanged) -> bool:
        """Whether the session may hear of a change: of a record that it sees at this moment.

        Of an entry that was forgotten no key is left to tell by: then of any in a place that it sees.
        """
        if entry_place(change.path) is None:
            return any(file.card.uid == change.uid for file in self.files())
        return self._entries is not None and self._entries.sees(self, change)

    def actor(self, call_id: str | None) -> Actor:
        """Who makes the call of that id; ``InvalidArgument`` if the id cannot be recorded."""
        return Actor(agent=self.agent, session=self.provenance.run, call=recorded_id(call_id))

    def refused(self, tool: str, error: MemfilesError) -> None:
        """A call of a tool for memory files was refused, which those who account for it may want to know."""
        self._refusals.note(error, tool, agent=self.agent, level=self._level, run=self.provenance.run)

    def _card(self, *, read_only: bool) -> Iterator[str]:
        yield card_of_files(self.files(), read_only=read_only)

    def _readable(self, what: str, blocks: Iterable[str]) -> list[str]:
        """The blocks up to one that cannot be made."""
        made: list[str] = []
        try:
            made.extend(blocks)
        except Exception as error:  # an agent's loop calls this
            if self._complaints.get(what) != str(error):
                self._complaints[what] = str(error)
                is_known = isinstance(error, MemfilesError)
                _log.warning("the prompt of agent %s lacks %s: %s", self.agent, what, error, exc_info=not is_known)
        else:
            self._complaints.pop(what, None)
        return made

    def close(self) -> None:
        """End the session: further tool calls are error results. May be called again.

        What belongs to its run alone is removed; where that fails, it is left to expire.
        """
        with self._changing:
            was_closed, self._closed = self._closed, True
        if self._entries is None or not self._entries.ends_run or was_closed:
            return
        try:
            self._entries.entries.end_run(self)
        except MemfilesError as error:
            _log.warning("what belongs to run %s alone was not removed, and expires: %s", self.provenance.run, error)

    def check_open(self) -> None:
        """Return if the session can be used, else raise ``InvalidArgument``."""
        if self._closed:
            raise InvalidArgument(f"this session of agent {self.agent} is closed; ask the memory for a new one")


def recorded_id(call_id: str | None) -> str | None:
    """A call's id as it stands in a history: itself, or its digest where a gateway packed kilobytes into it."""
    if isinstance(call_id, str) and len(call_id) > LABEL_MAX_BYTES:
        return "sha256:" + hashlib.sha256(call_id.encode(errors="replace")).hexdigest()
    check_label(call_id or None, what="call_id")
    return call_id or None


def check_label(text: object, *, what: str) -> None:
    """Refuse what cannot stand in a history as who made a change: 1 to 255 bytes without control characters can."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} must be text, not {type(text).__name__}")
    size = len(text.encode(errors="replace"))
    if not 1 <= size <= LABEL_MAX_BYTES:
        raise InvalidArgument(f"{what} is {size} bytes long; 1 to {LABEL_MAX_BYTES} are allowed")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in text):
        raise InvalidArgument(f"{what} holds a control character or half of a surrogate pair")
