"""Overview page: what needs attention, how full the budgets are, and how the memory grew."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct
from starlette.responses import Response

from memfiles.errors import RecordCorrupt, StorageFailed
from memfiles.inspector.view import PAGE_ROWS, PageView, Route, pager, rows_before
from memfiles.records.file_changes import share_of
from memfiles.records.record import Change
from memfiles.tools.oversight import Activity, Stats
from memfiles.workflow.workflow import MemoryFile

SPANS = {"24h": ("hour", 24), "30d": ("day", 30), "90d": ("day", 90)}


class FileRow(Struct, frozen=True):
    """A file in the list; ``last`` is its last change, None if it has no history."""

    file: MemoryFile
    level: str
    size_bytes: int = 0
    revision: int = 0
    share: float = 0.0
    last: Change | None = None
    problem: str | None = None


class Bar(Struct, frozen=True):
    """A period in a chart: its label, its value and how high that is, as a share of the highest."""

    at: str
    value: int
    height: float


def overview(view: PageView) -> Response:
    """The files, budgets and mirror, and what a person should look at."""
    inspected, wanted, begin = view.inspected, view.chosen("name"), rows_before(view)
    files = [file for file in inspected.files() if wanted is None or wanted.lower() in file.name.lower()]
    rows = [_row(view, file) for file in files[begin : begin + PAGE_ROWS]]
    found = inspected.memory.stats(None, level=inspected.ceiling)
    return view.render(
        "overview.html",
        stats=found,
        sync=inspected.memory.sync.status(),
        rows=rows,
        count=len(files),
        **pager(view, "/", is_more=begin + PAGE_ROWS < len(files), name=wanted),
        provisional=sum(card.provisional for card in found.files),
        wanted=wanted or "",
    )


def activity(view: PageView) -> Response:
    """Growth and writes over time; not part of the overview, as it reads the whole audit."""
    span = view.chosen("span") or "30d"
    every, count = SPANS.get(span, SPANS["30d"])
    found = view.inspected.memory.stats(span if span in SPANS else "30d", every=every, level=view.inspected.ceiling)  # type: ignore[arg-type]
    periods = _whole(found, count)
    charts = {
        "Writes": _bars([(it.at, it.writes) for it in periods]),
        "Refused": _bars([(it.at, it.refused) for it in periods]),
        "Content": _bars(_sizes(found, periods)),
    }
    if any(it.reads for it in periods):
        charts["Reads"] = _bars([(it.at, it.reads) for it in periods])
    return view.render("activity.html", stats=found, charts=charts, span=span, spans=SPANS, every=every)


def _row(view: PageView, file: MemoryFile) -> FileRow:
    level = file.level or view.inspected.memory.workflow.levels.lowest
    if file.per is not None:
        return FileRow(file, level)
    try:
        record = view.inspected.file(file.uid)
    except (RecordCorrupt, StorageFailed) as error:
        return FileRow(file, level, problem=str(error))
    share, last = share_of(record.max_size_bytes, used=record.size_bytes), next(reversed(record.history), None)
    return FileRow(file, level, record.size_bytes, record.revision, share, last)


def _whole(found: Stats, count: int) -> list[Activity]:
    """All periods up to now, oldest first, including those without events."""
    step = timedelta(hours=1) if found.every == "hour" else timedelta(days=1)
    known = {it.at: it for it in found.periods}
    begin = datetime.fromisoformat(found.since).replace(minute=0, second=0, microsecond=0)
    begin = begin if found.every == "hour" else begin.replace(hour=0)
    moments = [(begin + number * step).strftime("%Y-%m-%dT%H:%M:%S.000Z") for number in range(count + 1)]
    return [known.get(moment, Activity(moment, 0, 0, 0, 0)) for moment in moments]


def _sizes(found: Stats, periods: list[Activity]) -> list[tuple[str, int]]:
    """The size at the end of each period, counted back from what there is now."""
    size, sizes = found.size_bytes, list[tuple[str, int]]()
    for period in reversed(periods):
        sizes.insert(0, (period.at, max(0, size)))
        size -= period.bytes
    return sizes


def _bars(values: list[tuple[str, int]]) -> list[Bar]:
    most = max((value for _, value in values), default=0) or 1
    return [Bar(at, value, round(value / most, 4)) for at, value in values]


ROUTES: tuple[Route, ...] = (("GET", "/", overview), ("GET", "/activity", activity))
