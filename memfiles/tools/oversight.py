"""Oversight: what the operator of a memory sees of all agents, users and levels: its audit, and its statistics.

The rule this file guards: no session can reach it, and it returns neither content nor the key of an entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memfiles.errors import InvalidArgument
from memfiles.records.file_changes import FileCard
from memfiles.records.keys import USERS, check_user, check_whole, scope_folder, user_hash
from memfiles.storage.audit_reader import AuditFilter, AuditReader, AuditTrail
from memfiles.storage.events import OUTCOMES, utc_now
from memfiles.workflow.fields import moment_in
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.index.database import Counted

AUDITED_MAX = 10_000
"""The most events of the audit that are returned at once."""

EVERY = ("hour", "day")
_SUMMED = ("entries", "size_bytes", "expired", "retired")
_SHOWN = {"hour": (13, ":00:00.000Z"), "day": (10, "T00:00:00.000Z")}  # how much of a time names its period


@dataclass(frozen=True, slots=True)
class EntryStats:
    """The entries of one agent (``@workspace``: of all) at one level; sizes are UTF-8 bytes of content.

    ``users`` is how many users have some of them. ``share`` is how much of a budget is used where it is used most, as
    each user and each run has one of its own.
    """

    agent: str
    level: str
    users: int
    entries: int
    size_bytes: int
    expired: int
    retired: int
    share: float


@dataclass(frozen=True, slots=True)
class Activity:
    """What was done in the period that begins ``at`` then; ``bytes`` is by how much the content grew."""

    at: str
    writes: int
    reads: int
    refused: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """How much a memory holds, and what was done in it ``since`` then, as the audit has it.

    Periods in which nothing was done are left out of ``periods``, which come newest first; reads are in the audit only
    where the workflow says so. ``damaged`` counts lines of the audit that could not be read.
    """

    since: str
    every: str
    files: tuple[FileCard, ...]
    entries: tuple[EntryStats, ...]
    periods: tuple[Activity, ...]
    damaged: int = 0

    @property
    def size_bytes(self) -> int:
        """The content of all files and entries."""
        return sum(each.size_bytes for each in self.files) + sum(each.size_bytes for each in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self) | {"size_bytes": self.size_bytes}


def audited(
    workflow: Workflow,
    *,
    since: str | datetime | None,
    until: str | datetime | None,
    limit: int,
    user: str | None,
    record: str | None,
    outcome: str | None,
    **same: str | None,
) -> AuditTrail:
    """See ``Memory.audit``."""
    check_whole(limit, what="limit", least=1, most=AUDITED_MAX)
    if outcome not in (None, *OUTCOMES):
        raise InvalidArgument(f"outcome must be one of {', '.join(OUTCOMES)}")
    now, uids = utc_now(), {file.name: file.uid for file in workflow.memory.files}
    wanted = AuditFilter(
        since=moment_in(since, what="since", now=now) if since is not None else "",
        until=moment_in(until, what="until", now=now) if until is not None else "",
        user=user_hash(check_user(user)) if user is not None else None,
        records=(record, uids.get(record, record)) if record is not None else (),
        levels=workflow.levels.names,
        outcome=outcome,
        **same,
    )
    return AuditReader(workflow.directory, wanted).trail(limit=limit)


def stats(
    workflow: Workflow, files: Iterable[FileCard], entries: Sequence[Counted], *, since: str | datetime, every: str
) -> Stats:
    """See ``Memory.stats``."""
    if every not in EVERY:
        raise InvalidArgument(f"every must be one of {', '.join(EVERY)}")
    start = moment_in(since, what="since", now=utc_now())
    reader, (length, rest) = AuditReader(workflow.directory, AuditFilter(since=start)), _SHOWN[every]
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for event in reader.events():
        is_read = event.paths is not None or event.op == "export"
        column = 2 if event.outcome != "ok" else 1 if is_read else 0
        counted = counts[event.at[:length] + rest]
        counted[column] += event.op not in ("resolve", "close")  # the changes that it made have events of their own
        counted[3] += event.bytes or 0
    periods = tuple(Activity(at, *counts[at]) for at in sorted(counts, reverse=True))
    return Stats(start, every, tuple(files), _by_agent(workflow, entries), periods, reader.damaged)


def _by_agent(workflow: Workflow, entries: Sequence[Counted]) -> tuple[EntryStats, ...]:
    names, spec = {scope_folder(agent): agent for agent in workflow.agents}, workflow.memory.entries
    groups: dict[tuple[str, str], list[Counted]] = defaultdict(list)
    for each in entries:
        folder = each.folder.removesuffix(f"/{USERS}")
        groups[names.get(folder, folder), each.level].append(each)
    found = []
    for (agent, level), group in sorted(groups.items()):
        totals: dict[str, int] = {name: sum(getattr(each, name) for each in group) for name in _SUMMED}
        users = sum(it.users for it in group)
        shares = [(it.most_entries / spec.max_entries, it.most_bytes / spec.max_bytes) for it in group] if spec else []
        found.append(EntryStats(agent, level, users, share=round(max(map(max, shares), default=0.0), 4), **totals))
    return tuple(found)
