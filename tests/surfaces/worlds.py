"""Two worlds that differ only in what some sessions may not see; see ``verbs`` for the ways by which these could tell.

A program is a list of steps, each by one actor: a session of an agent at a level. A boundary says which actors are
hidden from the others. In the first world all steps happen, in the second only those of the actors that are seen;
``transcript`` holds whatever the sessions of these get to see. The promise is that it is the same in both.

To add a boundary, write its actors, say which are hidden, and which keys these may change.
"""

from __future__ import annotations

import bisect
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from shutil import rmtree
from time import sleep, time_ns
from typing import Any

from msgspec import Struct, structs

from memfiles import MemfilesError
from memfiles.entries.consolidation.plan import Plan
from memfiles.storage.events import RecordChanged, utc_now
from memfiles.tools.session import Session
from tests.support.workflows import opened
from tests.surfaces.verbs import VERBS, Answer

WORKFLOW = """\
name: desk
memory:
  durability: os
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL]
  files:
    - {uid: board-1, name: board, description: For all., level: PUBLIC, max_size_bytes: 200, content: "# Board\\n"}
    - {uid: notes-1, name: notes, description: What is known., level: INTERNAL, max_size_bytes: 200}
    - {uid: deals-1, name: deals, description: Deals., level: CONFIDENTIAL, max_size_bytes: 200}
    - {uid: sales-1, name: leads, description: Leads., level: INTERNAL, max_size_bytes: 200}
    - {uid: diary-1, name: diary, description: Who it is., level: INTERNAL, max_size_bytes: 200, per: user}
  entries:
    max_entries: 4
    max_bytes: 400
    consolidate: close
    hydrate_bytes: 900
    kinds: {episode: {max_entries: 2}}
    categories: {daily: {ttl: 72h, max_entries: 2}}
agents:
  support:
    memory: [{id: board-1, mode: rw}, {id: notes-1, mode: rw}, {id: deals-1, mode: rw}, {id: diary-1, mode: rw}]
  sales: {memory: [{id: board-1, mode: r}, {id: notes-1, mode: r}, {id: deals-1, mode: r}, {id: sales-1, mode: rw}]}
  desk: {memory: [{id: board-1, mode: r}, {id: notes-1, mode: rw}, {id: diary-1, mode: rw}]}
"""
WORDS = tuple("ada bob zoe plan refund invoice charged twice free pro friday angry calls nine desk opens quote".split())
QUERIES = ("ada plan", "refund invoice twice", "fri", "desk opens nine", "bob angry quote pro", "zz", "plan/ada")
TTLS = (3600, 86_400)
MILLISECOND = 1_000_000  # ns, a tick of the clock that records show
LIVES = (*TTLS, 72 * 3600, 24 * 3600)
"""Seconds between a change and the time at which something expires."""


@dataclass(frozen=True)
class Actor:
    """A session: its agent, its level, its run, its user."""

    agent: str
    level: str
    run: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        whose = f"{self.user}@" if self.user else ""
        return f"{whose}{self.agent}/{self.level.lower()}" + (f"/{self.run}" if self.run else "")


@dataclass(frozen=True)
class Boundary:
    """Actors, and those of them that are hidden from the others.

    ``may_share``: hidden actors may change entries that all agents share and every memory file; else they change only
    what is hidden from the others, which is no difference that has to stay unseen.
    """

    name: str
    seen: tuple[Actor, ...]
    hidden: tuple[Actor, ...]
    may_share: bool


BOUNDARIES = (
    Boundary(
        "levels",
        (
            Actor("support", "INTERNAL", "monday"),
            Actor("support", "INTERNAL"),
            Actor("support", "PUBLIC", "monday"),
            Actor("sales", "INTERNAL", "monday"),
        ),
        (
            Actor("support", "CONFIDENTIAL", "monday"),
            Actor("support", "CONFIDENTIAL"),
            Actor("sales", "CONFIDENTIAL", "monday"),
        ),
        may_share=True,
    ),
    Boundary(
        "agents",
        (Actor("support", "INTERNAL", "monday"), Actor("support", "CONFIDENTIAL"), Actor("desk", "INTERNAL", "monday")),
        (Actor("sales", "INTERNAL", "monday"), Actor("sales", "PUBLIC"), Actor("sales", "CONFIDENTIAL", "monday")),
        may_share=False,
    ),
    Boundary(
        "users",
        (
            Actor("support", "INTERNAL", "monday", user="ada"),
            Actor("support", "PUBLIC", user="ada"),
            Actor("support", "INTERNAL", "monday"),
            Actor("sales", "INTERNAL", "monday", user="bob"),
            Actor("desk", "INTERNAL"),
        ),
        (
            Actor("support", "INTERNAL", "monday", user="bob"),
            Actor("support", "PUBLIC", user="bob"),
            Actor("support", "CONFIDENTIAL", "monday", user="Ada"),
        ),
        may_share=True,  # what others see, they cannot change
    ),
)


@dataclass(frozen=True)
class Step:
    """One call of one actor."""

    actor: Actor
    verb: str
    given: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.actor}: {self.verb}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


@dataclass(frozen=True)
class Program:
    """Steps within a boundary."""

    boundary: Boundary
    steps: tuple[Step, ...]

    def without_hidden(self) -> Program:
        """The same program in the second world."""
        return replace(self, steps=tuple(step for step in self.steps if step.actor in self.boundary.seen))


class NearWords:
    """An embedder by letters that takes neighbours in ``WORDS`` for words of one meaning."""

    model_id = "letters-1"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """How often each letter is in each text."""
        return [[text.lower().count(chr(letter)) for letter in range(ord("a"), ord("z") + 1)] for text in texts]

    def near_words(self, word: str) -> list[tuple[str, float]]:
        """See ``WordNeighbours``."""
        if word not in WORDS:
            return []
        place = WORDS.index(word)
        return [(WORDS[(place + by) % len(WORDS)], 1 - 0.1 * by) for by in range(1, 6)]


class World:
    """A memory in a folder, and the sessions of a program in it."""

    def __init__(self, folder: Path, boundary: Boundary) -> None:
        self.folder = folder
        self.boundary = boundary
        self.transcript: list[str] = []
        self.sessions: dict[Actor, Session] = {}
        self.plans: dict[Actor, list[Plan]] = {}
        self.lists: dict[Actor, dict[str, Any]] = {}
        self._ids: dict[str, int] = {}
        self._starts: list[str] = []
        self._steps: list[str] = []
        self.open()

    def run(self, steps: Sequence[Step]) -> list[str]:
        """Take the steps; returns the transcript of the actors that are seen."""
        number = 0
        for step in steps:
            is_seen = step.actor in self.boundary.seen
            number += is_seen
            self._begin(f"step {number}" if is_seen else f"hidden, after step {number}")
            answer = self._answer(step)
            if "tombstones" in str(step):  # those of one forget are in the order of their ids, which are random
                answer = _ID.sub("<an id>", answer)
            if is_seen:
                self._tell(f"{step}\n    {self._masked(answer)}")
        self.close()
        return self.transcript

    def close(self) -> None:
        """Close the sessions, in an order that is the same in both worlds, and the memory."""
        for actor in sorted(self.sessions, key=str):
            self.sessions.pop(actor).close()
        self.memory.close()

    def session(self, actor: Actor) -> Session:
        """The actor's session, made when it is first needed."""
        if actor not in self.sessions:
            acting, who = f"who acts as {actor}", {"user": actor.user, "level": actor.level, "run": actor.run}
            self.sessions[actor] = self.memory.session(actor.agent, **who, actor=acting, ends_run=True)
        return self.sessions[actor]

    @contextmanager
    def joining(self, actor: Actor, names: str) -> Iterator[Session]:
        """Another session of the actor, with these names of tools, that ends no run."""
        who = {"user": actor.user, "level": actor.level, "run": actor.run}
        session = self.memory.session(actor.agent, **who, tool_names=names, ends_run=False)
        yield session
        session.close()

    def open(self) -> None:
        """Open the memory, at first and again."""
        self.memory = opened(self.folder, WORKFLOW, embedder=NearWords())
        self.memory.manager.subscribe(self._hear)

    def _hear(self, change: RecordChanged) -> None:
        """What the seen sessions may hear of a change."""
        for actor in self.boundary.seen:
            if actor in self.sessions and self.sessions[actor].may_know(change):
                what = self._masked(change.name or change.path)
                self._tell(f"{actor} hears of {what} at {change.level}, by {self._steps[-1]}")

    def _tell(self, line: str) -> None:
        self.transcript.append(line)

    def _begin(self, name: str) -> None:
        """Begin a step with a tick of the clock, so that each time that is shown belongs to one step."""
        ended = utc_now()
        while (now := utc_now()) <= ended:
            sleep((MILLISECOND - time_ns() % MILLISECOND) / 1e9)
        self._starts.append(now)
        self._steps.append(name)

    def _answer(self, step: Step) -> str:
        try:
            return _text(VERBS[step.verb](self, step.actor, **step.given))
        except MemfilesError as error:
            return f"{type(error).__name__} ({error.code}): {error}"
        except Exception as error:  # a defect in both worlds is one as well
            return f"DEFECT {error!r}"

    def _masked(self, answer: str) -> str:
        """The answer with each time replaced by its step, and each random id by a number in the order of appearance."""
        answer = answer.replace(str(self.folder), "<folder>")
        for pattern, shown in _RANDOM:
            answer = pattern.sub(shown, answer)
        answer = _ID.sub(lambda found: f"<id {self._ids.setdefault(found[0], len(self._ids) + 1)}>", answer)
        return _TIME.sub(lambda found: f"<{self._step_at(found[0])}>", answer)

    def _step_at(self, time: str) -> str:
        """The step in which a time was, or by which something lives so many seconds."""
        for seconds in (0, *LIVES):
            at = _before(time, seconds)
            if self._starts[0] <= at <= utc_now():
                return self._steps[bisect.bisect_right(self._starts, at) - 1] + (f" + {seconds} s" if seconds else "")
        return "before" if time < self._starts[0] else "no step"


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_RANDOM = (
    (re.compile(r"plan-[0-9a-f]{12}"), "<plan>"),
    (re.compile(r"evict-[0-9a-f]{12}"), "<eviction>"),
    (re.compile(r"(ordinal\W{1,4})\d+"), r"\1<ordinal>"),
    (re.compile(r"(\bupdated,[0-9a-f]{8},[^,]*,[^,]*,)\d+"), r"\1<ordinal>"),
    (re.compile(r"(\b(key|updated),[0-9a-f]{8},)[^,]+,"), r"\1<since>,"),
)


def _before(time: str, seconds: int) -> str:
    moment = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%f%z") - timedelta(seconds=seconds)
    return str(_plain(moment))


def _text(answer: Answer) -> str:
    """All that there is in an answer."""
    return answer if isinstance(answer, str) else json.dumps(answer, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return {type(value).__name__: structs.asdict(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: asdict(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    return list(value) if isinstance(value, Iterator) else repr(value)


def difference(program: Program, folder: Path) -> str | None:
    """The first difference between the two worlds, None if a seen session cannot tell them apart."""
    worlds, folder = (program, program.without_hidden()), folder / uuid.uuid4().hex
    first, second = (
        World(folder / name, program.boundary).run(each.steps)
        for name, each in zip(("one", "two"), worlds, strict=True)
    )
    rmtree(folder)
    defects = [line for line in first + second if "DEFECT" in line]
    if defects:
        return defects[0]
    pairs = zip_longest(first, second, fillvalue="(nothing)")
    return next(
        (f"with what is hidden:    {one}\nwithout what is hidden: {two}" for one, two in pairs if one != two), None
    )


def shrunk(program: Program, folder: Path) -> Program:
    """The program with as few steps as still make a difference."""
    steps, size = program.steps, len(program.steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = (*steps[:at], *steps[at + size :])
            if difference(replace(program, steps=fewer), folder):
                steps = fewer
            else:
                at += size
        size //= 2
    return replace(program, steps=steps)


def script(program: Program) -> str:
    """The steps for a reader, with a mark at those that the others may not see."""
    return "\n".join(f"{'*' if step.actor in program.boundary.hidden else ' '} {step}" for step in program.steps)
