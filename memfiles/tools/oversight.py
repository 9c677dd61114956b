"""Oversight: the operator's audit and statistics of a memory, across all agents, users and levels.

The rule this file guards: no session can reach it, and it returns neither content nor the key of an entry.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins

from memfiles.errors import InvalidArgument
from memfiles.records.file_changes import WARN_SHARE, FileCard, share_of
from memfiles.records.keys import ENTRIES, USERS, check_user, check_whole, scope_folder, user_hash
from memfiles.records.record import check_text
from memfiles.storage import quarantine
from memfiles.storage.audit_reader import AuditFilter, AuditReader, AuditTrail
from memfiles.storage.events import OUTCOMES, AuditEvent, utc_now
from memfiles.sync.status import SyncStatus, kept_in
from memfiles.workflow.fields import moment_in
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.files.restore_report import RestoreReport
    from memfiles.index.database import Counted

AUDITED_MAX = 10_000
"""The most events of the audit that are returned at once."""

EVERY = ("hour", "day")
_SUMMED = ("entries", "size_bytes", "expired", "retired")
_SHOWN = {"hour": (13, ":00:00.000Z"), "day": (10, "T00:00:00.000Z")}  # how much of a time names its period


class EntryStats(Struct, frozen=True):
    """The entries of one agent (``@workspace``: of all) at one level; sizes are UTF-8 bytes of content.

    ``users`` is how many users have some of them. ``share`` is that of the fullest budget, as each user and each run
    has one of its own.
    """

    agent: str
    level: str
    users: int
    entries: int
    size_bytes: int
    expired: int
    retired: int
    share: float


class Activity(Struct, frozen=True):
    """The numbers of events in the period that begins ``at`` a time; ``bytes`` is the growth of the content."""

    at: str
    writes: int
    reads: int
    refused: int
    bytes: int


class Attention(Struct, frozen=True):
    """Something for a person to look at, and what to do: it fails now (``bad``), or soon will (``warn``).

    ``name`` is that of the file, the agent or the mirror that it is ``about``, else "".
    """

    state: Literal["bad", "warn"]
    about: Literal["file", "entries", "mirror", "conflicts", "quarantine"]
    name: str
    text: str


class Stats(Struct, frozen=True):
    """How much a memory holds, and its activity ``since`` a time, from the audit; "" if no activity was asked for.

    ``attention`` is what a person should look at, the worst first. ``periods`` come newest first, without those that
    have no events; reads are in the audit only if the workflow says so. ``damaged`` counts lines of the audit that
    could not be read.
    """

    since: str
    every: str
    files: tuple[FileCard, ...]
    entries: tuple[EntryStats, ...]
    periods: tuple[Activity, ...]
    damaged: int = 0
    attention: tuple[Attention, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The content of all files and entries."""
        return sum(each.size_bytes for each in self.files) + sum(each.size_bytes for each in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with every field."""
        shown: dict[str, Any] = to_builtins(self)
        return shown | {"size_bytes": self.size_bytes}


def audited(
    workflow: Workflow,
    *,
    since: str | datetime | None,
    until: str | datetime | None,
    limit: int,
    user: str | None,
    record: str | None,
    outcome: str | None,
    level: str | None = None,
    **same: str | None,
) -> AuditTrail:
    """See ``Memory.audit``."""
    check_whole(limit, what="limit", least=1, most=AUDITED_MAX)
    if record is not None:
        check_text(record, what="record")
    if outcome not in (None, *OUTCOMES):
        raise InvalidArgument(f"outcome must be one of {', '.join(OUTCOMES)}")
    page, seen = until, None
    if isinstance(until, str) and (marked := re.fullmatch(r"(.*Z)#(\d{1,9})", until, re.ASCII)) is not None:
        page, seen = marked[1], int(marked[2])
    now, uids = utc_now(), {file.name: file.uid for file in workflow.memory.files}
    wanted = AuditFilter(
        since=moment_in(since, what="since", now=now) if since is not None else "",
        until=moment_in(page, what="until", now=now) if page is not None else "",
        seen=seen,
        user=user_hash(check_user(user)) if user is not None else None,
        records=(*{record, uids.get(record, record)},) if record is not None else (),
        levels=workflow.levels.names,
        readable=_readable(workflow, level),
        outcome=outcome,
        **same,
    )
    return AuditReader(workflow.place, wanted).trail(limit=limit)


def stats(
    workflow: Workflow,
    files: Iterable[FileCard],
    entries: Sequence[Counted],
    problems: Mapping[str, str],
    *,
    since: str | datetime | None,
    every: str,
    level: str | None = None,
    report: RestoreReport,
    sync: SyncStatus,
) -> Stats:
    """See ``Memory.stats``; ``problems`` are those of files by uid and of entries by path."""
    if every not in EVERY:
        raise InvalidArgument(f"every must be one of {', '.join(EVERY)}")
    start = moment_in(since, what="since", now=utc_now()) if since is not None else ""
    readable, place = _readable(workflow, level), {file.uid: at for at, file in enumerate(workflow.memory.files)}
    reader = AuditReader(workflow.place, AuditFilter(since=start, readable=readable))
    periods = _periods(reader.events(), every) if start else ()
    cards = [each for each in files if readable is None or each.level in readable]
    cards.sort(key=lambda card: place.get(card.uid, 0))
    by_agent = _by_agent(workflow, [each for each in entries if readable is None or each.level in readable])
    quarantined = len(kept_in(workflow.place, quarantine.FOLDER))
    found = [*_unread(workflow, problems, readable), *_attention(cards, report, by_agent, sync, quarantined)]
    found.sort(key=lambda it: it.state)
    return Stats(start, every, tuple(cards), by_agent, periods, reader.damaged, tuple(found))


def _periods(events: Iterable[AuditEvent], every: str) -> tuple[Activity, ...]:
    """How many events of each kind each period has, newest first."""
    length, rest = _SHOWN[every]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        is_read = event.paths is not None or event.op == "export"
        kind = "refused" if event.outcome != "ok" else "reads" if is_read else "writes"
        counted = counts[event.at[:length] + rest]
        counted[kind] += event.op not in ("resolve", "close")  # the changes that it made have events of their own
        counted["bytes"] += event.bytes or 0
    return tuple(
        Activity(at, it["writes"], it["reads"], it["refused"], it["bytes"])
        for at, it in sorted(counts.items(), reverse=True)
    )


def _unread(workflow: Workflow, problems: Mapping[str, str], readable: Sequence[str] | None) -> Iterator[Attention]:
    """The records that cannot be read: every memory file, and one of the entries."""
    for file in workflow.memory.files:
        if file.uid in problems and (readable is None or (file.level or workflow.levels.lowest) in readable):
            yield Attention("bad", "file", file.name, problems[file.uid])
    entries = [why for path, why in problems.items() if path.startswith(f"{ENTRIES}/")]  # and of their folders
    if entries and readable is None:  # else their level, and so whether they may be seen, is unknown
        more = f"; and {len(entries) - 1} more" if len(entries) > 1 else ""
        yield Attention("bad", "entries", "", f"an entry cannot be read: {entries[0]}{more}")


def _attention(
    files: Sequence[FileCard], report: RestoreReport, entries: Sequence[EntryStats], sync: SyncStatus, quarantined: int
) -> Iterator[Attention]:
    quarantined_files = {it.uid: it for it in report.files if it.status == "quarantined"}
    for card in files:
        share = share_of(card.max_size_bytes, used=card.size_bytes)
        if share >= WARN_SHARE:
            size = f"{card.size_bytes} of {card.max_size_bytes} bytes are used"
            yield Attention("bad" if share >= 1 else "warn", "file", card.name, f"{size}: shorten it, or raise its cap")
        if (row := quarantined_files.get(card.uid)) is not None:
            yield Attention("warn", "file", card.name, f"it was quarantined at the start: {row.detail}")
        if card.provisional:
            why = "it was made from its declaration, as the mirror has not answered yet"
            yield Attention("warn", "file", card.name, f"{why}; it is merged with the mirror's copy once it does")
    for it in entries:
        if it.share >= WARN_SHARE:
            used = f"at level {it.level} {it.share:.0%} of a budget is used"
            yield Attention("warn", "entries", it.agent, f"{used}: consolidate, or entries will be evicted")
    if sync.last_error:
        pending = f"{_changes(sync.pending)} waiting, the oldest for {sync.lag_seconds:.0f} s"
        yield Attention("bad", "mirror", sync.mirror or "", f"{sync.last_error}; {pending}")
    if sync.refused:
        why = f"objects that do not verify and are not used: {len(sync.refused)}"
        yield Attention("bad", "mirror", sync.mirror or "", why)
    if sync.conflicts:
        yield Attention("bad", "conflicts", "", f"{_changes(len(sync.conflicts))} could not be merged: settle it")
    if quarantined:
        records = "1 record" if quarantined == 1 else f"{quarantined} records"
        yield Attention("warn", "quarantine", "", f"{records} could not be read; see memfiles doctor")


def _changes(number: int) -> str:
    return "1 change" if number == 1 else f"{number} changes"


def _readable(workflow: Workflow, level: str | None) -> Sequence[str] | None:
    return None if level is None else workflow.levels.readable(session=level)


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
