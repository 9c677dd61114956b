"""Machines that share one mirrored entry, simulated: what each saved and forgot, and a mirror that takes turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from memfiles.records.entry import Entry
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.history import contents
from memfiles.records.marks import EntryRecord, Mark, vacated
from memfiles.sync.merge.merge_entries import fate, merge_entries
from memfiles.sync.merge.merge_files import ConflictPolicy
from tests.support.records import TickingClock
from tests.support.saved import deleted, refaceted, resaved, saved, saved_over, tombstone
from tests.sync.merge.machines import Cell

KEY = "color"


@dataclass
class EntryMachine:
    """One memory directory: its record if it has one, what it knows the mirror to hold, and what it promised."""

    origin: str
    now: TickingClock
    chances: random.Random
    on_conflict: ConflictPolicy = "local"
    record: EntryRecord | None = None
    acknowledged: EntryRecord | None = None
    conflicts: list[Entry] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    saves: list[str] = field(default_factory=list)
    known: dict[str, Mark] = field(default_factory=dict)

    def saves_anew(self, value: str, **facets: Any) -> None:
        """Another content under the key, whatever lies there."""
        at = self.now()
        self.saves.append(value)
        id = f"{self.chances.randrange(1 << 128):032x}"
        if self.record is None:
            self.keeps(saved(KEY, value, at=at, given_id=id, **facets))
        elif isinstance(self.record, Mark):
            self.keeps(saved_over(self.record, KEY, value, at=at, given_id=id))
        else:
            self.keeps(resaved(self.record, value, at=at))

    def says(self, **facets: Any) -> None:
        """Something else is said about the entry."""
        if isinstance(self.record, Entry):
            self.keeps(refaceted(self.record, at=self.now(), **facets))

    def deletes(self) -> None:
        if isinstance(self.record, Entry):
            self.keeps(deleted(self.record, at=self.now()))

    def forgets(self) -> None:
        """Whatever it has of the entry is forgotten for ever, everywhere."""
        if isinstance(self.record, Entry):
            self.forgotten |= values_in(self.record)
            at = self.now()
            self.known |= {id: tombstone(id, at=at) for id in self.record.ids}
            self.keeps(vacated(self.record, at))
            self.leaves_no_copies()

    def keeps(self, record: EntryRecord) -> None:
        self.stores(record.stamped(self.origin))

    def stores(self, record: EntryRecord) -> None:
        """What is kept can be read back; revisions rise."""
        assert self.record is None or record.revision > self.record.revision or record == self.record
        self.record = decode_entry(encode_entry(record), path=record.path)
        assert self.record == record

    def leaves_no_copies(self) -> None:
        self.acknowledged = None
        self.conflicts.clear()

    def syncs(self, cell: Cell, *, loses_answer: bool = False, before_put: Callable[[], None] | None = None) -> None:
        """Take in what the mirror has, then put what it lacks."""
        self.known |= cell.known
        cell.known |= self.known
        if isinstance(self.record, Entry) and fate(self.record, self.record, self.known) == "forgotten":
            self.stores(vacated(self.record, self.now()))
            self.leaves_no_copies()
        version, body = cell.version, cell.body
        remote = decode_entry(body, path=saved(KEY).path) if body is not None else None
        if remote is not None and (self.record is None or encode_entry(self.record) != body):
            is_news = self.takes_in(remote)
            if not is_news:
                return
        if self.record is None or encode_entry(self.record) == body:
            return
        if before_put is not None:
            before_put()
        if cell.put(encode_entry(self.record), over=version) and not loses_answer:
            self.acknowledged = self.record

    def takes_in(self, remote: EntryRecord) -> bool:
        """Merge with what the mirror has; whether the mirror lacks something then."""
        local = self.record
        if local is None:
            is_gone = isinstance(remote, Entry) and fate(remote, remote, self.known) == "forgotten"
            if isinstance(remote, Entry) and is_gone:
                self.keeps(vacated(remote, self.now()))
                return True
            self.stores(remote)
            self.acknowledged = remote
            return False
        base, policy = self.acknowledged, self.on_conflict
        merged = merge_entries(local, remote, base=base, on_conflict=policy, at=self.now(), known=self.known)
        if merged.forgets_local:
            self.leaves_no_copies()
        self.conflicts += [merged.loser] if isinstance(merged.loser, Entry) else []
        is_new = merged.record.revision > max(local.revision, remote.revision)
        (self.keeps if is_new else self.stores)(merged.record)
        self.acknowledged = None if merged.forgets_remote else remote
        return merged.is_news


@dataclass
class EntryWorld:
    """Some machines and their mirror; ``values`` are told apart by their numbers."""

    machines: list[EntryMachine]
    chances: random.Random
    cell: Cell = field(default_factory=Cell)
    made: int = 0
    earlier: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, count: int, chances: random.Random, *, on_conflict: ConflictPolicy = "local") -> EntryWorld:
        now = TickingClock()
        return cls([EntryMachine(f"{n:012x}", now, chances, on_conflict) for n in range(count)], chances)

    def value(self) -> str:
        """One that nobody saved before."""
        self.made += 1
        return f"value-{self.made:03}\n"

    def someone_syncs(self) -> None:
        """Or tries to: answers get lost, others come in between, and what the mirror acknowledged is not known."""
        machine, other = self.chances.choice(self.machines), self.chances.choice(self.machines)
        if self.chances.random() < 0.2:
            machine.acknowledged = None
        is_crossed = machine is not other and self.chances.random() < 0.3
        before_put = partial(other.syncs, self.cell) if is_crossed else None
        machine.syncs(self.cell, loses_answer=self.chances.random() < 0.3, before_put=before_put)
        if self.cell.body is not None:
            self.earlier.append(self.cell.body)

    def mirror_is_put_back(self) -> None:
        """Somebody restores the bucket from a backup, or empties it."""
        self.cell.body = self.chances.choice([*self.earlier, None])
        self.cell.version += 1

    def settles(self) -> EntryRecord | None:
        """Everyone syncs until nothing moves; the one record they then have."""
        for _ in range(2 * len(self.machines) + 1):
            for machine in self.machines:
                machine.syncs(self.cell)
        version = self.cell.version
        for machine in self.machines:
            machine.syncs(self.cell)
        assert version == self.cell.version
        return self.machines[0].record

    def copies(self) -> set[bytes]:
        """The bytes of the record on every machine and in the mirror."""
        bodies = {encode_entry(machine.record) for machine in self.machines if machine.record is not None}
        return bodies | ({self.cell.body} if self.cell.body is not None else set())

    def leaks(self) -> set[str]:
        """The forgotten values that are still to be found somewhere, in a record, in its history or beside it."""
        forgotten = {value for machine in self.machines for value in machine.forgotten}
        kept = [encode_entry(record) for machine in self.machines for record in _all_of(machine)]
        return {value for value in forgotten if any(value.encode() in body for body in [*kept, *self.copies()])}

    def known(self) -> set[str]:
        """The values that a person can still get at: of the record, of its history, of the conflicts."""
        return {value for machine in self.machines for record in _all_of(machine) for value in values_in(record)}


def values_in(record: EntryRecord) -> set[str]:
    """Every value that a record or its history tells of."""
    if isinstance(record, Mark):
        return set()
    texts = [record.content, *[after.decode() for _, after in contents(record.text)]]
    return {f"value-{rest[:3]}" for text in texts for rest in text.split("value-")[1:]}


def _all_of(machine: EntryMachine) -> list[EntryRecord]:
    return [record for record in (machine.record, machine.acknowledged, *machine.conflicts) if record is not None]
