"""What ``memfiles doctor`` looks at in the entries: every record is read, and nothing is written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from memfiles.cli import output
from memfiles.cli.doctor.directory_checks import CheckResult, names_in
from memfiles.errors import RecordCorrupt
from memfiles.index.database import PATH as INDEX
from memfiles.records.entry import Entry, EntryRecord
from memfiles.records.entry_codec import decode_entry
from memfiles.records.keys import ENTRIES, WORKSPACE, agent_folder, entry_place
from memfiles.records.record import MAX_RECORD_BYTES
from memfiles.storage import atomic
from memfiles.storage.events import utc_now
from memfiles.workflow.workflow import EntriesSpec, Workflow

NAMED = 3


@dataclass
class FolderTally:
    """What one folder holds at one level; sizes are bytes of content."""

    live: int = 0
    size_bytes: int = 0
    expired: int = 0
    retired: int = 0
    forgotten: int = 0

    def add(self, record: EntryRecord, *, now: str) -> None:
        """Count one record."""
        if not isinstance(record, Entry):
            self.forgotten += 1
        elif record.retired is not None:
            self.retired += 1
        elif record.is_expired(now):
            self.expired += 1
        else:
            self.live += 1
            self.size_bytes += record.size_bytes


Tallies = dict[tuple[str, str], FolderTally]


def check_entries(workflow: Workflow) -> Iterator[CheckResult]:
    """Whether the entries can be read, belong to somebody, and keep their budgets."""
    declared = workflow.memory.entries
    paths = list(entry_paths(workflow.directory))
    if declared is None:
        if paths:
            yield CheckResult("warn", "entries", f"{_entries(len(paths))} on disk, but none are declared: agents "
                          f"do not see them; add `entries: {{}}` to the memory of the workflow")  # fmt: skip
        return
    tallies, broken = census(workflow.directory, paths)
    for path, why in broken[:NAMED]:
        yield CheckResult("warn", f"record {path}", f"{why}: it is left out; mend it, or delete it")
    if len(broken) > NAMED:
        yield CheckResult("warn", "entries", f"{len(broken) - NAMED} more records cannot be read")
    yield from _over_budget(tallies, declared)
    yield from _of_nobody(tallies, workflow)
    yield CheckResult("ok", "entries", summary(tallies.values()))
    yield CheckResult("ok", "entry index", _index(workflow.directory / INDEX))


def census(directory: Path, paths: Iterable[str]) -> tuple[Tallies, list[tuple[str, str]]]:
    """What lies at these paths, by folder and level, and what cannot be read and why."""
    tallies: Tallies = defaultdict(FolderTally)
    broken: list[tuple[str, str]] = []
    now, descriptor = utc_now(), atomic.open_directory(directory)
    try:
        for path in paths:
            try:
                found = atomic.read(descriptor, path, limit=MAX_RECORD_BYTES)
                record = decode_entry(found[0], path=path) if found else None
            except RecordCorrupt as error:
                broken.append((path, str(error)))
                continue
            if record is not None:
                tallies[record.folder, record.level].add(record, now=now)
    finally:
        os.close(descriptor)
    return dict(tallies), broken


def entry_paths(directory: Path) -> Iterator[str]:
    """Where records of entries lie, relative to the memory directory."""
    for folder in names_in(directory / ENTRIES):
        for name in names_in(directory / ENTRIES / folder):
            path = f"{ENTRIES}/{folder}/{name}"
            if entry_place(path) is not None:
                yield path


def summary(tallies: Iterable[FolderTally]) -> str:
    """How many entries there are, in a line."""
    counted = list(tallies)
    live, size = (sum(getattr(tally, name) for tally in counted) for name in ("live", "size_bytes"))
    rest = {name: sum(getattr(tally, name) for tally in counted) for name in ("expired", "retired", "forgotten")}
    beside = "".join(f", {number} {name}" for name, number in rest.items() if number)
    return f"{_entries(live)}, {size} bytes{beside}"


def _over_budget(tallies: Tallies, declared: EntriesSpec) -> Iterator[CheckResult]:
    for (folder, level), tally in sorted(tallies.items()):
        if tally.live > declared.max_entries or tally.size_bytes > declared.max_bytes:
            yield CheckResult(
                "warn",
                "entries over budget",
                f"{folder} at {level}: {_entries(tally.live)} of {declared.max_entries}, {tally.size_bytes} bytes of "
                f"{declared.max_bytes}; the next save there evicts what is over it",
            )


def _of_nobody(tallies: Tallies, workflow: Workflow) -> Iterator[CheckResult]:
    """Entries of agents and levels that the workflow does not declare any more."""
    folders = {WORKSPACE, *map(agent_folder, workflow.agents)}
    for (folder, level), tally in sorted(tallies.items()):
        if tally.live and (folder not in folders or level not in workflow.memory.levels):
            what = "agent" if folder not in folders else "level"
            yield CheckResult("warn", "entries of nobody", f"{folder} at {level}: {_entries(tally.live)} of an {what} "
                          f"that is not declared; nobody sees them")  # fmt: skip


def _index(path: Path) -> str:
    """What there is of the index; what is wrong with it is mended by the next look at the entries."""
    if not path.is_file():
        return f"{path} (made when needed)"
    return f"{path}, {path.stat().st_size // 1024} KiB; derived, and made anew where it is lost"


def _entries(number: int) -> str:
    return output.count(number, "entry", "entries")
