"""The world of a script: its machines, the bucket and the clock; it takes the steps and tells the oracle of them."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.json import decode as from_json

from memfiles.errors import (
    BudgetExceeded,
    EditNoMatch,
    EntryNotFound,
    InvalidArgument,
    LevelDenied,
    LockTimeout,
    MirrorConflict,
    MirrorUnavailable,
    ReadOnly,
    RevisionConflict,
    RevisionUnknown,
)
from memfiles.sync.mirror import Mirror
from mirrors.directory import DirectoryMirror
from mirrors.memory import MemoryMirror
from tests.model.machine import Machine, SeededIds, SkewedClock
from tests.model.oracle import Oracle, Records, Violation, is_erased
from tests.model.processes import ForkedMachine, Killed
from tests.model.script import WITH_MIRROR, Script, Step, words
from tests.model.wire import Wire

REFUSALS = (BudgetExceeded, EditNoMatch, EntryNotFound, LevelDenied, ReadOnly, RevisionConflict, RevisionUnknown)
BUCKET, KILLED = "bucket", "killed"
UNCHANGING = ("reopen", "amnesia", "again", "deploy", "empty", "rewind", "age", "purge")  # the records of the machine
_PACK = ".state/pack/"
_SKEW_SECONDS = 3000
_AGE_SECONDS = 100 * 86400
_FSYNC = 0.25  # of the scripts: only then are there journals
_ZEROS = bytes(1 << 16)


def run(script: Script, *, talk: bool = False) -> Violation | None:
    """Carry out a script in a fresh world; what is wrong then, if anything. ``talk``: print each step's result."""
    place = Path(tempfile.mkdtemp(prefix="model-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    world = World(script, place, talk=talk)
    try:
        with SeededIds(str(script.seed)):
            for number, step in enumerate(script.steps):
                world.take(number, step)
            world.settle()
            world.judge()
    except Violation as violation:
        return violation
    except Exception as error:
        return Violation(f"crash {type(error).__name__}", "".join(traceback.format_exception(error)[-6:]))
    finally:
        world.close()
        shutil.rmtree(place, ignore_errors=True)
    return None


class World:
    """Machines that share a bucket, in folders below ``place``."""

    def __init__(self, script: Script, place: Path, *, talk: bool = False) -> None:
        self._script = script
        self._place = place
        self._talk = talk
        self._bucket: Mirror = MemoryMirror()
        if script.processes:
            (place / BUCKET).mkdir()
            self._bucket = DirectoryMirror(place / BUCKET)
        self._ticks = count()
        self._oracle = Oracle()
        self._machines: dict[str, Machine | ForkedMachine] = {}
        self._wires: dict[str, Wire] = {}
        self._seen: dict[str, Records] = {}
        self._backups: list[tuple[Records, frozenset[int]]] = []  # the bucket after each contact
        self._done: dict[str, Step] = {}
        self._aged = 0

    def close(self) -> None:
        """Close every machine that is open."""
        for wire in self._wires.values():
            wire.is_cut = True
        for machine in self._machines.values():
            machine.close()

    def take(self, number: int, step: Step) -> None:
        """Take one step; a refused one must change nothing. One that is killed is taken again, as a user does."""
        name = step.machine
        if name not in self._machines:
            self._open(name)
        self._wires[name].chances = random.Random(f"{step} {number}") if step.trouble == "faults" else None
        before = self._seen[name]
        problem = self._attempt(step)
        if is_killed := problem == KILLED:
            problem = self._attempt(replace(step, trouble=""))
            if problem == KILLED:
                raise Violation("killed", f"{step} was killed, and killed again without a reason")
        after = self._seen[name] = self.records(name)
        self._say(f"{number:3} {step}:{' killed, then' * is_killed} {problem or 'done'}")
        over = {path for path, body in before.items() if self._aged and path not in after and is_of_run(body)}
        changed = [
            path for path in _differing(before, after) if path not in over and not is_erased(after.get(path, b""))
        ]
        if problem and not is_killed and step.verb not in WITH_MIRROR and changed:
            raise Violation("half done", f"{step} was refused ({problem}) and changed {changed}")
        if step.verb in UNCHANGING and changed:
            raise Violation(f"changed by {step.verb}", f"{step} changed {changed}")
        self._oracle.saw(step, before, after, done=problem is None or is_killed)
        self._tell_of_contact(step, problem)
        self._wires[name].chances = None

    def settle(self) -> None:
        """Have every machine sync, and do its periodic jobs, until all did so once and nothing was put or changed."""
        for number in range(2 * len(self._machines) + 2):
            if not self._round("settle" if number else "sync"):
                break
        else:
            raise Violation("restless", "the machines still change and put after every one has synced many times")
        for name, machine in self._machines.items():
            if refused := machine.refused():
                raise Violation("refused", f"{name} cannot sync: {refused}")

    def judge(self) -> None:
        """Raise ``Violation`` unless all have the same, and the right, and nothing that must be gone."""
        shared = {key: self._body(key) for key, _ in self._bucket.list() if not key.startswith(_PACK)}
        for name in self._machines:
            records = self._seen[name]
            if over := [
                it for it in self._oracle.over(name) if any(words(it).encode() in own for own in records.values())
            ]:
                raise Violation("outlived its run", f"{over} on {name}")
            own = {path: body for path, body in records.items() if not is_of_run(body)}
            if own != shared:
                raise Violation("unequal", f"{name} and the bucket differ in {_differing(own, shared)}")
        self._oracle.judge(shared, self._kept())
        for name in self._machines:
            self._look_for_leaks(f"machine {name}", self._files(name), self._oracle.private(name))
        bucket = (
            self._files(BUCKET)
            if self._script.processes
            else ((key, self._body(key)) for key, _ in self._bucket.list())
        )
        self._look_for_leaks("the bucket", bucket, self._oracle.private(None))

    def records(self, name: str) -> Records:
        """The bytes of every record on a machine's disk, by path."""
        root = self._place / name
        agents = [path.relative_to(root).as_posix() for path in root.glob("entries/*")]
        users = [path.relative_to(root).as_posix() for path in root.glob("entries/*/users/*")]
        folders = [f"{folder}/" for folder in (*agents, *users)]
        found = {}
        for folder in ["", *folders]:
            for path in glob(f"{folder}*.json", root_dir=root):
                found[path] = (root / path).read_bytes()
        return found

    def _attempt(self, step: Step) -> str | None:
        """Take a step; why it was refused, None if it was done."""
        try:
            if step.verb in ("empty", "rewind"):
                self._put_back(int(step.args[0]) if step.args else None)
            elif step.verb == "age":
                self._age()
            elif step.verb in ("reopen", "restart", "amnesia"):
                self._reopen(step, cut=step.verb != "restart")
            elif step.verb == "again":
                return self._repeat(step)
            else:
                self._do(step)
        except Killed:
            return KILLED
        except REFUSALS as refusal:
            return f"refused: {refusal}"
        except InvalidArgument as refusal:
            return f"refused: {refusal}"
        except (MirrorUnavailable, MirrorConflict, LockTimeout) as error:
            if not step.trouble:
                raise
            return f"no answer: {error}"
        return None

    def _do(self, step: Step) -> None:
        """Have a machine take a step; one that is a process reaches the bucket only where the step is about it."""
        self._done[step.call] = step
        self._wires[step.machine].is_cut = self._script.processes and step.verb not in (*WITH_MIRROR, "settle")
        self._machines[step.machine].do(step)

    def _age(self) -> None:
        """Let so much time pass, everywhere, that what is deleted by now was kept long enough."""
        self._aged += _AGE_SECONDS
        for machine in self._machines.values():
            machine.age(_AGE_SECONDS)

    def _repeat(self, step: Step) -> str | None:
        """Make a call again that the history of its record knows."""
        name = step.args[0]
        first = self._done.get(name)
        if first is None or first.machine != step.machine:
            return "refused: no such call"
        path = self._oracle.places.get(name, f"{first.args[0]}.json")
        body = self._seen[step.machine].get(path, b"")
        if f'"call":"{name}"'.encode() not in body:
            return "refused: the call is in no history"
        if self._aged and b'"retired"' in body:
            return "refused: its time may be over, and then it is a new call"
        self._do(replace(first, trouble=step.trouble))
        return None

    def _tell_of_contact(self, step: Step, problem: str | None) -> None:
        if step.verb in WITH_MIRROR:
            is_sure = problem is None and not step.trouble and not self._machines[step.machine].pending
            whole = is_sure and step.verb == "sync"
            self._oracle.met(step.machine, pulled=whole, pushed=is_sure and step.verb in ("sync", "push", "flush"))
            bodies = {key: self._body(key) for key, _ in self._bucket.list()}
            self._backups.append((bodies, self._oracle.bucket_knows()))

    def _open(self, name: str) -> None:
        if name not in self._wires:
            self._wires[name] = Wire(self._bucket)
            self._oracle.met(name, pulled=False, pushed=False)
        skew = random.Random(f"{self._script.seed} {name}").randrange(-_SKEW_SECONDS, _SKEW_SECONDS) + self._aged
        chosen: dict[str, Any] = {"on_conflict": self._script.on_conflict, "max_entries": self._script.max_entries}
        place, wire, seed = self._place / name, self._wires[name], str(self._script.seed)
        chosen["durability"] = "fsync" if random.Random(f"{self._script.seed} durability").random() < _FSYNC else "os"
        if self._script.processes:
            self._machines[name] = ForkedMachine(place, wire, seed=seed, skew_seconds=skew, **chosen)
            self._do(Step(name, "restart" if skew % 2 else "reopen"))
        else:
            self._machines[name] = Machine(place, wire, now=SkewedClock(self._ticks, skew_seconds=skew), **chosen)
        self._seen[name] = self.records(name)

    def _reopen(self, step: Step, *, cut: bool) -> None:
        """Close a machine and open it again; with amnesia, all that it can derive is removed in between."""
        machine, wire = self._machines[step.machine], self._wires[step.machine]
        wire.is_cut = cut
        machine.close()
        if (
            step.verb == "amnesia" and (state := self._place / step.machine / ".state").exists()
        ):  # not yet by a killed one
            shutil.rmtree(state)
        if isinstance(machine, ForkedMachine):
            self._do(replace(step, verb="restart" if step.verb == "restart" else "reopen"))
        else:
            del self._machines[step.machine]
            self._open(step.machine)
        wire.is_cut = False

    def _put_back(self, contacts: int | None) -> None:
        """Somebody restores the bucket as it was some contacts ago, or empties it."""
        kept, knowledge = ({}, None) if contacts is None or not self._backups else self._backups[-contacts:][0]
        for key, _ in [*self._bucket.list()]:
            if key not in kept:
                self._bucket.delete(key)
        for key, body in kept.items():
            self._bucket.put(key, body)
        self._oracle.bucket_was_put_back(knowledge)

    def _round(self, verb: str) -> bool:
        """Everyone syncs; whether anything changed."""
        moved = False
        for name in self._machines:
            before = self._seen[name]
            self._wires[name].puts.clear()
            self._do(Step(name, verb))
            after = self._seen[name] = self.records(name)
            moved = moved or before != after or bool(self._wires[name].puts)
            self._oracle.looks(after, {path for path in after if after[path] != before.get(path)})
            self._say(f"    {name} {verb}s: puts {self._wires[name].puts}")
        return moved

    def _look_for_leaks(self, where: str, files: Iterator[tuple[str, bytes]], private: dict[str, list[bytes]]) -> None:
        needles = {needle: name for name, all_ in {**private, **self._oracle.gone()}.items() for needle in all_}
        if not needles:
            return
        pattern = re.compile(b"|".join(map(re.escape, needles)))
        for path, body in files:
            if found := pattern.search(body):
                name = needles[found[0]]
                rule = "left its run" if name in private else "leak"
                raise Violation(rule, f"{name} ({found[0].decode()}) is still in {path} of {where}")

    def _files(self, name: str) -> Iterator[tuple[str, bytes]]:
        root = self._place / name
        for path in sorted(root.rglob("*")):
            if path.is_file():
                yield path.relative_to(root).as_posix(), _without_zeros(path)

    def _kept(self) -> list[tuple[str, bytes]]:
        """The kept copies of all machines, each with the path of its record."""
        found = [path for name in self._machines for path in (self._place / name).glob("conflicts/*")]
        copies = [path for path in found if not path.name.endswith(".reason.json")]
        return [(path.name.rsplit(".", 2)[0].replace("~", "/"), path.read_bytes()) for path in copies]

    def _body(self, key: str) -> bytes:
        stored = self._bucket.get(key)
        return stored.body if stored is not None else b""

    def _say(self, what: str) -> None:
        if self._talk:
            print(what)


def is_of_run(body: bytes) -> bool:
    """Whether a record belongs to one run, so that no mirror may have it."""
    return bool(from_json(body).get("run"))


def _differing(one: Records, other: Records) -> list[str]:
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def _without_zeros(path: Path) -> bytes:
    """The bytes of a file; of a journal, which is mostly zeros, the blocks that are not."""
    if path.stat().st_size < 1 << 20:
        return path.read_bytes()
    with path.open("rb") as file:
        return b"".join(block for block in iter(lambda: file.read(1 << 16), b"") if block != _ZEROS)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that the library logs."""
    import logging

    logger = logging.getLogger("memfiles")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
