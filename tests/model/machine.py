"""One machine of the model: a memory directory, opened without threads, and what each verb of a script does to it."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import MAX_TTL_SECONDS, EntryRules, later
from memfiles.errors import MirrorUnavailable
from memfiles.records.record import Actor
from memfiles.storage.events import Progress
from memfiles.storage.store import Durability
from memfiles.sync.dispatcher import Dispatcher
from memfiles.sync.mirror import Mirror
from memfiles.sync.pack import refresh_pack
from memfiles.sync.workers import Job
from tests.model.script import DIARY, FILES, USERS, Step, halves, words
from tests.support.records import declared, rewrite
from tests.support.saved import Visitor
from tests.sync.entry_machine import EntryMachine

T = TypeVar("T")
ROUNDS = 3  # how often a waiting caller has each record tried that the mirror refused
CAP = 1 << 16
_PLAN = re.compile(rb'"reorganised":\{"plan":"(plan-[0-9a-f]{12})"')
_CALLERS = {"": ("support", "INTERNAL"), "low": ("support", "PUBLIC"), "sales": ("sales", "INTERNAL")}
_DECLARED = [
    *(declared(uid, content=f"# {uid}\n", cap=CAP) for uid in FILES),
    declared(DIARY, content=f"# {DIARY}\n", cap=CAP, per="user"),
]


class InlineDispatcher(Dispatcher):
    """The dispatcher without its threads: tasks are carried out by whoever waits for them, jobs by whoever asks."""

    def start(self) -> None:
        """See ``Dispatcher``: what is due at a start is done, but nothing is pushed until somebody waits."""
        for timer in self._make_timers(time.monotonic()):
            timer.run_if_due(time.monotonic())

    def _ensure_running(self) -> None:
        """There is no thread to start."""

    def in_background(self, run: Callable[[], T]) -> Job[T]:
        """See ``Dispatcher``."""
        job = Job(run)
        job()
        return job

    def wait(self, timeout: float, *, insist: bool, progress: Progress | None) -> bool:
        """See ``Dispatcher``; gives up after some rounds in which nothing but failures is left."""
        for _ in range(ROUNDS):
            with self._turn:
                self._schedule.hurry(now=time.monotonic())
            while (task := self._schedule.take(now=time.monotonic())) is not None:
                self._do(task)
            if not self._schedule.pending:
                return True
        return False

    def tick(self) -> None:
        """Run every periodic job once."""
        for timer in self._make_timers(time.monotonic()):
            timer.run()


class Machine:
    """A memory directory that is open; ``do`` carries out a step of a script."""

    def __init__(
        self,
        directory: Path,
        mirror: Mirror,
        *,
        now: SkewedClock,
        on_conflict: str,
        max_entries: int | None,
        durability: Durability,
    ) -> None:
        self.directory = directory
        self.age = now.go_on
        self._dispatchers: list[InlineDispatcher] = []
        made = self._dispatchers

        class Noted(InlineDispatcher):
            def __init__(self, *args: Any, **settings: Any) -> None:
                super().__init__(*args, **settings)
                made.append(self)

        self._inside = EntryMachine(
            directory,
            mirror,
            files=_DECLARED,
            rules=EntryRules(budget=Budget(max_entries=max_entries), secrets="off"),
            now=now,
            durability=durability,
            dispatcher=Noted,
            on_conflict=on_conflict,
        )
        self.pending: tuple[str, ...] = ()  # after the last contact with the mirror
        self._mirror = mirror
        self._actor = Actor(agent="support")

    def close(self) -> None:
        self._inside.close()

    def do(self, step: Step) -> None:
        """Carry out a step; errors of the library are raised. Two steps for the world itself are not known here."""
        getattr(self, "_" + step.verb)(*step.args)

    # Memory files

    def _append(self, file: str, text: str) -> None:
        uid, user = _file(file)
        self._inside.manager.append(uid, f"- {words(text)}\n", call_id=text, by=self._actor, user=user)

    def _rewrite(self, file: str, old: str, name: str) -> None:
        uid, user = _file(file)
        self._inside.manager.append(uid, f"- {words(old)}\n", call_id=name, by=self._actor, user=user)

    def _edit(self, file: str, old: str, new: str) -> None:
        uid, user = _file(file)
        self._inside.manager.edit(uid, words(old), words(new), call_id=new, by=self._actor, user=user)

    def _split(self, file: str, old: str, new: str) -> None:
        first, second = halves(old)
        uid, user = _file(file)
        self._inside.manager.edit(uid, words(old), first + words(new) + second, call_id=new, by=self._actor, user=user)

    def _cut(self, file: str, text: str) -> None:
        uid, user = _file(file)
        self._inside.manager.edit(uid, f"- {words(text)}\n", "", user=user)

    def _undo(self, file: str) -> None:
        uid, user = _file(file)
        self._inside.manager.undo(uid, by=self._actor, user=user)

    def _back(self, file: str, steps: str) -> None:
        manager, (uid, user) = self._inside.manager, _file(file)
        revision = max(1, manager.card(uid, user=user).revision - int(steps))
        manager.undo(uid, to_revision=revision, by=self._actor, user=user)

    def _redact(self, file: str, text: str) -> None:
        uid, user = _file(file)
        self._inside.manager.redact(uid, words(text), by=self._actor, user=user)

    def _blot(self, file: str, text: str) -> None:
        uid, user = _file(file)
        self._inside.manager.redact(uid, f"- {words(text)}\n", by=self._actor, user=user)

    def _hand(self, file: str, text: str) -> None:
        self._by_hand(file, lambda content: content.replace("\n", f"\n- {words(text)}\n", 1))

    def _handcut(self, file: str, text: str) -> None:
        self._by_hand(file, lambda content: content.replace(f"- {words(text)}\n", ""))

    def _by_hand(self, file: str, change: Callable[[str], str]) -> None:
        """Change a file as a person does with an editor."""
        path = self.directory / f"{file}.json"
        before = json.loads(path.read_bytes())["content"]
        if (after := change(before)) != before:
            rewrite(path, content=after)
            self._inside.manager.notice(file)

    # Entries

    def _save(self, key: str, text: str, caller: str = "", **said: Any) -> None:
        self._inside.entries.save(self._visitor(caller), key, words(text), call_id=text, **said)

    def _twin(self, key: str, caller: str = "") -> None:
        self._inside.entries.save(
            self._visitor(caller), key, "The same words under every key, so that they can be merged."
        )

    def _episode(self, key: str, text: str, caller: str = "") -> None:
        self._save(f"{key} {text}", text, caller, kind="episode")

    def _update(self, key: str, text: str, caller: str = "") -> None:
        self._inside.entries.update(self._visitor(caller), key, content=words(text), call_id=text)

    def _tag(self, key: str, caller: str = "") -> None:
        self._inside.entries.update(self._visitor(caller), key, tags=["tag"], importance=0.9)

    def _renew(self, key: str, caller: str = "") -> None:
        """Give an entry a lifetime that no script outlives, or start it again as a read does."""
        found = self._inside.entries.get(self._visitor(caller), key)
        if found is not None and found.expires_at is not None:
            self._inside.entries.renew(self._visitor(caller), [(found, MAX_TTL_SECONDS)])
        else:
            self._inside.entries.update(self._visitor(caller), key, ttl=MAX_TTL_SECONDS)

    def _rename(self, key: str, new: str, caller: str = "") -> None:
        self._inside.entries.relocate(self._visitor(caller), {key: new})

    def _swap(self, key: str, other: str, caller: str = "") -> None:
        self._inside.entries.relocate(self._visitor(caller), {key: other, other: key})

    def _share(self, key: str, caller: str = "") -> None:
        self._inside.entries.update(self._visitor(caller), key, category="workspace")

    def _unshare(self, key: str, caller: str = "") -> None:
        self._inside.entries.update(self._visitor(caller), key, category="general")

    def _delete(self, key: str, caller: str = "") -> None:
        self._inside.entries.delete(self._visitor(caller), key)

    def _restore(self, key: str, caller: str = "") -> None:
        self._inside.entries.restore(self._visitor(caller), key)

    def _takeback(self, key: str, caller: str = "") -> None:
        self._inside.entries.undo(self._visitor(caller), key)

    def _goback(self, key: str, steps: str, caller: str = "") -> None:
        now = self._inside.entries.get(self._visitor(caller), key)
        self._inside.entries.undo(self._visitor(caller), key, max(1, now.revision - int(steps)) if now else 1)

    def _forget(self, key: str, caller: str = "") -> None:
        self._inside.entries.forget(self._visitor(caller), key=key)

    def _consolidate(self) -> None:
        plan = self._inside.entries.plan(self._visitor(), share=0.3)
        if plan.steps:
            self._inside.entries.apply(self._visitor(), plan)

    def _unconsolidate(self) -> None:
        found = [_PLAN.findall(path.read_bytes()) for path in sorted(self.directory.glob("entries/**/*.json"))]
        if plans := [plan.decode() for each in found for plan in each]:
            self._inside.entries.undo_plan(self._visitor(), plans[0])

    def _purge(self) -> None:
        self._inside.entries.purge()

    def _talk(self, key: str, text: str, caller: str = "") -> None:
        self._inside.entries.save(self._visitor(caller, run="talk"), key, words(text), category="conversation")

    def _hangup(self) -> None:
        for caller in (*_CALLERS, *USERS):
            self._inside.entries.end_run(self._visitor(caller, run="talk"))

    def _leave(self, user: str) -> None:
        self._inside.entries.users.forget(user)

    def _visitor(self, caller: str = "", *, run: str | None = None) -> Visitor:
        """Who makes a call; a user in a session that was made just now."""
        if caller not in USERS:
            agent, level = _CALLERS[caller]
            return Visitor(agent, level, run=run)
        visitor = Visitor("support", "INTERNAL", run=run, user=caller)
        epoch = self._inside.entries.users.epoch_of(caller)
        visitor.provenance = replace(visitor.provenance, epoch=epoch)
        return visitor

    # The mirror

    def _sync(self) -> None:
        self.pending = self._inside.sync.pull(60).pending

    def _settle(self) -> None:
        self._sync()
        self._dispatchers[-1].tick()

    def _push(self) -> None:
        self.pending = self._inside.sync.push(60).pending

    def _flush(self) -> None:
        self.pending = () if self._inside.flush(60) else ("something",)

    def _tick(self) -> None:
        self._dispatchers[-1].tick()
        self._dispatchers[-1].wait(60, insist=True, progress=None)

    def _pack(self) -> None:
        with suppress(MirrorUnavailable):
            refresh_pack(self._inside.replica, self._mirror, self._inside.book)

    def _deploy(self) -> None:
        self._inside.manager.restore(_DECLARED)

    def refused(self) -> list[str]:
        """What the synchronisation says that it could not do."""
        status = self._inside.sync.status()
        return [*([f"{status.pending} pending"] if status.pending else []), *filter(None, [status.last_error])]


def _file(name: str) -> tuple[str, str | None]:
    """The uid of a file, and whose it is."""
    uid, _, user = name.partition("@")
    return uid, user or None


class SkewedClock:
    """The clock of one machine: a common one that ticks each second, and how far this machine's is off."""

    def __init__(self, ticks: count[int], *, skew_seconds: int = 0) -> None:
        self._ticks = ticks
        self._skew = skew_seconds

    def __call__(self) -> str:
        return later("2026-11-21T09:00:00.000Z", next(self._ticks) + self._skew)

    def go_on(self, seconds: int) -> None:
        """Let time pass."""
        self._skew += seconds


class SeededIds:
    """Draws random bytes from a seed, so that a script ends the same way each time; a context manager."""

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(seed).randbytes
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before = [os.urandom, random._urandom]  # type: ignore[attr-defined]
        os.urandom = random._urandom = self._draw  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        os.urandom, random._urandom = self._before  # type: ignore[attr-defined]
