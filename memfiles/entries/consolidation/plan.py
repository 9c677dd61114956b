"""The plan of a consolidation: a value that is shown before it is applied.

The rules this file guards: a plan names every entry at its revision, so that it is not applied to entries that changed
since; it destroys nothing that it hides; and it is undone by its id, which every changed entry carries. How often an
entry was read decides which of two equals goes, but reading it meanwhile does not outdate the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from memfiles.entries.budgets import Tally
from memfiles.errors import InvalidArgument
from memfiles.records.entry import GENERAL, MAX_SOURCES, EntryId
from memfiles.records.keys import entry_uid
from memfiles.records.record import Revision, Timestamp

_CONFIG = ConfigDict(strict=True, hide_input_in_errors=True, extra="forbid")
Action = Literal["merge", "fold", "drop_vectors", "evict"]
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An entry at the revision that a step was planned for."""

    __pydantic_config__ = _CONFIG

    uid: str
    key: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class SummaryNote:
    """A note that a step saves; there must be no live entry of its key. ``run`` is set if it belongs to one run alone.

    ``made_of`` are the ids of all entries that it sums up.
    """

    __pydantic_config__ = _CONFIG

    key: str
    content: str
    run: str = ""
    tags: Labels = ()
    links: Labels = ()
    category: str = GENERAL
    importance: float = 0.5
    confidence: float = 1.0
    expires_at: Timestamp | None = None
    made_of: Annotated[tuple[EntryId, ...], Field(max_length=MAX_SOURCES)] = ()

    @property
    def size_bytes(self) -> int:
        """The size of its content in UTF-8 bytes."""
        return len(self.content.encode())


@dataclass(frozen=True, slots=True)
class Step:
    """One step, which happens as a whole or not at all.

    - ``merge``: the ``survivor`` gets the ``tags`` and ``links``, its own and those of the ``retired``;
    - ``fold``: the ``note`` replaces the ``retired``;
    - ``drop_vectors``: the vectors of ``about`` are removed from the index; no record changes;
    - ``evict``: the ``retired`` are hidden.

    ``freed`` is by how much the visible entries become fewer and smaller.
    """

    __pydantic_config__ = _CONFIG

    action: Action
    why: str
    retired: tuple[Named, ...] = ()
    survivor: Named | None = None
    tags: Labels = ()
    links: Labels = ()
    note: SummaryNote | None = None
    about: tuple[Named, ...] = ()
    freed: Tally = Tally()

    @property
    def state(self) -> Literal["deleted", "evicted"]:
        """The state of the retired entries afterwards, with the plan's id as the cause."""
        return "evicted" if self.action == "evict" else "deleted"

    @property
    def named(self) -> tuple[Named, ...]:
        """All entries that must still be at their revisions."""
        return (*self.retired, *((self.survivor,) if self.survivor else ()), *self.about)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that bring the entries of one folder and level within their budget, in order of least destruction.

    ``is_enough``: whether they do; entries that are being saved are never given up for it.
    """

    __pydantic_config__ = _CONFIG

    id: Annotated[str, Field(min_length=1, max_length=64)]
    made_at: Timestamp
    folder: str
    level: str
    before: Tally
    after: Tally
    is_enough: bool = True
    steps: tuple[Step, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids to lock for applying it, sorted: named entries and notes."""
        named = {named.uid for step in self.steps for named in step.named}
        return tuple(sorted(named | {self.uid_of(step.note) for step in self.steps if step.note}))

    def uid_of(self, note: SummaryNote) -> str:
        """The uid of one of its notes."""
        return entry_uid(self.folder, self.level, note.key, note.run)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, from which ``plan_from`` makes the same plan."""
        return asdict(self)


def changed_since(plan: Plan, *, revision_of: Callable[[str], int | None]) -> list[str]:
    """The keys of the entries that make a plan out of date; asked under the locks of all ``plan.uids``.

    ``revision_of`` gives the revision of the live entry of a uid, None if there is none.
    """
    named = {named.uid: named for step in plan.steps for named in step.named}
    changed = [each.key for each in named.values() if revision_of(each.uid) != each.revision]
    notes = (step.note for step in plan.steps if step.note is not None)
    return [*changed, *(note.key for note in notes if revision_of(plan.uid_of(note)) is not None)]


_READER = TypeAdapter(Plan)


def plan_from(document: object) -> Plan:
    """The plan in a JSON object; ``InvalidArgument`` names the place of the first problem."""
    try:
        return _READER.validate_json(to_json(document))
    except PydanticSerializationError:
        raise InvalidArgument("invalid plan: not JSON-serialisable") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise InvalidArgument(f"invalid plan: {where}: {first['msg']}") from None
