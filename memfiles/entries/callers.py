"""Callers: whose memory is used, which partitions of entries they see, and the trace of each of their calls.

The rules this file guards:

- Every read and every write of entries asks here, and nowhere else, which partitions to look in, so a hidden entry is
  hidden everywhere. For one key the highest visible level shadows the others; at one level an entry of the run shadows
  the user's, that one the agent's, and that one the entry that all agents share.
- A read influences evictions only at the reader's own level and among the entries of its user, or of its agent if it
  has no user, so that no session learns from an eviction of a read that it may not know of.
- An agent that may only read entries changes none, whoever calls for it.
- A session that has a user writes nothing that other users see, unless the entry's category says so. An entry that is
  there already, hidden or not, is changed, replaced or evicted only if its own category says so.
  The entry then holds the user's epoch, so that it goes when the user is forgotten.
- A span and an audit event say whose session it was and which operation; they never hold content, keys or the text of
  an error. A program that does not trace pays nothing: OpenTelemetry is not imported here unless it already is.

Source of the span names: the OpenTelemetry semantic conventions for generative AI, memory operations (in development).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from memfiles.entries.drafts import Category, EntryRules
from memfiles.errors import InvalidArgument, MemfilesError, ReadOnly
from memfiles.records import NamedTuple
from memfiles.records.entry import FACETS, MAX_AUTHORS, Entry, Scope
from memfiles.records.keys import (
    WORKSPACE,
    check_user,
    entry_path,
    entry_place,
    entry_uid,
    id_path,
    scope_folder,
    user_hash,
)
from memfiles.records.levels import Levels
from memfiles.records.marks import EntryRecord, is_tombstone
from memfiles.records.record import Actor
from memfiles.secrets.gate import check_label

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from memfiles.storage.events import AuditLog
    from memfiles.storage.record_store import Records

SpanOperation = Literal["search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"]

_OPERATIONS: dict[str, SpanOperation] = {
    **dict.fromkeys(("save", "import"), "upsert_memory"),
    **dict.fromkeys(("update", "undo", "relocate", "restore", "consolidate"), "update_memory"),
    **dict.fromkeys(("delete", "forget"), "delete_memory"),
    **dict.fromkeys(("get", "search", "list", "hydrate", "recall"), "search_memory"),
    **dict.fromkeys(("log", "diff", "deleted", "tombstones"), "search_memory"),
}
_NULL_SPAN = nullcontext()
_ATTRIBUTES = {
    "store": "gen_ai.memory.store.id",
    "record": "gen_ai.memory.record.id",
    "count": "gen_ai.memory.record.count",
    "agent": "gen_ai.agent.name",
    "conversation": "gen_ai.conversation.id",
    "level": "memfiles.level",
    "outcome": "memfiles.outcome",
}


class SessionProvenance(Struct, frozen=True):
    """The origin of a session's changes. The history records ``run`` as the session of a change, and ``actor``.

    ``user`` is the person whom the agent works for, None if it works for nobody in particular. ``epoch`` is the user's
    now; left out, it is the one before the user was ever forgotten.
    """

    agent: str
    run: str | None = None
    channel: str | None = None
    thread: str | None = None
    actor: str | None = None
    user: str | None = None
    epoch: str = ""

    def __post_init__(self) -> None:
        for what in ("agent", "run", "channel", "thread", "actor"):
            check_label(getattr(self, what), what=what)
        if self.user is not None:
            check_user(self.user)
            force_setattr(self, "epoch", self.epoch or user_hash(self.user))


class Caller(Protocol):
    """The session whose memory is read or written; ``session.Session`` is one, a layer above."""

    @property
    def level(self) -> str:
        """The level at this moment."""

    @property
    def provenance(self) -> SessionProvenance:
        """The origin of its changes."""

    @property
    def is_brief(self) -> bool:
        """Whether it is one command, which leaves it to others to erase what is due."""

    def actor(self, call_id: str | None) -> Actor:
        """The author of the call of that id; ``InvalidArgument`` if the id cannot be recorded."""

    def check_open(self) -> None:
        """``InvalidArgument`` once the session is closed: its run may be over, and a save would belong to nobody."""


class Operator(Struct, frozen=True):
    """The operator of the directory, as the caller of one change of an entry at its own level. Never a session."""

    level: str
    provenance: SessionProvenance
    by: Actor
    is_brief: bool = False

    @classmethod
    def of(cls, entry: Entry, *, by: Actor) -> Operator:
        """The operator who may change this entry, and none that would shadow it."""
        return cls(entry.level, SessionProvenance(entry.agent, user=entry.user or None, epoch=entry.epoch), by)

    def actor(self, call_id: str | None) -> Actor:
        """See ``Caller``."""
        return self.by

    def check_open(self) -> None:
        """See ``Caller``; nothing is closed."""


_parts_of = attrgetter("level", "provenance", "is_brief", "actor", "check_open")


def check_caller(caller: Caller, *, may_be_closed: bool = False) -> None:
    """Refuse an object that is not a session, and a closed session: ``InvalidArgument``."""
    try:
        _parts_of(caller)
    except AttributeError:
        raise InvalidArgument(
            f"the first argument must be a session, such as memory.session('support'), not {type(caller).__name__}"
        ) from None
    if not may_be_closed:
        caller.check_open()


def check_remembered(caller: Caller, records: Mapping[str, EntryRecord | None]) -> None:
    """Refuse a session whose user was forgotten since it began, as these records say: ``InvalidArgument``."""
    epoch = caller.provenance.epoch
    if epoch and is_tombstone(records[id_path(epoch)]):
        raise InvalidArgument("the user of this session was forgotten: ask the memory for a new session")


def was_forgotten(epoch: str, records: Callable[[], Records]) -> bool:
    """Whether the first epoch of a user is over; no if the records cannot be asked, as each save asks them itself."""
    with suppress(MemfilesError):
        return records().signature(id_path(epoch)) is not None
    return False


class Partition(NamedTuple):
    """Entries that the same sessions see: in one folder, at one level, of one run ("": of no run alone)."""

    folder: str
    level: str
    run: str

    def path(self, key: str) -> str:
        """The path of the entry of that key in this partition."""
        return entry_path(self.folder, entry_uid(self.folder, self.level, key, self.run))


View = tuple[Partition, ...]
Scopes = Mapping[Scope, Partition]
"""The partitions of a caller at one level, the shadowing ones first; without a run or a user, none of it."""


def view_of(caller: Caller, levels: Levels) -> View:
    """The partitions that the caller sees at its present level, the shadowing ones first."""
    origin = caller.provenance
    return _view(origin.agent, origin.user or "", caller.level, origin.run or "", levels)


def own_level(caller: Caller, level: str | None = None) -> Scopes:
    """The partitions of the caller at exactly its level, or at another one; ``EntryRules`` says which it may write."""
    origin = caller.provenance
    return _at(origin.agent, origin.user or "", caller.level if level is None else level, origin.run or "")


def user_of(caller: Caller) -> tuple[str, str]:
    """The name and the epoch of the caller's user, both "" if it has none."""
    return caller.provenance.user or "", caller.provenance.epoch


def home_scope(own: Scopes) -> Literal["user", "agent"]:
    """The scope to which a session saves: its user's, or its agent's if it has no user."""
    return "user" if "user" in own else "agent"


def scope_for(own: Scopes, category: Category) -> Scope:
    """The scope to which a session with these partitions saves entries of a category.

    ``InvalidArgument`` if the session has no such scope, ``ReadOnly`` if others would see what its user says.
    """
    scope = category.scope or home_scope(own)
    if scope not in own:
        raise InvalidArgument(
            f"category {category.name} belongs to a {scope}, and this session has none: use another category, or none "
            f"(a program names the {scope} when it asks for the session)"
        )
    if _is_for_others(own, own[scope].folder) and not category.from_users:
        raise ReadOnly(
            f"entries of category {category.name} are seen by other users, and this session is for one user: use "
            f"another category, or none (a workflow can allow it with from_users: true)"
        )
    return scope


def is_writable(own: Scopes, entry: Entry, *, rules: EntryRules) -> bool:
    """Whether a session with these partitions may change one of its entries: other users may not learn of it."""
    return not _is_for_others(own, entry.folder) or rules.category(entry.category).from_users


def check_writable(own: Scopes, entry: Entry, *, rules: EntryRules) -> None:
    """Raise ``ReadOnly`` unless ``is_writable``."""
    if not is_writable(own, entry, rules=rules):
        seen = "is seen" if entry.retired is None else "was seen"
        raise ReadOnly(
            f"{ascii(entry.key[:80])} {seen} by other users, and this session is for one user: save what is new under "
            f"this key without a category, for this user alone (a workflow can allow changes of category "
            f"{entry.category} with from_users: true)"
        )


def check_changes(own: Scopes, before: Mapping[str, object], after: Mapping[str, object], *, rules: EntryRules) -> None:
    """Raise ``ReadOnly`` if one of the records ``before``, by path, differs ``after`` and was not writable."""
    for path, record in before.items():
        if isinstance(record, Entry) and after[path] is not record:
            check_writable(own, record, rules=rules)


def writable_categories(own: Scopes, folder: str, *, rules: EntryRules) -> frozenset[str] | None:
    """The categories in this folder whose entries a session with these partitions may change; None: all."""
    if not _is_for_others(own, folder):
        return None
    return frozenset(category.name for category in rules.categories.values() if category.from_users)


def sign_written(
    caller: Caller, before: Mapping[str, EntryRecord | None], after: dict[str, EntryRecord | None]
) -> Collection[str]:
    """Note the epoch of the caller's user in the changed entries that others see; returns the paths of all changes.

    Hiding an entry, or saying whether it was of use, is not writing. ``InvalidArgument`` for too many authors.
    """
    changed = dict.fromkeys(path for path, record in after.items() if record is not before.get(path))
    for path in changed if (epoch := caller.provenance.epoch) else ():
        entry, was = after[path], before.get(path)
        if not isinstance(entry, Entry) or entry.user or epoch in entry.authors:
            continue
        if isinstance(was, Entry) and was.id == entry.id and _written(was) == _written(entry):
            continue
        if len(entry.authors) >= MAX_AUTHORS:
            raise InvalidArgument(f"{MAX_AUTHORS} users wrote {ascii(entry.key[:80])} already: save under another key")
        after[path] = entry.amended(authors=tuple(sorted((*entry.authors, epoch))))
    return changed


def _written(entry: Entry) -> tuple[object, ...]:
    return entry.content, entry.provenance.user, *(getattr(entry, facet.name) for facet in FACETS)


def _is_for_others(own: Scopes, folder: str) -> bool:
    """Whether a session with these partitions has a user, and other users see the entries in this folder."""
    return "user" in own and folder != own["user"].folder


def is_seen(view: View, entry: Entry) -> bool:
    """Whether the view holds the place of an entry."""
    return any((place.folder, place.level, place.run) == (entry.folder, entry.level, entry.run) for place in view)


def is_in_view(view: View, path: str, *, key: str, level: str) -> bool:
    """Whether the view holds the record of ``key`` at ``path``; without a key, whether it may hold it."""
    if key:
        return any(partition.path(key) == path for partition in view)
    return (place := entry_place(path)) is not None and any(each[:2] == (place[0], level) for each in view)


def is_among(path: str, view: View) -> bool:
    """Whether a record is in a folder of the view; the folder of an agent has below it those of its users."""
    return (place := entry_place(path)) is not None and any(place[0] == each.folder for each in view)


def is_read_counted(caller: Caller, path: str, *, level: str) -> bool:
    """Whether a read of the entry at ``path`` may influence evictions: no other level, user or agent may notice it."""
    place, origin = entry_place(path), caller.provenance
    return place is not None and level == caller.level and place[0] == _home_folder(origin.agent, origin.user or "")


@lru_cache(maxsize=1024)
def _view(agent: str, user: str, level: str, run: str, levels: Levels) -> View:
    return tuple(each for name in levels.readable(session=level) for each in _at(agent, user, name, run).values())


@lru_cache(maxsize=1024)
def _at(agent: str, user: str, level: str, run: str) -> Scopes:
    home = _home_folder(agent, user)
    scopes: dict[Scope, Partition] = {"run": Partition(home, level, run)} if run else {}
    if user:
        scopes["user"] = Partition(home, level, "")
    scopes["agent"] = Partition(scope_folder(agent), level, "")
    scopes["workspace"] = Partition(WORKSPACE, level, "")
    return MappingProxyType(scopes)


def _home_folder(agent: str, user: str) -> str:
    return scope_folder(agent, user_hash(user))


class OperationSpan:
    """One operation of a session: a span for the tracer, and a denial in the audit log if it is refused.

    A class and not a generator, because every read comes through here.
    """

    __slots__ = ("_audit", "_caller", "_op", "_span")

    def __init__(
        self, audit: AuditLog | None, op: str, caller: Caller, *, store: str, readers: Collection[str] = ()
    ) -> None:
        """``store`` names the memory in spans; ``readers`` are the agents that may only read.

        ``InvalidArgument`` if the session is closed, ``ReadOnly`` if a reader would change something.
        """
        check_caller(caller)
        self._audit = audit
        self._op = op
        self._caller = caller
        origin = caller.provenance
        if origin.agent in readers and _OPERATIONS[op] != "search_memory":
            refusal = ReadOnly(
                f"agent {origin.agent} may only read entries, as the workflow says (entries: r); nothing was changed"
            )
            self._note(refusal)
            raise refusal
        self._span = span(
            _OPERATIONS[op],
            store=store,
            agent=origin.agent,
            conversation=origin.thread or origin.run,
            level=caller.level,
        )

    def __enter__(self) -> None:
        self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, trace)
        if error is not None:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        if self._audit is not None:
            self._audit.record_refusal(error, self._op, by=self._caller.actor(None), level=self._caller.level)


def span(operation: SpanOperation, **attributes: str | int | None) -> AbstractContextManager[None]:
    """A span around one operation; an error that passes through it is marked by its code alone.

    Attributes: ``store`` (the memory directory's or workflow's name), ``record`` (a record's uid), ``count`` (records
    stored or found), ``agent``, ``conversation`` (the thread or run), ``level`` and ``outcome``. Others are a
    ``KeyError`` when a tracer is set up; None is left out.
    """
    if (api := sys.modules.get("opentelemetry.trace")) is None:
        return _NULL_SPAN
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return _NULL_SPAN
    return _traced(provider, operation, attributes)


@contextmanager
def _traced(
    provider: TracerProvider, operation: SpanOperation, attributes: Mapping[str, str | int | None]
) -> Iterator[None]:
    """A span of the tracer that the program set up."""
    from opentelemetry.trace import SpanKind, StatusCode

    named = {_ATTRIBUTES[name]: value for name, value in attributes.items() if value is not None}
    with provider.get_tracer("memfiles").start_as_current_span(
        operation,
        kind=SpanKind.INTERNAL,
        attributes={"gen_ai.operation.name": operation, **named},
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield
        except BaseException as error:  # its message may quote content, so only its code is recorded
            code = error.code if isinstance(error, MemfilesError) else type(error).__name__
            current.set_attribute("error.type", code)
            current.set_status(StatusCode.ERROR)
            raise
