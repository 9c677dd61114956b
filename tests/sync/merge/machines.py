"""Machines that share one mirrored record, simulated: what each acknowledged, and a mirror that takes turns."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from memfiles.records.file_changes import Decision, append, edit, undo
from memfiles.records.marks import Mark
from memfiles.records.record import Actor, Record, Stamp, decode, encode
from memfiles.sync.merge.merge_files import ConflictPolicy, merge
from tests.support.records import TickingClock, seeded

CAP = 1 << 24
Call = Callable[[Record, Stamp], Decision]


@dataclass
class Cell:
    """The mirror's one object, replaced only by whoever names the version that is there, and what it knows by ids."""

    body: bytes | None = None
    version: int = 0
    known: dict[str, Mark] = field(default_factory=dict)

    def put(self, body: bytes, *, over: int) -> bool:
        if over != self.version:
            return False
        self.body, self.version = body, self.version + 1
        return True


@dataclass
class Machine:
    """One memory directory: its record, what it knows the mirror to hold, and all that it told its agents."""

    origin: str
    record: Record
    now: TickingClock
    on_conflict: ConflictPolicy = "local"
    acknowledged: Record | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    conflicts: list[Record] = field(default_factory=list)
    made: int = 0

    def does(self, call: Call) -> None:
        """One call of an agent, with an id of its own."""
        self.made += 1
        identity = f"{self.origin}-{self.made}"
        decision = call(self.record, self.stamp(identity))
        assert decision.record is not None
        self.keep(decision.record.stamped(self.origin))
        self.calls[identity] = call

    def stamp(self, identity: str) -> Stamp:
        return Stamp(self.now(), Actor(agent=self.origin, call=identity))

    def appends(self, line: str) -> None:
        self.does(partial(append, text=line))
        self.own.append(line)

    def edits(self, line: str) -> None:
        """Change one of its own lines."""
        changed = line.replace("\n", "!\n")
        self.does(partial(edit, old=line, new=changed))
        self.own[self.own.index(line)] = changed

    def regrets(self, line: str) -> None:
        """Append a line and take it back."""
        self.does(partial(append, text=line))
        self.does(undo)

    def keep(self, record: Record) -> None:
        """What is kept can be read back; revisions rise."""
        assert record.revision >= self.record.revision
        self.record = decode(encode(record), uid=record.uid)
        assert self.record == record

    def syncs(self, cell: Cell, *, loses_answer: bool = False, before_put: Callable[[], None] | None = None) -> None:
        """Take in what the mirror has, then put what it lacks."""
        version, body = cell.version, cell.body
        remote = decode(body, uid=self.record.uid) if body is not None else None
        if remote is not None and encode(self.record) != body:
            is_news = self.takes_in(remote)
            if not is_news:
                self.acknowledged = remote
                return
        if encode(self.record) == body:
            return
        if before_put is not None:
            before_put()
        if cell.put(encode(self.record), over=version) and not loses_answer:
            self.acknowledged = self.record

    def takes_in(self, remote: Record) -> bool:
        """Merge with what the mirror has; whether the mirror lacks something then."""
        local = self.record
        base = self.acknowledged
        merged = merge(local, remote, base=base, on_conflict=self.on_conflict, at=self.now())
        self.conflicts += [merged.loser] if merged.loser is not None else []
        is_new = merged.record.revision > max(local.revision, remote.revision)
        self.keep(merged.record.stamped(self.origin) if is_new else merged.record)
        return merged.is_news


@dataclass
class World:
    """Some machines, all begun with the same declaration, and their mirror."""

    machines: list[Machine]
    cell: Cell = field(default_factory=Cell)

    @classmethod
    def of(cls, count: int, *, content: str = "# Notes\n", on_conflict: ConflictPolicy = "local") -> World:
        now = TickingClock()
        seeds = [seeded(content, cap=CAP).stamped(f"{number:012x}") for number in range(count)]
        return cls([Machine(f"{n:012x}", record, now, on_conflict) for n, record in enumerate(seeds)])

    def settles(self) -> Record:
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
        return {*[encode(machine.record) for machine in self.machines], self.cell.body or b""}

    def promised(self) -> Counter[str]:
        """Every line that some machine acknowledged and nobody took back."""
        return Counter(line for machine in self.machines for line in machine.own)

    def someone_syncs(self, chances: random.Random) -> None:
        """Or tries to: answers get lost, others come in between, and what the mirror acknowledged is forgotten."""
        machine, other = chances.choice(self.machines), chances.choice(self.machines)
        if chances.random() < 0.2:
            machine.acknowledged = None
        is_crossed = machine is not other and chances.random() < 0.3
        before_put = partial(other.syncs, self.cell) if is_crossed else None
        machine.syncs(self.cell, loses_answer=chances.random() < 0.3, before_put=before_put)

    def lost_calls(self) -> list[str]:
        """The calls in the history that would be made once more if they came again."""
        record = self.machines[0].record
        calls = {name: (machine, call) for machine in self.machines for name, call in machine.calls.items()}
        kept = [change.by.call for change in record.history if change.by.call in calls]
        return [name for name in kept if name and not _is_known(record, name, *calls[name])]


def _is_known(record: Record, name: str, machine: Machine, call: Call) -> bool:
    return call(record, machine.stamp(name)).receipt.replayed
